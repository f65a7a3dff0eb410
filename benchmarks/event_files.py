"""What a scalar costs in an event file, beside torch's SummaryWriter, in one run.

    python benchmarks/event_files.py

CPU time of the whole process, since SummaryWriter works on a thread of its own: it takes from the training, too.
Both write the same steps, and their files are read back.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.tensorboard.sink import TensorBoardSink
from rltel.reduce.snapshot import Snapshot

ROUNDS, STEPS, SCALARS = 7, 100, 100
NUMBERS = {f"part_{number % 10}/metric_{number}": number / 7 for number in range(SCALARS)}
WHO = Identity("bench", None, "learner", 0, 1, 0, 1, True)


def ours(folder: Path) -> None:
    """A sink, from commits."""
    sink = TensorBoardSink(folder, "step")
    for step in range(STEPS):
        snapshot = Snapshot.of_numbers(NUMBERS)
        sink.write(Commit(WHO, step, time.time_ns(), step, "train", snapshot), ())
    sink.flush()
    sink.close()


def torchs(folder: Path) -> None:
    """SummaryWriter.add_scalar."""
    writer = SummaryWriter(str(folder))
    for step in range(STEPS):
        for key, number in NUMBERS.items():
            writer.add_scalar(key, number, step)
    writer.flush()
    writer.close()


def measure(write: Callable[[Path], None]) -> float:
    """CPU microseconds for each scalar."""
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.process_time()
        write(folder)
        spent = time.process_time() - begin
        reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        reader.Reload()
        assert len(reader.Tags()["scalars"]) == SCALARS
        assert all(len(reader.Scalars(key)) == STEPS for key in NUMBERS)
    finally:
        shutil.rmtree(folder)
    return spent / (STEPS * SCALARS) * 1e6


if __name__ == "__main__":
    candidates = {"rltel": ours, "SummaryWriter.add_scalar": torchs}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, write in candidates.items():
            times[name].append(measure(write))
    for name, seen in times.items():
        print(f"  {name:28} {statistics.median(seen):7.2f} us a scalar  (min {min(seen):.2f}, max {max(seen):.2f})")
    ratios = [theirs / mine for mine, theirs in zip(*times.values(), strict=True)]
    print(f"  ratio of each round: median {statistics.median(ratios):.1f}x, lowest {min(ratios):.1f}x (wanted: 7x)")
