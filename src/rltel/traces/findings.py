"""What a check of traces finds, in words."""

from dataclasses import dataclass, field, replace
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


@dataclass
class _Repeated:
    first: Finding
    count: int = 0
    files: set[Path] = field(default_factory=set)

    def told(self) -> Finding:
        if self.count == 1:
            return self.first
        spread = f", in {len(self.files)} files" if len(self.files) > 1 else ""
        return replace(self.first, text=f"{self.first.text} ({self.count} such{spread})")


class Findings:
    """Collects findings. Of a kind that repeats, the first is told with its place, and how many there are."""

    def __init__(self) -> None:
        self._single: list[Finding] = []
        self._repeated: dict[str, _Repeated] = {}

    def problem(self, path: Path, place: str, text: str) -> None:
        """Something that makes a wrong picture."""
        self._single.append(Finding("problem", str(path), place, text))

    def note(self, path: Path, place: str, text: str) -> None:
        """Something worth knowing."""
        self._single.append(Finding("note", str(path), place, text))

    def repeated(self, at: Position, what: str, text: str) -> None:
        """A problem that there may be many of, in many files: ``what`` says which are of one kind."""
        known = self._repeated.get(what)
        if known is None:
            known = self._repeated[what] = _Repeated(Finding("problem", str(at.path), str(at), text))
        known.count += 1
        known.files.add(at.path)

    def all(self) -> list[Finding]:
        """Problems first, in the order in which they were found."""
        several = [each.told() for each in self._repeated.values()]
        return sorted(self._single + several, key=lambda each: each.kind == "note")
