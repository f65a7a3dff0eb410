"""What a soak is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rltel.core.errors import RltelError


class SoakError(RltelError, ValueError):
    """A soak that cannot begin: settings that cannot be, or a system that it cannot watch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the whole tree may grow after the warm-up. None: any amount."""

    rss_growth_mib: float | None = None
    descriptor_growth: int | None = None
    process_growth: int | None = None
    warmup_s: float = 60.0
    """Seconds from the start until the tree's size is taken as its own: caches, buffers and compilers fill up first."""

    def __post_init__(self) -> None:
        _not_negative(self, "rss_growth_mib", "descriptor_growth", "process_growth", "warmup_s")

    @property
    def is_set(self) -> bool:
        """Whether any is asked for."""
        return not (self.rss_growth_mib is None and self.descriptor_growth is None and self.process_growth is None)


@dataclass(frozen=True, slots=True)
class Settings:
    """One soak. Times are seconds.

    Raises:
        SoakError: A value that cannot be.
    """

    command: Sequence[str]
    """What to run, as a list of arguments."""
    folder: Path
    """Where its files appear: growth of those is progress, and its ``run_summary.json`` is read."""
    output: Path
    """Where the artifact goes."""
    sets_run_dir: bool = True
    """Whether the command is told to use ``folder`` as its run directory (``RLTEL_RUN_DIR``)."""
    sample_interval_s: float = 5.0
    startup_timeout_s: float = 600.0
    """For the first progress."""
    stale_progress_s: float = 120.0
    """From one progress to the next."""
    stop_grace_s: float = 10.0
    """From each signal to the next stronger one, when the command has to be stopped."""
    post_shutdown_grace_s: float = 5.0
    """For the command's children, after it has ended by itself."""
    min_duration_s: float = 0.0
    max_samples: int = 2000
    """Samples kept in the artifact; of more, evenly many are left out (extremes and limits see all)."""
    max_console_mib: float = 64.0
    """Of the command's output; beyond that its middle is cut out."""
    require_manifest: bool = False
    """Whether a run without a runtime manifest fails."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.command:
            raise SoakError("command: expected a program and its arguments, got nothing")
        for name in ("sample_interval_s", "startup_timeout_s", "stale_progress_s", "max_console_mib"):
            if not getattr(self, name) > 0:
                raise SoakError(f"{name}: expected a number > 0, got {getattr(self, name)!r}")
        if self.max_samples < 2:
            raise SoakError(f"max_samples: expected a whole number >= 2, got {self.max_samples!r}")
        _not_negative(self, "stop_grace_s", "post_shutdown_grace_s", "min_duration_s")

    @property
    def console(self) -> Path:
        """Where the command's output goes."""
        return self.folder / "soak-console.log"


def _not_negative(given: object, *names: str) -> None:
    for name in names:
        value = getattr(given, name)
        if value is not None and not value >= 0:
            raise SoakError(f"{name}: expected a number >= 0, got {value!r}")
