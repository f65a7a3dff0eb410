"""rltel: OpenTelemetry-native telemetry for reinforcement-learning training.

`init` is optional: without it trackers record and export dicts, and nothing is sent.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar, cast

from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry

from rltel import rl as rl
from rltel.core.config import (
    ConsoleConfig,
    JsonlConfig,
    NamesConfig,
    OtlpConfig,
    PipelineConfig,
    PrometheusConfig,
    RunConfig,
    SwanlabConfig,
    TelemetryConfig,
    TensorBoardConfig,
    TerminalConfig,
    TraceConfig,
    TrackioConfig,
    WandbConfig,
)
from rltel.core.context import current, new_flow, span_context
from rltel.core.context import inject as _inject
from rltel.core.errors import (
    ConfigError,
    IdentityError,
    PayloadError,
    PhaseError,
    RecordError,
    ReductionError,
    RltelError,
    TraceError,
)
from rltel.core.steps import check_axis, check_steps
from rltel.export.jsonl import read_jsonl
from rltel.process import process
from rltel.record.device.device_timeline import device_timeline
from rltel.record.phase_sets import Given, Phase, PhaseSet, phase_set
from rltel.record.phases import PhaseClock
from rltel.record.records import Site
from rltel.record.slices import as_flows
from rltel.record.spans import Span, cause
from rltel.record.spans import attached as _attached
from rltel.reduce.clock_offsets import ClockOffset
from rltel.reduce.scopes import eval_scope, stat_scope
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import StatsTracker
from rltel.reduce.workers import Payload, merge_payloads
from rltel.telemetry import Telemetry
from rltel.version import VERSION

__version__ = VERSION

P = ParamSpec("P")
R = TypeVar("R")

_default = process.trackers.default
get = process.trackers.get
scope = _default.scope
scalar = _default.scalar
stat = _default.stat
stat_compact = _default.stat_compact
denominator = _default.denominator
disable_scope = _default.disable_scope
scope_func_wrapper = _default.scope_func_wrapper
derive = process.trackers.derive
add_reader = process.trackers.add_reader
distribution = _default.distribution
weighted_mean = _default.weighted_mean
gauge = _default.gauge
count = _default.count
elapsed = _default.elapsed
record_timing = _default.record_timing
slice = process.recorder.slice
begin_slice = process.recorder.begin
place_slice = process.recorder.place
device_slice = device_timeline.slice
name_stream = device_timeline.name_stream
instant = process.recorder.instant
counter = process.recorder.counter


def init(
    config: Any = None,
    *,
    role: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    run_id: str | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    tracer_provider: TracerProvider | None = None,
    registry: CollectorRegistry | None = None,
) -> Telemetry:
    """Switch on what the config says, and print one line that says where each thing goes.

    Args:
        config: `TelemetryConfig`, a mapping, an OmegaConf object, or the path of a YAML file.
        role: ``learner``, ``collector``, ``rollout``, ``controller`` or a name of your own.
        rank, world_size: place in the role's group. What is None is found out: ``RLTEL_*``, torch.distributed,
            torchrun, SLURM.
        run_id, run_dir: the run that this process belongs to; children of this process inherit both.
        tracer_provider: a TracerProvider of your own: slices become spans of it, instead of going to ``otlp.endpoint``.
        registry: a Prometheus registry of your own, which the endpoint then serves too.

    Called again with the same arguments it returns the same object, with others it raises `RltelError`.
    Raises `ConfigError` or `IdentityError`, naming what was given and what is needed.
    """
    injected = {"tracer_provider": tracer_provider, "registry": registry}
    given = {name: value for name, value in injected.items() if value is not None}
    return process.init(config, role=role, rank=rank, world_size=world_size, run_id=run_id, run_dir=run_dir, **given)


def log(values: Mapping[str, Any], *, step: int, axis: str = "train", env_steps: int | None = None) -> None:
    """Plain numbers in, one commit out. ``axis`` names what ``step`` counts (``train``, ``rollout`` ...)."""
    process.commit(values, step=step, axis=axis, env_steps=env_steps)


def log_text(key: str, text: str, *, step: int, axis: str = "train", env_steps: int | None = None) -> None:
    """A text (a sample of what the policy says, say), to the destinations that can hold one: W&B, SwanLab, Trackio."""
    process.show("text", key, text, step=step, axis=axis, env_steps=env_steps)


def log_table(key: str, table: Any, *, step: int, axis: str = "train", env_steps: int | None = None) -> None:
    """A table: columns by name, records, or a DataFrame. To the destinations that can hold one."""
    process.show("table", key, table, step=step, axis=axis, env_steps=env_steps)


def log_file(
    key: str, path: str | os.PathLike[str], *, step: int, axis: str = "train", env_steps: int | None = None
) -> None:
    """A file, to the destinations that can hold one. They read it a moment later, on their own threads."""
    process.show("file", key, path, step=step, axis=axis, env_steps=env_steps)


def log_video(
    key: str, path: str | os.PathLike[str], *, step: int, axis: str = "train", env_steps: int | None = None
) -> None:
    """A video file (``play_video.mp4``), to the destinations that can hold one. They read it a moment later."""
    process.show("video", key, path, step=step, axis=axis, env_steps=env_steps)


def log_image(
    key: str, path: str | os.PathLike[str], *, step: int, axis: str = "train", env_steps: int | None = None
) -> None:
    """An image file, to the destinations that can hold one. They read it a moment later."""
    process.show("image", key, path, step=step, axis=axis, env_steps=env_steps)


def export_all(
    reduce_group: Any = None,
    key_sync_group: Any = None,
    reset: bool = True,
    reader: str | None = None,
    outliers: bool = False,
) -> Stats:
    """Everything that any tracker recorded since the last export, as a flat dict over merged states.

    Args:
        reduce_group: a ``torch.distributed`` group to reduce over; all its ranks must call this, and all get the same.
        key_sync_group: a larger group over which keys are agreed on.
        reset: whether what is exported counts as taken.
        reader: a second consumer, declared by `add_reader`, which has its own pending state.
        outliers: also say which rank of the group holds each extreme (``k/min_rank``, ``k/max_rank``).

    If it raises, nothing is reset: `ReductionError` on every rank alike if one cannot export, and where a peer died.
    """
    return process.export_all(
        reduce_group, key_sync_group=key_sync_group, reset=reset, reader=reader, outliers=outliers
    )


def commit(
    stats: Mapping[str, Any] | None = None,
    *,
    step: int,
    env_steps: int | None = None,
    epoch: int | None = None,
    epoch_step: int | None = None,
    axis: str = "train",
) -> None:
    """Send one step's numbers everywhere. Without `stats`, everything recorded since the last export.

    When it returns, the step is in the run directory's JSONL and survives the death of the process.
    """
    process.commit(stats, step=step, env_steps=env_steps, epoch=epoch, epoch_step=epoch_step, axis=axis)


def learner(phases: Given = "sac") -> PhaseClock:
    """The clock of a learner's loop.

    Args:
        phases: those of a family (``sac``, ``flashsac``, ``appo``, ``ppo``, ``llm``), or your own: their names, a
            mapping of names to kinds (``{"rollout": "sample", "h2d": "nested"}``), or a `PhaseSet`.

    Raises `PhaseError` for anything else.
    """
    return phase_clock("learner", phases)


def collector(phases: Given = "sac") -> PhaseClock:
    """The clock of a collector's loop, or of a rollout worker's (``llm``). Takes what `learner` takes."""
    return phase_clock("collector", phases)


def phase_clock(role: str, phases: Given) -> PhaseClock:
    """The clock of any role's loop (``controller``, say). Takes what `learner` takes."""
    return PhaseClock(phase_set(phases, role), _default, process.recorder)


