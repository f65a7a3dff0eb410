"""What one commit adds to the panel's window: its numbers, and its times and rates as fractions."""

from collections.abc import Mapping
from dataclasses import dataclass

from rltel.export.commit import Commit
from rltel.export.panel.families import SCALES
from rltel.export.panel.labels import STEPS_RATE
from rltel.export.panel.plain_times import is_plain_time
from rltel.names.phases import LOOP, PhaseLabel
from rltel.reduce.snapshot import Snapshot

TRAIN_AXIS = "train"
_LEARNER = "learner"
_LOOP_KEYS = ("Perf/iteration_time", "timeperf/iteration")
_RATES = frozenset({STEPS_RATE})
_TOKEN_RATES = ("tokens_per_second", "estimated_flops_per_second", "mfu")
_TRAIN_PERF = "train_perf/"

Fraction = tuple[float, float]
"""What is divided, and by what. Fractions are added up part by part, so that their mean weighs each rightly."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One commit, reduced over ranks already."""

    axis: str
    step: int
    env_steps: int | None
    world_size: int
    values: Mapping[str, float]
    """By flat key. Of a metric with several numbers (average, extremes, quantiles) the average alone."""
    fractions: Mapping[str, Fraction]
    """Of a time: the seconds, and in how many iterations or calls. Of a rate: the amount, and in how many seconds."""
    labels: Mapping[str, PhaseLabel]
    """Which phase of whose loop a key times, where that was recorded with it."""

    @property
    def is_learners(self) -> bool:
        """Whether it counts in the ``n`` of the average."""
        return self.axis == TRAIN_AXIS


def sample_of(commit: Commit) -> Sample:
    """A commit as a sample."""
    return sample(
        commit.snapshot,
        axis=commit.axis,
        step=commit.step,
        env_steps=commit.env_steps,
        world_size=commit.identity.world_size,
    )


def sample(snapshot: Snapshot, *, axis: str, step: int, env_steps: int | None, world_size: int) -> Sample:
    """What was committed as a sample, of a commit or of a line that was read back."""
    values: dict[str, float] = {}
    fractions: dict[str, Fraction] = {}
    labels: dict[str, PhaseLabel] = {}
    for key, metric in snapshot.items():
        state = metric.state
        numbers = state.values()
        if not numbers:
            continue
        shown = numbers[0]  # of all kinds with several numbers, the average comes first
        values[key + shown.suffix] = shown.value
        kind = state.kind
        if kind.clocked:
            fractions[key] = state.moments[0], state.moments[1]
            if kind.phase is not None:
                labels[key] = kind.phase
        elif key in SCALES or is_plain_time(key):  # a trainer that measured it itself and logs the number
            fractions[key] = shown.value * SCALES.get(key, 1.0), 1.0
    _weigh_rates(values, fractions, labels)
    _weigh_token_rates(values, fractions)
    return Sample(axis, step, env_steps, world_size, values, fractions, labels)


def _weigh_rates(values: Mapping[str, float], fractions: dict[str, Fraction], labels: Mapping[str, PhaseLabel]) -> None:
    """A rate counts for as long as its iteration took: a mean of rates would favour the short iterations."""
    rates = _RATES & values.keys()
    seconds = _loop_seconds(fractions, labels) if rates else None
    if seconds:
        for key in rates:
            fractions[key] = values[key] * seconds, seconds


def _weigh_token_rates(values: Mapping[str, float], fractions: dict[str, Fraction]) -> None:
    """Those of an engine count for as long as its training took, so that tokens are over seconds in the window, too."""
    engines = [key.removesuffix("seconds") for key in values if key.endswith(f"{_TRAIN_PERF}seconds")]
    for key in (f"{engine}{rate}" for engine in engines for rate in _TOKEN_RATES):
        seconds = values[f"{key.rpartition('/')[0]}/seconds"]
        if key in values and seconds > 0:
            fractions[key] = values[key] * seconds, seconds


def _loop_seconds(fractions: Mapping[str, Fraction], labels: Mapping[str, PhaseLabel]) -> float | None:
    own = (key for key, label in labels.items() if label.kind == LOOP and label.role == _LEARNER)
    found = next((key for key in (*own, *_LOOP_KEYS) if key in fractions), None)
    return None if found is None else fractions[found][0]
