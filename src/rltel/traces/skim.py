"""The first look at a file: which process wrote it, on which host, and what it says about its clocks.

Cheap: clock packets stand uncompressed between the blocks, so that the blocks need not be inflated.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackEvent

from rltel.core.clock import Anchor
from rltel.core.errors import TraceError
from rltel.export.perfetto.wire import HOST_LABEL
from rltel.traces.reader import SUFFIX, FileFrames, compressed_block, inflated_packets, parsed, text

REALTIME = BuiltinClock.BUILTIN_CLOCK_REALTIME
MONOTONIC = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
BOOTTIME = BuiltinClock.BUILTIN_CLOCK_BOOTTIME
ANCHOR = "rltel.clock_anchor"
OFFSET = "rltel.clock_offset"
_EITHER = b"rltel.clock_"


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured offset: at ``time_ns``, this process's monotonic clock was ``offset_ns`` ahead of the reference's."""

    time_ns: int
    reference: int
    """The process track of the reference process."""
    offset_ns: int
    error_ns: int


@dataclass
class Skimmed:
    """What a file says of itself."""

    path: Path
    has_packets: bool = False
    is_merged: bool = False
    process: int = 0
    """The id of the process's track; 0 if it names none."""
    pid: int = 0
    host: str = ""
    """Opaque; equal for processes of one host and boot."""
    snapshot: dict[int, int] = field(default_factory=dict)
    """The first reading of the clocks, by the number of the clock."""
    anchors: list[Anchor] = field(default_factory=list)
    """Those in clock packets."""
    measured: list[Measured] = field(default_factory=list)

    @property
    def joint_readings(self) -> list[Anchor]:
        """Every reading of the monotonic clock beside the wall clock: the snapshot's, and those that came later."""
        if MONOTONIC not in self.snapshot:
            return self.anchors
        monotonic = self.snapshot[MONOTONIC]
        first = Anchor(monotonic, self.snapshot[REALTIME], self.snapshot.get(BOOTTIME, monotonic), 0)
        return [first, *(anchor for anchor in self.anchors if anchor.monotonic_ns != monotonic)]

    @property
    def first_anchor(self) -> Anchor | None:
        """The first of them, if any."""
        return next(iter(self.joint_readings), None)


def trace_files(source: Path) -> list[Path]:
    """The file itself, the traces of a run directory (its ``trace`` folder), or all below another folder.

    The parts of one process come one after the other. Raises `TraceError` if there is no such file or folder.
    """
    if source.is_file():
        return [source]
    if not source.exists():
        raise TraceError(f"{source}: no such file or folder")
    folder = source / "trace" if (source / "trace").is_dir() else source
    return sorted(folder.rglob(f"*{SUFFIX}"), key=in_parts)


def in_parts(path: Path) -> tuple[Path, str, int]:
    """A file's folder, its name without the part, and the number of the part: sorts the parts of a process."""
    stem, _, part = path.name.removesuffix(SUFFIX).rpartition(".part")
    return (path.parent, stem, int(part)) if stem and part.isdecimal() else (path.parent, path.stem, 1)


def skim(path: Path) -> Skimmed:
    """Read what stands outside of the compressed blocks, and as many of these as it takes to find the file's head.

    Raises `TraceError` if the file is not a native Perfetto trace.
    """
    found = Skimmed(path)
    for raw in FileFrames(path):
        found.has_packets = True
        block = compressed_block(raw, path)
        if block is None:
            _note(found, raw)
        elif _lacks_head(found):
            _note_head(found, inflated_packets(block, path))
    return found


def _lacks_head(found: Skimmed) -> bool:
    return not found.process or not found.snapshot


def _note_head(found: Skimmed, packets: Iterator[bytes]) -> None:
    for raw in packets:
        _note(found, raw)
        if not _lacks_head(found):
            return


def _note(found: Skimmed, raw: bytes) -> None:
    if _EITHER in raw:
        note_clocks(found, parsed(raw, found.path))
    elif _lacks_head(found):
        packet = parsed(raw, found.path)
        if packet.HasField("clock_snapshot"):
            _note_snapshot(found, packet)
        elif packet.track_descriptor.HasField("process") and not found.process:
            described = packet.track_descriptor
            found.process, found.pid = described.uuid, described.process.pid
            found.host = found.host or _host_in(described.process.process_labels)


def _host_in(labels: Iterable[str]) -> str:
    spelled = map(text, labels)
    return next((label.removeprefix(HOST_LABEL) for label in spelled if label.startswith(HOST_LABEL)), "")


def _note_snapshot(found: Skimmed, packet: TracePacket) -> None:
    if packet.clock_snapshot.primary_trace_clock == REALTIME:
        found.is_merged = True
    times = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
    if REALTIME in times and not found.snapshot:
        found.snapshot = times


def note_clocks(found: Skimmed, packet: TracePacket) -> None:
    """Take an anchor or a measured offset from a clock packet; anything else is left."""
    says = annotations(packet.track_event)
    if packet.track_event.name == ANCHOR and {"monotonic_ns", "realtime_ns", "boottime_ns"} <= says.keys():
        boot, width = says["boottime_ns"], says.get("width_ns", 0)
        found.anchors.append(Anchor(says["monotonic_ns"], says["realtime_ns"], boot, width))
        found.host = found.host or str(says.get("host", ""))
    elif packet.track_event.name == OFFSET and {"reference", "offset_ns", "error_ns"} <= says.keys():
        reference = int(says["reference"]) if str(says["reference"]).isdecimal() else 0
        found.measured.append(Measured(packet.timestamp, reference, says["offset_ns"], says["error_ns"]))


def annotations(event: TrackEvent) -> dict[str, Any]:
    """Numbers and texts of an event whose annotations are not interned."""
    return {text(each.name): _value(each) for each in event.debug_annotations}


def _value(annotation: Any) -> Any:
    kind = annotation.WhichOneof("value")
    return getattr(annotation, kind) if kind else None
