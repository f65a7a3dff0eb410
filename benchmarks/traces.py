"""What the offline tools cost on files of many slices: time, and the memory that they reach.

    python benchmarks/traces.py [SLICES_PER_FILE [FILES]]

Each figure is of a process of its own. The time must be linear in the number of slices, and the memory must not grow
with it (merge), or by about 16 bytes a slice (summary).
"""

import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from rltel.export.perfetto.wire import compressed, packet
from rltel.export.protobuf import varint

MONOTONIC, BOOTTIME, REALTIME = 3, 6, 1
PHASES = ("collector_wait", "inference", "replay_sample", "learning", "learner_action_wait", "env_step")
START_NS = 90_000 * 10**9
WALL_NS = 1_795_987_020 * 10**9
BLOCK = 20_000  # slices that are written at once

WORK = {
    "merge": "from rltel.traces.merge import merge; merge(source, source.parent / 'merged.pftrace')",
    "summary": "from rltel.traces.summary import summarize; summarize(source)",
    "validate": "from rltel.traces.validate import validate; validate(source)",
}
BEGIN = "import sys, time; from pathlib import Path; source = Path(sys.argv[1]); began = time.process_time()"
PEAK = "import resource; print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"


def head(index: int) -> bytes:
    """Clocks, process, thread and names."""
    clocks = TracePacket()
    for clock, at in ((MONOTONIC, START_NS), (BOOTTIME, START_NS), (REALTIME, WALL_NS)):
        clocks.clock_snapshot.clocks.add(clock_id=clock, timestamp=at)
    process, thread = TracePacket(), TracePacket(trusted_packet_sequence_id=2, sequence_flags=1)
    process.track_descriptor.uuid = 1000 + index
    process.track_descriptor.process.pid = 1 + index
    process.track_descriptor.process.process_name = f"role {index}"
    thread.trace_packet_defaults.timestamp_clock_id = MONOTONIC
    thread.trace_packet_defaults.track_event_defaults.track_uuid = 2000 + index
    thread.track_descriptor.uuid = 2000 + index
    thread.track_descriptor.parent_uuid = 1000 + index
    thread.track_descriptor.thread.pid = thread.track_descriptor.thread.tid = 1 + index
    for number, name in enumerate(("iteration", *PHASES), start=1):
        thread.interned_data.event_names.add(iid=number, name=name)
    for number, name in enumerate(("rl.loop", "exclusive"), start=1):
        thread.interned_data.event_categories.add(iid=number, name=name)
    return b"".join(packet(each.SerializeToString()) for each in (clocks, process, thread))


def tail(event: TrackEvent) -> bytes:
    """All of a packet but its time."""
    return TracePacket(trusted_packet_sequence_id=2, sequence_flags=2, track_event=event).SerializeToString()


def write(path: Path, index: int, slices: int) -> None:
    """Iterations of six phases, each 10 us long: sixty microseconds and a bit."""
    begin, end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
    loop = tail(TrackEvent(type=begin, name_iid=1, category_iids=[1]))
    phases = [tail(TrackEvent(type=begin, name_iid=2 + n, category_iids=[2])) for n in range(len(PHASES))]
    ends = tail(TrackEvent(type=end))
    now = START_NS + 1000 * index
    with path.open("wb") as file:
        file.write(head(index))
        for first in range(0, slices, BLOCK):
            out = []
            for _ in range(first, min(first + BLOCK, slices), len(PHASES) + 1):
                out.append((now, loop))
                for phase in phases:
                    out += [(now, phase), (now + 9_876, ends)]
                    now += 10_000
                out.append((now, ends))
                now += 1_234
            block = b"".join(packet(b"\x40" + varint(time) + rest) for time, rest in out)
            file.write(compressed(block, zlib.compress(block, 4)))


def measure(name: str, source: Path) -> tuple[float, int]:
    """CPU seconds and MB."""
    code = f"{BEGIN}\n{WORK[name]}\n{PEAK}"
    ran = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=True)
    seconds, peak = ran.stdout.split()[-2:]
    return float(seconds), int(peak)


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 250_000
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else list(WORK)
    for slices in (most // 4, most):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "trace"
            source.mkdir()
            for index in range(files):
                write(source / f"role-{index}.pftrace", index, slices)
            size = sum(path.stat().st_size for path in source.iterdir()) / 1e6
            print(f"{files} files of {slices:,} slices, {size:.1f} MB")
            for name in names:
                seconds, peak = measure(name, source)
                print(f"  {name:9} {seconds:6.2f} s, {seconds / files / slices * 1e6:.2f} us a slice, {peak} MB")


if __name__ == "__main__":
    main()
