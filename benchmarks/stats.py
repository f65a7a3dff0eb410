"""What stats cost, side by side in one run with AReaL's stats tracker from PyPI. Ratios decide.

    bash tests/tools/get_areal.sh .tools .venv/bin/python
    python benchmarks/stats.py

Each figure is the median over rounds in which both take turns, so that a machine that slows down slows both.
"""

import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from realparts.areal import TRACKER, real_modules
from realparts.ranks import ranks
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers

ROUNDS = 15
SHAPE = (64, 4096)


def timed(call: Callable[[], object], number: int = 1) -> float:
    """Seconds a call."""
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begin) / number


def report(what: str, ours: list[float], theirs: list[float], goal: str) -> None:
    """One line: medians, their ratio, and what it is to be."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"{what:52} {mine * 1e6:11.2f} us  {other * 1e6:11.2f} us  {mine / other:8.4f}x   goal {goal}")


def paired(what: str, ours: Callable[[], object], theirs: Callable[[], object], number: int, goal: str) -> None:
    """Both in turns."""
    mine, other = [], []
    for _ in range(ROUNDS):
        mine.append(timed(ours, number))
        other.append(timed(theirs, number))
    report(what, mine, other, goal)


def calls(areal: Any) -> None:
    """One call on the training thread."""
    recorder = Recorder()
    trackers = Trackers(recorder)
    tracker = trackers.default

    def timing(module: Any) -> Callable[[], None]:
        def run() -> None:
            with module.record_timing("x"):
                pass

        return run

    def scope(module: Any) -> Callable[[], None]:
        def run() -> None:
            with module.scope("x"):
                pass

        return run

    paired("scalar, one value", lambda: tracker.scalar(x=1.0), lambda: areal.scalar(x=1.0), 20_000, "0.95x")
    paired("record_timing, timeline off", timing(tracker), timing(areal), 10_000, "0.5x")
    paired("scope, timeline off", scope(tracker), scope(areal), 10_000, "1.0x")
    recorder.start()
    number = 10_000

    def taken(run: Callable[[], None]) -> Callable[[], None]:
        def taking() -> None:
            for _ in range(number):
                run()
            for lane in recorder.lanes():  # as the pipeline does every second
                lane.take()

        return taking

    mine, other = [], []
    for _ in range(ROUNDS):
        mine.append(timed(taken(timing(tracker))) / number)
        other.append(timed(timing(areal), number))
    report("record_timing, timeline on", mine, other, "0.8x")
    areal.export_all()


def tensors(areal: Any) -> None:
    """One masked tensor of [64, 4096] float32: recording it, and its share of a local export."""
    trackers = Trackers(Recorder())
    tracker = trackers.default
    values, mask = torch.randn(SHAPE), torch.rand(SHAPE) > 0.3
    array, bools = values.numpy(), mask.numpy()
    mine, other, caller, by_hand, ten = [], [], [], [], []
    for _ in range(ROUNDS):
        tracker.denominator(m=mask)
        caller.append(timed(lambda: tracker.stat(x=values, denominator="m")))
        mine.append(caller[-1] + timed(trackers.export_all))
        areal.denominator(m=mask)
        other.append(timed(lambda: areal.stat("m", x=values)) + timed(areal.export_all))
        by_hand.append(timed(lambda: _by_hand(array, bools)))
        tracker.denominator(m=mask)
        ten.append(timed(lambda: tracker.stat({f"t{i}": values for i in range(10)}, denominator="m")))
        trackers.export_all()
    report("stat [64, 4096] masked, and its export", mine, other, "0.4x")
    report("  on the caller, against numpy by hand", caller, by_hand, "1.5x")
    report("ten tensors under one mask, against one", ten, caller, "8x")


def _by_hand(array: Any, bools: Any) -> tuple[float, float, float]:
    valid = array[bools]
    return float(valid.sum(dtype=np.float64)), float(valid.min()), float(valid.max())


def exports(areal: Any) -> None:
    """A local export of 200 scalars."""
    trackers = Trackers(Recorder())
    values = {f"k{i}": float(i) for i in range(200)}
    mine, other = [], []
    for _ in range(3 * ROUNDS):
        trackers.default.scalar(**values)
        mine.append(timed(trackers.export_all))
        areal.scalar(**values)
        other.append(timed(areal.export_all))
    report("local export, 200 scalars", mine, other, "0.3x")


def memory() -> None:
    """What stays in memory of 10 stats in 8 batches of [64, 4096] (AReaL: 86 MB, by its copies of every tensor)."""
    tracker = Trackers(Recorder()).default
    rng = np.random.default_rng(0)
    values, mask = rng.standard_normal(SHAPE, np.float32), rng.random(SHAPE) > 0.3

    def batch() -> None:
        tracker.denominator(m=mask)
        tracker.stat({f"k{i}": values for i in range(10)}, denominator="m")

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(8):
        batch()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    print(
        f"{'retained, 10 stats x 8 batches':52} {kept} bytes, of which the live mask {mask.nbytes}   goal mask + 10 kB"
    )


def reduction(keys: int, rounds: int) -> tuple[list[float], list[float]]:
    """Export of AVG_MIN_MAX keys over two gloo ranks."""
    with ranks(2, Path(tempfile.mkdtemp())) as group:
        ((mine, other), _) = group.run(_reduce_in_rank, keys, rounds, timeout=300)
    return mine, other


def _reduce_in_rank(rank: int, keys: int, rounds: int) -> tuple[list[float], list[float]]:
    import torch.distributed as dist

    trackers = Trackers(Recorder())
    values = {f"k{i}": torch.tensor([1.0, 2.0]) for i in range(keys)}
    mask = torch.ones(2, dtype=torch.bool)
    mine, other = [], []
    with real_modules(TRACKER) as (areal,):
        for _ in range(rounds):
            trackers.default.stat(values, mask=mask)
            dist.barrier()
            mine.append(timed(lambda: trackers.export_all(reduce_group=dist.group.WORLD)))
            if keys <= 200:
                areal.denominator(m=mask)
                areal.stat("m", **values)
                dist.barrier()
                other.append(timed(lambda: areal.export_all(reduce_group=dist.group.WORLD)))
    return mine[1:], other[1:]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{'':52} {'rltel':>14}  {'AReaL':>14}  {'ratio':>9}")
    with real_modules(TRACKER) as (areal_tracker,):
        calls(areal_tracker)
        tensors(areal_tracker)
        exports(areal_tracker)
    memory()
    few, theirs = reduction(200, 12)
    report("export of 200 AVG_MIN_MAX keys, 2 ranks", few, theirs, "0.01x")
    many, _ = reduction(5000, 8)
    report("export of 5,000 keys, against 200", many, few, "10x")
