"""The sliding average: commits of the last seconds, each key over those that have it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rltel.export.panel.columns import Columns
from rltel.export.panel.sample import Fraction, Sample
from rltel.names.phases import PhaseLabel


class Sums(NamedTuple):
    """So many samples with the same keys, added up."""

    samples: int
    values: Mapping[str, float]
    fractions: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class View:
    """What the window holds at one moment. ``latest`` knows every key that there ever was."""

    n: int
    """Learner samples in the window; 1 if there is none, for the last one, which then stands for it."""
    age_s: float
    """How long ago the last one came."""
    newest: Sample
    sums: Sequence[Sums]
    latest: Mapping[str, float]
    latest_fractions: Mapping[str, Fraction]
    labels: Mapping[str, PhaseLabel]
    env_steps_rate: float | None
    """Environment steps a second by the commits' own counts; None without two that have them."""

    def mean(self, key: str) -> float | None:
        """A key's average over the samples that have it; if none has, the last that was reported; None if never."""
        having = [(sums.values[key], sums.samples) for sums in self.sums if key in sums.values]
        if not having:
            return self.latest.get(key)
        return sum(total for total, _ in having) / sum(count for _, count in having)

    def fraction(self, key: str, given: str | None = None) -> Fraction | None:
        """A time's or rate's two sums over the window, only of samples that have the key `given` too, if any."""
        having = [
            sums.fractions[key]
            for sums in self.sums
            if key in sums.fractions and (given is None or given in sums.fractions)
        ]
        return (sum(each for each, _ in having), sum(each for _, each in having)) if having else None

    def rate(self, key: str) -> float | None:
        """A rate, weighed by the time that each sample stands for; their plain mean where no sample says."""
        fraction = self.fraction(key)
        return fraction[0] / fraction[1] if fraction and fraction[1] else self.mean(key)


class _Entry(NamedTuple):
    time_ns: int
    columns: Columns
    is_learners: bool


class Window:
    """Samples of the last `window_s` seconds, those of exactly that age included, however many.

    Pure: the clock (nanoseconds, monotonic) is injected. Not for several threads at once.
    """

    def __init__(self, window_s: float, now: Callable[[], int]) -> None:
        self._window_ns = round(window_s * 1e9)
        self._now = now
        self._entries: deque[_Entry] = deque()
        self._columns: dict[tuple[tuple[str, ...], tuple[str, ...]], Columns] = {}
        self._n = 0
        self._newest: tuple[int, Sample] | None = None
        self._steps: deque[tuple[int, int]] = deque()
        self._latest: dict[str, float] = {}
        self._latest_fractions: dict[str, Fraction] = {}
        self._labels: dict[str, PhaseLabel] = {}

    def add(self, sample: Sample) -> None:
        """One more sample. Constant time (amortised), whatever the window's length."""
        now = self._now()
        self._drop_old(now)
        keys = tuple(sample.values), tuple(sample.fractions)
        columns = self._columns.get(keys)
        if columns is None:
            columns = self._columns[keys] = Columns(sample)
        columns.append(sample)
        self._entries.append(_Entry(now, columns, sample.is_learners))
        self._latest.update(sample.values)
        self._latest_fractions.update(sample.fractions)
        self._labels.update(sample.labels)
        if sample.is_learners or self._newest is None:
            self._newest = now, sample
        if sample.is_learners:
            self._n += 1
            if sample.env_steps is not None:
                self._steps.append((now, sample.env_steps))

    def view(self) -> View | None:
        """What is in the window now; None before the first sample."""
        if self._newest is None:
            return None
        now = self._now()
        self._drop_old(now)
        time_ns, newest = self._newest
        sums = [_sums(columns) for columns in self._columns.values()]
        if not self._n:
            sums.append(Sums(1, newest.values, newest.fractions))
        return View(
            max(self._n, 1),
            (now - time_ns) / 1e9,
            newest,
            sums,
            dict(self._latest),
            dict(self._latest_fractions),
            dict(self._labels),
            self._steps_rate(),
        )

    def _drop_old(self, now: int) -> None:
        oldest = now - self._window_ns
        while self._entries and self._entries[0].time_ns < oldest:
            entry = self._entries.popleft()
            self._n -= entry.is_learners
            entry.columns.drop_first()
            if not len(entry.columns):
                del self._columns[entry.columns.values, entry.columns.fractions]
        while len(self._steps) > 2 and self._steps[1][0] <= oldest:  # one from before it stays, to count from
            self._steps.popleft()

    def _steps_rate(self) -> float | None:
        if len(self._steps) < 2:
            return None
        (began, first), (ended, last) = self._steps[0], self._steps[-1]
        return (last - first) / (ended - began) * 1e9 if ended > began and last >= first else None


def _sums(columns: Columns) -> Sums:
    sums = columns.sums()
    pairs: Iterable[float] = iter(sums[len(columns.values) :])
    return Sums(
        len(columns),
        dict(zip(columns.values, sums, strict=False)),
        dict(zip(columns.fractions, zip(pairs, pairs, strict=True), strict=True)),
    )
