"""Our own OpenTelemetry contexts, in place for a while.

OpenTelemetry's tokens restore what was there when they were made, and complain in any other task. What a generator or a
rollout puts in place may end in another order than it began, or be closed somewhere else; that is no error.
"""

import threading
from asyncio import _get_running_loop as running_loop
from asyncio import current_task
from contextvars import ContextVar, Token
from typing import Any
from weakref import ref

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

_Owner = tuple[int, "ref[Any] | None"]


class InPlace:
    """A context that is in place from its making until `remove`."""

    __slots__ = ("_around", "_before", "_is_over", "_owner", "_token", "span")

    def __init__(self, context: Context, span: SpanContext | None) -> None:
        """``span``: the one of ours that is current in it (None: the same as before)."""
        around = _innermost.get()
        self.span: SpanContext | None = span if span is not None or around is None else around.span
        self._is_over = False
        self._owner = _owner()
        # What is over in another task is nothing to return to, and keeping it would make a chain without end.
        kept = around is not None and (around._owner == self._owner or not around._is_over)
        self._around = around if kept else None
        self._before: Context | None = otel_context.get_current()
        self._token: Token[InPlace | None] | None = _innermost.set(self)
        otel_context.attach(context)

    def remove(self) -> None:
        """Restore what was there before, unless what was put in place later is still there: then that will."""
        self._is_over = True
        innermost = _innermost.get()
        token, self._token = self._token, None
        try:
            if token is not None:
                _innermost.reset(token)
        except ValueError:  # removed in another task's context, or another thread's: nothing of ours is in place there
            return
        if innermost is not self:
            _innermost.set(innermost)
            return
        last = self
        while last._around is not None and last._around._is_over and last._around._owner == self._owner:
            last = last._around  # it ended before this did
        if last is not self:
            _innermost.set(last._around)
        otel_context.attach(last._before or Context())
        self._around = self._before = None


_innermost: ContextVar[InPlace | None] = ContextVar("rltel.in_place", default=None)


def is_ours(span: SpanContext) -> bool:
    """Whether this current span was put in place by rltel."""
    here = _innermost.get()
    return here is not None and here.span is not None and here.span.span_id == span.span_id


def _owner() -> _Owner:
    """This thread and task: what is put in place by one of them is seen by the others only as a copy."""
    loop = running_loop()
    task = None if loop is None else current_task(loop)
    return threading.get_ident(), None if task is None else ref(task)
