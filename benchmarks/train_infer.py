"""What rltel.rl's measures of tokens cost on [64, 4096], side by side with AReaL's stats tracker from PyPI.

    bash tests/tools/get_areal.sh .tools .venv/bin/python
    python benchmarks/train_infer.py

The released AReaL has no train_infer; what is rebuilt here, on its real tracker, is the revision before stat_compact
(57 bytes a token, float32), from the formulas in its documentation. Both take turns; medians decide. Times are those of
the caller's thread on the CPU, so that other programs do not count, and each side's export follows apart.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from realparts.areal import TRACKER, real_modules
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.rl import advantages, staleness, train_infer

ROUNDS = 15
SHAPE = (64, 4096)
Call = Callable[[], object]


def cpu_ms(call: Call) -> float:
    """Milliseconds of this thread."""
    begin = time.thread_time()
    call()
    return (time.thread_time() - begin) * 1e3


def areal_train_infer(tracker: Any, trainer: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> None:
    """The page's keys, except for the overflow fraction, which that revision did not have."""
    average = tracker.ReduceType.AVG
    gap = torch.where(mask, trainer.float() - rollout.float(), 0.0)
    magnitude, squared = gap.abs(), gap.square()
    broken = ~(torch.isfinite(trainer) & torch.isfinite(rollout))
    with tracker.scope("ppo_actor/train_infer"):
        tracker.denominator(n_valid_tokens=mask)
        tracker.stat("n_valid_tokens", logp_diff=gap, logp_abs_diff=magnitude)
        means = {
            "trainer_nll": -trainer,
            "rollout_nll": -rollout,
            "kl_k1": -gap,
            "kl_k2": squared / 2,
            "kl_k3": torch.expm1(gap) - gap,
            "logp_diff_squared": squared,
            "nonfinite_logp_fraction": broken.float(),
        }
        for threshold in train_infer.THRESHOLDS:
            beyond = (magnitude > math.log(threshold)).float()
            means[f"ratio_outside_{threshold}"] = torch.where(broken, math.nan, beyond)
        tracker.stat("n_valid_tokens", average, **means)


def turns(*calls: tuple[Call, Call]) -> list[tuple[float, float]]:
    """Medians of each recording and its export, in turns."""
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for index, (record, export) in enumerate(calls):
            times[index].append((cpu_ms(record), cpu_ms(export)))
    return [(statistics.median(r for r, _ in each), statistics.median(e for _, e in each)) for each in times]


def main(areal: Any) -> None:
    """One line for each."""
    generator = torch.Generator().manual_seed(0)
    rollout = -3 * torch.rand(SHAPE, generator=generator)
    trainer = rollout + 0.05 * torch.randn(SHAPE, generator=generator)
    mask = torch.rand(SHAPE, generator=generator) > 0.3
    versions = torch.randint(0, 6, SHAPE, generator=generator)
    trackers = Trackers(Recorder())
    tracker = trackers.default

    def ours(**options: bool) -> None:
        with tracker.scope("ppo_actor"):
            train_infer.record(trainer, rollout, mask, tracker=tracker, **options)

    others: dict[str, Call] = {
        "train_infer with the distribution of |d|": ours,
        "advantages": lambda: advantages.record(trainer, mask, tracker=tracker),
        "staleness": lambda: staleness.record(versions, mask, 5, tracker=tracker, distribution=False),
        "staleness with its distribution": lambda: staleness.record(versions, mask, 5, tracker=tracker),
    }
    theirs = (lambda: areal_train_infer(areal, trainer, rollout, mask), areal.export_all)
    calls = [lambda: ours(distribution=False), *others.values()]
    found = turns(theirs, *[(call, trackers.export_all) for call in calls])
    (record, export), (mine, mine_export), *rest = found
    print(f"{'':52} {'record':>9} {'export':>9}   (ms of CPU, {SHAPE})")
    print(f"{'AReaL before stat_compact, 19 keys':52} {record:9.2f} {export:9.2f}")
    name = "train_infer, the same keys and 3 more"
    print(f"{name:52} {mine:9.2f} {mine_export:9.2f}   {mine / record:.2f}x   goal 1.0x")
    for name, (recording, exporting) in zip(others, rest, strict=True):
        print(f"{name:52} {recording:9.2f} {exporting:9.2f}   {recording / record:.2f}x")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with real_modules(TRACKER) as (areal_tracker,):
        main(areal_tracker)
