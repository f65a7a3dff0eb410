"""Whether slices nest: each end has a begin, none ends before it begins, and none overlaps another of its track.

A trace processor sorts all events by time and closes the innermost open slice at each end: what overlaps on one track
comes out with wrong names and lengths.
"""

from collections import deque
from dataclasses import dataclass, field

from rltel.traces.events import BEGIN, END, Event
from rltel.traces.findings import Findings, Position

_REMEMBERED = 64  # closed slices of a track that a slice which goes back in time is compared with


@dataclass(slots=True)
class _Track:
    last: int = 0
    open: list[tuple[int, Event, bool]] = field(default_factory=list)
    closed: deque[tuple[int, int, str]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Nesting:
    """The tracks of one process, through all its parts. Times in ns of the file's clocks."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._tracks: dict[int, _Track] = {}

    def take(self, at: Position, time: int, event: Event) -> None:
        """Take the next event of the file."""
        if event.kind not in (BEGIN, END):
            return
        track = self._tracks.get(event.track)
        if track is None:
            track = self._tracks[event.track] = _Track()
        if event.kind == BEGIN:
            goes_back = time < track.last
            track.open.append((time, event, goes_back))
            track.last = max(track.last, time)
        elif track.open:
            self._close(at, time, track)
        else:
            text = f"a slice ends on track {event.track} that never began"
            self._findings.repeated(at, "end", text)

    def _close(self, at: Position, time: int, track: _Track) -> None:
        start, event, goes_back = track.open.pop()
        if time < start:
            text = f'slice "{event.name}" ends {start - time} ns before it begins'
            self._findings.repeated(at, "negative", text)
        if goes_back:
            self._compare(at, start, time, event, track)
        track.closed.append((start, time, event.name))
        track.last = max(track.last, time)

    def _compare(self, at: Position, start: int, end: int, event: Event, track: _Track) -> None:
        """A slice that began before the last event of its track is right only if it lies beside or around others."""
        crossed = next((each for each in track.closed if _cross(start, end, each[0], each[1])), None)
        if crossed is not None:
            text = f'slice "{event.name}" [{start}, {end}] overlaps "{crossed[2]}" [{crossed[0]}, {crossed[1]}]'
            self._findings.repeated(at, "overlap", f"{text} on track {event.track}")

    def still_open(self) -> list[str]:
        """The names of the slices that never ended, outermost first."""
        return [event.name for track in self._tracks.values() for _, event, _ in track.open]


def _cross(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Whether two slices overlap and neither lies within the other."""
    return start < other_start < end < other_end or other_start < start < other_end < end
