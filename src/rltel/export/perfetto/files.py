"""The timeline on disk: append-only native Perfetto files of one process, flushed every second.

Cut anywhere, a file loads: blocks of packets are compressed one by one, and a slice's begin is written before its end
happens. A file that grows too large is followed by another, and all files together are bounded.
"""

import os
import zlib
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path

from rltel.core.clock import Clock
from rltel.core.context import new_id
from rltel.core.identity import Identity
from rltel.export.perfetto import wire
from rltel.export.perfetto.free_tracks import FreeTracks
from rltel.export.perfetto.sieve import Sieve, items
from rltel.export.perfetto.tracks import LaneEncoder
from rltel.export.sink import Destination
from rltel.record.lane import Lane
from rltel.record.records import Record
from rltel.reduce.clock_offsets import ClockOffset

_LEVEL = 4  # of zlib: most of level 6's gain for half its time
_MAX_NAMES = 20_000  # of one sequence; then it starts anew, so that names made up on the way do not fill the memory
_ANCHOR_EVERY_NS = 60_000_000_000
_CHUNK = 1 << 16  # records that are encoded at once
_MAX_WAITING = 64_000_000  # bytes that may wait for a disk that takes nothing


class PerfettoWriter:
    """Writes what a process records to its files."""

    name = "trace"

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        clock: Clock,
        destination: Destination,
        max_file_bytes: int,
        max_total_bytes: int,
        process_track: int | None = None,
        *,
        show_ids: bool = True,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._clock = clock
        self._destination = destination
        self._max_file_bytes = max_file_bytes
        self._max_total_bytes = max_total_bytes
        self._process_track = process_track or new_id()
        self._clock_track = new_id()
        self._tracks: dict[Lane, int] = {}
        self._cpu_tracks: dict[Lane, int] = {}
        self._counter_tracks: dict[tuple[str, str], int] = {}
        self._offset: tuple[int, ClockOffset] | None = None
        self._notes: deque[bytes] = deque()  # packets to be written uncompressed; added to by other threads
        self._parts = 0
        self._total_bytes = 0
        self._full = False
        self._sieves: dict[Lane, Sieve] = {}  # of lanes with open slices that were left out
        self._waiting: deque[tuple[bytes, int]] = deque()  # blocks that the disk did not take; what begins in each
        self._round: list[list[Record]] = []  # what was taken in this round
        self._torn = False  # whether the file ends in half a block
        self._show_ids = show_ids
        self._free = FreeTracks(self._describe_track)
        self._encoders: dict[Lane, LaneEncoder] = {}
        self._descriptor = -1
        folder.mkdir(parents=True, exist_ok=True)
        self._open_part()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._path_of(self._parts)

    def _path_of(self, part: int) -> Path:
        return self._folder / f"{self._identity.name}{'' if part == 1 else f'.part{part}'}.pftrace"

    # --- files ------------------------------------------------------------------------------------------------------

    def _open_part(self) -> None:
        """A new file, complete in itself: clocks, process, and (as they come) threads and names."""
        previous, self._descriptor = self._descriptor, self._create()
        if previous >= 0:
            os.close(previous)
        self._file_bytes = 0
        self._sequences = count(2)  # 1 is for descriptors
        self._in_part: set[Lane] = set()
        self._is_empty = True  # a file with nothing but a head: none follows it
        self._described_counters: set[int] = set()
        self._pending: list[bytes] = []  # packets that are in no file yet
        name = f"{self._identity.role} {self._identity.index}"
        anchor = self._clock.anchor()
        self._notes.extend(
            (
                wire.clock_packet(anchor),
                wire.process_packet(self._process_track, os.getpid(), name, self._clock.host()),
                wire.track_packet(self._clock_track, self._process_track, "clocks"),
            )
        )
        self._anchored_ns = anchor.monotonic_ns
        if self._offset is not None:
            self.note_offset(*self._offset)
        self._begin_free_sequence()
        self._write_notes()

    def _create(self) -> int:
        """Open the next file that is nobody's: another run may have written to this folder (``trace.output_dir``)."""
        for part in count(self._parts + 1):
            with suppress(FileExistsError):
                descriptor = os.open(self._path_of(part), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
                self._parts = part
                return descriptor
        raise AssertionError("count() never ends")

    def _begin_free_sequence(self) -> None:
        sequence = next(self._sequences)
        self._pending.append(wire.sequence_packet(sequence, self._process_track))
        self._free.begin_sequence(sequence)

    # --- clocks -----------------------------------------------------------------------------------------------------

    def _note_anchor(self) -> None:
        """One more reading of all clocks. In no compressed block, so that it is found without unpacking the file."""
        anchor = self._clock.anchor()
        notes: dict[str, int | str] = {
            "monotonic_ns": anchor.monotonic_ns,
            "realtime_ns": anchor.realtime_ns,
            "boottime_ns": anchor.boottime_ns,
            "width_ns": anchor.width_ns,
        }
        self._anchored_ns = anchor.monotonic_ns
        self._notes.append(wire.note_packet(self._clock_track, anchor.monotonic_ns, "rltel.clock_anchor", notes))

    def note_offset(self, reference: int, offset: ClockOffset) -> None:
        """What was measured of this process's clock against that of the process with this track."""
        self._offset = reference, offset
        measured = {"offset_ns": offset.offset_ns, "error_ns": offset.error_ns}
        notes: dict[str, int | str] = {"reference": str(reference), **measured}
        self._notes.append(wire.note_packet(self._clock_track, offset.at_ns, "rltel.clock_offset", notes))

    # --- records ----------------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Look at the clocks now and then."""
        if self._clock.monotonic_ns() - self._anchored_ns >= _ANCHOR_EVERY_NS:
            self._note_anchor()

    def take(self, lane: Lane, records: list[Record]) -> None:
        """Encode what was recorded on a lane."""
        for start in range(0, len(records), _CHUNK):
            if start and self._write_pending():  # a thread that is very busy must fill neither the memory
                self._bound()  # nor, within one round, more of the disk than it may
            chunk = self._sifted(lane, records[start : start + _CHUNK])
            if chunk:
                self._encode(lane, chunk)

    def _encode(self, lane: Lane, records: list[Record]) -> None:
        self._round.append(records)
        self._is_empty = False
        if lane.kind != "shared":
            self._pending.append(self._encoder(lane).encode(records))
            self._pending.append(self._free.take_packets())
            return
        if self._free.names > _MAX_NAMES:
            self._begin_free_sequence()
        for record in records:
            self._free.add(record)
        self._pending.append(self._free.take_packets())

    def _sifted(self, lane: Lane, records: list[Record]) -> list[Record]:
        """Records without what the trace cannot take: it has grown to its bound, or the disk takes nothing."""
        waiting = sum(len(block) for block, _ in self._waiting)
        keep = not self._full and waiting < _MAX_WAITING
        sieve = self._sieves.get(lane)
        if sieve is None:
            if keep:
                return records
            encoder = self._encoders.get(lane)
            sieve = Sieve(len(encoder.open), awaits_time=encoder.awaits_time) if encoder is not None else Sieve()
            self._sieves[lane] = sieve
        records, left_out = sieve.sift(records, keep=keep)
        if keep and sieve.is_clear:
            del self._sieves[lane]
        if left_out:
            self._destination.dropped("max_total_mb" if self._full else "disk", left_out)
        return records

    def end_round(self) -> None:
        """Write what was encoded as one block."""
        self._count_unreadable()
        if self._write_pending():
            self._bound()

    def forget(self, lane: Lane) -> bool:
        """A lane's thread has ended: drop what is kept for it, unless something on it is still open."""
        encoder = self._encoders.get(lane)
        if encoder is not None and encoder.open:
            return False
        for kept in (self._encoders, self._tracks, self._cpu_tracks, self._sieves):
            kept.pop(lane, None)
        self._in_part.discard(lane)
        return True

    def _encoder(self, lane: Lane) -> LaneEncoder:
        encoder = self._encoders.get(lane)
        if encoder is None:
            encoder = self._encoders[lane] = LaneEncoder(self._counter_track, self._free, show_ids=self._show_ids)
        if lane not in self._in_part or encoder.names > _MAX_NAMES:
            self._in_part.add(lane)
            sequence = next(self._sequences)
            self._pending.append(self._described(lane, sequence))
            encoder.begin_sequence(sequence)
        return encoder

    def _described(self, lane: Lane, sequence: int) -> bytes:
        track = self._tracks.setdefault(lane, new_id())
        if lane.kind == "task":
            return wire.lane_packet(sequence, track, self._process_track, lane.name)
        if not lane.thread_time:
            return wire.thread_packet(sequence, track, self._process_track, os.getpid(), lane.thread_id, lane.name)
        cpu_track = self._cpu_tracks.setdefault(lane, new_id())
        return wire.thread_packet(
            sequence, track, self._process_track, os.getpid(), lane.thread_id, lane.name, cpu_track
        ) + wire.cpu_time_packet(cpu_track, track)

    def _describe_track(self, track: int, name: str) -> bytes:
        return wire.track_packet(track, self._process_track, name)

    def _counter_track(self, name: str, unit: str) -> int:
        """The track of a counter, described in this file before it is used."""
        track = self._counter_tracks.setdefault((name, unit), new_id())
        if track not in self._described_counters:
            self._described_counters.add(track)
            self._pending.append(wire.counter_packet(track, self._process_track, name, unit))
        return track

    def _count_unreadable(self) -> None:
        counted: list[LaneEncoder | FreeTracks] = [*self._encoders.values(), self._free]
        unreadable = sum(each.take_unreadable() for each in counted)
        if unreadable:
            error = TypeError("a slice, instant or counter has a name, an attribute or a flow that cannot be drawn")
            self._destination.failed(error, "unreadable", unreadable)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write_pending(self) -> bool:
        """Append what there is. False if the disk does not take it: then it waits, whole."""
        packets, taken = b"".join(self._pending), self._round
        self._pending, self._round = [], []
        if packets:
            block = wire.compressed(packets, zlib.compress(packets, _LEVEL))
            self._waiting.append((block, 0))
        if self._write_notes() and self._write_waiting():
            return True
        if packets:
            self._waiting[-1] = block, sum(map(items, taken))
        return False

    def _write_notes(self) -> bool:
        notes = b"".join(self._notes.popleft() for _ in range(len(self._notes)))
        if notes and not self._write(notes):
            self._notes.appendleft(notes)
            return False
        return True

    def _write_waiting(self) -> bool:
        while self._waiting:
            if not self._write(self._waiting[0][0]):
                return False
            self._waiting.popleft()
        return True

    def _write(self, data: bytes) -> bool:
        try:
            self._mend()
            written = os.write(self._descriptor, data)
            if written != len(data):
                self._torn = True
                self._mend()
                raise OSError(None, f"only {written} of {len(data)} bytes written", str(self.path))
        except OSError as error:
            self._destination.failed(error, reason="disk", count=0)  # not lost yet
            return False
        self._file_bytes += written
        self._total_bytes += written
        self._destination.exported()
        return True

    def _mend(self) -> None:
        """Cut off half a block: what follows it would be unreadable."""
        if self._torn:
            os.ftruncate(self._descriptor, self._file_bytes)
            self._torn = False

    def _bound(self) -> None:
        if self._total_bytes >= self._max_total_bytes:
            if not self._full:
                error = OSError(f"trace.max_total_mb reached after {self._total_bytes} bytes: nothing more is traced")
                self._destination.failed(error, "max_total_mb", count=0)
            self._full = True
        elif not self._is_empty and self._file_bytes >= self._max_file_bytes:
            try:
                self._open_part()
            except OSError as error:  # the file that is open grows on; the next round tries again
                self._destination.failed(error, reason="disk", count=0)

    def close(self, now_ns: int) -> None:
        """End what is still open, marked as such, write the rest and close the file. Never raises."""
        try:
            for lane, encoder in self._encoders.items():
                if encoder.open:
                    self._pending.append(self._encoder(lane).close_open(now_ns))
            self._free.close_open(now_ns)
            self._pending.append(self._free.take_packets())
            self._write_pending()
        except Exception as error:  # as in the pipeline
            self._destination.failed(error)
        lost = sum(begun for _, begun in self._waiting)
        if lost:
            self._destination.dropped("disk", lost)
        with suppress(OSError):
            os.close(self._descriptor)
