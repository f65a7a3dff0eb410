"""What other programs' traces are turned into before they are drawn: events on places, and the places' names."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Place: TypeAlias = tuple[str, ...]
"""A process ``(pid,)``, a thread ``(pid, tid)``, or something else in a process ``(pid, "", name)``, as text."""


class Slice(NamedTuple):
    """Something that took time. Without ``end_ns`` it is still open. With ``id`` it nests only in its parent."""

    begin_ns: int
    end_ns: int | None
    place: Place
    name: str
    category: str = ""
    notes: dict[str, Any] | None = None
    id: str | None = None
    parent: str | None = None
    flows: tuple[int, ...] = ()


class Instant(NamedTuple):
    """Something that happened at one moment; with ``parent``, on the lane of that slice."""

    time_ns: int
    place: Place
    name: str
    category: str = ""
    notes: dict[str, Any] | None = None
    parent: str | None = None


class Sample(NamedTuple):
    """One sample of a counter of a process."""

    time_ns: int
    place: Place
    name: str
    value: float


class Arrow(NamedTuple):
    """A point of an arrow: on the slice that is open there, or (``is_next``) on the one that begins next."""

    time_ns: int
    place: Place
    phase: str
    """``s`` begins it, ``t`` goes on with it, ``f`` ends it."""
    flow: str
    name: str
    category: str
    is_next: bool


Event: TypeAlias = Slice | Instant | Sample | Arrow


@dataclass
class Names:
    """What is called how. Known only when all of the input was read: names may come last."""

    processes: dict[str, str] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    threads: dict[tuple[str, ...], str] = field(default_factory=dict)
    links: dict[str, list[int]] = field(default_factory=dict)
    """Arrows that begin at a slice, by its id."""


Skipped: TypeAlias = Counter[str]
"""What could not be drawn, by reason."""
