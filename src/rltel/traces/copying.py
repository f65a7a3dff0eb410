"""Copies one file's packets into a merged trace: times to the wall clock, sequences and pids made unique.

Most packets are a slice's begin or end. These are rewritten as bytes (the timestamp and the sequence's number stand
first); everything else goes through the official classes. Tests prove that both ways say the same.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import ProcessDescriptor, TracePacket

from rltel.core.errors import TraceError
from rltel.export.protobuf import varint
from rltel.traces.clocks import Placement
from rltel.traces.reader import parsed, raw_packets, read_varint, text
from rltel.traces.skim import REALTIME
from rltel.traces.stamps import NO_TIME, stamp, stamped, unstamped

_FLAGS_TAG, _EVENT_TAG = 0x68, 0x5A  # fields 13 and 11 of TracePacket
_FIRST_PID = 1 << 22  # above any real pid, for processes whose pid another one has
_END_OF_TIME = 1 << 63  # in 2262
_MOST_KEPT = 1 << 14
_LONGEST_KEPT = 64


class Pids:
    """Pids in the merged file: a process keeps its own, unless another process has it already."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._renamed: dict[tuple[int, int], int] = {}
        self._spare = count(_FIRST_PID)

    def of(self, pid: int, process_track: int) -> int:
        """The pid of a process in the merged file."""
        if self._owners.setdefault(pid, process_track) == process_track:
            return pid
        if (pid, process_track) not in self._renamed:
            self._renamed[pid, process_track] = next(self._spare)
        return self._renamed[pid, process_track]


class FileCopy:
    """One file on its way into a merged one."""

    def __init__(
        self, path: Path, placement: Placement, pids: Pids, sequences: Iterator[int], producer: str = ""
    ) -> None:
        self.path = path
        self.last_ns = 0
        """The latest time (on the file's base clock) that was copied."""
        self._placement = placement
        self._pids = pids
        self._new_sequences = sequences
        self._producer = producer
        self._sequences: dict[int, int] = {}
        self._default_clock: dict[int, int] = {}
        self._process_tracks: dict[int, int] = {}  # by the pid in the file
        self._tails: dict[bytes, tuple[int, bytes]] = {}  # to add to the time, and the rest of the packet
        self._heads: dict[bytes, tuple[int, bytes]] = {}  # the same of a sequence, by the byte of its number

    def packets(self, passed: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """The packets as they go into the merged file, each as the bytes of its message.

        Raises `TraceError` for an event that cannot be placed in time, or a damaged file.
        """
        tails = self._tails
        convert, constant = self._placement.convert, self._placement.constant
        last = 0
        for time, tail in stamped(raw_packets(self.path, passed)):
            found = tails.get(tail) or self._rewritten(time, tail)
            if found is None:
                yield from self._copied(time, tail)
                continue
            base = time + found[0]
            if base > last:
                self.last_ns = last = base
            placed = base + constant if constant is not None else convert(base)
            if not 0 <= placed < _END_OF_TIME:
                raise self._nowhere(placed)
            yield stamp(placed) + found[1]

    def _rewritten(self, time: int, tail: bytes) -> tuple[int, bytes] | None:
        """What comes of all packets with that rest, or None if they must be parsed: they hold more than an event."""
        if time == NO_TIME or tail[:1] != b"\x50":
            return None
        head = self._heads.get(tail[1:2])
        at = 2
        if head is None:
            sequence, at = read_varint(tail, 1)
            head = self._new_head(sequence) if at else None
            if head is None:
                return None
            if at == 2:
                self._heads[tail[1:2]] = head
        if not _is_plain_event(tail, at):
            return None
        found = (head[0], head[1] + tail[at:])
        if len(tail) <= _LONGEST_KEPT:
            if len(self._tails) >= _MOST_KEPT:
                self._tails.clear()
            self._tails[tail] = found
        return found

    def _new_head(self, sequence: int) -> tuple[int, bytes] | None:
        """What to add to the times of a sequence, and its number in the merged file, as its packets begin."""
        clock = self._default_clock.get(sequence, 0)
        if sequence not in self._sequences or clock not in self._placement.clocks:
            return None
        return self._placement.clocks[clock], b"\x50" + varint(self._sequences[sequence])

    def _copied(self, time: int, tail: bytes) -> Iterator[bytes]:
        """Any packet, through the official classes."""
        made = parsed(unstamped(time, tail), self.path)
        if made.HasField("clock_snapshot"):
            return
        old = made.trusted_packet_sequence_id
        if old not in self._sequences:
            self._sequences[old] = next(self._new_sequences)
        self._place(made, old)
        made.trusted_packet_sequence_id = self._sequences[old]
        if made.HasField("track_descriptor"):
            self._own_pid(made)
        yield made.SerializeToString()

    def _place(self, made: TracePacket, sequence: int) -> None:
        """Convert the packet's time to the wall clock, and the sequence's defaults with it."""
        if made.HasField("trace_packet_defaults"):
            self._default_clock[sequence] = made.trace_packet_defaults.timestamp_clock_id
            made.trace_packet_defaults.timestamp_clock_id = REALTIME
            self._tails.clear()
            self._heads.clear()
        if not made.HasField("timestamp"):
            return
        clock = made.timestamp_clock_id or self._default_clock.get(sequence, 0) or self._placement.default_clock
        if clock not in self._placement.clocks:
            raise TraceError(f"{self.path}: an event is on clock {clock}, for which the file has no anchor")
        base = made.timestamp + self._placement.clocks[clock]
        self.last_ns = max(self.last_ns, base)
        placed = self._placement.convert(base)
        if not 0 <= placed < _END_OF_TIME:
            raise self._nowhere(placed)
        made.timestamp = placed
        made.ClearField("timestamp_clock_id")

    def _own_pid(self, made: TracePacket) -> None:
        described = made.track_descriptor
        if described.HasField("process"):
            self._process_tracks[described.process.pid] = described.uuid
            if self._producer:
                described.process.process_name = f"{self._producer} ({_told(described.process)})"
            described.process.pid = self._pids.of(described.process.pid, described.uuid)
        if described.HasField("thread"):
            track = self._process_tracks.get(described.thread.pid, 0)
            described.thread.pid = self._pids.of(described.thread.pid, track)

    def _nowhere(self, placed: int) -> TraceError:
        seconds = placed / 1e9
        return TraceError(f"{self.path}: an event would be at {seconds:.0f} s since 1970: its anchor cannot be right")


def _told(process: ProcessDescriptor) -> str:
    """What tells a profile's process from its others: its pid, if it is one (devices have made-up ones)."""
    if process.pid < _FIRST_PID:
        return str(process.pid)
    return ", ".join(map(text, process.process_labels)) or text(process.process_name)


def _is_plain_event(tail: bytes, at: int) -> bool:
    """Whether nothing but flags and one track event follow, in any order."""
    size = len(tail)
    if size > at + 4 and tail[at] == _FLAGS_TAG and tail[at + 1] < 0x80 and tail[at + 2] == _EVENT_TAG:
        length = tail[at + 3]  # as our own writer has it
        if length < 0x80:
            return size == at + 4 + length
    while 0 < at < size:
        tag, at = tail[at], at + 1
        if tag not in (_FLAGS_TAG, _EVENT_TAG):
            return False
        value, at = read_varint(tail, at)
        if tag == _EVENT_TAG and at:
            at += value
    return at == size
