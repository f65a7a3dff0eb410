"""Says once that a process has more keys than anybody can look at: as a rule, keys with a number in their name.

Each is kept for as long as the process lives, here and by every destination.
"""

import logging
import re
from collections import Counter
from collections.abc import Collection

_log = logging.getLogger("rltel")
MOST_KEYS = 20_000
_NUMBER = re.compile(r"\d+")


class ManyKeys:
    """Looks at how many there are. ``most``: up to here they are nobody's concern."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._is_said = False

    def look(self, keys: Collection[str]) -> None:
        """All keys so far. O(1), but for the once that it speaks."""
        if len(keys) <= self._most or self._is_said:
            return
        self._is_said = True
        pattern, number = Counter(_NUMBER.sub("#", key) for key in keys).most_common(1)[0]
        _log.warning(
            '%d different keys so far, %d of them like "%s": each is kept for the life of the process (some kB). What '
            "changes from step to step belongs into a value or the step, not into a key (said once)",
            *(len(keys), number, pattern),
        )
