"""The files about a run while it goes, when it ends, and when it is killed."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from export.making import FakeClock, commit, environment, identity, run_python, wait_until
from rltel.core.claims import claim_place
from rltel.core.clock import SystemClock
from rltel.core.config import RunConfig, TelemetryConfig, WandbConfig
from rltel.core.errors import RecordError
from rltel.core.redact import HIDDEN
from rltel.export.sink import Destination
from rltel.runs import run_record as module
from rltel.runs.layout import RUN_CONFIG, RUN_SUMMARY
from rltel.runs.progress import REWARD
from rltel.runs.run_record import RunRecord
from rltel.runs.run_summary import read_run_summary

TESTS = str(Path(__file__).parents[1])
S = 1_000_000_000
PATIENT_S = 60.0
"""For its thread: what that finds out and writes is there then, however busy the machine."""


@pytest.fixture
def records() -> Iterator[list[RunRecord]]:
    """Those that a test leaves open."""
    made: list[RunRecord] = []
    yield made
    for each in made:
        each.close()


def started(run_dir: Path, records: list[RunRecord], settings: TelemetryConfig | None = None, **how: Any) -> RunRecord:
    known = {"clock": SystemClock(), "environ": environment()}
    made = RunRecord(settings or TelemetryConfig(), identity(run_dir), **{**known, **how})
    records.append(made)
    made.start()
    return made


def read(run_dir: Path, name: str = RUN_SUMMARY) -> dict[str, Any]:
    found = json.loads((run_dir / name).read_text())
    assert isinstance(found, dict)
    return found


def is_there(run_dir: Path) -> bool:
    return (run_dir / RUN_CONFIG).exists()


def test_a_summary_is_there_as_soon_as_it_has_started(tmp_path: Path, records: list[RunRecord]) -> None:
    started(tmp_path, records)
    assert read(tmp_path)["status"] == "running"


def test_a_run_from_start_to_end(tmp_path: Path, records: list[RunRecord]) -> None:
    clock = FakeClock()
    record = started(tmp_path, records, clock=clock)
    for step in range(3):
        clock.now += S
        record.observe(commit({REWARD: float(step)}, step=step, env_steps=50 * step))
    record.put({"last_checkpoint": "model_2.pt"})
    record.close(PATIENT_S)
    found = read(tmp_path)
    assert (found["status"], found["completed_iterations"], found["total_env_steps"]) == ("completed", 2, 100)
    assert (found["tail_env_steps_per_sec"], found["training_wall_time_sec"]) == (50.0, 3.0)
    assert (found["final_mean_reward"], found["last_checkpoint"]) == (2.0, "model_2.pt")
    assert read(tmp_path, RUN_CONFIG)["run"]["hardware"]["cores"] == os.cpu_count()
    assert sorted(path.name for path in tmp_path.iterdir()) == [RUN_CONFIG, RUN_SUMMARY]


def test_a_run_that_goes_on_is_written_every_few_seconds(tmp_path: Path, records: list[RunRecord]) -> None:
    record = started(tmp_path, records, every_s=0.02)
    record.observe(commit(step=7))
    wait_until(lambda: read(tmp_path)["completed_iterations"] == 7, "the step in the summary")
    assert read(tmp_path)["status"] == "running"


def test_the_config_is_written_again_at_the_first_commit(
    tmp_path: Path, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then is torch there and seeded, and a card chosen."""
    monkeypatch.setattr(module, "current_device", lambda: "cuda:3")
    record = started(tmp_path, records, every_s=60.0)
    wait_until(lambda: is_there(tmp_path), "the config")
    assert read(tmp_path, RUN_CONFIG)["run"]["devices"]["current"] is None
    record.observe(commit(step=0))
    wait_until(lambda: read(tmp_path, RUN_CONFIG)["run"]["devices"]["current"] == "cuda:3", "the card")


