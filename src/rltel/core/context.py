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

from rltel.core.errors import RecordError
from rltel.core.in_place import InPlace

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


class _Flows:
    """Ids of arrows: of 64 bits the upper ones are the process's own, the lower ones count, so that they pack well."""

    def __init__(self) -> None:
        self.reseed()

    def reseed(self) -> None:
        self._next = count(int.from_bytes(os.urandom(5), "little") << _FLOW_BITS).__next__

    def new(self) -> int:
        return self._next() & _MASK_64 or 1


_FLOW_BITS = 24
_flows = _Flows()
_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.reseed)
    os.register_at_fork(after_in_child=_flows.reseed)


def new_id() -> int:
    """A non-zero 64-bit id, unique over processes and forks whatever seed the program has set."""
    return _ids.new()


def new_flow() -> int:
    """The id of a new arrow: 64 bits, not zero. Send it along with a message; give it to the slices at both ends."""
    return _flows.new()


def new_trace_id() -> int:
    """A non-zero 128-bit trace id from the operating system's randomness."""
    return int.from_bytes(os.urandom(16), "big") or 1


def span_context(trace_id: int, span_id: int, like: SpanContext | None = None) -> SpanContext:
    """An OpenTelemetry span context with these ids: sampled, unless one of the same trace (``like``) is not.

    That one's trace state travels on, too.
    """
    if like is not None and like.trace_id == trace_id:
        return SpanContext(
            trace_id, span_id, is_remote=False, trace_flags=like.trace_flags, trace_state=like.trace_state
        )
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def current() -> SpanContext | None:
    """The span context that is in place here, or None."""
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def with_span(context: SpanContext) -> Context:
    """The current OpenTelemetry context with this span as its current span."""
    return trace.set_span_in_context(NonRecordingSpan(context))


def inject(span: SpanContext | None = None) -> dict[str, str]:
    """Headers (``traceparent`` ...) that carry the current context, with this span in place of the current one.

    Uses the globally configured OpenTelemetry propagators.
    """
    headers: dict[str, str] = {}
    propagate.inject(headers, context=None if span is None else with_span(span))
    return headers


def remote_parent(headers: Mapping[str, str]) -> SpanContext | None:
    """The span that these headers, or an environment with ``TRACEPARENT``, come from; None if they name none.

    Raises `RecordError` for what is no mapping of names to strings.
    """
    found = trace.get_current_span(_extracted(headers, Context())).get_span_context()
    return found if found.is_valid else None


def _extracted(headers: Mapping[str, str], context: Context) -> Context:
    """Header names may be in any case, as HTTP servers hand them out; variables are in upper case."""
    if not hasattr(headers, "items"):  # HTTP servers' own classes are no Mapping, but have that
        raise _unfit(repr(headers) if headers is None or isinstance(headers, str) else type(headers).__name__)
    for name in headers:
        if not isinstance(name, str):
            raise _unfit(f"{name!r} as a name")
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        return propagate.extract({**lower, **headers}, context=context)
    except TypeError:
        raise _unfit("a value that is no string") from None


def _unfit(given: str) -> RecordError:
    """Values are not shown: headers hold secrets."""
    return RecordError(
        f'headers: expected a mapping of names to strings, as {{"traceparent": ...}} of rltel.inject(), got {given}'
    )


@contextmanager
def attached(headers: Mapping[str, str]) -> Iterator[None]:
    """Put the context of these headers in place: what starts inside continues the sender's trace.

    Without a valid header the context stays as it is. Raises `RecordError` for what is no mapping of names to strings.
    """
    here = InPlace(_extracted(headers, otel_context.get_current()), remote_parent(headers))
    try:
        yield
    finally:
        here.remove()
