"""What of the device's work is not drawn, and why: counted, and said once."""

import logging
import threading
from collections import Counter

_log = logging.getLogger("rltel")
_LOST_AFTER = 16  # errors in a row


class Losses:
    """Counts for all threads."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.is_device_lost = False
        """Whether it has refused so much that it is to be asked no more."""
        self._errors = self._in_a_row = 0
        self._lock = threading.Lock()

    def add(self, reason: str, count: int = 1) -> None:
        """So many device slices are not drawn."""
        if count:
            with self._lock:
                self.by_reason[reason] += count

    def succeeded(self) -> None:
        """The device answers."""
        self._in_a_row = 0

    def failed(self, error: Exception, lost: int = 0) -> None:
        """The device, or its driver, raised; so many slices are lost by that."""
        self.add("device_error", lost)
        self._errors += 1
        self._in_a_row += 1
        if self._errors == 1:
            what = f"{type(error).__name__}: {error}"
            _log.warning("device work is missing from the timeline: %s (counted; said once)", what)
        if self._in_a_row == _LOST_AFTER:
            self.is_device_lost = True
            _log.warning("device work is not drawn any more: %d errors in a row", _LOST_AFTER)
