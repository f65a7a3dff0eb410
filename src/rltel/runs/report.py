"""What a replay did, or would do."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Sent:
    """One process's commits: how many there are, the destination had already, and were sent now."""

    process: str
    commits: int
    had: int
    sent: int = 0
    note: str = ""
    """Why it was left out."""
    refused: str = ""
    """Which part of what was sent the destination did not take, last: none of it is sent again."""

    @property
    def missing(self) -> int:
        """Those that the destination still has not had."""
        return 0 if self.note else self.commits - self.had - self.sent


@dataclass(slots=True)
class Report:
    """What a replay did, or would do.

    ``elsewhere``: where the run itself delivered to by this name, if not here. ``error``: why it stopped, if it did.
    """

    destination: str
    place: str
    note: str
    elsewhere: list[str] = field(default_factory=list)
    processes: list[Sent] = field(default_factory=list)
    error: str | None = None

    @property
    def sent(self) -> int:
        """Commits that were sent."""
        return sum(each.sent for each in self.processes)

    @property
    def missing(self) -> int:
        """Commits that are still to be sent."""
        return sum(each.missing for each in self.processes)
