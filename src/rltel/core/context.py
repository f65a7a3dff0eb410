"""Trace context: ids that never come from ``random``, and W3C headers across processes.

The context itself is OpenTelemetry's, so that a user's own spans nest under ours and ours under theirs.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

_MASK_64 = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # odd, so multiplying by it permutes the 64-bit numbers: ids look random and never repeat


class _Ids:
    """Unique 64-bit ids: a secret start drawn from the operating system per process, then a counter, mixed."""

    def __init__(self) -> None:
        self.reseed()

    def reseed(self) -> None:
        self._next = count(int.from_bytes(os.urandom(8), "little")).__next__

    def new(self) -> int:
        return (self._next() * _ODD) & _MASK_64 or 1


_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.reseed)


def new_id() -> int:
    """A non-zero 64-bit id, unique over processes and forks whatever seed the program has set."""
    return _ids.new()


def new_trace_id() -> int:
    """A non-zero 128-bit trace id from the operating system's randomness."""
    return int.from_bytes(os.urandom(16), "big") or 1


def span_context(trace_id: int, span_id: int) -> SpanContext:
    """A sampled OpenTelemetry span context with these ids."""
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def current() -> SpanContext | None:
    """The span context that is in place here, or None."""
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def with_span(context: SpanContext) -> Context:
    """The current OpenTelemetry context with this span as its current span."""
    return trace.set_span_in_context(NonRecordingSpan(context))


def inject(fallback: SpanContext | None = None) -> dict[str, str]:
    """Headers (``traceparent`` ...) that carry the current context to another process.

    Uses the globally configured OpenTelemetry propagators. Where no span is current, ``fallback`` travels.
    """
    headers: dict[str, str] = {}
    here = None if fallback is None or current() is not None else with_span(fallback)
    propagate.inject(headers, context=here)
    return headers


@contextmanager
def attached(headers: Mapping[str, str]) -> Iterator[None]:
    """Put the context of these headers in place: what starts inside continues the sender's trace.

    Header names may be in any case, as HTTP servers hand them out. Without a valid header the context stays as it is.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    found = propagate.extract({**lower, **headers}, context=otel_context.get_current())
    token = otel_context.attach(found)
    try:
        yield
    finally:
        otel_context.detach(token)
