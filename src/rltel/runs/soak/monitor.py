"""Runs a command, watches it, ends it if it has to, and writes the artifact whatever happens."""

import os
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM, Signals, strsignal
from typing import Any

from rltel.runs.scrub import Scrub
from rltel.runs.soak.adoption import adopting
from rltel.runs.soak.artifact import Verdict, judge, make_artifact, write_artifact
from rltel.runs.soak.console import Console
from rltel.runs.soak.context import context_of
from rltel.runs.soak.contract import findings_of, producer_class
from rltel.runs.soak.ending import kill, kill_group, reaped, stop, wait_for_end
from rltel.runs.soak.finding import TOO_SHORT, Finding
from rltel.runs.soak.gpu import Gpus
from rltel.runs.soak.growth import Growth
from rltel.runs.soak.interrupts import noted
from rltel.runs.soak.progress import Liveness, Progress
from rltel.runs.soak.readings import read_process, read_tree
from rltel.runs.soak.samples import Samples
from rltel.runs.soak.settings import Settings, SoakError
from rltel.runs.soak.summary import Summaries, Summary, shutdown_of
from rltel.runs.soak.tree import Tree

_LOOK_S = 0.1  # how soon a signal, or the command's end, is noticed
_MOST_MIB = 1 << 40  # more than any disk: no limit
_SAVE_S = 60.0  # how often the artifact is written before the end: one that is killed leaves it


def run_soak(settings: Settings) -> dict[str, Any]:
    """Run the command to its end, or to the first reason to end it; returns the artifact, which is on disk as well.

    This process becomes the parent of the command's orphans, and should start no others meanwhile. In the main thread
    it notes SIGINT, SIGTERM and SIGHUP: the command gets them, and the soak fails as ``external_cancellation``.

    Raises:
        SoakError: The system has no ``/proc``.
        OSError: The folder or the artifact cannot be written. The command has not been started then.
    """
    if not Path("/proc/self/stat").exists():
        raise SoakError("rltel soak: expected Linux's /proc, which is not there; it watches processes through it")
    settings.folder.mkdir(parents=True, exist_ok=True)
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    return _Soak(settings).run()


