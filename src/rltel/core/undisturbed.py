"""Keeps the program's random numbers as seeded: some packages draw from `random` when they are imported.

With the same seed a training has to come to the same result, whether or not telemetry is on.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """What draws from `random` inside leaves it as it was.

    For the thread that draws itself, as the one in ``rltel.init`` does: what another thread draws meanwhile is drawn
    again afterwards.
    """
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
