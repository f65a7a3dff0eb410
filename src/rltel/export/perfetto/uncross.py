"""Slices of one lane that cross: a generator's slice ends while one of its caller's, begun later, is still open.

One Perfetto track cannot hold that (each end closes the innermost). Of slices that cross, those that began later and
lie within one drain as a whole move to tracks of their own; the rest nests.
"""

from collections.abc import Iterator, Sequence

from rltel.core.context import new_id
from rltel.record.records import Attached, Begin, End, FreeBegin, FreeEnd, Record, Site


def crosses(records: Sequence[Record]) -> bool:
    """Whether any slice ends that is not the innermost."""
    return End in set(map(type, records)) and any(isinstance(record, End) and record.depth for record in records)


def uncrossed(records: Sequence[Record], site: Site | None) -> list[Record]:
    """The same slices, with those that leave as `FreeBegin` and `FreeEnd` (without CPU time, which is a thread's).

    ``site``: of a bare begin whose time is the first record. An end's depth then counts those slices only that stay.
    """
    whole = list(_whole(records, site))
    begun_at, crossed = _crossings(whole)
    numbers = {place: new_id() for place in crossed}
    open_places: list[int] = []
    out: list[Record] = []
    for place, record in enumerate(whole):
        if isinstance(record, (Begin, Attached)):
            open_places.append(place)
            if place in numbers and isinstance(record, Begin):
                out.append(FreeBegin(numbers[place], record._replace(cpu_ns=None)))
            else:
                out.append(record)
        elif isinstance(record, End):
            began = begun_at[place]
            gone = sum(each in numbers for each in _above(open_places, record.depth))
            end = record._replace(depth=record.depth - gone)
            out.append(FreeEnd(numbers[began], end._replace(cpu_ns=None)) if began in numbers else end)
            _remove(open_places, record.depth)
        else:
            out.append(record)
    return out


def _whole(records: Sequence[Record], site: Site | None) -> Iterator[Record]:
    """Bare begins and ends, spelled out. (A bare begin that was cut in two stays as it is, at the end.)"""
    for record in records:
        if isinstance(record, Site):
            site = record
        elif not isinstance(record, int):
            yield record
        elif site is None:
            yield End(record)
        else:
            yield Begin(record, site)
            site = None
    if site is not None:
        yield site


def _crossings(records: Sequence[Record]) -> tuple[dict[int, int | None], set[int]]:
    """For each end, where its slice began (None: earlier); and the begins that leave."""
    begun_at: dict[int, int | None] = {}
    crossed: set[int] = set()
    open_places: list[int] = []
    for place, record in enumerate(records):
        if isinstance(record, (Begin, Attached)):
            open_places.append(place)
        elif isinstance(record, End):
            above = _above(open_places, record.depth)
            crossed.update(each for each in above if isinstance(records[each], Begin))
            begun_at[place] = _remove(open_places, record.depth)
    return begun_at, crossed.difference(open_places)


def _above(open_places: list[int], depth: int) -> list[int]:
    """What began later than the slice that is this deep, as far as it is in these records."""
    return open_places[max(0, len(open_places) - depth) :]


def _remove(open_places: list[int], depth: int) -> int | None:
    """Take out what is this deep. What is deeper than these records began earlier."""
    if depth < len(open_places):
        return open_places.pop(len(open_places) - 1 - depth)
    return None
