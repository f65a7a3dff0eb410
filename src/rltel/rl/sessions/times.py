"""How long a phase took where its calls may overlap: as time that passed, and as the sum of its calls."""


class OverlappingTime:
    """The time that calls of one phase took, in constant memory. Nanoseconds, of one monotonic clock."""

    __slots__ = ("_begun_ns", "_busy_ns", "_since_ns", "_wall_ns", "calls", "open")

    def __init__(self) -> None:
        self.calls = 0
        """How many have begun."""
        self.open = 0
        """How many have not ended."""
        self._busy_ns = 0
        self._wall_ns = 0
        self._since_ns = 0  # since when something is open
        self._begun_ns = 0  # the sum of the begins of what is open

    def begin(self, now_ns: int) -> None:
        """A call begins."""
        if not self.open:
            self._since_ns = now_ns
        self.open += 1
        self.calls += 1
        self._begun_ns += now_ns

    def end(self, begun_ns: int, now_ns: int) -> None:
        """The call that began then ends."""
        self.open -= 1
        self._begun_ns -= begun_ns
        self._busy_ns += now_ns - begun_ns
        if not self.open:
            self._wall_ns += now_ns - self._since_ns

    def wall_ns(self, now_ns: int) -> int:
        """How long at least one call was open: two that overlap count once."""
        return self._wall_ns + (now_ns - self._since_ns if self.open else 0)

    def busy_ns(self, now_ns: int) -> int:
        """The sum of all calls' durations: two that overlap count twice."""
        return self._busy_ns + self.open * now_ns - self._begun_ns
