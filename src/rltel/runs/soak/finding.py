"""Something that is wrong with a run, and of which class it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a soak fails. ``kind`` is a failure class, or None if this says nothing of the cause."""

    reason: str
    kind: str | None = None
