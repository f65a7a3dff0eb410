"""TensorBoard event files: all scalars of a step in one event (a record costs more than a value)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.points import Point


class TensorBoardSink:
    """Writes one event a commit. Tags are the keys, verbatim."""

    name = "tensorboard"

    def __init__(self, folder: Path, step_axis: str) -> None:
        self._folder = folder
        self._step_axis = step_axis
        self._event, self._summary, writer = _tensorboard()
        self._writer = writer(str(folder))

    def describe(self) -> str:
        """The command that shows it."""
        return f"tensorboard --logdir {self._folder}"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """One event with every scalar of the commit, at the commit's own time."""
        value = self._summary.Value
        scalars = [value(tag=tag, simple_value=number) for tag, number in commit.values.items()]
        self._writer.add_event(
            self._event(
                wall_time=commit.time_ns / 1e9,
                step=commit.position(self._step_axis),
                summary=self._summary(value=scalars),
            )
        )

    def flush(self) -> None:
        """To the file."""
        self._writer.flush()

    def close(self) -> None:
        """To the file, and close it."""
        self._writer.close()


def _tensorboard() -> tuple[Any, Any, Any]:
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # heavy, and an extra: only where it is used
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as missing:
        raise ConfigError('tensorboard.path: needs the extra: pip install "rltel[tensorboard]"') from missing
    return Event, Summary, EventFileWriter
