"""Send what a destination missed, from the run's record: with the original steps and times, in order, once.

The ledger says what it has had, and is written after each commit, so a replay that is stopped goes on where it was.
Cumulative sums are built anew over all of a process's commits, sent or not, so that they are what they would have been.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rltel.core.claims import Claim, claim_place
from rltel.core.config import RunConfig, TelemetryConfig
from rltel.core.errors import RltelError
from rltel.core.rundir import placed
from rltel.export.commit import Commit
from rltel.export.ledger import Ledger, Numbers, elsewhere, folder_of, had, kept
from rltel.export.points import Point, Totals, points_of
from rltel.export.sink import PartlyTakenError, Sink
from rltel.export.worker import may_try_again
from rltel.names.otel import Namer
from rltel.runs.recorded import Recorded, is_running, recorded
from rltel.runs.recorded_setup import recorded_setup
from rltel.runs.report import Report, Sent
from rltel.runs.target import Target
from rltel.runs.targets import replay_config, target_of

_PAUSES_S = (0.5, 1.0, 2.0)

Progress = Callable[[str, int, int], None]
"""Told about the process at work, how many commits were sent, and how many are to be sent in all."""


@dataclass(frozen=True, slots=True)
class _Work:
    of: Recorded
    had: Numbers
    sent: Sent


class Replay:
    """What there is to send from a run to a destination, and sending it.

    Args:
        run_dir: the run directory.
        found: its record.
        target: where to.
        writer: the name of roles' process that writes for the run, as `writers` has it.
        make_namer: for each process's names, one that knows none yet.
        sleep: waits some seconds, before what may help by itself is tried again.
        force: also take processes that seem to be running, as those on other hosts do until they have ended.
    """

    def __init__(
        self,
        run_dir: Path,
        found: list[Recorded],
        target: Target,
        writers: set[str],
        *,
        make_namer: Callable[[], Namer] = Namer,
        sleep: Callable[[float], None] = time.sleep,
        force: bool = False,
    ) -> None:
        self._run_dir = run_dir
        self._found = [each for each in found if not target.of_writer or each.process in writers]
        self._make_namer = make_namer
        self._sleep = sleep
        self._force = force
        self._target = target
        self._at = ""  # what is on its way, in words
        self._work: list[_Work] = []
        self.report = self._plan()

    def _plan(self) -> Report:
        name, place = self._target.name, self._target.place
        report = Report(name, place, self._target.note, elsewhere(self._run_dir, name, place))
        self._work = []
        for each in self._found:
            before = had(self._run_dir, each.process, name, place)
            sent = Sent(each.process, len(each.numbers), sum(number in before for number in each.numbers))
            sent.note = self._why_not(each)
            report.processes.append(sent)
            self._work.append(_Work(each, before, sent))
        return report

    def _why_not(self, each: Recorded) -> str:
        if not each.is_whole:
            return "left out: the record does not say which process this was"
        if not self._force and is_running(self._run_dir, each.process):
            return "left out: still running, and delivers by itself (--force takes it all the same)"
        return ""

    def run(self, progress: Progress = lambda process, done, total: None) -> Report:
        """Send. A destination that refuses ends it: `Report.error` says why, and the next replay goes on there."""
        if not self.report.missing:
            return self.report
        claim = self._claim()
        try:
            report = self.report = self._plan()  # another replay may just have ended
            total = report.missing
            if total:
                self._send_all(lambda process: progress(process, report.sent, total))
        except Exception as error:  # whatever a destination raises is its reason
            report.error = f"{self._target.name}: {self._at}{str(error) or type(error).__name__}"
        finally:
            claim.release()
        return report

    def _claim(self) -> Claim:
        """One replay at a time, for each destination: two would send the same."""
        folder = folder_of(self._run_dir, self._target.name, self._target.place)
        folder.mkdir(parents=True, exist_ok=True)
        claim = claim_place(folder, "replay", 0, rank_is_unique=self._force)
        if claim.index:
            claim.release()
            raise RltelError(f"{self._target.name}: another replay to {self._target.place} is at work ({folder})")
        return claim

    def _send_all(self, progress: Callable[[str], None]) -> None:
        try:
            if self._target.ordered:
                self._note_what_it_had()
            for work in self._work:
                if work.sent.missing:
                    self._send(work, progress)
            self._at = ""
        finally:
            self._target.close()

    def _note_what_it_had(self) -> None:
        for work in self._work:
            if work.sent.had and work.of.is_whole:
                note = self._open(work).note  # type: ignore[attr-defined]  # sinks of ordered targets have it
                for commit in work.of.commits(self._run_dir):
                    if commit.number in work.had:
                        note(commit)

    def _open(self, work: _Work) -> Sink:
        return self._target.open(work.of.identity(self._run_dir), work.of.started_ns)

    def _send(self, work: _Work, progress: Callable[[str], None]) -> None:
        """All that is missing of one process."""
        ledger = Ledger(self._run_dir, work.of.process, self._target.name, self._target.place, replay=True)
        try:
            progress(work.of.process)
            sink, waiting = self._open(work), []
            for commit, points in self._with_points(work):
                self._at = f"{work.of.process}, step {commit.step} of {commit.axis}: "
                try:
                    self._attempt(partial(sink.write, commit, points))
                except PartlyTakenError as partly:  # and would be refused in part each time: the rest can go on
                    work.sent.refused = f"{self._at}{partly}"
                if self._target.at_once:
                    waiting.append(commit.number)
                else:
                    self._took(work, ledger, commit.number)
                    progress(work.of.process)
            self._at = f"{work.of.process}: "
            self._attempt(sink.flush)
            for number in waiting:
                self._took(work, ledger, number)
        finally:
            ledger.close()

    def _attempt(self, step: Callable[[], None]) -> None:
        """Do it, again after a while if the other side was away. What it raised first is the reason."""
        reason: Exception | None = None
        for pause_s in (*_PAUSES_S, None):
            try:
                step()
            except Exception as error:
                reason = reason or error
                if pause_s is None or not may_try_again(error):
                    raise reason from None
                self._sleep(pause_s)
            else:
                return

    def _took(self, work: _Work, ledger: Ledger, number: int) -> None:
        if number not in work.had:
            ledger.sent(number)
            work.sent.sent += 1

    def _with_points(self, work: _Work) -> Iterator[tuple[Commit, Sequence[Point]]]:
        """The commits to be written."""
        namer = self._make_namer()
        totals = Totals(namer)
        known: set[str] = set()
        for commit in work.of.commits(self._run_dir):
            is_sent = commit.number not in work.had or self._target.at_once
            if not self._target.sums:
                if is_sent:
                    yield commit, ()
                continue
            totals.add(commit)
            if is_sent:
                yield commit, points_of(commit, totals)
            elif not commit.snapshot.keys() <= known:
                self._target.seen(points_of(commit, totals))
            known.update(commit.snapshot)


def writers(run_dir: Path, found: list[Recorded], destination: str, config: RunConfig) -> list[Recorded]:
    """The processes that wrote for the run: as their records or the ledger say, else as the config does."""
    said = [each for each in found if each.header.get("writer") is True or kept(run_dir, each.process, destination)]
    return said or [each for each in found if each.is_whole and _is_writer(each, config)]


def _is_writer(each: Recorded, config: RunConfig) -> bool:
    header = each.header
    wanted = int(header.get("world_size", 1)) - 1 if config.writer == "last" else config.writer
    return header.get("role") == config.primary_role and header.get("rank") == wanted == header.get("index")


def _files_of(config: TelemetryConfig, run_dir: Path) -> list[Path] | None:
    """Where ``jsonl.path`` put the record, if it is still there."""
    path = placed(config.jsonl.path or "", run_dir)
    return [path] if path.is_file() else None


def replay(
    run_dir: Path,
    name: str,
    given: Any = None,
    *,
    environ: Mapping[str, str],
    endpoint: str | None = None,
    files: list[Path] | None = None,
    force: bool = False,
) -> Replay:
    """A replay of a run's record to a destination, ready to `run`.

    Args:
        run_dir: the run directory.
        name: one of `rltel.runs.targets.NAMES`.
        given: a config, as `rltel.init` takes it: where the destination is, and who writes for the run. Default: what
            the run itself was started with (``run_config.json``), without its secrets.
        environ: variables, which are stronger.
        endpoint: stronger still.
        files: the record, if it is neither in the run directory nor where the config says.
        force: see `Replay`.

    Raises `RltelError` (`ConfigError`) for what cannot be read or does not fit.
    """
    run_dir = run_dir.absolute()
    config = replay_config(name, recorded_setup(run_dir, name, environ) if given is None else given, environ, endpoint)
    found = recorded(run_dir, files or _files_of(config, run_dir))
    wrote = writers(run_dir, found, name, config.run)
    first = next((each for each in wrote or found if each.is_whole), None)
    if first is None:
        raise RltelError(f"{found[0].path}: no line says which process the commits are of")
    target = target_of(name, config, run_dir, first.identity(run_dir), environ)
    if target.of_writer and not wrote:
        run = config.run
        raise RltelError(
            f"{name} gets what the run's writer committed, and {run.primary_role} {run.writer} committed nothing; "
            f"found {', '.join(each.process for each in found)}; set run.primary_role or run.writer in the config"
        )
    return Replay(
        run_dir,
        found,
        target,
        {each.process for each in wrote},
        make_namer=lambda: Namer(max_series=config.names.max_series_per_metric),
        force=force,
    )
