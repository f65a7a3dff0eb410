"""Arrows as OpenTelemetry has them: a span links to the spans that the same flow went through before it."""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable
from operator import index, itemgetter
from typing import Any

from rltel.record.records import Ids

_REMEMBERED = 50_000  # flows
_OF_ONE_FLOW = 64
_MASK_64 = (1 << 64) - 1
_time_of = itemgetter(0)

Passed = tuple[int, int]
"""A flow, and when it passed through a span."""


class FlowLinks:
    """Where each flow was seen last. Of flows that left the process only the other side knows more.

    Lanes are read one after the other, so what is seen later may have been earlier: ask once all of a round was seen.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._seen: OrderedDict[int, list[tuple[int, Ids]]] = OrderedDict()  # in the order of time
        self._remembered = remembered

    def saw(self, flows: Iterable[Any] | None, span: Ids, time_ns: int) -> list[Passed]:
        """These flows pass through a span. Returns those that are ids."""
        passed: list[Passed] = []
        for given in flows or ():
            try:
                flow = index(given) & _MASK_64
            except TypeError:
                continue
            passed.append((flow, time_ns))
            seen = self._seen.setdefault(flow, [])
            self._seen.move_to_end(flow)
            insort(seen, (time_ns, span), key=_time_of)
            del seen[:-_OF_ONE_FLOW]
        while len(self._seen) > self._remembered:
            self._seen.popitem(last=False)
        return passed

    def of(self, passed: Iterable[Passed], span: Ids) -> list[Ids]:
        """What a span links to: for each of its flows, what that went through before."""
        found = (self._before(flow, time_ns, span) for flow, time_ns in passed)
        return list(dict.fromkeys(each for each in found if each is not None))

    def _before(self, flow: int, time_ns: int, span: Ids) -> Ids | None:
        own = False
        for seen_ns, other in reversed(self._seen.get(flow, ())):
            if other == span:
                own = True
            elif seen_ns < time_ns or (seen_ns == time_ns and own):  # at one time, what was seen first
                return other
        return None
