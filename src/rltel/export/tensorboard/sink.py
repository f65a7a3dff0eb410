"""TensorBoard: all of a step's scalars in one event (a record costs more than a value), and its histograms.

TensorBoard takes a step that goes back for a restart, and hides what it had of that tag from there on. So a value that
comes late goes where nothing later is: into a run of its own beside the others, ``out_of_order``.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.media import Media
from rltel.export.points import Point
from rltel.export.tensorboard.event_file import EventFile, protos
from rltel.export.tensorboard.folder import Folder, claim_folder
from rltel.export.tensorboard.media import values_of
from rltel.export.tensorboard.moe_heatmap import split_off
from rltel.export.tensorboard.notes import notes_of
from rltel.export.tracking.bins import bins_of
from rltel.record.buckets import middle
from rltel.record.kinds import Moments, State

_log = logging.getLogger("rltel")
_LATE = "out_of_order"
_MOST_RUNS = 8

Values = Mapping[str, Any]
Notes = Callable[[], Sequence[Any]]


class TensorBoardSink:
    """Writes one event a commit. Tags are the keys, verbatim.

    With ``restarts``, a later writer of the same folder says at its first step that it begins again there, so that
    TensorBoard drops what the earlier one had from that step on.
    """

    name = "tensorboard"

    def __init__(
        self,
        folder: Path | Folder,
        step_axis: str,
        *,
        writer: str = "",
        restarts: bool = True,
        notes: Notes = tuple,
    ) -> None:
        self._place = folder if isinstance(folder, Folder) else Folder(folder)
        self._folder = self._place.path
        self._step_axis = step_axis
        self._writer = writer
        self._notes = notes
        self._begun = not restarts
        self._first: int | None = None  # the step at which this writer begins
        self._protos = protos()
        self._axes = self._place.axes
        self._runs = [_Run(self._folder, writer)]
        self._runs[0].open()
        self.out_of_order = 0
        """Values whose step was before an earlier one's of the same tag."""

    def describe(self) -> str:
        """The command that shows it."""
        return f"tensorboard --logdir {self._folder}"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """One event with everything of the commit, at the commit's own time."""
        step = commit.position(self._step_axis)
        self._begin(commit, step)
        self._place_values(commit.time_ns, step, self._values(commit))

    def write_media(self, media: Media) -> None:
        """A text, table, image or GIF. Raises `MediaLostError` for what it cannot hold or cannot read."""
        step = media.position(self._step_axis)
        self._begin(media, step)
        values = {media.key: values_of(media, self._protos)[0]}
        self._place_values(media.time_ns, step, values)

    def note(self, commit: Commit) -> None:
        """Something that the folder has already, by an earlier writer: nothing before it may follow it."""
        step = commit.position(self._step_axis)
        for run in self._runs:
            if not run.has_later(step, commit.values):
                run.note(step, self._values(commit))
                return

    def flush(self) -> None:
        """Nothing waits: every event is with the kernel."""

    def close(self) -> None:
        """Close the files."""
        for run in self._runs:
            run.close()
        self._place.release()
        if self.out_of_order:
            _log.warning("tensorboard: %d values in all came out of order", self.out_of_order)

    def _begin(self, of: Commit | Media, step: int) -> None:
        """Before the first event of this writer, and the first of an axis.

        What a full disk refuses comes with the next event; readers then drop from this writer's first step on all the
        same.
        """
        if not self._begun:
            self._first = step if self._first is None else self._first
            self._start(of, self._first)
            self._begun = True
        if of.axis not in self._axes:
            self._place.add_axis(of.axis)
            self._axes.add(of.axis)

    def _start(self, of: Commit | Media, step: int) -> None:
        others = self._axes - {of.axis}
        file = self._runs[0].open()
        if not others:
            file.start(of.time_ns, step)
        else:  # steps of another axis are other numbers: what would be dropped of it was never written again
            _log.warning(
                "tensorboard: goes on at step %d of axis %s; earlier points from there on stay, since the folder has "
                "other axes too (%s)",
                *(step, of.axis, ", ".join(sorted(others))),
            )
        notes = self._notes()
        if notes:
            file.write(time.time_ns(), step, notes)

    def _values(self, commit: Commit) -> Values:
        value = self._protos.Summary.Value
        numbers, images = split_off(commit.values, self._protos)
        made = {tag: value(tag=tag, simple_value=number) for tag, number in numbers.items()} | images
        for key, metric in commit.snapshot.items():
            if metric.state.kind.bucketed and key not in made:
                histogram = self._histogram(metric.state)
                if histogram is not None:
                    made[key] = value(tag=key, histo=histogram)
        return made

    def _histogram(self, state: State) -> Any:
        bins = bins_of(state)
        return None if bins is None else histogram_proto(self._protos, *bins, Moments(*state.moments), state.buckets)

    def _place_values(self, time_ns: int, step: int, values: Values) -> None:
        if step < self._runs[0].newest:
            self._sort_out(time_ns, step, values)
        else:
            self._runs[0].write(time_ns, step, values)

    def _sort_out(self, time_ns: int, step: int, values: Values) -> None:
        """Each value where nothing of its tag is later."""
        left = values
        for number in range(_MOST_RUNS):
            if number == len(self._runs):
                self._runs.append(_Run(self._folder / (f"{_LATE}-{number}" if number > 1 else _LATE), self._writer))
            run = self._runs[number]
            is_last = number == _MOST_RUNS - 1
            late = {} if is_last else {tag: made for tag, made in left.items() if run.is_later(step, tag)}
            run.write(time_ns, step, {tag: made for tag, made in left.items() if tag not in late})
            if number == 0 and late:
                self._count(len(late), step)
            if not late:
                return
            left = late

    def _count(self, late: int, step: int) -> None:
        if not self.out_of_order:
            _log.warning(
                "tensorboard: values of step %d come after later steps: shown as the run %s (said once)", step, _LATE
            )
        self.out_of_order += late


