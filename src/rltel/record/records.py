"""What the timeline records: small things appended to a lane, in the order in which they happened there.

Bare slices are the hot path. Their begin is two items, a `Site` and the time; their end is the time alone. Whatever
carries more is one of the tuples below. Nesting follows from the order on the lane, so begin and end need no ids.
Times are nanoseconds on the monotonic clock.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Flows = tuple[int, ...]
Attributes = Mapping[str, Any]


class Site:
    """What the slices begun at one place in the code have in common.

    ``span_name`` and ``span_attributes``: what they are in OpenTelemetry, if that is not simply the name.
    """

    __slots__ = ("category", "name", "span_attributes", "span_name")

    def __init__(
        self, name: str, category: str, span_name: str | None = None, span_attributes: Attributes | None = None
    ) -> None:
        self.name = name
        self.category = category
        self.span_name = span_name or name
        self.span_attributes = span_attributes

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {self.category!r})"


class Ids(NamedTuple):
    """Trace and span id of a slice that others refer to."""

    trace_id: int
    span_id: int


class Begin(NamedTuple):
    """A slice begins, with more to say than its name.

    ``ids``: its own, where somebody refers to it; ``parent``: of a slice on another lane, or in another process.
    ``span``: it put an OpenTelemetry context in place (``live``: as a span of the user's own TracerProvider).
    """

    time_ns: int
    site: Site
    flows: Flows | None = None
    attributes: Attributes | None = None
    cpu_ns: int | None = None
    ids: Ids | None = None
    parent: Ids | None = None
    span: Literal["", "ours", "live"] = ""


class End(NamedTuple):
    """A slice ends, with something to say about it.

    ``depth``: how many slices that began later on the lane are still open (a generator may outlive its caller).
    """

    time_ns: int
    attributes: Attributes | None = None
    error: str | None = None
    cpu_ns: int | None = None
    depth: int = 0


class Instant(NamedTuple):
    """Something that happened at one moment."""

    time_ns: int
    name: str
    category: str
    flows: Flows | None
    attributes: Attributes | None


class CounterSample(NamedTuple):
    """One sample of a counter track."""

    time_ns: int
    name: str
    unit: str
    value: float


class Attached(NamedTuple):
    """What begins on this lane from here on, until the matching end, belongs to this parent. Not drawn."""

    parent: Ids


class FreeBegin(NamedTuple):
    """A slice begins that may end anywhere: it gets a lane where it fits. ``number`` finds its end."""

    number: int
    begin: Begin


class FreeEnd(NamedTuple):
    """The end of a `FreeBegin`."""

    number: int
    end: End


class Placed(NamedTuple):
    """A whole slice, known afterwards, on a named track (device work, say)."""

    track: str
    begin: Begin
    end_ns: int


Record = int | Site | Begin | End | Instant | CounterSample | Attached | FreeBegin | FreeEnd | Placed


def recorded_at(record: Record) -> int | None:
    """When that was; None for what goes with the next on its lane, and for what was placed by somebody, anywhere."""
    if isinstance(record, int):
        return record
    if isinstance(record, (Site, Attached, Placed)):
        return None
    if isinstance(record, FreeBegin):
        return record.begin.time_ns
    return record.end.time_ns if isinstance(record, FreeEnd) else record.time_ns
