"""Scopes and masks belong to whoever set them: many tasks, many threads, hooks of autograd."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

import rltel
from rltel.record.recorder import Recorder
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import Trackers


def workflow_values(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of one workflow, and which of them are valid: its own number, where its mask is true."""
    mask = np.arange(8) % (2 + number % 3) == 0
    return np.where(mask, float(number), np.nan), mask


def check(stats: Stats, number: int, times: int) -> None:
    """Nobody else's values, and nobody else's mask: those would bring in NaN, or another number."""
    _, mask = workflow_values(number)
    assert stats[f"w{number}/inner/x/avg"] == number
    assert stats[f"w{number}/inner/x/min"] == stats[f"w{number}/inner/x/max"] == number
    assert stats[f"w{number}/inner/valid"] == mask.sum() * times
    assert stats[f"w{number}/reward"] == number
    assert stats[f"w{number}/reward__count"] == times


def test_a_thousand_interleaved_workflows_each_get_their_own_keys_and_masks() -> None:
    trackers = Trackers(Recorder())
    tracker = trackers.default

    async def workflow(number: int) -> None:
        values, mask = workflow_values(number)
        with tracker.scope(f"w{number}"):
            await asyncio.sleep(random.random() / 1000)
            with tracker.scope("inner"):
                tracker.denominator(valid=mask)
                await asyncio.sleep(random.random() / 1000)
                tracker.stat(x=values, denominator="valid")
            await asyncio.sleep(0)
            tracker.scalar(reward=float(number))

    async def all_of_them() -> None:
        await asyncio.gather(*(workflow(number) for number in range(1000)))

    asyncio.run(all_of_them())
    stats = trackers.export_all()
    for number in range(1000):
        check(stats, number, times=1)
    assert len(stats) == 1000 * 6


def test_sixteen_threads_with_interleaved_scopes_and_masks() -> None:
    trackers = Trackers(Recorder())
    tracker = trackers.default
    start = threading.Barrier(16)

    def thread(number: int) -> None:
        values, mask = workflow_values(number)
        start.wait()
        for _ in range(50):
            with tracker.scope(f"w{number}"):
                with tracker.scope("inner"):
                    tracker.denominator(valid=mask)
                    tracker.stat(x=values, denominator="valid")
                tracker.scalar(reward=float(number))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(thread, range(16)))
    stats = trackers.export_all()
    for number in range(16):
        check(stats, number, times=50)
    assert len(stats) == 16 * 6


def test_a_backward_hook_records_under_the_scope_and_mask_of_its_forward() -> None:
    trackers = Trackers(Recorder())
    tracker = trackers.default
    mask = torch.tensor([True, False, True])
    weights = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with tracker.scope("loss"):
        tracker.denominator(valid=mask)
        hook = rltel.carry(lambda gradient: tracker.stat(gradient=gradient, denominator="valid"))
        weights.register_hook(hook)
        loss = (weights * torch.tensor([1.0, 100.0, 5.0])).sum()
    backward = threading.Thread(target=loss.backward)  # as autograd's device threads, it sees no ContextVar of ours
    backward.start()
    backward.join()
    stats = trackers.export_all()
    assert (stats["loss/gradient/avg"], stats["loss/gradient/max"]) == (3.0, 5.0)
