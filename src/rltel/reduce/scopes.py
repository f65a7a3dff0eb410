"""Where a rollout's numbers belong: training and evaluation rollouts run side by side in one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

EVALUATION = "eval-rollout"
"""The tracker of evaluation's rollouts."""
_is_eval: ContextVar[bool] = ContextVar("rltel.is_eval", default=False)


def stat_scope() -> str:
    """``eval-rollout`` inside `eval_scope`, else ``rollout``: the name of the tracker that a rollout records with.

    As AReaL's ``workflow_context.stat_scope``: ``rltel.get(rltel.stat_scope()).scalar(reward=1.0)``.
    """
    return EVALUATION if _is_eval.get() else "rollout"


@contextmanager
def eval_scope(is_eval: bool = True) -> Iterator[None]:
    """Rollouts inside the ``with`` are evaluation; with ``is_eval=False``, training again.

    asyncio tasks keep what held where they were created, whatever others do meanwhile. A new thread starts with
    training, unless it is handed the context (`rltel.carry`).
    """
    token = _is_eval.set(is_eval)
    try:
        yield
    finally:
        _is_eval.reset(token)