class _Soak:
    """One soak, from its begin to its artifact."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hide = Scrub([os.environ]).command
        self._gpus = Gpus()
        self._context = context_of(Path.cwd(), self._gpus)
        self._tree = Tree()
        own = (settings.output, settings.console)
        self._progress = Progress(settings.folder, own)
        self._summaries = Summaries(settings.folder)
        self._samples = Samples(settings.max_samples)
        self._growth = Growth(settings.limits)
        self._findings: list[Finding] = []
        self._producer_before_stop: str | None = None
        self._was_stopped = False
        self._residual: list[dict[str, Any]] = []
        self._returncode: int | None = None
        self._console_cut = 0
        self._started = datetime.now(UTC)
        self._began = time.monotonic()
        self._cpu_began = time.process_time()
        self._saved = self._began

    def run(self) -> dict[str, Any]:
        self._save_unfinished()  # if it cannot be written, better now than after a day
        limit = int(min(self._settings.max_console_mib, _MOST_MIB) * (1 << 20))
        with adopting(), noted() as signals, closing(Console(self._settings.console, limit)) as console:
            self._supervise(console, signals)
        self._console_cut = console.cut_bytes
        artifact = self._conclude()
        write_artifact(self._settings.output, artifact)
        return artifact

    def _supervise(self, console: Console, signals: list[int]) -> None:
        try:
            command = self._start(console.fileno())
        except OSError as error:
            self._findings.append(Finding(f"the command could not be started: {error}", "monitor_failure"))
            return
        try:
            wrong = self._watch(command, console, signals)
        except Exception as error:  # whatever it is, the command must end and the artifact say so
            wrong = _our_failure(error)
        try:
            self._end(command, wrong, signals)
        except Exception as error:  # as above
            self._findings.append(_our_failure(error))
            kill_group(command)
        self._returncode = reaped(command)

    def _start(self, output: int) -> "subprocess.Popen[bytes]":
        environ = dict(os.environ)
        if self._settings.sets_run_dir:
            environ["RLTEL_RUN_DIR"] = str(self._settings.folder.absolute())
        started = subprocess.Popen(  # noqa: S603 - running the user's command is what this is for
            list(self._settings.command),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl+C comes to the monitor alone, which passes it on
        )
        self._tree.started(started.pid)
        return started

    def _watch(self, command: "subprocess.Popen[bytes]", console: Console, signals: list[int]) -> Finding | None:
        """Until the command has ended (None), or has to be."""
        settings = self._settings
        liveness = Liveness(settings.startup_timeout_s, settings.stale_progress_s, self._began)
        due = self._began
        while command.poll() is None:
            if signals:
                return Finding(f"the monitor received {Signals(signals[0]).name}", "external_cancellation")
            with suppress(OSError):  # a disk in trouble: it grows on meanwhile
                console.trim()
            now = time.monotonic()
            if now >= due:
                wrong = self._sample(now, liveness)
                if wrong is not None:
                    return wrong
                due = now + settings.sample_interval_s
                self._save_now_and_then(now)
            time.sleep(min(_LOOK_S, settings.sample_interval_s))
        return None

    def _sample(self, now: float, liveness: Liveness) -> Finding | None:
        sizes = self._progress.sizes()
        tree = self._take(sizes)
        return liveness.look(now, sizes) or self._growth.look(now - self._began, tree)

    def _take(self, sizes: dict[str, int]) -> dict[str, Any]:
        tree = read_tree(self._tree.alive(), self._hide)
        gpu = self._gpus.sample({each["pid"] for each in tree["processes"]})
        elapsed = round(time.monotonic() - self._began, 6)
        progress = self._progress.sample(sizes)
        self._samples.add({"elapsed_s": elapsed, "process": tree, "gpu": gpu, "progress": progress})
        return tree

    def _end(self, command: "subprocess.Popen[bytes]", wrong: Finding | None, signals: list[int]) -> None:
        if wrong is not None:
            self._findings.append(wrong)
            self._was_stopped = True
            self._producer_before_stop = producer_class(self._summaries.read().content)
            first = signals[0] if signals else SIGTERM
            stop(self._tree, command, first, self._settings.stop_grace_s, lambda: len(signals) > 1)
        else:
            wait_for_end(self._tree, command, self._settings.post_shutdown_grace_s, lambda: bool(signals))
        self._take(self._progress.sizes())
        self._residual = [
            read for process in self._tree.alive() if (read := read_process(process, self._hide)) is not None
        ]
        if self._residual:
            kill(self._tree, command)

    def _conclude(self) -> dict[str, Any]:
        self._findings += self._own_findings()
        try:
            return self._judged(self._summaries.read())
        except Exception as error:  # a summary that we cannot take must not cost the artifact
            return self._artifact(judge([*self._findings, _our_failure(error)], None), None)

    def _judged(self, summary: Summary) -> dict[str, Any]:
        found = list(self._findings)
        if summary.finding is not None:
            found.append(summary.finding)
        if summary.content is not None:
            found += findings_of(summary.content, require_manifest=self._settings.require_manifest)
        # What the producer says after it was told to stop is about being told, not about what began it.
        producer = self._producer_before_stop if self._was_stopped else producer_class(summary.content)
        return self._artifact(judge(found, producer), summary.content)

    def _own_findings(self) -> list[Finding]:
        found = []
        if self._returncode and not self._was_stopped:
            found.append(Finding(f"the command {_ending(self._returncode)}"))
        elapsed, least = time.monotonic() - self._began, self._settings.min_duration_s
        if elapsed < least and not self._was_stopped:
            found.append(Finding(f"the run took {elapsed:.1f} s; at least {least:g} s were asked for", TOO_SHORT))
        if self._residual:
            pids = ", ".join(str(each["pid"]) for each in self._residual)
            found.append(Finding(f"processes that outlived the command: {pids}", "resource_leak"))
        unchecked = self._growth.unchecked()
        if unchecked is not None and not self._was_stopped:
            found.append(unchecked)
        return found

    def _save_now_and_then(self, now: float) -> None:
        if now - self._saved >= _SAVE_S:
            self._saved = now
            with suppress(OSError):  # a disk that is full for a moment; the last time it is an error
                self._save_unfinished()

    def _save_unfinished(self) -> None:
        """The artifact as it has to be if this process is killed now."""
        finding = Finding("the monitor did not come to its end", "monitor_failure")
        write_artifact(self._settings.output, self._artifact(judge([finding], None), None))

    def _artifact(self, verdict: Verdict, run_summary: dict[str, Any] | None) -> dict[str, Any]:
        settings = self._settings
        return make_artifact(
            verdict,
            command=self._hide(settings.command),
            context=self._context,
            started=self._started,
            duration_s=time.monotonic() - self._began,
            returncode=self._returncode,
            monitor=self._monitor(),
            samples=self._samples.kept,
            resource_summary={
                **self._samples.summary(run_summary, len(self._residual)),
                "growth_since_warmup": self._growth.grown(),
            },
            shutdown=shutdown_of(run_summary),
            residual=self._residual,
            run_summary=run_summary,
            console_log=settings.console,
        )

    def _monitor(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "sample_interval_s": settings.sample_interval_s,
            "startup_timeout_s": settings.startup_timeout_s,
            "stale_progress_s": settings.stale_progress_s,
            "post_shutdown_grace_s": settings.post_shutdown_grace_s,
            "min_duration_s": settings.min_duration_s,
            "sample_count": self._samples.taken,
            "stop_grace_s": settings.stop_grace_s,
            "kept_sample_count": len(self._samples.kept),
            "limits": asdict(settings.limits),
            "console_cut_bytes": self._console_cut,
            "cpu_s": round(time.process_time() - self._cpu_began, 6),
        }


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exited with code {returncode}"
    return f"was ended by signal {-returncode} ({strsignal(-returncode)})"


def _our_failure(error: Exception) -> Finding:
    return Finding(f"the monitor failed: {type(error).__name__}: {error}", "monitor_failure")
