"""Many processes' traces as one file, on one clock.

Every timestamp is converted to the wall clock by the anchor in its own file (the trace processor would refuse some
mixtures of clocks). Track ids are unique already; equal pids of different processes are told apart.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket

from rltel.core.errors import TraceError
from rltel.export.perfetto_wire import compressed, packet
from rltel.traces.reader import read_packets

SUFFIX = ".pftrace"
_REALTIME = BuiltinClock.BUILTIN_CLOCK_REALTIME
_BLOCK_BYTES = 1 << 20
_SAME_BOOT_NS = 1_000_000_000
_FIRST_PID = 1 << 22  # above any real pid, for processes whose pid another one has


@dataclass
class Merged:
    """What a merge did."""

    path: Path
    files: list[Path] = field(default_factory=list)
    packets: int = 0
    uncertainty: str = ""


def merge(source: Path, output: Path, progress: Callable[[Path], None] | None = None) -> Merged:
    """Merge the traces of a run directory (its ``trace`` folder), or all below another folder, into one file.

    Raises `TraceError` if there are none, or if one has no anchor to place it in time.
    """
    folder = source / "trace" if (source / "trace").is_dir() else source
    files = sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.resolve() != output.resolve())
    if not files:
        raise TraceError(f"{source}: no trace files (*{SUFFIX}) below it")
    result = Merged(output, files)
    pids = _Pids()
    sequences = count(1)
    draft = output.with_name(f".{output.name}.part")
    try:
        with draft.open("wb") as file:
            out = _Output(file.write)
            out.add(_clock_packet())
            for path in files:
                if progress is not None:
                    progress(path)
                result.packets += _copy(path, out, pids, sequences)
            out.flush()
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)  # it is there only if the merge failed
    result.uncertainty = _uncertainty(pids)
    return result


def _uncertainty(pids: "_Pids") -> str:
    if len(pids.boots) <= 1:
        return "one host: all processes read the same clock"
    return f"{len(pids.boots)} hosts: as good as their clocks agree (NTP); offsets between them were not measured"


def _clock_packet() -> TracePacket:
    """Says that times in this file are wall-clock times."""
    made = TracePacket(trusted_packet_sequence_id=next(count(1)))
    made.clock_snapshot.primary_trace_clock = _REALTIME
    made.clock_snapshot.clocks.add(clock_id=_REALTIME, timestamp=0)
    return made


class _Pids:
    """Pids in the merged file: a process keeps its own, unless another process has it already."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._renamed: dict[tuple[int, int], int] = {}
        self._spare = count(_FIRST_PID)
        self.boots: list[int] = []
        """When the hosts booted (ns): processes of one host agree on it, but for what the wall clock was set by."""

    def of(self, pid: int, process_track: int) -> int:
        if self._owners.setdefault(pid, process_track) == process_track:
            return pid
        if (pid, process_track) not in self._renamed:
            self._renamed[pid, process_track] = next(self._spare)
        return self._renamed[pid, process_track]


class _Output:
    """Packets in compressed blocks."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._block: list[bytes] = []
        self._bytes = 0

    def add(self, made: TracePacket) -> None:
        raw = packet(made.SerializeToString())
        self._block.append(raw)
        self._bytes += len(raw)
        if self._bytes >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        packets = b"".join(self._block)
        if packets:
            self._write(compressed(packets, zlib.compress(packets)))
        self._block, self._bytes = [], 0


@dataclass
class _File:
    """What is known of one file while it is copied."""

    path: Path
    to_realtime: dict[int, int] = field(default_factory=dict)
    default_clock: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    process_track: int = 0


def _copy(path: Path, out: _Output, pids: _Pids, sequences: Iterable[int]) -> int:
    file = _File(path)
    new_sequence = iter(sequences)
    copied = 0
    for made in read_packets(path):
        if made.HasField("clock_snapshot"):
            _read_clocks(file, made, pids)
            continue
        old = made.trusted_packet_sequence_id
        if old not in file.sequences:
            file.sequences[old] = next(new_sequence)
        _place(file, made, old)
        made.trusted_packet_sequence_id = file.sequences[old]
        if made.HasField("track_descriptor"):
            _own_pid(file, made, pids)
        out.add(made)
        copied += 1
    if copied and not file.to_realtime:  # a process that was killed at its start leaves an empty file
        raise TraceError(
            f"{path}: has no clock anchor (ClockSnapshot with the wall clock), so it cannot be placed in time"
        )
    return copied


def _read_clocks(file: _File, made: TracePacket, pids: _Pids) -> None:
    """The offset of each clock of the file to the wall clock, from its first snapshot."""
    if made.clock_snapshot.primary_trace_clock == _REALTIME:
        raise TraceError(f"{file.path}: is a merged trace already; merge into a place outside, or remove it first")
    times = {clock.clock_id: clock.timestamp for clock in made.clock_snapshot.clocks}
    if file.to_realtime or _REALTIME not in times:
        return
    file.to_realtime = {clock: times[_REALTIME] - time for clock, time in times.items()}
    boot = file.to_realtime.get(BuiltinClock.BUILTIN_CLOCK_BOOTTIME, 0)
    if all(abs(boot - known) > _SAME_BOOT_NS for known in pids.boots):
        pids.boots.append(boot)


def _place(file: _File, made: TracePacket, sequence: int) -> None:
    """Convert the packet's time to the wall clock, and the sequence's defaults with it."""
    if made.HasField("trace_packet_defaults"):
        file.default_clock[sequence] = made.trace_packet_defaults.timestamp_clock_id
        made.trace_packet_defaults.timestamp_clock_id = _REALTIME
    if not made.HasField("timestamp"):
        return
    clock = made.timestamp_clock_id or file.default_clock.get(sequence, BuiltinClock.BUILTIN_CLOCK_BOOTTIME)
    if clock not in file.to_realtime:
        raise TraceError(f"{file.path}: an event is on clock {clock}, for which the file has no anchor before it")
    made.timestamp += file.to_realtime[clock]
    made.ClearField("timestamp_clock_id")


def _own_pid(file: _File, made: TracePacket, pids: _Pids) -> None:
    described = made.track_descriptor
    if described.HasField("process"):
        file.process_track = described.uuid
        described.process.pid = pids.of(described.process.pid, file.process_track)
    if described.HasField("thread"):
        described.thread.pid = pids.of(described.thread.pid, file.process_track)
