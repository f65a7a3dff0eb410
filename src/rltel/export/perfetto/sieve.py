"""Leaves slices out of a lane's records, whole, while a trace cannot take any more."""

from collections.abc import Iterable

from rltel.record.records import Attached, Begin, End, FreeEnd, Record, Site


class Sieve:
    """Which of the slices that are open on a lane are in the trace: their ends are, too."""

    def __init__(self, drawn: int = 0, *, awaits_time: bool = False) -> None:
        """``drawn``: slices that are open, all of them in the trace; ``awaits_time``: and so is a bare begin's site."""
        self._open = [True] * drawn
        self._site: bool | None = True if awaits_time else None  # of a bare begin whose time comes next: is it drawn?

    @property
    def is_clear(self) -> bool:
        """Whether all that is open is in the trace."""
        return all(self._open) and self._site is not False

    def sift(self, records: Iterable[Record], *, keep: bool) -> tuple[list[Record], int]:
        """What the trace takes, and how many slices, instants and samples it does not.

        ``keep``: whether it takes what begins now.
        """
        kept: list[Record] = []
        left_out = 0
        for given in records:
            record, drawn = given, keep
            if isinstance(record, Site):
                self._site = keep
            elif isinstance(record, int) and self._site is not None:
                drawn, self._site = self._site, None
                self._open.append(drawn)
                left_out += not drawn
            elif isinstance(record, (Begin, Attached)):
                self._open.append(drawn)
                left_out += isinstance(record, Begin) and not drawn
            elif isinstance(record, (int, End)):
                drawn, record = self._end(record)
            else:
                drawn = keep or isinstance(record, FreeEnd)  # the end of what was left out is nobody's
                left_out += not drawn
            if drawn:
                kept.append(record)
        return kept, left_out

    def _end(self, end: int | End) -> tuple[bool, int | End]:
        """Whether an end is the trace's, and how deep it is there."""
        depth = end.depth if isinstance(end, End) else 0
        if depth >= len(self._open):
            return False, end  # its begin was not kept
        place = len(self._open) - 1 - depth
        drawn = self._open.pop(place)
        if isinstance(end, End) and depth:
            end = end._replace(depth=sum(self._open[place:]))
        return drawn, end


def items(records: Iterable[Record]) -> int:
    """How many slices, instants and samples begin in these records."""
    return sum(not isinstance(record, (int, End, FreeEnd, Attached)) for record in records)