def test_starting_and_observing_wait_for_nothing(
    tmp_path: Path, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git hangs; and it still has an end."""
    go_on = threading.Event()
    monkeypatch.setattr(module, "git_state", lambda: go_on.wait(60))
    record = started(tmp_path, records)
    record.observe(commit(step=1))
    record.close(timeout_s=0.05)
    assert read(tmp_path)["status"] == "completed"
    assert read(tmp_path, RUN_CONFIG)["run"]["git"] is None
    go_on.set()


def test_one_that_has_ended_writes_nothing_over_the_next_one_s_config(
    tmp_path: Path, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread still waited for git when it ended; the same program has started again meanwhile."""
    go_on = threading.Event()
    with monkeypatch.context() as slow:
        slow.setattr(module, "git_state", lambda: go_on.wait(60))
        first = started(tmp_path, records)
        first.close(timeout_s=0.05)
    assert is_there(tmp_path)
    second = started(tmp_path, records, TelemetryConfig(run=RunConfig(task="the second")))
    second.close(PATIENT_S)
    assert read(tmp_path, RUN_CONFIG)["run"]["task"] == "the second"
    go_on.set()
    assert first._thread is not None
    first._thread.join(60)
    assert read(tmp_path, RUN_CONFIG)["run"]["task"] == "the second"


def test_a_resumed_run_goes_on_and_keeps_what_it_was_started_with(tmp_path: Path, records: list[RunRecord]) -> None:
    for seed in (1, 2, 3):
        clock = FakeClock()
        settings = TelemetryConfig(run=RunConfig(config={"seed": seed}))
        record = started(tmp_path, records, settings, clock=clock)
        clock.now += 10 * S
        assert record.elapsed_s == 10.0 * seed
        record.observe(commit(step=seed * 5))
        record.close(PATIENT_S)
    found = read(tmp_path)
    assert (found["incarnations"], found["training_wall_time_sec"], len(found["starts"])) == (3, 30.0, 3)
    kept = [read(tmp_path, name)["config"]["seed"] for name in ("run_config.1.json", "run_config.2.json", RUN_CONFIG)]
    assert kept == [1, 2, 3]


def test_no_secret_is_in_either_file(tmp_path: Path, records: list[RunRecord]) -> None:
    key = "abcdef0123456789"
    settings = TelemetryConfig(run=RunConfig(config={"deep": {"password": key}}), wandb=WandbConfig(api_key=key))
    record = started(tmp_path, records, settings, environ={"MY_TOKEN": "tok-98765"})
    record.put({"note": f"{key} tok-98765", "error": f"401: {key}", "status": "failed"})
    record.close(PATIENT_S)
    text = (tmp_path / RUN_CONFIG).read_text() + (tmp_path / RUN_SUMMARY).read_text()
    assert key not in text
    assert "tok-98765" not in text
    assert read(tmp_path)["note"] == f"{HIDDEN} {HIDDEN}"
    assert read(tmp_path)["error"] == f"401: {HIDDEN}"


def test_a_trace_in_the_run_directory_is_named_as_it_lies_there(tmp_path: Path, records: list[RunRecord]) -> None:
    about: dict[str, Any] = {"trace_path": str(tmp_path / "trace" / "x.pftrace"), "dropped": {"otlp": {"error": 2}}}
    started(tmp_path, records, about=lambda: about).close()
    assert read(tmp_path)["trace_path"] == "trace/x.pftrace"
    assert read(tmp_path)["dropped"] == {"otlp": {"error": 2}}


class TestStatus:
    def test_the_trainer_s_word_counts(self, tmp_path: Path, records: list[RunRecord]) -> None:
        record = started(tmp_path, records)
        record.put({"status": "collector_died", "error": RuntimeError("collector 3 is gone")})
        record.close()
        found = read(tmp_path)
        assert (found["status"], found["error_type"]) == ("collector_died", "RuntimeError")
        assert found["error"] == "collector 3 is gone"

    def test_also_against_an_exception_that_it_handles(self, tmp_path: Path, records: list[RunRecord]) -> None:
        record = started(tmp_path, records)
        record.put({"status": "completed"})
        try:
            raise StopIteration
        except StopIteration:
            record.close()
        assert (read(tmp_path)["status"], read(tmp_path)["error"]) == ("completed", None)

    def test_an_exception_on_its_way_is_a_failure(self, tmp_path: Path, records: list[RunRecord]) -> None:
        record = started(tmp_path, records)

        def train() -> None:
            try:
                raise ValueError("no loss")
            finally:
                record.close()

        with pytest.raises(ValueError, match="no loss"):
            train()
        found = read(tmp_path)
        assert (found["status"], found["error_type"], found["error"]) == ("failed", "ValueError", "no loss")

    def test_a_wrong_one_is_refused_where_it_is_said(self, tmp_path: Path, records: list[RunRecord]) -> None:
        with pytest.raises(RecordError, match="status"):
            started(tmp_path, records).put({"status": "fine"})

    def test_it_is_final_as_soon_as_the_end_begins(self, tmp_path: Path, records: list[RunRecord]) -> None:
        """A job that is killed while a slow destination is waited for has a right summary."""
        record = started(tmp_path, records, every_s=0.01)
        record.ends()
        assert read(tmp_path)["status"] == "completed"
        record.observe(commit(step=9))
        wait_until(lambda: read(tmp_path)["completed_iterations"] == 9, "one more summary")
        assert read(tmp_path)["status"] == "completed"


def test_a_machine_like_no_other_costs_only_what_it_cannot_say(
    tmp_path: Path, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("no such file system")

    monkeypatch.setattr(module, "git_state", fail)
    record = started(tmp_path, records)
    record.close(PATIENT_S)
    run = read(tmp_path, RUN_CONFIG)["run"]
    assert (run["git"], run["hardware"]["cores"]) == (None, os.cpu_count())


def test_a_folder_that_was_deleted_and_a_user_without_one(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os\nfrom pathlib import Path\nos.chdir({str(gone)!r})\nos.rmdir({str(gone)!r})\n"
    code += "def unknown(): raise RuntimeError\nPath.home = unknown\n"
    ran = run_python(code + PROGRAM, tmp_path, PYTHONPATH=TESTS)
    assert ran.returncode == 0, ran.stderr
    assert read(tmp_path, RUN_CONFIG)["run"]["working_dir"] is None
    assert ran.stderr == ""


PROGRAM = """
import atexit, os, signal, sys, threading, time
from pathlib import Path
from export.making import commit, identity
from rltel.core.clock import SystemClock
from rltel.core.config import TelemetryConfig
from rltel.runs.run_record import RunRecord
run_dir = Path(sys.argv[1])
record = RunRecord(TelemetryConfig(), identity(run_dir), clock=SystemClock(), environ={})
record.start()
atexit.register(record.close, 60.0)
record.observe(commit(step=1))
"""


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("", "completed", None),
        ("raise ValueError('no loss')", "failed", "no loss"),
        ("record.put({'status': 'completed'}); raise ValueError('no loss')", "failed", "no loss"),
        ("record.put({'status': 'collector_died'}); raise ValueError('no loss')", "collector_died", "no loss"),
        ("try:\n    1 / 0\nexcept Exception:\n    sys.exit(1)", "failed", "division by zero"),
        ("os.kill(os.getpid(), signal.SIGINT)", "interrupted", ""),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); os.kill(os.getpid(), 15)", "interrupted", None),
        ("record.noticed(KeyboardInterrupt())", "interrupted", ""),
        ("record.noticed(KeyboardInterrupt()); record.observe(commit(step=2))", "completed", None),
    ],
)
def test_however_a_program_ends_its_summary_says_so(tmp_path: Path, code: str, status: str, error: str | None) -> None:
    ran = run_python(PROGRAM + code, tmp_path, PYTHONPATH=TESTS)
    found = read(tmp_path)
    assert (found["status"], found["error"]) == (status, error), ran.stderr
    assert is_there(tmp_path)


