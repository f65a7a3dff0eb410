"""What `appo_learner.py` and `appo_collector.py` share: methods that are wrapped while a training runs, and arrows.

Neither of unilab-rl's two loops can be entered from outside: each is one function. But every phase of it is a method of
some class, and a loop's rounds begin and end at calls of their own. So what the loops call is wrapped, on its class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import Queue
from typing import Any, TypeAlias

Payloads: TypeAlias = "Queue[dict[str, Any]]"
Call: TypeAlias = Callable[..., Any]


def arrow(shared_memory: str, number: int) -> int:
    """The flow id of a rollout, by its number in the ring, or of weights, by their version: the same in both processes.

    So no message between them has to carry one.
    """
    digest = hashlib.blake2b(f"{shared_memory} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


@contextmanager
def wrapped(wrappers: Mapping[tuple[type, str], Callable[[Call], Call]]) -> Iterator[None]:
    """Replaces methods of classes by what the wrapper makes of them, for the length of the body."""
    originals = {(owner, name): vars(owner)[name] for owner, name in wrappers}
    try:
        for (owner, name), wrap in wrappers.items():
            original = originals[owner, name]
            if isinstance(original, staticmethod):
                setattr(owner, name, staticmethod(wrap(original.__func__)))
            elif isinstance(original, property):
                assert original.fget is not None
                setattr(owner, name, property(wrap(original.fget)))
            else:
                setattr(owner, name, wrap(original))
        yield
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