_ROLLOUT = Site("rollout", "rollout", "rl.rollout")
_step_clock = PhaseClock(PhaseSet("step", "learner", "step", "timeperf/step", (), "step"), _default, process.recorder)


@contextmanager
def step(number: int, *, env_steps: int | None = None, reduce_group: Any = None, axis: str = "train") -> Iterator[None]:
    """Iteration, export and commit in one. Phase clocks go inside. ``axis``: what ``number`` counts.

    A step that ends with an exception is not committed; what it recorded is in the next one. With a `reduce_group`,
    ranks that are at different steps (one caught an exception, say) all raise `ReductionError`. Raises `RecordError`
    for what is no step (a whole number from 0 to 2**63 - 1) or no axis.
    """
    check_steps(step=number, env_steps=env_steps)  # before anything is exported, which could then not be committed
    check_axis(axis)
    with _step_clock.iteration(step=number):
        try:
            yield
        except BaseException as error:
            process.noticed(error)
            raise
    stats = None if reduce_group is None else process.export_all(reduce_group, step=number)
    commit(stats, step=number, env_steps=env_steps, axis=axis)


def system(**facts: Any) -> None:
    """Tell the terminal panel what no metric says; None takes a value back.

    ``buffer`` (transitions), ``environments``: of all ranks; ``batch``, ``rows`` (learned from in an iteration): of one
    rank; ``timeout_rate``, ``mps`` (``on``, ``ambient``, ``off``), ``max_iterations``, ``status`` and more:
    `docs/panel.md`. Raises `RecordError` for a name that there is not, or a value that cannot be.
    """
    process.system.tell(**facts)


def summary(**fields: Any) -> None:
    """Add to the run's ``run_summary.json``: what only the trainer knows. Only the writer's counts.

    ``status`` (``completed``, ``failed``, ``interrupted``, ``collector_died``) and ``error`` (an exception or a text)
    say how the run ended, where rltel cannot see it; ``runtime_manifest``, ``backend_diagnostics`` and
    ``last_checkpoint`` have their places; any other name is yours. The last value of a name stays.
    Raises `RecordError`, which names what is wrong.
    """
    process.summary(fields)


