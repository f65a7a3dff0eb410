"""Where a value goes: TensorBoard takes a step that goes back for a restart, and hides what it had of that tag.

So a value that comes late goes where nothing later is: into a run of its own beside the others, ``out_of_order``.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rltel.export.tensorboard.event_file import EventFile

_log = logging.getLogger("rltel")
_LATE = "out_of_order"
_MOST_RUNS = 8

Values = Mapping[str, Any]


class Runs:
    """What TensorBoard shows for one folder: the run itself, and those with what came late.

    The run's own file is made at once (OSError), the others when they are needed.
    """

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder = folder
        self._writer = writer
        self._runs = [_Run(folder, writer)]
        self._runs[0].open()
        self.out_of_order = 0
        """Values whose step was before an earlier one's of the same tag."""

    @property
    def file(self) -> EventFile:
        """The run's own file."""
        return self._runs[0].open()

    def write(self, time_ns: int, step: int, values: Values) -> None:
        """Each value where nothing of its tag is later."""
        if step >= self._runs[0].newest:
            self._runs[0].write(time_ns, step, values)
            return
        for number, (run, some) in enumerate(self._parted(step, values)):
            run.write(time_ns, step, some)
            if number == 0:
                self._count(len(values) - len(some), step)

    def start(self, time_ns: int, step: int) -> None:
        """Say that what is there from this step on is void. `void` has to follow."""
        self.file.start(time_ns, step)
        for number in range(1, _MOST_RUNS):
            if self._folder_of(number).is_dir():
                self._run(number).open().start(time_ns, step)

    def void(self, step: int) -> None:
        """What is there from this step on is void."""
        for run in self._runs:
            run.void(step)

    def note(self, step: int, values: Values) -> None:
        """Something that is there already, by an earlier writer: nothing before it may follow it."""
        for run, some in self._parted(step, values):
            run.note(step, some)

    def close(self) -> None:
        """Close the files."""
        for run in self._runs:
            run.close()
        if self.out_of_order:
            _log.warning("tensorboard: %d values in all came out of order", self.out_of_order)

    def _run(self, number: int) -> "_Run":
        while number >= len(self._runs):
            self._runs.append(_Run(self._folder_of(len(self._runs)), self._writer))
        return self._runs[number]

    def _folder_of(self, number: int) -> Path:
        return self._folder / (f"{_LATE}-{number}" if number > 1 else _LATE)

    def _parted(self, step: int, values: Values) -> Iterator[tuple["_Run", Values]]:
        """Which of the values go into which run."""
        left = values
        for number in range(_MOST_RUNS):
            run = self._run(number)
            is_last = number == _MOST_RUNS - 1
            late = {} if is_last else {tag: made for tag, made in left.items() if run.is_later(step, tag)}
            yield run, {tag: made for tag, made in left.items() if tag not in late}
            if not late:
                return
            left = late

    def _count(self, late: int, step: int) -> None:
        if late and not self.out_of_order:
            _log.warning(
                "tensorboard: values of step %d come after later steps: shown as the run %s (said once)", step, _LATE
            )
        self.out_of_order += late


class _Run:
    """A folder, and the last step of each tag in it."""

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

    def note(self, step: int, tags: Iterable[str]) -> None:
        self._steps.update(dict.fromkeys(tags, step))
        self.newest = max(self.newest, step)

    def void(self, step: int) -> None:
        self._steps = {tag: min(last, step - 1) for tag, last in self._steps.items()}
        self.newest = min(self.newest, step - 1)

    def write(self, time_ns: int, step: int, values: Values) -> None:
        if values:
            self.open().write(time_ns, step, values.values())
            self.note(step, values)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
