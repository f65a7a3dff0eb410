"""Device work that is not known to be done, by the thread that recorded its events."""

import threading
from collections import deque

from rltel.record.device.work import Stream, Submitted


class Pending:
    """What one thread has recorded, oldest first, by stream: a stream does one thing after the other."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.by_stream: dict[Stream, deque[Submitted]] = {}
        self.since_poll = 0

    @property
    def size(self) -> int:
        """How many there are."""
        return sum(len(waiting) for waiting in list(self.by_stream.values()))

    def add(self, work: Submitted) -> None:
        """One more. Only the thread itself adds."""
        waiting = self.by_stream.get(work.stream)
        if waiting is None:
            waiting = self.by_stream[work.stream] = deque()
        waiting.append(work)

    def drop_oldest(self) -> Submitted:
        """Take out the one that was submitted first."""
        waiting = [each for each in self.by_stream.values() if each]
        return min(waiting, key=lambda each: each[0].submit_ns).popleft()
