"""Something that is wrong with a run, and of which class it is."""

from dataclasses import dataclass

TOO_SHORT = "too_short"
"""The class of a run that ended before it could show what it was asked to."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a soak fails. ``kind`` is a failure class, or None if this says nothing of the cause."""

    reason: str
    kind: str | None = None
