"""What iterations and rollouts are started on, where they are spans of a user's own TracerProvider."""

from collections import OrderedDict
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, Tracer

from rltel.core.context import current, span_context, with_span
from rltel.record.records import Ids

_REMEMBERED = 50_000


class Contexts:
    """Span contexts by the ids that the recorder knows, for children to be started in: the newest ones."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._by_id: OrderedDict[int, SpanContext] = OrderedDict()
        self._remembered = remembered

    def remember(self, span_id: int, context: SpanContext) -> None:
        """May be called from any thread: each step is atomic."""
        self._by_id[span_id] = context
        if len(self._by_id) > self._remembered:
            self._by_id.popitem(last=False)

    def of(self, ids: Ids) -> SpanContext:
        """Of a span that is not remembered (another process's, say) as if it was sampled."""
        return self._by_id.get(ids.span_id) or span_context(*ids)


class LiveTracer(Tracer):
    """The user's tracer, for spans that are started now.

    They can lie only in spans that the provider has now: not in slices, whose spans are made afterwards.
    """

    def __init__(self, tracer: Tracer, process: SpanContext, contexts: Contexts) -> None:
        self._tracer = tracer
        self._process = process
        self._contexts = contexts

    def start_span(self, name: str, context: Context | None = None, *args: Any, **kwargs: Any) -> Span:
        """In the current span; where there is none, in the process's own, if it is to lie in anything."""
        inside = None if context is None or current() is not None else with_span(self._process)
        span = self._tracer.start_span(name, inside, *args, **kwargs)
        made = span.get_span_context()
        if not made.trace_flags.sampled:  # what lies in it must not be, either
            self._contexts.remember(made.span_id, made)
        return span

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        """As the user's tracer does."""
        return self._tracer.start_as_current_span(*args, **kwargs)
