"""Many processes' traces as one file, on one clock.

Every timestamp is converted to the wall clock (the trace processor would refuse some mixtures of clocks). Track ids
are unique already; equal pids of different processes are told apart.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from rltel.core.clock import Anchor
from rltel.core.errors import TraceError
from rltel.export.perfetto.wire import compressed
from rltel.export.protobuf import varint
from rltel.traces.clocks import Alignment, host_key
from rltel.traces.copying import FileCopy, Pids
from rltel.traces.profiles import PRODUCER, Profile, converted
from rltel.traces.progress import Meter, Progress
from rltel.traces.reader import SUFFIX
from rltel.traces.skim import REALTIME, Skimmed, in_parts, skim, trace_files
from rltel.traces.sources import gathered, spell_files
from rltel.traces.writing import Write, draft

_BLOCK_BYTES = 1 << 20
_LEVEL = 4  # of zlib, as in the files that are merged
_HEADS = [b"\x0a" + varint(length) for length in range(256)]  # of packets of usual lengths


@dataclass
class Merged:
    """What a merge did."""

    path: Path
    files: list[Path] = field(default_factory=list)
    runs: int = 1
    """Of how many runs they are."""
    left_out: list[Path] = field(default_factory=list)
    """Traces of the folder that are merged already."""
    packets: int = 0
    uncertainty: str = ""
    """How well the files' clocks agree, in words."""
    uncertainty_ns: int | None = None
    """How far two events may be from their true distance: 0 on one host; None where it is only as good as NTP."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What could not be taken from profiles, by reason."""


def merge(source: Path, output: Path, progress: Progress | None = None, kineto: Sequence[Path] = ()) -> Merged:
    """Merge the traces of a run directory (its ``trace`` folder), or all below another folder, into one file.

    ``kineto``: exports of torch.profiler (JSON, gzip or not) of the same run, laid on the same clock.

    An earlier merge's output is replaced, and other merged traces in the folder are left out. Raises `TraceError` if
    there are no traces or only empty ones, if one has no anchor to place it in time, if one is there twice, if
    ``output`` is one of them, or if it cannot be written.
    """
    _refuse_to_replace(output, [*trace_files(source), *kineto])
    given = gathered(source, output)
    _refuse_emptiness(source, given.files)
    _refuse_copies(given.files)
    alignment = Alignment(given.files)
    result = Merged(output, [*given.paths, *kineto], given.runs, given.merged_before)
    with draft(output) as write, converted(kineto, result.skipped, progress) as profiles:
        meter = Meter([*given.paths, *(profile.native.path for profile in profiles)], progress)
        _Merge(alignment, write, result, meter).run(given.files, profiles)
    return result


def _refuse_to_replace(output: Path, sources: Iterable[Path]) -> None:
    """What was recorded must not be lost to a slip of the pen; what was merged before can be made again."""
    if any(path.resolve() == output.resolve() for path in sources) and not _is_old_output(output):
        raise TraceError(f"{output}: is one of the files to merge, and would be replaced; give another output")


def _is_old_output(path: Path) -> bool:
    if path.suffix != SUFFIX:
        return False
    found = skim(path)
    return found.is_merged or not found.has_packets


def _refuse_emptiness(source: Path, files: Sequence[Skimmed]) -> None:
    if not any(file.has_packets for file in files):
        what = f"{spell_files(len(files))} below it, without a packet" if source.is_dir() else "is empty"
        raise TraceError(f"{source}: nothing to merge: {what} (killed at the start, or just begun)")


def _refuse_copies(files: Iterable[Skimmed]) -> None:
    """What is there twice would be drawn over itself."""
    seen: dict[tuple[int, int, Anchor], Path] = {}
    for file in files:
        if file.process and file.first_anchor:
            _, _, part = in_parts(file.path)
            other = seen.setdefault((file.process, part, file.first_anchor), file.path)
            if other != file.path:
                raise TraceError(f"{file.path}: is a copy of {other}; keep one of them")


class _Merge:
    """One merge: every file through its `FileCopy`, into blocks."""

    def __init__(self, alignment: Alignment, write: Write, result: Merged, meter: Meter) -> None:
        self._alignment = alignment
        self._out = _Output(write)
        self._result = result
        self._meter = meter
        self._pids = Pids()
        self._sequences = count(1)

    def run(self, files: Sequence[Skimmed], profiles: Sequence[Profile]) -> None:
        self._out.add(_clock_packet(next(self._sequences)).SerializeToString())
        last_ns: dict[str, int] = {}
        for file in files:
            passed = self._meter.begin(file.path)
            if file.has_packets:
                copy = FileCopy(file.path, self._alignment.of(file), self._pids, self._sequences)
                self._add(copy.packets(passed))
                last_ns[host_key(file)] = max(last_ns.get(host_key(file), 0), copy.last_ns)
        strange = [profile.original for profile in profiles if not self._add_profile(profile)]
        self._out.flush()
        words = [f"{path.name}: of no process here, placed by its wall clock" for path in strange]
        self._result.uncertainty = "; ".join([self._alignment.uncertainty(last_ns), *words])
        self._result.uncertainty_ns = None if strange else self._alignment.uncertainty_ns(last_ns)

    def _add_profile(self, profile: Profile) -> bool:
        """Whether it is known on which host it was taken."""
        host = self._alignment.host_of(profile.pids)
        placement = self._alignment.of_wall(profile.native, host)
        copy = FileCopy(profile.native.path, placement, self._pids, self._sequences, PRODUCER)
        self._add(copy.packets(self._meter.begin(profile.native.path, profile.original)))
        return host is not None

    def _add(self, packets: Iterable[bytes]) -> None:
        add, copied = self._out.add, 0
        for body in packets:
            add(body)
            copied += 1
        self._result.packets += copied


def _clock_packet(sequence: int) -> TracePacket:
    """Says that times in this file are wall-clock times."""
    made = TracePacket(trusted_packet_sequence_id=sequence)
    made.clock_snapshot.primary_trace_clock = REALTIME
    made.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=0)
    return made


class _Output:
    """Packets in compressed blocks."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._block: list[bytes] = []
        self._bytes = 0

    def add(self, body: bytes) -> None:
        """Take the bytes of one packet's message."""
        length = len(body)
        self._block += (_HEADS[length] if length < len(_HEADS) else b"\x0a" + varint(length)), body
        self._bytes += length
        if self._bytes >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is there."""
        packets = b"".join(self._block)
        if packets:
            self._write(compressed(packets, zlib.compress(packets, _LEVEL)))
        self._block, self._bytes = [], 0
