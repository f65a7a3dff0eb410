"""The records of all lanes in the order of time: for those who must see a parent before its children elsewhere."""

from operator import itemgetter
from typing import Any

from rltel.record.lane import Lane
from rltel.record.records import (
    Attached,
    Begin,
    CounterSample,
    End,
    FreeBegin,
    FreeEnd,
    Instant,
    Placed,
    Record,
    Site,
)

_LAST = 1 << 64
_time_of = itemgetter(0)
_Timed = tuple[int, Lane, Record]


class RoundOrder:
    """Collects what was recorded in a round. Bare begins and ends come out as `Begin` and `End`."""

    def __init__(self) -> None:
        self._taken: list[tuple[Lane, list[Record]]] = []
        self._sites: dict[Lane, Site] = {}  # of bare begins whose time has not come yet

    def take(self, lane: Lane, records: list[Record]) -> None:
        """What was recorded on a lane since the last round, or a piece of it."""
        if self._taken and self._taken[-1][0] is lane:
            records = self._taken.pop()[1] + records  # what has no time belongs to what comes next
        self._taken.append((lane, records))

    def in_order(self) -> list[tuple[Lane, Record]]:
        """All of the round."""
        taken, self._taken = self._taken, []
        timed: list[_Timed] = []
        for lane, records in taken:
            timed += self._timed(lane, records)
        timed.sort(key=_time_of)
        return [(lane, record) for _, lane, record in timed]

    def _timed(self, lane: Lane, records: list[Record]) -> list[_Timed]:
        """On a lane, the order of records counts more than what a clock says."""
        timed: list[_Timed] = []
        now, attached, site = 0, list[Record](), self._sites.pop(lane, None)
        for record in records:
            if isinstance(record, Site):
                site = record
                continue
            if isinstance(record, Attached):
                attached.append(record)  # has no time: it belongs to what comes next
                continue
            made = record
            if isinstance(record, int):
                made, site = (End(record), None) if site is None else (Begin(record, site), None)
            at = _when(made)
            now = at if lane.kind == "shared" else max(now, at)
            timed += [(now, lane, each) for each in (*attached, made)]
            attached.clear()
        if site is not None:
            self._sites[lane] = site
        return timed + [(_LAST, lane, each) for each in attached]


def _when(record: Record) -> int:
    """The time of a record that has one."""
    if isinstance(record, (FreeBegin, Placed)):
        return _whole(record.begin.time_ns)
    if isinstance(record, FreeEnd):
        return record.end.time_ns
    return record.time_ns if isinstance(record, (Begin, End, Instant, CounterSample)) else 0


def _whole(time_ns: Any) -> int:
    """A time that a program gave."""
    return time_ns if isinstance(time_ns, int) else 0
