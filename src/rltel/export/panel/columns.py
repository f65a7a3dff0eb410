"""The numbers of samples that have the same keys, so that their sums are one operation."""

from array import array

import numpy as np

from rltel.export.panel.sample import Sample

_KEPT_BEFORE_CLEARING = 64


class Columns:
    """Rows of numbers, one a sample: appended at the end, dropped from the front, each in constant time (amortised).

    Sums are taken of what is there, never kept up by subtracting: a value of 1e20 leaves no trace when it has gone.
    """

    def __init__(self, sample: Sample) -> None:
        self.values = tuple(sample.values)
        self.fractions = tuple(sample.fractions)
        self._width = len(self.values) + 2 * len(self.fractions)
        self._numbers = array("d")
        self._dropped = 0
        self._rows = 0

    def __len__(self) -> int:
        return self._rows - self._dropped

    def append(self, sample: Sample) -> None:
        """One more sample of these keys."""
        self._numbers.extend(sample.values.values())
        for fraction in sample.fractions.values():
            self._numbers.extend(fraction)
        self._rows += 1

    def drop_first(self) -> None:
        """The oldest sample goes."""
        self._dropped += 1
        if self._dropped >= _KEPT_BEFORE_CLEARING and 2 * self._dropped >= self._rows:
            del self._numbers[: self._dropped * self._width]
            self._rows -= self._dropped
            self._dropped = 0

    def sums(self) -> list[float]:
        """The sums of all columns: the values', then each fraction's two. NaN and infinities stay what they are."""
        rows = np.frombuffer(self._numbers).reshape(self._rows, self._width)[self._dropped :]
        with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs are NaN, as they are everywhere
            sums: list[float] = rows.sum(axis=0).tolist()
        return sums
