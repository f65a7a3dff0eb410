"""What a phase is called in OpenTelemetry: ``rl.phase.duration``, and the ``rl.*`` durations that some phases feed too.

A label goes with a time wherever it travels (payloads, ranks, the JSONL), since neither role nor kind can be read from
a key.
"""

from typing import Final, Literal, NamedTuple, get_args

PhaseKind = Literal["exclusive", "nested", "background"]
RlPart = Literal["loop", "step", "sample", "reward", "train", "sync"]
"""The part of the ``rl.*`` proposal that a time is: it also leaves as ``rl.<part>.duration``."""
LOOP: Final = "loop"  # the kind of a whole loop's time, beside those of phases

_KINDS = (*get_args(PhaseKind), LOOP)
_PARTS = get_args(RlPart)
_PRIMARY = "learner"
_FIELDS = 4


class PhaseLabel(NamedTuple):
    """Which time this is: whose loop it belongs to, the phase, its kind (or ``loop``), its part of ``rl.*``."""

    role: str
    phase: str
    kind: str
    rl: str | None = None

    @property
    def written(self) -> str:
        """As text. The phase comes last: it alone may hold a colon."""
        return f"{self.kind}:{self.rl or ''}:{self.role}:{self.phase}"

    def __str__(self) -> str:
        what = LOOP if self.kind == LOOP else f"{self.kind} phase"
        return f'the {what} "{self.phase}" of the {self.role}'


def read_label(written: str) -> PhaseLabel | None:
    """A label from its text, which may be another process's; None if it is none."""
    fields = written.split(":", _FIELDS - 1)
    if len(fields) != _FIELDS or not is_text(written):
        return None
    kind, rl, role, phase = fields
    if kind not in _KINDS or (rl and rl not in _PARTS) or not role or not phase.strip("/"):
        return None
    return PhaseLabel(role, phase, kind, rl or None)


def phase_series(label: PhaseLabel) -> list[tuple[str, dict[str, str]]]:
    """The OpenTelemetry names that a time has, with their attributes: one or two, the first its own."""
    own = {"rl.role": label.role, "rl.phase": label.phase, "rl.phase.kind": label.kind}
    as_part = [part_series(label.rl, label.role)] if label.rl else []
    # A whole loop's time is no phase of it: it has a name as one only where it has no other.
    return as_part if label.kind == LOOP and as_part else [("rl.phase.duration", own), *as_part]


def part_series(part: str, role: str) -> tuple[str, dict[str, str]]:
    """A part of the proposal. The learner's loop is the run's loop: only other roles say whose part it is."""
    return f"rl.{part}.duration", {} if role == _PRIMARY else {"rl.role": role}


def is_text(given: str) -> bool:
    """Whether it can be written as UTF-8: labels go into files."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True
