"""Exports of torch.profiler (Kineto JSON), made native so that they can be merged with the traces of the same run.

Their times are those of the host's wall clock (``baseTimeNanoseconds``).
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rltel.core.errors import TraceError
from rltel.traces.progress import Progress
from rltel.traces.reader import SUFFIX, parsed, raw_packets
from rltel.traces.skim import Skimmed, skim
from rltel.traces.writing import check_input

PRODUCER = "torch.profiler"
_DESCRIPTOR_TAG = b"\xe2\x03"  # field 60 of TracePacket


@dataclass(frozen=True)
class Profile:
    """One profile: where it came from, what it became, and the pids in it."""

    original: Path
    native: Skimmed
    pids: frozenset[int]


@contextmanager
def converted(
    profiles: Sequence[Path], skipped: Counter[str], progress: Progress | None = None
) -> Iterator[list[Profile]]:
    """The profiles as native files, until the block ends. What is broken in them is counted in ``skipped``.

    Raises `TraceError` for one that cannot be read, or does not say when it was.
    """
    if not profiles:
        yield []
        return
    for original in profiles:
        check_input(original, "an export of torch.profiler (JSON, gzip or not)")
    from rltel.traces.convert import convert  # needed for profiles only

    with tempfile.TemporaryDirectory(prefix="rltel-") as folder:
        made = []
        for number, original in enumerate(profiles):
            path = Path(folder) / f"{number}{SUFFIX}"
            for reason, count in convert([original], path, progress).skipped.items():
                skipped[f"{original.name}: {reason}"] += count
            made.append(_profile(original, path))
        yield made


def _profile(original: Path, path: Path) -> Profile:
    native = skim(path)
    if not native.snapshot:
        raise TraceError(
            f"{original}: its times count from nothing that is known (no baseTimeNanoseconds), so it cannot be laid "
            "on the clock of the run"
        )
    return Profile(original, native, frozenset(_pids_in(path)))


def _pids_in(path: Path) -> Iterator[int]:
    for raw in raw_packets(path):
        if _DESCRIPTOR_TAG in raw:
            described = parsed(raw, path).track_descriptor
            if described.HasField("process"):
                yield described.process.pid