def timed(key: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: `record_timing` around every call of a function, also of an ``async`` one: ``@timed("reward")``."""
    if not isinstance(key, str):
        raise RecordError(f'timed: expected a key, as in @rltel.timed("reward"), got {key!r}')

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                with record_timing(key):
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", timed_coroutine)

        @functools.wraps(function)
        def timed_function(*args: P.args, **kwargs: P.kwargs) -> R:
            with record_timing(key):
                return function(*args, **kwargs)

        return timed_function

    return decorate


def export_payload(*, reset: bool = True) -> Payload:
    """What this process recorded, as plain data for any RPC, queue or object store."""
    with process.trackers.taken(reset=reset) as snapshot:
        return process.sender.payload(snapshot)


def absorb(payload: Payload) -> bool:
    """Make a worker's payload part of this process's next export. False if it was absorbed before.

    Raises `PayloadError`, and changes nothing, if the payload is broken.
    """
    return process.receiver.absorb(payload)


def inject(*, environ: bool = False) -> dict[str, str]:
    """Headers (``traceparent``) that carry the current trace context to another process.

    ``environ``: as variables for a child process (``TRACEPARENT``), whose `init` takes them up.
    """
    telemetry = process.telemetry
    here = cause(process.recorder)
    root = telemetry.root if telemetry else None
    headers = _inject(root if here is None else span_context(*here, current()))
    return {name.upper().replace("-", "_"): value for name, value in headers.items()} if environ else headers


def attached(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """Put the context of these headers in place: what starts inside continues the sender's trace.

    Takes HTTP headers in any case, or an environment with ``TRACEPARENT``. Without a valid one nothing changes.
    """
    return _attached(process.recorder, headers)


_RUN_LATER = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """The function, to be run in another thread, pool or hook with this place's scope and trace context.

    What it records there belongs to the slice that is open here. Raises `RecordError` for a function that is ``async``
    or a generator, which would run elsewhere than where it is called: tasks inherit the place of their creation anyway.
    """
    if any(is_later(function) for is_later in _RUN_LATER):
        raise RecordError(f"carry: expected a function that runs where it is called, got {function!r}")
    context = copy_context()
    recorder = process.recorder
    parent = cause(recorder)

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if parent is None:
            return function(*args, **kwargs)
        with recorder.attached(parent):
            return function(*args, **kwargs)

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(run, *args, **kwargs)

    return carried


def rollout(
    policy_version: int | None = None, *, flow: int | Iterable[int] | None = None, **attributes: Any
) -> AbstractContextManager[Span]:
    """One rollout or session, as a span with a real OpenTelemetry context: inference calls inside nest under it.

    ``policy_version``: which policy produced it. ``flow``: an arrow (`new_flow`) to the update that consumes it.
    Rollouts of asyncio tasks that overlap are drawn on lanes of their own.
    """
    versioned = attributes if policy_version is None else {"rl.policy.version": policy_version, **attributes}
    return Span(process.recorder, _ROLLOUT, as_flows(flow), versioned)


def sync_clocks(group: Any = None) -> ClockOffset:
    """Measure how far the clocks of a ``torch.distributed`` group's ranks are apart; every rank must call this.

    The result goes to this process's trace file, and ``rltel trace merge`` lays the ranks' events on one clock with it.
    Clocks drift: call it now and then (at checkpoints, say). Raises `ReductionError` if this rank is not in the group.
    """
    return process.sync_clocks(group)


def flush(timeout: float = 5.0) -> bool:
    """Wait until every commit so far has reached its destinations; False if the time (seconds) runs out first."""
    telemetry = process.telemetry
    return telemetry is None or telemetry.flush(timeout)


def shutdown(*, linger: bool = True) -> None:
    """Bring everything home, in bounded time; runs at exit too. Without `linger`, ``prometheus.linger_s`` is 0."""
    process.shutdown(linger=linger)


__all__ = [
    "ConfigError", "ConsoleConfig", "IdentityError", "JsonlConfig", "NamesConfig", "OtlpConfig", "PayloadError",
    "Phase", "PhaseClock", "PhaseError", "PhaseSet", "PipelineConfig", "PrometheusConfig", "RecordError",
    "ReductionError", "RltelError", "RunConfig", "Snapshot", "Stats", "StatsTracker", "SwanlabConfig", "Telemetry",
    "TelemetryConfig", "TensorBoardConfig", "TerminalConfig", "TraceConfig", "TraceError", "TrackioConfig",
    "WandbConfig", "__version__", "absorb", "add_reader", "attached", "begin_slice", "carry", "collector", "commit",
    "count", "counter", "denominator", "derive", "device_slice", "disable_scope", "distribution", "elapsed",
    "eval_scope", "export_all", "export_payload", "flush", "gauge", "get", "init", "inject", "instant", "learner",
    "log", "log_file", "log_image", "log_table", "log_text", "log_video", "merge_payloads", "name_stream", "new_flow",
    "phase_clock", "place_slice", "read_jsonl", "record_timing", "rollout", "scalar", "scope", "scope_func_wrapper",
    "shutdown", "slice", "stat", "stat_compact", "stat_scope", "step", "summary", "sync_clocks", "system", "timed",
    "weighted_mean",
]  # fmt: skip
