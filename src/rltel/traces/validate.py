"""Checks traces: truncation, nesting, ids and clocks.

Problems make a wrong picture, or one that cannot be drawn. Notes are worth knowing: a file that a kill cut short,
slices that were open then, a wall clock that stepped.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from rltel.core.errors import TraceError
from rltel.traces.clockcheck import check_clocks
from rltel.traces.events import BEGIN, END, Event, EventReader, Track
from rltel.traces.findings import Finding, Findings
from rltel.traces.nesting import Nesting
from rltel.traces.progress import Meter, Progress
from rltel.traces.reader import FileFrames, compressed_block, inflated_packets
from rltel.traces.skim import Skimmed, skim
from rltel.traces.sources import gathered

_NAMES_SHOWN = 5
_TELL_EVERY = 1 << 18  # bytes


def validate(source: Path, progress: Progress | None = None) -> list[Finding]:
    """Everything that is found in a file, a run directory, or all traces below another folder; problems first.

    Raises `TraceError` if there are none.
    """
    given = gathered(source, look=_skimmed)
    findings, meter = Findings(), Meter(given.paths, progress)
    for path in given.merged_before:
        findings.note(path, "", "is a merged trace already: left out (give it by its own name to have it checked)")
    processes: dict[str, list[Skimmed]] = {}
    for file in given.files:
        processes.setdefault(str(file.process or file.path), []).append(file)
    owners = _Owners(findings)
    for parts in processes.values():
        _check_process(parts, owners, findings, meter)
        check_clocks(parts, findings)
    return findings.all()


def _skimmed(path: Path) -> Skimmed:
    try:
        return skim(path)
    except TraceError:
        return Skimmed(path)  # its damage is told, with its place, when it is read as a whole


def _check_process(parts: list[Skimmed], owners: "_Owners", findings: Findings, meter: Meter) -> None:
    """Check the parts of one process in their order: what is open at the end of one may end in the next."""
    nesting = Nesting(findings)
    for file in parts:
        _Check(file, owners, nesting, findings).run(meter.begin(file.path))
    names = nesting.still_open()
    if names:
        shown = ", ".join(f'"{name}"' for name in names[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        slices = "1 slice is" if len(names) == 1 else f"{len(names)} slices are"
        findings.note(parts[-1].path, "", f"{slices} open at the end: {shown}{more}")


class _Check:
    """The check of one file. Its text says where it is."""

    def __init__(self, file: Skimmed, owners: "_Owners", nesting: Nesting, findings: Findings) -> None:
        self.path = file.path
        self._frames = FileFrames(file.path)
        self._reader = EventReader(file.path)
        self._reader.described = lambda track: owners.check(track, file, self)
        self._nesting = nesting
        self._findings = findings
        self._tracks: set[int] = set()
        """Those of which events have been seen."""

    def __str__(self) -> str:
        return f"packet {self._reader.packets} (at byte {self._frames.offset})"

    def run(self, passed: Callable[[int], None]) -> None:
        """Read it all; what is damaged is found, not raised."""
        try:
            for time, event in self._reader.events_of(self._packets(passed)):
                if event.kind in (BEGIN, END):
                    self._nesting.take(self, time, event)
                if event.faults or event.track not in self._tracks:
                    self._check_ids(event)
        except TraceError as error:
            self._findings.problem(self.path, str(self), str(error).removeprefix(f"{self.path}: "))
            return
        self._check_end()

    def _packets(self, passed: Callable[[int], None]) -> Iterator[bytes]:
        told = 0
        for raw in self._frames:
            block = compressed_block(raw, self.path)
            yield from (raw,) if block is None else inflated_packets(block, self.path)
            if self._frames.offset - told >= _TELL_EVERY:
                told = self._frames.offset
                passed(told)

    def _check_ids(self, event: Event) -> None:
        for fault in event.faults:
            self._findings.repeated(self, fault.partition(" ")[0], fault)
        self._tracks.add(event.track)
        if event.track < 0:
            text = f"events of sequence {event.sequence} are on no track: nothing before them names one"
            self._findings.repeated(self, "no track", text)
        elif event.track not in self._reader.tracks:
            text = (
                f"events of sequence {event.sequence} are on track {event.track}, which nothing before them describes"
            )
            self._findings.repeated(self, "unknown track", text)

    def _check_end(self) -> None:
        size, end = self._frames.size, self._frames.end
        if not size:
            self._findings.note(self.path, "", "is empty: its process was killed at its start, or has just begun")
        elif self._frames.cut:
            text = (
                f"is cut at byte {size}: {size - end} bytes after the last whole packet are of one that is incomplete"
            )
            self._findings.note(self.path, str(self), text)


class _Owners:
    """To whom each track belongs: an id that two have is one row, under the name of the last."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: dict[int, tuple[Track, str, Path]] = {}

    def check(self, track: Track, file: Skimmed, at: _Check) -> None:
        """Take a description of a track."""
        process = str(file.process or file.path)
        first, owner, path = self._seen.setdefault(track.uuid, (track, process, file.path))
        same = (first.parent, first.pid, first.tid) == (track.parent, track.pid, track.tid)
        if track.is_process:
            same = same and first.name == track.name
        if not same or owner != process:
            text = f'track {track.uuid} ("{track.name}") is also "{first.name}" of {path}: two rows would be one'
            self._findings.repeated(at, "owner", text)
