"""rsl_rl's runner, timed: what its loop calls is wrapped for the length of a ``with``."""

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from typing import Any, NamedTuple

from rltel.core.errors import RltelError
from rltel.integrations.rsl_rl.writer import RltelLogWriter
from rltel.process import Process
from rltel.process import process as this_process
from rltel.record.phase_sets import PPO_LEARNER
from rltel.record.phases import PhaseClock

_log = logging.getLogger("rltel")
_MARK = "__rltel_instrumented__"
Call = Callable[..., Any]


@contextmanager
def instrument(runner: Any, *, quiet: bool = False, process: Process = this_process) -> Iterator[PhaseClock]:
    """Time the iterations of ``runner.learn`` by the phases of ``ppo``; each ends with a commit.

    ``Perf/collection_time`` and ``Perf/learning_time`` are then measured here, on a clock that nobody sets back, and
    ``Perf/iteration_time`` is the whole iteration, with logging and checkpoints. With another writer than ours, only
    the times are committed.

    Args:
        runner: an ``OnPolicyRunner`` or ``DistillationRunner``, before ``learn``. As it was, afterwards.
        quiet: keep rsl_rl's text block off the screen (the panel has it).

    Raises `RltelError` if the runner lacks a method that rsl_rl's loop calls, or is instrumented already.
    """
    loop = _Loop(runner, process, quiet=quiet)
    with ExitStack() as undo:
        for place in loop.places():
            undo.callback(_put(place))
        try:
            yield loop.clock
        except BaseException as error:
            loop.finish(error)
            raise
        loop.finish(None)


class _Place(NamedTuple):
    owner: Any
    name: str
    wrap: Callable[[Call], Call]


class _Loop:
    """Where the loop of one runner is. Its calls tell: ``act`` begins an iteration, the next ``act`` ends it."""

    def __init__(self, runner: Any, process: Process, *, quiet: bool) -> None:
        self.clock = PhaseClock(PPO_LEARNER, process.trackers.default, process.recorder)
        self._runner = runner
        self._process = process
        self._quiet = quiet
        self._number = 0
        self._is_logged = False
        self._iteration: AbstractContextManager[Any] | None = None
        self._phase: AbstractContextManager[Any] | None = None
        self._phase_name = ""

    def places(self) -> list[_Place]:
        """What to wrap."""
        runner = self._runner
        alg, logger = (_part(runner, name) for name in ("alg", "logger"))
        return [
            _Place(runner, "learn", self._learn),
            _Place(runner, "save", self._save),
            _Place(alg, "act", self._act),
            _Place(_part(runner, "env"), "step", self._within("collection", "env_step")),
            _Place(alg, "process_env_step", self._within("collection", "rollout_write")),
            _Place(logger, "process_env_step", self._within("collection", "episode_log")),
            _Place(alg, "compute_returns", self._learning("returns")),
            _Place(alg, "update", self._learning("update")),
            _Place(logger, "log", self._log),
            _Place(logger, "stop_logging_writer", self._stop),
        ]

    def finish(self, error: BaseException | None) -> None:
        """End what is open. An iteration that was not logged is not committed: what it recorded is in the next."""
        self._leave(error)
        iteration, self._iteration = self._iteration, None
        if iteration is None:
            return
        iteration.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        number, self._number = self._number, self._number + 1
        if self._is_logged:
            self._is_logged = False
            self._commit(number)

    def _commit(self, number: int) -> None:
        runner = self._runner
        ranks = getattr(runner, "gpu_world_size", 1)
        env_steps = (number + 1) * int(runner.cfg["num_steps_per_env"]) * int(runner.env.num_envs) * ranks
        writer = runner.logger.writer
        if isinstance(writer, RltelLogWriter):
            writer.commit_iteration(number, env_steps)
            return
        try:
            self._process.commit(step=number, env_steps=env_steps)
        except RltelError as error:  # names.strict; what was recorded is kept for the next commit
            _log.warning("instrument: iteration %d: %s", number, error)

    # --- phases -------------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        if name != self._phase_name:
            self._leave(None)
            self._phase_name = name
            self._phase = self.clock.phase(name)
            self._phase.__enter__()

    def _leave(self, error: BaseException | None) -> None:
        phase, self._phase, self._phase_name = self._phase, None, ""
        if phase is not None:
            phase.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    # --- wrappers -----------------------------------------------------------------------------------------------------

    def _learn(self, original: Call) -> Call:
        def learn(*args: Any, **kwargs: Any) -> Any:
            self._number = self._runner.current_learning_iteration
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self.finish(error)
                raise
            self.finish(None)
            return result

        return learn

    def _act(self, original: Call) -> Call:
        def act(*args: Any, **kwargs: Any) -> Any:
            if self._phase_name != "collection":
                self.finish(None)
                self._iteration = self.clock.iteration(step=self._number)
                self._iteration.__enter__()
                self._enter("collection")
            with self.clock.phase("mlp_infer"):
                return original(*args, **kwargs)

        return act

    def _within(self, phase: str, part: str) -> Callable[[Call], Call]:
        """A part of a phase; outside of it (an evaluation, say) the call is nobody's business."""

        def wrap(original: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._phase_name != phase:
                    return original(*args, **kwargs)
                with self.clock.phase(part):
                    return original(*args, **kwargs)

            return call

        return wrap

    def _learning(self, part: str) -> Callable[[Call], Call]:
        def wrap(original: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._iteration is None:
                    return original(*args, **kwargs)
                self._enter("learning")
                with self.clock.phase(part):
                    result = original(*args, **kwargs)
                if part == "update":
                    self._leave(None)
                return result

            return call

        return wrap

    def _log(self, original: Call) -> Call:
        def log(*args: Any, **kwargs: Any) -> Any:
            if self._iteration is None:
                return original(*args, **kwargs)
            writer = self._runner.logger.writer
            if isinstance(writer, RltelLogWriter):
                writer.paced = True
            self._leave(None)
            with self.clock.phase("logging"), _silence() if self._quiet else nullcontext():
                result = original(*args, **kwargs)
            self._is_logged = True
            return result

        return log

    def _save(self, original: Call) -> Call:
        def save(*args: Any, **kwargs: Any) -> Any:
            if self._iteration is None:
                return original(*args, **kwargs)
            self._leave(None)
            with self.clock.phase("checkpoint"):
                return original(*args, **kwargs)

        return save

    def _stop(self, original: Call) -> Call:
        def stop(*args: Any, **kwargs: Any) -> Any:
            self.finish(None)  # the writer may switch the telemetry off
            return original(*args, **kwargs)

        return stop


def _part(runner: Any, name: str) -> Any:
    found = getattr(runner, name, None)
    if found is None:
        raise RltelError(f"instrument: expected one of rsl_rl's runners, got {type(runner).__name__} without .{name}")
    return found


def _put(place: _Place) -> Callable[[], None]:
    """Wrap one method on its object. What undoes it."""
    owner, name, wrap = place
    original = getattr(owner, name, None)
    if not callable(original):
        raise RltelError(f"instrument: {type(owner).__name__} has no method {name}, which rsl_rl's loop calls")
    if hasattr(original, _MARK):
        raise RltelError(f"instrument: {type(owner).__name__}.{name} is instrumented already")
    wrapper = functools.wraps(original)(wrap(original))
    setattr(wrapper, _MARK, True)
    was_own = name in getattr(owner, "__dict__", {})
    setattr(owner, name, wrapper)

    def undo() -> None:
        if was_own:
            setattr(owner, name, original)
        else:
            with suppress(AttributeError):
                delattr(owner, name)

    return undo


@contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123  # a device, not a file
        yield