class _Run:
    """What TensorBoard shows as one run: a folder, and the last step of each tag in it."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder = folder
        self._writer = writer
        self._file: EventFile | None = None
        self._steps: dict[str, int] = {}
        self.newest = -1

    def open(self) -> EventFile:
        if self._file is None:
            self._file = EventFile(self._folder, self._writer)
        return self._file

    def is_later(self, step: int, tag: str) -> bool:
        return self._steps.get(tag, -1) > step

    def has_later(self, step: int, tags: Iterable[str]) -> bool:
        return step < self.newest and any(self.is_later(step, tag) for tag in tags)

    def note(self, step: int, values: Values) -> None:
        self._steps.update(dict.fromkeys(values, step))
        self.newest = max(self.newest, step)

    def write(self, time_ns: int, step: int, values: Values) -> None:
        if values:
            self.open().write(time_ns, step, values.values())
            self.note(step, values)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def histogram_proto(
    made: Any, counts: Sequence[float], edges: Sequence[float], moments: Moments, buckets: Mapping[int, float]
) -> Any:
    """Bins as TensorBoard's message. Its sum of squares is as exact as the buckets."""
    squares = sum(count * middle(index) ** 2 for index, count in buckets.items())
    return made.Histogram(
        min=edges[0],
        max=edges[-1],
        num=sum(counts),
        sum=moments.total,
        sum_squares=squares,
        bucket_limit=edges[1:],
        bucket=counts,
    )


def open_tensorboard(config: TelemetryConfig, identity: Identity, folder: Path) -> TensorBoardSink:
    """The sink of a run's writer at ``folder``, which is its own: see `tensorboard_folder`.

    Raises `ConfigError` if TensorBoard is not installed or the folder cannot be written.
    """
    protos()  # before anything is made
    place = claim_folder(folder, identity.run_id)
    started_s = time.time()
    try:
        return TensorBoardSink(
            place,
            config.run.step_axis,
            writer=identity.name,
            notes=lambda: notes_of(config, identity, started_s),
        )
    except OSError as error:
        place.release()
        raise ConfigError(f"tensorboard.path: cannot write {error.filename}: {error.strerror}") from error
