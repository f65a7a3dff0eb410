"""What both GRPO examples print at their end: where rollouts spent their time, how old they were, how good they got."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rltel
from rltel.rl import sessions

SHOWN = {
    "reward": "groups/reward/avg",
    "pass@1": "groups/pass@1",
    "pass@8": "groups/pass@8",
    "no variance": "groups/zero_variance_fraction",
    "|d| train-infer": "ppo_actor/train_infer/logp_abs_diff/avg",
}
"""Keys of the record, of which the first and the last steps are compared."""


def report(run_dir: Path, samples: Sequence[dict[str, Any]] = ()) -> None:
    """From what is in the run directory, after the run."""
    lines = [line.values for line in rltel.read_jsonl(run_dir) if SHOWN["reward"] in line.values]
    for name, key in SHOWN.items():
        numbers = [values[key] for values in lines]
        print(f"{name:<16}{np.mean(numbers[:5]):.3f} at first, {np.mean(numbers[-5:]):.3f} at last")
    of_sessions(run_dir)
    for row in samples:
        print(f"{row['picked']:<16}{row['prompt']}{row['completion']}  (reward {row['reward']:.1f})")


def of_sessions(run_dir: Path) -> None:
    """The rollouts' own lines."""
    every = list(sessions.read(run_dir))
    ends = Counter(session["status"] for session in every)
    ages = Counter(by["staleness"] for session in every for by in session["consumed"])
    times: dict[str, list[float]] = defaultdict(list)
    for session in every:
        for name, phase in session["phases"].items():
            times[name].append(phase["wall_s"])
    shown = ", ".join(f"{count} {status}" for status, count in ends.items())
    print(f"sessions        {shown}; {sum(not session['consumed'] for session in every)} that no update consumed")
    print(f"staleness       {', '.join(f'{age}: {count}' for age, count in sorted(ages.items()))}")
    print(f"phases          {', '.join(f'{name} {1e3 * np.mean(each):.2f} ms' for name, each in times.items())}")
