"""When a writer begins on an axis: at its first step there, and again as a later incarnation."""

from rltel.core.identity import Identity

_Place = tuple[str, int]


class Restarts:
    """Which writers have begun, and where. ``first``: whether the first one of a place begins, or goes on."""

    def __init__(self, *, first: bool) -> None:
        self._incarnations: dict[_Place, int] = {}
        self._goes_on = not first
        self._begun: set[str] = set()
        self._steps: dict[str, int] = {}  # of those that begin: a full disk may refuse that, and take a later step

    def begins_at(self, axis: str, step: int, who: Identity | None = None) -> int | None:
        """The step at which the writer begins on this axis; None if it has begun.

        ``who`` writes: None is who wrote before. To be asked until `has_begun`.
        """
        if who is not None and self._is_earlier(who):
            return None
        if self._goes_on or axis in self._begun:
            return None
        return self._steps.setdefault(axis, step)

    def has_begun(self, axis: str) -> None:
        """That is said."""
        self._begun.add(axis)

    def _is_earlier(self, who: Identity) -> bool:
        """Whether this is one that a later incarnation has followed. The later one begins anew."""
        place = who.role, who.index
        newest = self._incarnations.setdefault(place, who.incarnation)
        if who.incarnation > newest:
            self._incarnations[place] = who.incarnation
            self._goes_on = False
            self._begun.clear()
            self._steps.clear()
        return who.incarnation < newest
