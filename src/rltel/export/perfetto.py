"""The timeline on disk: one append-only native Perfetto file per process, flushed every second.

Cut anywhere, the file loads: blocks of packets are compressed one by one, and a slice's begin is written before its
end happens. A file that grows too large is followed by another, and all files together are bounded.
"""

import os
import zlib
from pathlib import Path

from rltel.core.clock import Clock
from rltel.core.context import new_id
from rltel.core.identity import Identity
from rltel.export import perfetto_wire as wire
from rltel.export.sink import Destination
from rltel.record.recorder import Recorder, ThreadBuffer

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
        folder.mkdir(parents=True, exist_ok=True)
        self._open_part()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        part = "" if self._parts == 1 else f".part{self._parts}"
        return self._folder / f"{self._identity.name}{part}.pftrace"

    def _open_part(self) -> None:
        """A new file, complete in itself: clocks, process, and (as they come) threads and names."""
        self._parts += 1
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._file_bytes = 0
        self._encoders: dict[int, wire.SequenceEncoder] = {}
        self._described_counters: set[int] = set()
        self._pending: list[bytes] = []
        name = f"{self._identity.role} {self._identity.index}"
        self._write(wire.clock_packet(self._clock.anchor()))
        self._write(wire.process_packet(self._process_track, os.getpid(), name))

    def drain(self) -> None:
        """Write what all threads have recorded since the last time."""
        for buffer in self._recorder.buffers():
            records = buffer.take()
            if records:
                encoder = self._encoders.get(id(buffer)) or self._new_encoder(buffer)
                self._pending.append(encoder.encode(records))
        self._count_dropped()
        if self._pending:
            packets = b"".join(self._pending)
            self._pending.clear()
            self._write(wire.compressed(packets, zlib.compress(packets, _LEVEL)))
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

    def _count_dropped(self) -> None:
        dropped = self._recorder.dropped
        if dropped > self._dropped_seen:
            self._destination.dropped("buffer_full", dropped - self._dropped_seen)
            self._dropped_seen = dropped

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._destination.failed(error, reason="disk")
            return
        if written != len(data):  # the rest of a cut block would make what follows unreadable: go on in a new file
            self._destination.dropped("disk")
            os.ftruncate(self._descriptor, self._file_bytes)
            return
        self._file_bytes += written
        self._total_bytes += written
        self._destination.exported()

    def _bound(self) -> None:
        if self._total_bytes >= self._max_total_bytes:
            self._recorder.stop()
            self._destination.failed(
                OSError(f"trace.max_total_mb reached after {self._total_bytes} bytes"), "max_total_mb"
            )
        elif self._file_bytes >= self._max_file_bytes:
            os.close(self._descriptor)
            self._open_part()

    def close(self) -> None:
        """Write the rest and close the file."""
        self.drain()
        os.close(self._descriptor)
