"""The timeline on disk: one append-only native Perfetto file per process, flushed every second.

Cut anywhere, the file loads: blocks of packets are compressed one by one, and a slice's begin is written before its
end happens. A file that grows too large is followed by another, and all files together are bounded.
"""

import os
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from rltel.core.clock import Clock
from rltel.core.context import new_id
from rltel.core.identity import Identity
from rltel.export import perfetto_wire as wire
from rltel.export.sink import Destination
from rltel.record.recorder import CounterSample, End, Instant, Record, Recorder, ThreadBuffer

_LEVEL = 4  # of zlib: most of level 6's gain for half its time
_FIRST_SEQUENCE = 2  # 1 is for descriptors


class PerfettoWriter:
    """Drains a recorder into the files of this process."""

    name = "trace"

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        recorder: Recorder,
        clock: Clock,
        destination: Destination,
        max_file_bytes: int,
        max_total_bytes: int,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._recorder = recorder
        self._clock = clock
        self._destination = destination
        self._max_file_bytes = max_file_bytes
        self._max_total_bytes = max_total_bytes
        self._tracks: dict[int, int] = {}
        self._counter_tracks: dict[tuple[str, str], int] = {}
        self._process_track = new_id()
        self._parts = 0
        self._total_bytes = 0
        self._dropped_seen = 0
        self._full = False
        self._left_out: dict[int, int] = {}  # by buffer: slices that began after the bound was reached and are open
        self._draining = threading.Lock()
        self._descriptor = -1
        folder.mkdir(parents=True, exist_ok=True)
        self._open_part()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._path_of(self._parts)

    def _path_of(self, part: int) -> Path:
        return self._folder / f"{self._identity.name}{'' if part == 1 else f'.part{part}'}.pftrace"

    def _open_part(self) -> None:
        """A new file, complete in itself: clocks, process, and (as they come) threads and names."""
        previous, self._descriptor = self._descriptor, self._create()
        if previous >= 0:
            os.close(previous)
        self._file_bytes = 0
        self._encoders: dict[int, wire.SequenceEncoder] = {}
        self._described_counters: set[int] = set()
        name = f"{self._identity.role} {self._identity.index}"
        self._pending = [  # packets that are in no file yet
            wire.clock_packet(self._clock.anchor()),
            wire.process_packet(self._process_track, os.getpid(), name),
        ]
        self._write_pending()

    def _create(self) -> int:
        """Open the next file that is nobody's: another run may have written to this folder (``trace.output_dir``)."""
        for part in count(self._parts + 1):
            with suppress(FileExistsError):
                descriptor = os.open(self._path_of(part), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
                self._parts = part
                return descriptor
        raise AssertionError("count() never ends")

    def drain(self) -> None:
        """Write what all threads have recorded since the last time.

        While the disk takes nothing, what was encoded is tried again, and the rest waits in the recorder (whose bound
        counts what does not fit).
        """
        with self._draining:
            self._count_dropped()
            if not self._write_pending():
                return
            for buffer in self._recorder.buffers():
                records = buffer.take()
                if self._full:
                    records = self._only_ends(buffer, records)
                if records:
                    encoder = self._encoders.get(id(buffer)) or self._new_encoder(buffer)
                    self._pending.append(encoder.encode(records))
            self._count_unreadable()
            if self._write_pending():
                self._bound()

    def _new_encoder(self, buffer: ThreadBuffer) -> wire.SequenceEncoder:
        track = self._tracks.setdefault(id(buffer), new_id())
        sequence = _FIRST_SEQUENCE + len(self._encoders)
        pid = os.getpid()
        described = wire.thread_packet(sequence, track, self._process_track, pid, buffer.thread_id, buffer.thread_name)
        self._pending.append(described)
        encoder = wire.SequenceEncoder(sequence, self._counter_track)
        self._encoders[id(buffer)] = encoder
        return encoder

    def _counter_track(self, name: str, unit: str) -> int:
        """The track of a counter, described in this file before it is used."""
        track = self._counter_tracks.setdefault((name, unit), new_id())
        if track not in self._described_counters:
            self._described_counters.add(track)
            self._pending.append(wire.counter_packet(track, self._process_track, name, unit))
        return track

    def _only_ends(self, buffer: ThreadBuffer, records: Iterable[Record]) -> list[Record]:
        """What a full trace still takes: the ends of slices that are in it. The rest is counted."""
        kept: list[Record] = []
        dropped, open_outside = 0, self._left_out.get(id(buffer), 0)
        for record in records:
            ends = isinstance(record, (int, End))
            if ends and not open_outside:
                kept.append(record)
                continue
            dropped += 1
            if not isinstance(record, (Instant, CounterSample)):
                open_outside += -1 if ends else 1
        self._left_out[id(buffer)] = open_outside
        if dropped:
            self._destination.dropped("max_total_mb", dropped)
        return kept

    def _count_dropped(self) -> None:
        dropped = self._recorder.dropped
        if dropped > self._dropped_seen:
            self._destination.dropped("buffer_full", dropped - self._dropped_seen)
            self._dropped_seen = dropped

    def _count_unreadable(self) -> None:
        for encoder in self._encoders.values():
            if encoder.unreadable:
                error = TypeError("a slice, instant or counter holds what cannot be drawn (attributes, flow or name)")
                self._destination.failed(error, "unreadable", encoder.unreadable)
                encoder.unreadable = 0

    def _write_pending(self) -> bool:
        """Append one compressed block. False if the disk does not take it: then it stays pending, whole."""
        packets = b"".join(self._pending)
        if packets and not self._write(wire.compressed(packets, zlib.compress(packets, _LEVEL))):
            self._pending = [packets]
            return False
        self._pending = []
        return True

    def _write(self, data: bytes) -> bool:
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                os.ftruncate(self._descriptor, self._file_bytes)  # what follows a cut block would be unreadable
                raise OSError(None, f"only {written} of {len(data)} bytes written", str(self.path))
        except OSError as error:
            self._destination.failed(error, reason="disk", count=0)  # not lost yet
            return False
        self._file_bytes += written
        self._total_bytes += written
        self._destination.exported()
        return True

    def _bound(self) -> None:
        if self._total_bytes >= self._max_total_bytes:
            if not self._full:
                error = OSError(f"trace.max_total_mb reached after {self._total_bytes} bytes: nothing more is traced")
                self._destination.failed(error, "max_total_mb", count=0)
            self._full = True
        elif self._encoders and self._file_bytes >= self._max_file_bytes:  # a file with nothing but a head is none
            try:
                self._open_part()
            except OSError as error:  # the file that is open grows on; the next drain tries again
                self._destination.failed(error, reason="disk", count=0)

    def close(self) -> None:
        """Write the rest and close the file. Never raises, and never waits for a drain that hangs."""
        if self._draining.locked():
            return  # the pipeline's thread is in a write that does not return: waiting would hold up the end
        try:
            self.drain()
        except Exception as error:  # as in the pipeline
            self._destination.failed(error)
        if self._pending:
            self._destination.dropped("disk")
        with suppress(OSError):
            os.close(self._descriptor)
