"""Reads what a recorder has on its lanes as whole slices with their parents, by the order of begins and ends.

Written for its own sake, beside the writers of files and spans: it fails where an end has no begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rltel.record.lane import Lane, slice_id
from rltel.record.recorder import Recorder
from rltel.record.records import (
    Attached,
    Begin,
    CounterSample,
    End,
    FreeBegin,
    FreeEnd,
    Ids,
    Instant,
    Placed,
    Record,
    Site,
)


@dataclass(eq=False)
class Drawn:
    """One slice. ``parent_id``: its span id, whatever lane or process it is on."""

    name: str
    category: str
    lane: Lane
    begin_ns: int
    ids: Ids
    parent_id: int | None
    begin: Begin | None
    around: Drawn | None = None
    """What it lies in on its lane, if nothing else is its parent."""
    end_ns: int | None = None
    end: End | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        at_begin = self.begin.attributes if self.begin is not None else None
        at_end = self.end.attributes if self.end is not None else None
        return {**(at_begin or {}), **(at_end or {})}

    @property
    def error(self) -> str | None:
        return self.end.error if self.end is not None else None


@dataclass
class Reading:
    """What was read, in the order of begins on each lane."""

    slices: list[Drawn] = field(default_factory=list)
    instants: list[tuple[str, str | None, Lane]] = field(default_factory=list)
    """With the name of the slice around each."""
    counters: list[CounterSample] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    left_open: list[Drawn] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [drawn.name for drawn in self.slices]

    def all(self, name: str) -> list[Drawn]:
        return [drawn for drawn in self.slices if drawn.name == name]

    def one(self, name: str) -> Drawn:
        (found,) = self.all(name)
        return found

    def parent(self, of: Drawn | str) -> str | None:
        """The name of a slice's parent; None for none; the id in hex, if it is none of these."""
        drawn = self.one(of) if isinstance(of, str) else of
        if drawn.around is not None:
            return drawn.around.name
        if drawn.parent_id is None:
            return None
        found = [each.name for each in self.slices if each.ids.span_id == drawn.parent_id]
        return found[0] if found else f"{drawn.parent_id:x}"

    @property
    def parents(self) -> dict[str, str | None]:
        return {drawn.name: self.parent(drawn) for drawn in self.slices}


class LaneReader:
    """Reads again and again: what was open the last time goes on."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stacks: dict[Lane, list[Drawn | Ids]] = {}
        self._sites: dict[Lane, Site] = {}
        self._free: dict[int, Drawn] = {}
        self.reading = Reading()

    def read(self) -> Reading:
        """Take everything, and return all that was read so far."""
        for lane in self._recorder.lanes():
            for record in lane.take():
                self._add(lane, record)
        self.reading.left_open = [each for each in self.reading.slices if each.end_ns is None]
        return self.reading

    def _add(self, lane: Lane, record: Record) -> None:
        stack = self._stacks.setdefault(lane, [])
        if isinstance(record, Site):
            assert lane not in self._sites, "a bare begin without its time"
            self._sites[lane] = record
        elif lane in self._sites:
            assert isinstance(record, int), f"{record} between a bare begin and its time"
            self._begin(lane, Begin(record, self._sites.pop(lane)), bare=True)
        elif isinstance(record, int):
            self._end(stack, End(record))
        elif isinstance(record, End):
            self._end(stack, record)
        elif isinstance(record, Begin):
            self._begin(lane, record)
        elif isinstance(record, Attached):
            stack.append(record.parent)
        elif isinstance(record, Instant):
            inner = stack[-1] if stack else None
            self.reading.instants.append((record.name, inner.name if isinstance(inner, Drawn) else None, lane))
        elif isinstance(record, CounterSample):
            self.reading.counters.append(record)
        elif isinstance(record, Placed):
            self.reading.placed.append(record)
        elif isinstance(record, FreeBegin):
            ids = Ids(record.begin.parent.trace_id if record.begin.parent else 0, record.number)
            self._free[record.number] = self._drawn(lane, record.begin, ids, None)
        elif isinstance(record, FreeEnd):
            drawn = self._free.pop(record.number)
            drawn.end_ns, drawn.end = record.end.time_ns, record.end

    def _begin(self, lane: Lane, begin: Begin, *, bare: bool = False) -> None:
        stack = self._stacks[lane]
        around = stack[-1] if stack else None
        outer = around.ids if isinstance(around, Drawn) else around
        known = begin.parent or outer
        made = Ids(known.trace_id if known else 0, slice_id(lane.seed, begin.time_ns, len(stack)))
        drawn = self._drawn(lane, begin, begin.ids or made, outer)
        if isinstance(around, Drawn) and not begin.parent:
            drawn.around = around
        if bare:
            drawn.begin = None
        stack.append(drawn)

    def _drawn(self, lane: Lane, begin: Begin, ids: Ids, outer: Ids | None) -> Drawn:
        parent = begin.parent or outer
        parent_id = parent.span_id if parent else None
        drawn = Drawn(begin.site.name, begin.site.category, lane, begin.time_ns, ids, parent_id, begin)
        self.reading.slices.append(drawn)
        return drawn

    @staticmethod
    def _end(stack: list[Drawn | Ids], end: End) -> None:
        assert end.depth < len(stack), f"{end}: an end without its begin"
        drawn = stack.pop(len(stack) - 1 - end.depth)
        if isinstance(drawn, Drawn):
            drawn.end_ns, drawn.end = end.time_ns, end


def read(recorder: Recorder) -> Reading:
    """Everything that is on the recorder's lanes."""
    return LaneReader(recorder).read()
