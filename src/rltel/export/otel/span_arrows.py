"""Arrows from linked spans to those that link to them, where spans arrive one export after the other."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.trace import ReadableSpan

from rltel.core.context import new_id

_MOST_KNOWN = 1 << 16  # spans whose arrows are remembered


class SpanArrows:
    """Arrows from linked spans to those that link to them.

    A span that is written already takes one more arrow (it has its own id as a flow, and a flow joins all that have it,
    one after the other); one that comes later, or with the same export, takes any number.
    """

    def __init__(self) -> None:
        self._free: dict[int, bool] = {}  # written spans, and whether they have their arrow still
        self._coming: dict[int, list[int]] = {}

    def of(self, spans: Iterable[ReadableSpan]) -> Iterator[tuple[ReadableSpan, list[int]]]:
        """Each span with the flow ids that it has to carry."""
        spans = list(spans)
        flows: dict[int, list[int]] = defaultdict(list)
        here = {_id_of(span) for span in spans}
        for span in spans:
            for link in span.links:
                flow = self._flow(link.context.span_id, here, flows)
                if flow is not None:
                    flows[_id_of(span)].append(flow)
        for span in spans:
            own = _id_of(span)
            self._free[own] = True
            yield span, [own, *flows[own], *self._coming.pop(own, ())]
        for table in (self._free, self._coming):
            while len(table) > _MOST_KNOWN:
                del table[next(iter(table))]

    def _flow(self, linked: int, here: set[int], flows: dict[int, list[int]]) -> int | None:
        if linked in here:
            flows[linked].append(made := new_id())
            return made
        if linked not in self._free:
            self._coming.setdefault(linked, []).append(made := new_id())
            return made
        if self._free[linked]:
            self._free[linked] = False
            return linked
        return None


def _id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)