def test_a_killed_program_leaves_a_summary_that_reads_interrupted(tmp_path: Path) -> None:
    ran = run_python(PROGRAM + "os.kill(os.getpid(), signal.SIGKILL)", tmp_path, PYTHONPATH=TESTS)
    assert ran.returncode == -signal.SIGKILL
    assert read(tmp_path)["status"] == "running"
    assert (read_run_summary(tmp_path) or {})["status"] == "interrupted"


def test_a_forked_child_leaves_the_files_to_its_parent(tmp_path: Path) -> None:
    code = PROGRAM + (
        "pid = os.fork()\n"
        "if not pid:\n    record.abandon()\n    record.close()\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint((run_dir / 'run_summary.json').read_text().count('running'))\n"
    )
    ran = run_python(code, tmp_path, PYTHONPATH=TESTS)
    assert int(ran.stdout) >= 1, ran.stderr
    assert read(tmp_path)["status"] == "completed"


def test_a_disk_that_takes_nothing_is_counted_and_said_once(
    tmp_path: Path, records: list[RunRecord], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / RUN_SUMMARY).mkdir()
    (tmp_path / "run_summary.rltel.json").mkdir()
    account = Destination("run_record")
    with caplog.at_level(logging.WARNING, "rltel"):
        record = started(tmp_path, records, account=account)
        record.observe(commit(step=1))
        record.close()
    assert account.dropped_totals["disk"] >= 2
    assert len([line for line in caplog.messages if line.startswith("run_record:")]) == 1


