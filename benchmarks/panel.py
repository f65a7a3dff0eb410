"""What the live panel costs: on the thread that hands commits over, and on its own. UniLab's panel beside it.

    PYTHONPATH=.tools/unilab python benchmarks/panel.py        (tests/tools/get_unilab.sh .tools fetches it)

CPU times, not wall times: what a busy machine does meanwhile does not count. The goals: at most 2% of a core at 2 Hz;
a commit costs the same however many the window holds.
"""

import io
import os
import statistics
import time
from collections.abc import Callable

from rich.console import Console

from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.panel.ansi import encoded
from rltel.export.panel.history import History
from rltel.export.panel.model import model_of
from rltel.export.panel.sample import sample_of
from rltel.export.panel.screen import draw
from rltel.export.panel.sink import PanelSettings, PanelSink
from rltel.export.panel.window import Window
from rltel.record.phase_sets import SAC_COLLECTOR, SAC_LEARNER
from rltel.reduce.snapshot import Snapshot

WHO = Identity("run-1", None, "learner", 0, 1, 0, 1, True)
LOSSES = {f"Loss/{name}": 0.5 for name in ("actor", "critic", "temperature", "entropy")}
TRAINING = {f"Train/{name}": 1.5 for name in ("actor_gradient_norm", "critic_gradient_norm", "target_q_max")}
TIMES = {phase.key: 1.25 for each in (SAC_LEARNER, SAC_COLLECTOR) for phase in each.phases}
VALUES = {
    **LOSSES,
    **TRAINING,
    **TIMES,
    **{f"reward/term_{i}": 0.1 * i for i in range(18)},
    "Perf/total_fps": 20_000.0,
    "Perf/iteration_time": 0.05,
    "Train/mean_reward": 10.0,
}
COMMIT = Commit(WHO, 0, 0, 1, "train", Snapshot.of_numbers(VALUES), env_steps=1024)
HZ = 2.0
SIZES = (80, 24), (100, 40), (140, 50)


class Clock:
    """Goes on when it is told to."""

    now = 0

    def __call__(self) -> int:
        """The time."""
        return self.now


def cpu(call: Callable[[], object], times: int) -> float:
    """Seconds of this thread's CPU for one call: the median of 7 rounds."""
    rounds = []
    for _ in range(7):
        began = time.thread_time()
        for _ in range(times):
            call()
        rounds.append((time.thread_time() - began) / times)
    return statistics.median(rounds)


def filled(samples: int) -> tuple[Window, History, Clock]:
    """A window of 2 s that holds so many, one more for each that goes."""
    clock = Clock()
    window, history = Window(2.0, clock), History()
    for _ in range(2 * samples):
        clock.now += 2_000_000_000 // samples
        window.add(sample_of(COMMIT))
        history.add(sample_of(COMMIT), clock.now)
    return window, history, clock


def writes() -> None:
    """A commit of 47 numbers into windows of different lengths, and all that `write` does."""
    for samples in (20, 148, 512, 10_000):
        window, _, clock = filled(samples)
        step = 2_000_000_000 // samples

        def one(window: Window = window, clock: Clock = clock, step: int = step) -> None:
            clock.now += step
            window.add(sample_of(COMMIT))

        print(f"  write, {samples:6,} samples in the window  {cpu(one, 2000) * 1e6:9.1f} us")


def frames() -> None:
    """A frame: the window added up, the model, the screen, its control codes."""
    for samples in (40, 1000):
        window, history, clock = filled(samples)
        for columns, rows in SIZES:

            def frame(window: Window = window, history: History = history, clock: Clock = clock,
                      columns: int = columns, rows: int = rows) -> object:  # fmt: skip
                view = window.view()
                assert view is not None
                model = model_of(view, history.progress(clock.now, 65_000), {}, window_s=2.0, algo="sac")
                return encoded(draw(model, columns, rows - 3))

            seconds = cpu(frame, 20)
            share = f"{seconds * HZ:.2%} of a core at {HZ:g} Hz"
            print(f"  frame, {columns}x{rows}, {samples:5,} samples  {seconds * 1e3:9.2f} ms  {share}")


def running(seconds: float = 6.0) -> None:
    """The whole of it in a pseudo-terminal: CPU of this process while nothing but the panel runs."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        sink = PanelSink(stream, PanelSettings(HZ, algo="sac"))
        sink.write(COMMIT, [])
        time.sleep(1.0)  # what the first frame imports and looks up
        began, until = time.process_time(), time.monotonic() + seconds
        while time.monotonic() < until:
            os.read(master, 1 << 20)
        print(
            f"  running at {HZ:g} Hz (and reading its output)  {(time.process_time() - began) / seconds:.2%} of a core"
        )
        os.set_blocking(master, False)
        sink.close()
    os.close(master)


def unilab() -> None:
    """UniLab's logger with the same numbers: `log_step` without a backend, and its panel."""
    try:
        from uni_rl.logging.offpolicy import OffPolicyLogger  # only where it was fetched
    except ImportError:
        print("  not here: see the first lines of this file")
        return
    metrics = LOSSES | TRAINING
    terms = {key.removeprefix("reward/"): value for key, value in VALUES.items() if key.startswith("reward/")}
    collector = {key.removeprefix("Perf/collector_"): 1.25 for key in TIMES if key.startswith("Perf/collector_")}
    for samples in (20, 148, 512):
        logger = OffPolicyLogger(log_backend="none", num_envs=4096, env_name="go2")
        logger.update_collector_timing(collector)

        def step(logger: OffPolicyLogger = logger) -> None:
            logger.log_step(
                1, metrics, 10.0, terms, train_time=0.04, collector_wait_time=0.001, inference_time=0.003,
                iteration_time=0.05, extra_info={"throughput_steps": 1024},
            )  # fmt: skip

        while len(logger._terminal_samples) < samples:
            step()
        kept = list(logger._terminal_samples)

        def at_length(
            logger: OffPolicyLogger = logger, kept: list[object] = kept, step: Callable[[], None] = step
        ) -> None:
            logger._terminal_samples.clear()
            logger._terminal_samples.extend(kept)
            step()

        print(f"  UniLab's log_step, {samples:4} in its window  {cpu(at_length, 50) * 1e6:9.1f} us")
    for columns, _ in SIZES:
        console = Console(file=io.StringIO(), width=columns, force_terminal=True)

        def show(console: Console = console, logger: OffPolicyLogger = logger) -> None:
            logger._console = console
            console.print(logger._build_display())

        seconds = cpu(show, 20)
        print(
            f"  UniLab's panel, {columns} columns  {seconds * 1e3:9.2f} ms  {seconds * HZ:.2%} of a core at {HZ:g} Hz"
        )


if __name__ == "__main__":
    for part in (writes, frames, running, unilab):
        print((part.__doc__ or "").partition("\n")[0])
        part()
        print()
