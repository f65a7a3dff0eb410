"""The window of steps that is traced."""


class Window:
    """From the begin of the first step to the end of the last one, as one clock of the process counts them.

    Which clock: the first that begins an iteration with a number (``rltel.step(n)``, ``clock.iteration(step=n)``);
    until there is one, the first that begins any: its own are counted, from 0. (A collector's cycles have no numbers.)
    """

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._clock: object = None
        self._numbered = False

    def begin(self, step: int, clock: object, *, numbered: bool, on: bool) -> bool:
        """Whether to trace from here on, where an iteration begins. ``on``: whether it was traced up to here."""
        if self._clock is None or (numbered and not self._numbered):
            self._clock, self._numbered = clock, numbered
        return self.first <= step <= self.last if self._clock is clock else on

    def ends_with(self, step: int, clock: object) -> bool:
        """Whether this iteration, which ends, was the last one."""
        return self._clock is clock and step >= self.last