def test_unilab_s_own_files_stay_as_they_are(tmp_path: Path, records: list[RunRecord]) -> None:
    for name in (RUN_CONFIG, RUN_SUMMARY):
        (tmp_path / name).write_text('{"status": "theirs"}')
    started(tmp_path, records).close(PATIENT_S)
    assert {read(tmp_path, name)["status"] for name in (RUN_CONFIG, RUN_SUMMARY)} == {"theirs"}
    assert read(tmp_path, "run_summary.rltel.json")["status"] == "completed"
    assert read(tmp_path, "run_config.rltel.json")["run"]["id"] == "run-1"


class TestVideo:
    def test_of_this_start_is_shown_at_the_end_at_its_last_step(self, tmp_path: Path, records: list[RunRecord]) -> None:
        record = started(tmp_path, records)
        record.observe(commit(step=12))
        assert record.video() is None
        (tmp_path / "play_video.mp4").write_text("video")
        os.utime(tmp_path / "play_video.mp4", ns=(record._started_ns + S, record._started_ns + S))
        assert record.video() == (tmp_path / "play_video.mp4", 12)

    def test_that_the_trainer_showed_is_not_shown_again(self, tmp_path: Path, records: list[RunRecord]) -> None:
        clock = FakeClock()
        record = started(tmp_path, records, clock=clock)
        video = tmp_path / "play_video.mp4"
        video.write_text("video")
        os.utime(video, ns=(clock.realtime_ns() + S, clock.realtime_ns() + S))
        clock.now += 2 * S
        record.showed()
        assert record.video() is None
        os.utime(video, ns=(clock.realtime_ns() + S, clock.realtime_ns() + S))
        assert record.video() is not None


def test_observing_costs_the_same_however_long_the_run(tmp_path: Path, records: list[RunRecord]) -> None:
    """What is remembered of a commit has a bound."""
    record = started(tmp_path, records)
    for step in range(5000):
        record.observe(commit(step=step, env_steps=step))
    assert len(record._progress._iterations._points) == len(record._progress._env_steps._points) == 101


def test_a_second_process_that_reads_it_meanwhile_sees_it_running(tmp_path: Path, records: list[RunRecord]) -> None:
    claim = claim_place(tmp_path, "learner", 0)
    started(tmp_path, records)
    code = (
        "import sys\nfrom pathlib import Path\nfrom rltel.runs.run_summary import read_run_summary\n"
        "print(read_run_summary(Path(sys.argv[1]))['status'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment(), check=True
    )
    claim.release()
    assert ran.stdout.strip() == "running"
