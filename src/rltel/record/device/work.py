"""Work of one stream, placed on the host clock.

A stream runs one thing after the other, and the order in which its events were recorded is known. What is measured is
off by rounding and by the anchors; what is drawn keeps that order, and never contradicts what the host saw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from rltel.record.device.anchors import HostTime, Position, rounding_ns
from rltel.record.device.event_source import StreamRef
from rltel.record.records import Flows

LONG_MS = 250.0  # from here on an error of the rate is more than one of rounding: the end is placed for itself


class Stream:
    """What is known of a stream over time."""

    __slots__ = ("drawn_ns", "drawn_order", "name", "off_ns", "order", "ref")

    def __init__(self, ref: StreamRef, name: str) -> None:
        self.ref = ref
        self.name = name
        """Of its track."""
        self.order = count()
        """Numbers for the events recorded on it."""
        self.drawn_order = -1
        self.drawn_ns = 0
        """When the last event that was drawn completed, and how far that may be off."""
        self.off_ns = 0.0


@dataclass(slots=True, eq=False)
class Submitted:
    """Work between two events."""

    name: str
    stream: Stream
    flows: Flows
    attributes: dict[str, Any]
    begin: Any = None
    begin_order: int = 0
    submit_ns: int = 0
    """Host time before the first event was recorded: the work did not begin earlier."""
    end: Any = None
    end_order: int = 0


@dataclass(slots=True)
class Measured:
    """Work that is done, with its place on the device's clock. ``seen_ns``: by then the host saw that it was done."""

    work: Submitted
    seen_ns: int
    begin: Position
    length_ms: float
    end: Position

    def is_between(self) -> bool:
        """Whether it lies between two anchors."""
        return (self.end if self.length_ms >= LONG_MS else self.begin).is_between()


@dataclass(slots=True)
class Drawn:
    """Work on the host clock. ``clamped``: by what the host saw, if that was narrower than the measurement."""

    work: Submitted
    begin_ns: int
    length_ns: int
    """As it was measured."""
    end_ns: int = 0
    uncertainty_ns: float = 0.0
    clamped: str = ""


def draw(stream: Stream, measured: Sequence[Measured]) -> list[Drawn]:
    """Place work of a stream: its events in the order in which they were recorded. Sorted by begin."""
    events = [(each.work.begin_order, each, True) for each in measured]
    events += [(each.work.end_order, each, False) for each in measured]
    drawn: dict[int, Drawn] = {}
    for order, each, is_begin in sorted(events, key=lambda event: event[0]):
        is_late = order < stream.drawn_order  # another thread's, taken up only now: what is drawn stays
        floor_ns = 0 if is_late else stream.drawn_ns
        if is_begin:
            made = drawn[each.work.begin_order] = _begin(each)
            if made.begin_ns < floor_ns:
                made.begin_ns = floor_ns
                made.uncertainty_ns = max(made.uncertainty_ns, stream.off_ns)
            at_ns = made.begin_ns
        else:
            made = drawn[each.work.begin_order]
            made.end_ns = _end(each, made)
            if made.end_ns < floor_ns:
                made.end_ns = floor_ns
                made.uncertainty_ns = max(made.uncertainty_ns, stream.off_ns)
            at_ns = made.end_ns
        if not is_late:
            stream.drawn_order, stream.drawn_ns, stream.off_ns = order, at_ns, made.uncertainty_ns
    return sorted(drawn.values(), key=lambda each: each.begin_ns)


def _begin(measured: Measured) -> Drawn:
    """Its begin, within what the host saw: no earlier than its submit, no later than its completion allows."""
    place = measured.begin.on_host()
    latest_ns = measured.seen_ns - round(measured.length_ms * place.rate * (1 - place.rate_uncertainty))
    made = Drawn(measured.work, place.ns, round(measured.length_ms * place.rate))
    made.uncertainty_ns = place.uncertainty_ns + _off_by_length(measured, place)
    if made.begin_ns > latest_ns:
        made.begin_ns, made.clamped = latest_ns, "observed"
    if made.begin_ns < measured.work.submit_ns:
        made.begin_ns, made.clamped = measured.work.submit_ns, "submit"
    return made


def _end(measured: Measured, made: Drawn) -> int:
    """Its end: the measured length after its begin; a long one's by the anchors around it."""
    end_ns = made.begin_ns + made.length_ns
    if measured.length_ms >= LONG_MS:
        last = measured.end.on_host()
        end_ns = last.ns
        made.uncertainty_ns = max(made.uncertainty_ns, last.uncertainty_ns)
    if end_ns > measured.seen_ns:
        end_ns, made.clamped = measured.seen_ns, made.clamped or "observed"
    return max(end_ns, made.begin_ns)


def _off_by_length(measured: Measured, place: HostTime) -> float:
    """How much further the end may be off. (That of long work is placed for itself.)"""
    length_ms = min(measured.length_ms, LONG_MS)
    return length_ms * 1e6 * place.rate_uncertainty + rounding_ns(length_ms * 1e6)
