"""TensorBoard: all of a step's scalars in one event (a record costs more than a value), and its histograms."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.media import Media
from rltel.export.points import Point
from rltel.export.tensorboard.axes import Axes
from rltel.export.tensorboard.event_file import protos
from rltel.export.tensorboard.folder import Folder, claim_folder
from rltel.export.tensorboard.media import values_of
from rltel.export.tensorboard.moe_heatmap import split_off
from rltel.export.tensorboard.notes import notes_of
from rltel.export.tensorboard.order import Runs, Values
from rltel.export.tensorboard.restarts import Restarts
from rltel.export.tracking.bins import bins_of
from rltel.record.buckets import middle
from rltel.record.kinds import Moments, State

_log = logging.getLogger("rltel")

Notes = Callable[[], Sequence[Any]]


class TensorBoardSink:
    """Writes one event a commit. Tags are the keys, verbatim.

    A later incarnation of a writer says of each axis at its first step that it begins again there, so that TensorBoard
    drops what the earlier one had from that step on. With ``restarts``, the first that comes does so too.
    """

    name = "tensorboard"
    takes_points = False

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
        self._step_axis = step_axis
        self._notes = notes
        self._is_noted = False
        self._restarts = Restarts(first=restarts)
        self._protos = protos()
        self._axes = self._place.axes()
        self._had = Axes()  # of what is noted
        self._runs = Runs(self._place.path, writer)

    @property
    def out_of_order(self) -> int:
        """Values whose step was before an earlier one's of the same tag."""
        return self._runs.out_of_order

    def describe(self) -> str:
        """The command that shows it."""
        return f"tensorboard --logdir {self._place.path}"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """One event with everything of the commit, at the commit's own time."""
        step = commit.position(self._step_axis)
        self._begin(commit, step, commit.identity)
        self._runs.write(commit.time_ns, step, self._values(commit))

    def write_media(self, media: Media) -> None:
        """A text, table, image or GIF. Raises `MediaLostError` for what it cannot hold or cannot read."""
        step = media.position(self._step_axis)
        self._begin(media, step)
        values = {media.key: values_of(media, self._protos)[0]}
        self._runs.write(media.time_ns, step, values)

    def note(self, commit: Commit) -> None:
        """Something that the folder has already, by an earlier writer: nothing before it may follow it."""
        step, axis = commit.position(self._step_axis), commit.axis
        first = self._restarts.begins_at(axis, step, commit.identity)
        if first is not None:
            if not self._had.in_the_way(axis, first):
                self._runs.void(first)
                self._had.voided(axis, first)
            self._restarts.has_begun(axis)
        self._had.reached(axis, step)
        self._runs.note(step, self._values(commit))

    def flush(self) -> None:
        """Nothing waits: every event is with the kernel."""

    def close(self) -> None:
        """Close the files."""
        self._runs.close()
        self._axes.close()
        self._place.release()

    def _begin(self, of: Commit | Media, step: int, who: Identity | None = None) -> None:
        """Before the first event of a writer on an axis.

        What a full disk refuses comes with the next event; readers then drop from the writer's first step on all the
        same.
        """
        first = self._restarts.begins_at(of.axis, step, who)
        if first is not None:
            self._start(of, first)
            self._restarts.has_begun(of.axis)
        self._axes.reached(of.axis, step)
        if not self._is_noted:
            notes = self._notes()
            if notes:
                self._runs.file.write(time.time_ns(), step, notes)
            self._is_noted = True

    def _start(self, of: Commit | Media, step: int) -> None:
        others = self._axes.in_the_way(of.axis, step)
        if not others:
            self._runs.start(of.time_ns, step)
            self._runs.void(step)
            self._axes.voided(of.axis, step)
        elif self._axes.goes_back(of.axis, step):  # what would be dropped of the others was never written again
            _log.warning(
                "tensorboard: goes on at step %d of axis %s; earlier points from there on stay, since the folder has "
                "later steps of other axes too (%s)",
                *(step, of.axis, ", ".join(others)),
            )

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
