"""What a timeline is: the phases of one role's loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rltel.names.phases import PhaseKind

Basis = Literal["wall", "cycle", "parts", "none"]
"""What is 100%: the loop's measured time, of which what no phase has is Other; the sum of its exclusive phases; the
measured time, whose phases may overlap; nothing, where times are not of one loop."""


@dataclass(frozen=True, slots=True)
class Line:
    """One phase of a timeline."""

    key: str
    text: str
    kind: PhaseKind
    quiet: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The phases of one role's loop, each followed by its nested ones."""

    role: str
    loop_key: str | None
    loop_text: str
    basis: Basis
    lines: tuple[Line, ...]

    def exclusive(self) -> Iterator[Line]:
        """The phases that add up to the loop."""
        return (line for line in self.lines if line.kind == "exclusive")
