"""What a check of traces finds, in words."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol


@dataclass(frozen=True)
class Finding:
    """One thing that was found: a problem makes a wrong picture, a note is worth knowing (a file cut by a kill)."""

    kind: Literal["problem", "note"]
    file: str
    place: str
    """Where in the file, in words; empty if it is about the file as a whole."""
    text: str

    def __str__(self) -> str:
        where = f"{self.file}, {self.place}" if self.place else self.file
        return f"{self.kind}: {where}: {self.text}"


class Position(Protocol):
    """Where in a file the check is. Asked for words only when there is something to tell."""

    path: Path

    def __str__(self) -> str: ...


class Findings:
    """Collects findings. Of what repeats, the first is told with its place, and the number of all."""

    def __init__(self) -> None:
        self._single: list[Finding] = []
        self._repeated: dict[tuple[Path, str], tuple[Finding, int]] = {}

    def problem(self, path: Path, place: str, text: str) -> None:
        """Something that makes a wrong picture."""
        self._single.append(Finding("problem", str(path), place, text))

    def note(self, path: Path, place: str, text: str) -> None:
        """Something worth knowing."""
        self._single.append(Finding("note", str(path), place, text))

    def repeated(self, at: Position, what: str, text: str) -> None:
        """A problem that there may be many of: ``what`` says which are the same."""
        key = at.path, what
        if key in self._repeated:
            first, count = self._repeated[key]
            self._repeated[key] = first, count + 1
        else:
            self._repeated[key] = Finding("problem", str(at.path), str(at), text), 1

    def all(self) -> list[Finding]:
        """Problems first, in the order in which they were found."""
        several = [
            first if count == 1 else Finding(first.kind, first.file, first.place, f"{first.text} ({count} such)")
            for first, count in self._repeated.values()
        ]
        return sorted(self._single + several, key=lambda each: each.kind == "note")
