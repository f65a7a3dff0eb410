"""Several consumers of the same trackers: what one takes stays pending for the others.

The main consumer has the empty name. Without a second one, nothing is kept.
"""

import threading
from collections.abc import Callable

from rltel.core.errors import RltelError
from rltel.reduce.snapshot import Metric, Snapshot, succeeded


class Readers:
    """What is pending for each consumer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Snapshot] = {"": Snapshot()}

    def add(self, name: str) -> None:
        """Another consumer, from now on."""
        with self._lock:
            self._pending.setdefault(name, Snapshot())

    def reset(self) -> None:
        """Forget what is pending (after a fork, in the child)."""
        self._lock = threading.Lock()
        self._pending = dict.fromkeys(self._pending, Snapshot())

    def take(self, reader: str, wanted: Callable[[str, Metric], bool] | None = None) -> Snapshot:
        """What is pending for this consumer, or what of it is wanted. Raises `RltelError` for one that is not known."""
        with self._lock:
            if reader not in self._pending:
                have = ", ".join(name for name in self._pending if name) or "none"
                raise RltelError(f'export_all: reader: expected one added by add_reader (have {have}), got "{reader}"')
            pending = self._pending[reader]
            if wanted is None or not pending:
                self._pending[reader] = Snapshot()
                return pending
            taken = {key: metric for key, metric in pending.items() if wanted(key, metric)}
            self._pending[reader] = Snapshot({key: metric for key, metric in pending.items() if key not in taken})
            return Snapshot(taken)

    def give_back(self, reader: str, pending: Snapshot) -> None:
        """An export that failed, or was only a look, leaves what was pending for its consumer."""
        if pending:
            with self._lock:
                self._pending[reader] = succeeded(pending, self._pending[reader])

    def pass_on(self, fresh: Snapshot, taken_by: str) -> None:
        """What one consumer took is pending for the others."""
        with self._lock:
            for name, pending in self._pending.items():
                if name != taken_by:
                    self._pending[name] = succeeded(pending, fresh)
