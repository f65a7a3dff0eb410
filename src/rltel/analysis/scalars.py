"""What is a scalar in an event, and a tag's points over the files of one run."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rltel.analysis.event_records import EventRecords, events_of

_PLUGIN = "scalars"


class Numbers:
    """Tells scalars from other values: plain ones, and tensors that the scalars plugin wrote (TensorFlow 2)."""

    def __init__(self) -> None:
        self._tensors: set[str] = set()

    def of(self, value: Any) -> float | None:
        """The number of a ``Summary.Value``; None if it is another thing."""
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            return float(value.simple_value)
        if kind != "tensor":
            return None
        if value.metadata.plugin_data.plugin_name == _PLUGIN:  # said once a tag
            self._tensors.add(value.tag)
        return _number_in(value.tensor) if value.tag in self._tensors else None


def _number_in(tensor: Any) -> float | None:
    from tensorboard.util import tensor_util  # an extra: only where it is used

    made = tensor_util.make_ndarray(tensor)
    return float(made) if made.ndim == 0 else None


class Series:
    """A tag's points, without those that a restart wrote anew."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")
        self._part = 0

    def add(self, step: int, value: float, part: int = 0) -> None:
        """One point. The first of a later ``part`` (a file) is where that one goes on."""
        if part != self._part:
            self._part = part
            self.cut(step)
        self.steps.append(step)
        self.values.append(value)

    def cut(self, step: int) -> None:
        """Drop what is there from this step on."""
        if self.steps and max(self.steps) >= step:
            kept = [(at, value) for at, value in zip(self.steps, self.values, strict=True) if at < step]
            self.steps, self.values = array("q", (at for at, _ in kept)), array("d", (value for _, value in kept))

    def merge(self, others: "Series") -> None:
        """Put points in their places by step."""
        both = [*zip(self.steps, self.values, strict=True), *zip(others.steps, others.values, strict=True)]
        both.sort(key=lambda point: point[0])
        self.steps, self.values = array("q", (at for at, _ in both)), array("d", (value for _, value in both))


@dataclass(slots=True)
class Scalars:
    """``tags``: all that have scalars. ``series``: those that were asked for. ``damage``: of files, in words."""

    tags: set[str] = field(default_factory=set)
    series: dict[str, Series] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


Wanted = Callable[[str], bool]


def read_events(files: Sequence[Path], late: Sequence[Path], wanted: Wanted) -> Scalars:
    """The scalars of one run's event files, in the order of the files. ``late``: files whose steps lie between."""
    made = Scalars()
    for part, path in enumerate(files):
        _read_file(path, part, wanted, made)
    for path in late:
        _merge(made, path, wanted)
    return made


def _merge(made: Scalars, path: Path, wanted: Wanted) -> None:
    other = Scalars(damage=made.damage)
    _read_file(path, 0, wanted, other)
    made.tags |= other.tags
    for tag, series in other.series.items():
        made.series.setdefault(tag, Series()).merge(series)


def _read_file(path: Path, part: int, wanted: Wanted, made: Scalars) -> None:
    records, numbers = EventRecords(path), Numbers()
    chosen: dict[str, bool] = {}
    for _, event in events_of(records):
        if _begins_again(event):
            for series in made.series.values():
                series.cut(event.step)
        for value in event.summary.value:
            tag, number = value.tag, numbers.of(value)
            if number is None:
                continue
            if tag not in chosen:
                chosen[tag] = wanted(tag)
            if chosen[tag]:
                made.series.setdefault(tag, Series()).add(event.step, number, part)
    made.tags.update(chosen)
    if records.damage is not None:
        made.damage.append(records.damage)


def _begins_again(event: Any) -> bool:
    return bool(event.HasField("session_log") and event.session_log.status == event.session_log.START)


def read_points(points: Iterable[tuple[int, int, Mapping[str, float]]], wanted: Wanted) -> Scalars:
    """The same from parts (numbers that differ where a restart is), steps and values."""
    made = Scalars()
    for part, step, values in points:
        made.tags.update(values)
        for tag in filter(wanted, values):
            made.series.setdefault(tag, Series()).add(step, values[tag], part)
    return made
