"""What a commit costs the training thread, beside UniLab's `log_step` and TensorBoard's `SummaryWriter`, in one run.

    bash tests/tools/get_unilab.sh .tools .venv/bin/python
    python benchmarks/commit.py

All candidates take turns, with a pause after each, in which rltel's threads work: only what happens before `commit`
returns is timed. UniLab's two-second window holds some 50 samples at this pace.
"""

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / ".tools" / "unilab"))

from rltel.core.identity import Identity
from rltel.core.resolve import resolve
from rltel.reduce.trackers import Trackers
from rltel.telemetry import Telemetry

ROUNDS, WARM_UP, PAUSE_S = 300, 50, 0.004
Bench = tuple[str, Callable[[int], Callable[[], object]]]
"""A name, and what prepares one call."""


@contextmanager
def telemetry(folder: Path, write: str, **destinations: Any) -> Iterator[tuple[Telemetry, Trackers]]:
    """One process's telemetry in its own folder."""
    trackers = Trackers()
    config = resolve({"jsonl": {"write": write}, **destinations}, {})
    folder.mkdir()
    who = Identity("run-1", folder, "learner", 0, 1, 0, 1, True)
    made = Telemetry(config, who, trackers=trackers, stdout=io.StringIO())
    try:
        yield made, trackers
    finally:
        made.shutdown()


def numbers(count: int) -> dict[str, float]:
    return {f"module_{i % 20}/value_{i}": i + 0.5 for i in range(count)}


def ours(open_: ExitStack, folder: Path) -> Iterator[Bench]:
    """Rltel with TensorBoard, the commit line in the call or left to a thread."""
    tensorboard = {"tensorboard": {"path": "{run_dir}/tb"}}
    for write, name in (("worker", "beside the line"), ("commit", "with the line")):
        made, trackers = open_.enter_context(telemetry(folder / write, write, **tensorboard))
        for count in (60, 300):
            given = numbers(count)

            def log(step: int, made: Telemetry = made, given: Any = given) -> Callable[[], object]:
                return lambda: made.commit(given, step=step)

            yield f"rltel.log, {count} numbers, {name}", log
        recorded = {f"scalar_{i % 20}/value_{i}": i + 0.5 for i in range(300)}

        def commit(
            step: int, made: Telemetry = made, trackers: Trackers = trackers, recorded: Any = recorded
        ) -> Callable[[], object]:
            trackers.default.scalar(recorded)
            return lambda: made.commit(step=step)

        yield f"commit of 300 recorded scalars, {name}", commit


def unilab(folder: Path) -> Iterator[Bench]:
    """UniLab's logger with about 60 scalars, without a backend and with TensorBoard."""
    try:
        from rich.console import Console
        from uni_rl.logging.offpolicy import OffPolicyLogger
    except ImportError as missing:
        print(f"without UniLab: {missing}")
        return
    rewards = {f"term_{i}": float(i) for i in range(40)}
    times = dict.fromkeys(
        ["train_time", "collector_wait_time", "replay_batch_wait_time", "learner_replay_sample_time"], 0.001
    ) | dict.fromkeys(["inference_time", "inference_h2d_time", "inference_forward_time", "inference_d2h_time"], 0.001)
    metrics = {"Loss/actor": 1.0, "Loss/critic": 2.0, "Train/target_q_max": 3.0, "Train/target_q_min": 1.0}
    for backend in ("none", "tensorboard"):
        logger = OffPolicyLogger("SAC", log_dir=str(folder / f"unilab-{backend}"), log_backend=backend)
        logger.console = Console(file=io.StringIO())

        def step(number: int, logger: Any = logger) -> Callable[[], object]:
            return lambda: logger.log_step(
                number, metrics=metrics, reward_components=rewards, iteration_time=0.01, **times
            )

        scalars = len(logger._build_backend_scalars(1, metrics, None, rewards))
        yield f"UniLab's log_step, {scalars}+ scalars, {backend}", step


def summary_writer(folder: Path) -> Iterator[Bench]:
    """TensorBoard's own writer, a call a number."""
    from torch.utils.tensorboard import SummaryWriter

    writer, given = SummaryWriter(str(folder / "writer")), numbers(60)

    def add(step: int) -> Callable[[], object]:
        def write() -> None:
            for key, value in given.items():
                writer.add_scalar(key, value, step)

        return write

    yield "SummaryWriter.add_scalar, 60 numbers", add


def main() -> None:
    """Prints each candidate's median, and its ratio to the last one's."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as open_:
        folder = Path(temporary)
        benches = [*ours(open_, folder), *unilab(folder), *summary_writer(folder)]
        times: dict[str, list[float]] = {name: [] for name, _ in benches}
        for step in range(WARM_UP + ROUNDS):
            for name, prepare in benches:
                call = prepare(step)
                begin = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - begin)
                time.sleep(PAUSE_S)
    medians = {name: statistics.median(seen[WARM_UP:]) for name, seen in times.items()}
    base = list(medians.values())[-1]
    for name, median in medians.items():
        print(f"  {name:58} {median * 1e6:8.1f} us  {median / base:7.3f}x  (min {min(times[name]) * 1e6:.1f})")


if __name__ == "__main__":
    main()
