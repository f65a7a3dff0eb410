"""What a run says about itself while it goes and when it ends: ``run_config.json`` and ``run_summary.json``.

Only the run's writer has one. Nothing here waits in the training loop: a thread of its own asks git, and writes the
summary every few seconds, so that a killed run leaves one too.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rltel.core.clock import Clock
from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.sink import Destination
from rltel.runs.atomic import place_of, write_json
from rltel.runs.ending import Ending, Outcome
from rltel.runs.git_state import git_state
from rltel.runs.hardware import hardware
from rltel.runs.layout import RUN_CONFIG, RUN_SUMMARY, video_of
from rltel.runs.processes import End, cause, end_of, ends, told
from rltel.runs.progress import Progress
from rltel.runs.run_config import current_device, run_config, sections_of
from rltel.runs.run_summary import RUNNING, Now, checked_fields, earlier_starts, end_ns, run_summary
from rltel.runs.scrub import Scrub, home

EVERY_S = 10.0
_PATIENCE_S = 0.5
_MOMENT_S, _LOOK_EVERY_S = 1.0, 0.05  # how long the end waits for the rank that failed first to say so


class RunRecord:
    """The files about one start of a run. It watches how the program ends from its making to `ends` or `abandon`.

    Args:
        settings: the telemetry's config in force.
        identity: this process: the writer, with a run directory.
        clock: for its times.
        environ: the environment.
        about: what destinations know, asked for whenever the summary is written: ``trace_path``, ``wandb_run_url``,
            ``dropped`` (by destination and reason).
        account: counts what could not be written.
        every_s: how often the summary of a run that goes on is written.
    """

    def __init__(
        self,
        settings: TelemetryConfig,
        identity: Identity,
        *,
        clock: Clock,
        environ: Mapping[str, str],
        about: Callable[[], Mapping[str, Any]] = dict,
        account: Destination | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        assert identity.run_dir is not None
        self._settings = settings
        self._identity = identity
        self._run_dir = identity.run_dir
        self._clock = clock
        self._environ = dict(environ)
        self._about = about
        self._account = account or Destination("run_record")
        self._every_s = every_s
        self._scrub = Scrub([sections_of(settings), self._environ], None if settings.run.include_host else home())
        self._ending = Ending()
        self._ending.watch()  # first: packages of tracking services restore the hooks that they found
        self._progress = Progress()
        self._before = earlier_starts(self._run_dir, settings.jsonl.path)
        self._began_ns = clock.monotonic_ns()
        self._started_ns = clock.realtime_ns()
        self._fields: dict[str, Any] = {}
        self._found: dict[str, Any] = {}
        self._shown_ns = 0
        self._outcome: Outcome | None = None
        self._end: End | None = None
        self._others: list[End] = []  # how the run's other processes ended
        self._closed = False
        self._has_config = False  # whether this start's is written
        self._lock = threading.Lock()  # the numbers; held for a few instructions
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # --- the run begins ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Write the first summary, and keep an earlier start's config. Takes about a millisecond."""
        self._keep_earlier_config()
        self._write_summary()
        self._thread = threading.Thread(target=self._run, name="rltel-run-record", daemon=True)
        self._thread.start()

    def _keep_earlier_config(self) -> None:
        """A run that is continued keeps what it was started with before: ``run_config.1.json``."""
        kept = place_of(self._run_dir / RUN_CONFIG)
        if not kept.exists():
            return
        numbered = kept.with_suffix(f".{max(1, self._before.count)}{kept.suffix}")
        try:
            if not numbered.exists():
                os.link(kept, numbered)
        except OSError as error:
            self._account.failed(error, reason="disk")

    # --- it goes on -------------------------------------------------------------------------------------------------

    def observe(self, commit: Commit) -> None:
        """A commit was made, by the thread that trains. O(1)."""
        with self._lock:
            self._progress.observe(commit, self._clock.monotonic_ns())
            is_first = self._progress.commits == 1
        self._ending.goes_on()
        if is_first:  # now torch is there and seeded, and the card is chosen: worth writing the config again
            self._found["device"] = current_device()
            self._wake.set()

    def put(self, fields: Mapping[str, Any]) -> None:
        """What the trainer adds to the summary. Raises `RecordError` for what cannot be; see `checked_fields`."""
        made = checked_fields(fields)
        with self._lock:
            self._fields.update(made)

    def noticed(self, error: BaseException) -> None:
        """An exception came out of a step."""
        self._ending.noticed(error)

    def showed(self) -> None:
        """The trainer itself has shown a video: what is there by now is not shown again."""
        self._shown_ns = self._clock.realtime_ns()

    @property
    def elapsed_s(self) -> float:
        """How long the run has gone on, its earlier starts included. What counts up on the panel."""
        return self._before.wall_time_s + (self._clock.monotonic_ns() - self._began_ns) / 1e9

    def _run(self) -> None:
        self._find_out()
        if not self._closed:  # else the end has written it, and by now another start in this program may have its own
            self._write_config()
        is_complete = False
        while not self._closed:
            self._wake.wait(self._every_s)
            self._wake.clear()
            if not is_complete and self._progress.commits:
                is_complete = True
                self._find_out()
                self._write_config()
            if not self._closed:
                self._write_summary()

    def _find_out(self) -> None:
        for name, find in (("git", git_state), ("hardware", hardware)):
            try:
                self._found[name] = find()
            except Exception as error:  # a machine like no other must not cost the rest
                self._account.failed(error, count=0)

    # --- it ends ----------------------------------------------------------------------------------------------------

    def video(self) -> tuple[Path, int] | None:
        """A video that this start made and nobody has shown, and the step it belongs to: to be shown at the end."""
        path = video_of(self._run_dir, max(self._started_ns, self._shown_ns))
        return None if path is None else (path, self._progress.last_step or 0)

    def ends(self) -> None:
        """The end begins: the summary has the final status from here on, should the rest take too long."""
        self._outcome = self._seen()
        self._end = end_of(self._identity.name, self._outcome, self._clock.realtime_ns(), self._scrub)
        self._ending.unwatch()
        self._look_around()
        self._write_summary()

    @property
    def end(self) -> End | None:
        """How this process ended; None while it goes on."""
        return self._end

    def _look_around(self) -> None:
        """How the run's other processes ended, as far as they have."""
        try:
            self._others = ends(self._run_dir, self._identity.name, end_ns(self._before.starts), self._started_ns)
        except Exception as error:  # what stands there must not cost the summary
            self._account.failed(error, count=0)

    def _wait_for_cause(self, timeout_s: float) -> None:
        """Another rank failed first: it is about to say why."""
        deadline = time.monotonic() + timeout_s
        while self._end is not None and self._end.lost_peer and cause(self._end, self._others) is None:
            if time.monotonic() >= deadline or any(
                each.killed and each.role == self._end.role for each in self._others
            ):
                return
            time.sleep(_LOOK_EVERY_S)
            self._look_around()

    def close(self, timeout_s: float = _PATIENCE_S) -> None:
        """The end: both files as they stay. A second call does nothing.

        Waits this long at most for the thread; and up to a second for the failure of another rank to be told, if that
        is what ended this one.
        """
        if self._closed:
            return
        if self._outcome is None:
            self.ends()
        self._look_around()
        self._wait_for_cause(min(_MOMENT_S, self._settings.pipeline.shutdown_timeout_s))
        self._closed = True
        self._wake.set()
        deadline = time.monotonic() + timeout_s
        if self._thread is not None:
            self._thread.join(timeout_s)
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._account.failed(TimeoutError("the disk does not answer: the summary is not final"), reason="disk")
            return
        self._writing.release()
        if not self._has_config or (self._thread is not None and self._thread.is_alive()):
            self._write_config()
        self._write_summary()

    def abandon(self) -> None:
        """Write nothing from here on: in a forked child the files are the parent's."""
        self._closed = True
        self._ending.unwatch()
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def _seen(self) -> Outcome:
        """How the run ended: what the trainer said, unless it spoke of success and an exception ended the program."""
        seen = self._ending.outcome()
        with self._lock:
            said, why = self._fields.get("status"), self._fields.get("error")
        if said is None or (said == "completed" and seen.uncaught):
            return Outcome(seen.status, why or seen.error) if seen.status != "completed" else seen
        return Outcome(said, why or (None if said == "completed" else seen.error))

    # --- files ------------------------------------------------------------------------------------------------------

    def _write_config(self) -> None:
        self._write(RUN_CONFIG, self._config)
        self._has_config = True

    def _write_summary(self) -> None:
        self._write(RUN_SUMMARY, self._summary)

    def _config(self) -> dict[str, Any]:
        found, started_ns = dict(self._found), self._started_ns
        return run_config(
            self._settings, self._identity, self._scrub, self._environ, started_ns=started_ns, found=found
        )

    def _summary(self) -> dict[str, Any]:
        about = dict(self._about())
        if about.get("trace_path") is not None:
            about["trace_path"] = self._portable(str(about["trace_path"]))
        outcome = self._outcome
        now = Now(
            self._identity,
            self._started_ns,
            self._clock.realtime_ns(),
            (self._clock.monotonic_ns() - self._began_ns) / 1e9,
            RUNNING if outcome is None else outcome.status,
            None if outcome is None else outcome.error,
            self._told(),
        )
        with self._lock:
            said = {name: value for name, value in self._fields.items() if name not in ("status", "error")}
            made = run_summary(now, self._before, self._progress, {**about, **said})
        summary: dict[str, Any] = self._scrub(made)
        return summary

    def _told(self) -> dict[str, Any]:
        """What the processes of the run say of its end. What the trainer itself said, in words, stays."""
        if self._end is None:
            return {}
        keeps_error = isinstance(self._fields.get("error"), str)
        return told(self._end, self._others, keeps_status="status" in self._fields, keeps_error=keeps_error)

    def _portable(self, path: str) -> str:
        """A path in the run directory is still right after that was moved."""
        inside = Path(path).is_relative_to(self._run_dir)
        return str(Path(path).relative_to(self._run_dir)) if inside else self._scrub.local(path)

    def _write(self, name: str, make: Callable[[], Mapping[str, Any]]) -> None:
        """One at a time, the content included: what is older never comes later."""
        with self._writing:
            try:
                write_json(self._run_dir / name, make())
            except Exception as error:  # a full disk, or what stands in a trainer's config: not the training's trouble
                self._account.failed(error, reason="disk" if isinstance(error, OSError) else "error")
