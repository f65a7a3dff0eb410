"""Whole soaks of small real processes that behave badly in every way; the artifact is on disk in each."""

import json
import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from export.making import run_python, wait_until
from realparts import unilab_soak
from realparts.soak_trainer import FULL, MANIFEST, SHUTDOWN, SUMMARY, command, failed
from rltel.runs.soak.monitor import run_soak
from rltel.runs.soak.processes import table
from rltel.runs.soak.settings import Limits, Settings, SoakError

KEYS = ["schema_version", "status", "failure_reason", "failure_classification", "command", "context", "started_at_utc"]
KEYS += ["ended_at_utc", "duration_s", "returncode", "monitor", "samples", "resource_summary", "shutdown"]
KEYS += ["post_shutdown", "run_summary", "console_log"]
PATIENT = {"startup_timeout_s": 120.0, "stale_progress_s": 120.0}  # for what is not about time-outs


@pytest.fixture(autouse=True)
def nothing_stays() -> Any:
    """No test leaves a process behind: what it leaks, the monitor ends."""
    before = set(table())
    yield
    mine = [pid for pid, row in table().items() if pid not in before and row.parent == os.getpid()]
    assert mine == []


def soak(tmp_path: Path, behaviour: str, *more: str | Path, **settings: Any) -> dict[str, Any]:
    """The artifact, as it is on disk, of a soak of this behaviour."""
    given = {"sample_interval_s": 0.1, "stop_grace_s": 20.0, "post_shutdown_grace_s": 1.0, **PATIENT, **settings}
    output = tmp_path / "out" / "soak.json"
    returned = run_soak(Settings(command(behaviour, *more), tmp_path / "run", output, **given))
    on_disk: dict[str, Any] = json.loads(output.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert returned == on_disk
    assert list(on_disk) == KEYS
    assert on_disk["schema_version"] == "0.3.0"
    assert (on_disk["status"] == "passed") is (on_disk["failure_classification"] is None)
    return on_disk


def outcome(artifact: dict[str, Any]) -> str:
    return str(artifact["failure_classification"] or artifact["status"])


@pytest.mark.parametrize("behaviour", ["completes", "completes_without_manifest"])
def test_a_run_that_ends_well_passes(tmp_path: Path, behaviour: str) -> None:
    made = soak(tmp_path, behaviour)
    assert (outcome(made), made["returncode"], made["failure_reason"]) == ("passed", 0, None)
    assert made["post_shutdown"] == {"residual_processes": []}
    assert made["shutdown"] == (SHUTDOWN if behaviour == "completes" else None)
    assert made["run_summary"] == (FULL if behaviour == "completes" else SUMMARY)
    assert made["resource_summary"]["max_progress_bytes"] == 2
    assert made["samples"][-1]["process"]["process_count"] == 0


def test_what_a_run_used_is_measured(tmp_path: Path) -> None:
    """Of one that is there for a while: one that ends at once may have ended before the first sample."""
    made = soak(tmp_path, "goes_on", "50", post_shutdown_grace_s=20.0)
    assert outcome(made) == "passed"
    used = made["resource_summary"]
    assert used["max_process_rss_kib"] > 0
    assert used["max_process_count"] == 2


def test_a_manifest_can_be_required(tmp_path: Path) -> None:
    assert outcome(soak(tmp_path, "completes_without_manifest", require_manifest=True)) == "schema_violation"


def test_orphans_that_end_in_time_are_no_leak(tmp_path: Path) -> None:
    made = soak(tmp_path, "orphans_come_and_go", post_shutdown_grace_s=20.0)
    assert (outcome(made), made["post_shutdown"]["residual_processes"]) == ("passed", [])


class TestProducer:
    """Its class wins, as it knows who began."""

    def test_a_killed_collector(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "loses_its_collector")
        assert (outcome(made), made["returncode"]) == ("collector_failure", 1)
        assert "the collector ended with -9" in made["failure_reason"]

    def test_a_killed_collector_of_a_trainer_without_manifest(self, tmp_path: Path) -> None:
        summary = json.dumps({**SUMMARY, "status": "collector_died"})
        assert outcome(soak(tmp_path, "writes", summary, "1")) == "collector_failure"

    def test_even_if_the_exit_code_is_0(self, tmp_path: Path) -> None:
        assert outcome(soak(tmp_path, "writes", json.dumps(failed("learner_failure")))) == "learner_failure"

    def test_also_over_a_time_out_that_came_after_it(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "fails_and_hangs", stale_progress_s=1.0)
        assert outcome(made) == "collector_failure"
        assert made["failure_reason"].startswith("no progress: no file has grown for")

    def test_but_not_with_what_it_says_of_being_stopped(self, tmp_path: Path) -> None:
        """The monitor stopped it because it hung. UniLab takes the trainer's word there: external_cancellation."""
        made = soak(tmp_path, "hangs", stale_progress_s=1.0)
        assert (outcome(made), made["shutdown"]["classification"]) == ("timeout/stale_tick", "external_cancellation")


class TestTimeouts:
    def test_one_that_never_begins(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "never_begins", startup_timeout_s=0.5)
        assert (outcome(made), made["returncode"]) == ("timeout/startup", -signal.SIGTERM)
        assert "no run_summary" not in made["failure_reason"].split("; ")[0]

    def test_what_an_earlier_run_left_is_no_beginning(self, tmp_path: Path) -> None:
        """UniLab counts the bytes that it finds."""
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "model_1000.pt").write_bytes(b"x" * 1000)
        assert outcome(soak(tmp_path, "never_begins", startup_timeout_s=0.5)) == "timeout/startup"

    def test_one_that_is_deaf_is_killed_with_its_children(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "hangs_deaf", stale_progress_s=1.0, stop_grace_s=0.3)
        assert (outcome(made), made["returncode"]) == ("timeout/stale_tick", -signal.SIGKILL)
        assert made["resource_summary"]["max_process_count"] == 2
        assert made["post_shutdown"]["residual_processes"] == []

    def test_a_summary_that_a_thread_keeps_writing_is_no_progress(self, tmp_path: Path) -> None:
        assert outcome(soak(tmp_path, "hangs_but_its_clock_goes_on", stale_progress_s=1.0)) == "timeout/stale_tick"


class TestLeaks:
    def test_a_child_that_left_session_and_parent(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "leaks_a_child", tmp_path / "child")
        left = int((tmp_path / "child").read_text())
        assert (outcome(made), made["returncode"]) == ("resource_leak", 0)
        assert [each["pid"] for each in made["post_shutdown"]["residual_processes"]] == [left]
        assert left not in table()  # and ended

    def test_a_child_that_was_busy(self, tmp_path: Path) -> None:
        assert outcome(soak(tmp_path, "leaks_a_busy_child", tmp_path / "child")) == "resource_leak"

    @pytest.mark.parametrize(
        ("behaviour", "limits", "what"),
        [
            ("leaks_memory", Limits(rss_growth_mib=30, warmup_s=0.2), "memory"),
            ("leaks_descriptors", Limits(descriptor_growth=10, warmup_s=0.2), "descriptors"),
            ("leaks_processes", Limits(process_growth=3, warmup_s=0.2), "processes"),
        ],
    )
    def test_growth_beyond_a_limit_ends_the_run(
        self, tmp_path: Path, behaviour: str, limits: Limits, what: str
    ) -> None:
        made = soak(tmp_path, behaviour, limits=limits)
        assert outcome(made) == "resource_leak"
        assert made["failure_reason"].startswith(f"{what} grew by")
        assert made["post_shutdown"]["residual_processes"] == []

    def test_a_run_too_short_for_its_limits_does_not_pass(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "completes", limits=Limits(rss_growth_mib=1000))
        assert outcome(made) == "too_short"
        assert "expected at least 10 samples" in made["failure_reason"]


class TestSummary:
    @pytest.mark.parametrize("text", ['{"status": "compl', "[]"])
    def test_a_corrupt_one(self, tmp_path: Path, text: str) -> None:
        made = soak(tmp_path, "writes", text)
        assert (outcome(made), made["run_summary"]) == ("invalid_run_summary", None)

    def test_none(self, tmp_path: Path) -> None:
        assert outcome(soak(tmp_path, "writes_no_summary")) == "missing_run_summary"

    def test_an_earlier_run_s(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "run_summary.json").write_text(json.dumps(FULL))
        assert outcome(soak(tmp_path, "writes_no_summary")) == "missing_run_summary"

    def test_one_that_still_says_running_is_of_a_run_that_was_cut_off(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "writes", json.dumps({**SUMMARY, "status": "running"}))
        assert (outcome(made), made["returncode"]) == ("unknown_failure", 0)

    def test_a_broken_shutdown_contract(self, tmp_path: Path) -> None:
        broken = {**SHUTDOWN, "cleanup": {"errors": [{"type": "OSError", "message": "busy"}]}}
        summary = {**SUMMARY, "runtime_manifest": {**MANIFEST, "shutdown": broken}}
        made = soak(tmp_path, "writes", json.dumps(summary))
        assert (outcome(made), made["shutdown"]) == ("shutdown_contract_violation", broken)

    def test_a_broken_manifest(self, tmp_path: Path) -> None:
        summary = {**SUMMARY, "runtime_manifest": {**MANIFEST, "inference_ring_capacity": 0}}
        made = soak(tmp_path, "writes", json.dumps(summary))
        assert outcome(made) == "schema_violation"
        assert "inference_ring_capacity: expected a whole number >= 1, got 0" in made["failure_reason"]

    def test_nan_in_it_does_not_break_the_artifact(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "writes", json.dumps({**SUMMARY, "final_reward": float("nan")}))
        assert (outcome(made), made["run_summary"]["final_reward"]) == ("passed", "nan")

    def test_an_exit_code_fails_the_run_whatever_it_says(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "writes", json.dumps(FULL), "3")
        assert (outcome(made), made["failure_reason"]) == ("unknown_failure", "the command exited with code 3")


def test_a_hung_trainer_of_ours_is_stale_while_its_threads_go_on(tmp_path: Path) -> None:
    """Endpoint, pipeline and timeline have threads of their own, which write nothing that the training did not do."""
    code = (
        "import rltel, time\n"
        "trace = {'enabled': True, 'flush_interval_s': 0.1}\n"
        "rltel.init({'trace': trace, 'prometheus': {'enabled': True, 'port': 0}})\n"
        "rltel.log({'x': 1.0}, step=0)\n"
        "time.sleep(600)\n"
    )
    output = tmp_path / "soak.json"
    given: dict[str, Any] = {**PATIENT, "sample_interval_s": 0.2, "stale_progress_s": 5.0}
    made = run_soak(Settings([sys.executable, "-c", code], tmp_path / "run", output, **given))
    assert outcome(made) == "timeout/stale_tick"
    assert list((tmp_path / "run" / "metrics").iterdir())  # it came to RLTEL_RUN_DIR by itself


class TestMonitor:
    def test_a_run_that_is_too_short(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "completes", min_duration_s=500.0)
        assert outcome(made) == "too_short"
        assert "at least 500 s were asked for" in made["failure_reason"]

    def test_a_run_that_failed_and_so_was_short_is_of_the_failure_s_class(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "loses_its_collector", min_duration_s=500.0, limits=Limits(rss_growth_mib=1000))
        assert outcome(made) == "collector_failure"
        made = soak(tmp_path / "crash", "writes_no_summary", min_duration_s=500.0)
        assert outcome(made) == "missing_run_summary"

    def test_output_without_end_is_cut_in_its_middle(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, time\n"
            "print('the first words')\n"
            "for n in range(30):\n    print('x' * 1023 * 64, flush=True); time.sleep(0.02)\n"
            "while os.fstat(1).st_size > 1 << 19: time.sleep(0.02)\n"  # until the monitor has come to cut it
            "print('the last words')\n"
        )
        made = run_soak(Settings([sys.executable, "-c", code], tmp_path, tmp_path / "soak.json", max_console_mib=0.5))
        text = (tmp_path / "soak-console.log").read_text()
        assert len(text) < 1 << 20
        assert text.startswith("the first words\n")
        assert text.endswith("the last words\n")
        cut = made["monitor"]["console_cut_bytes"]
        assert text.count(f"[rltel soak: {cut} bytes cut here]\n") == 1
        assert cut > 500_000

    def test_output_may_be_without_limit(self, tmp_path: Path) -> None:
        made = soak(tmp_path, "completes", max_console_mib=float("inf"))
        assert (outcome(made), made["monitor"]["console_cut_bytes"]) == ("passed", 0)

    def test_a_command_that_is_none(self, tmp_path: Path) -> None:
        output = tmp_path / "soak.json"
        run_soak(Settings(["/no/such/program"], tmp_path / "run", output))
        made = json.loads(output.read_text())
        assert (outcome(made), made["returncode"], list(made)) == ("monitor_failure", None, KEYS)
        assert "/no/such/program" in made["failure_reason"]

    def test_its_own_failure_ends_the_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> None:
            raise ValueError("a fault of ours")

        monkeypatch.setattr("rltel.runs.soak.progress.Liveness.look", broken)
        made = soak(tmp_path, "goes_on")
        assert outcome(made) == "monitor_failure"
        assert made["failure_reason"].startswith("the monitor failed: ValueError: a fault of ours")
        assert made["returncode"] is not None

    @pytest.mark.parametrize("step", ["monitor.wait_for_end", "monitor.findings_of", "tree.Tree.alive"])
    def test_a_failure_of_its_own_at_any_step_is_in_the_artifact(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise ValueError("a fault of ours")

        monkeypatch.setattr(f"rltel.runs.soak.{step}", broken)
        made = soak(tmp_path, "completes")
        assert outcome(made) == "monitor_failure"
        assert made["returncode"] is not None

    def test_an_artifact_that_cannot_be_written_is_an_error_before_the_start(self, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.touch()
        with pytest.raises(OSError, match="file"):
            run_soak(Settings(command("completes"), tmp_path / "run", blocked / "soak.json"))
        assert not (tmp_path / "run" / "progress.jsonl").exists()

    def test_works_in_a_thread(self, tmp_path: Path) -> None:
        made: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: made.append(soak(tmp_path, "completes")))
        thread.start()
        thread.join(120)
        assert outcome(made[0]) == "passed"

    def test_children_that_it_had_before_are_not_the_command_s(self, tmp_path: Path) -> None:
        own = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "300")
        try:
            made = soak(tmp_path, "completes")
            assert (outcome(made), own in table()) == ("passed", True)
        finally:
            os.kill(own, signal.SIGKILL)
            os.waitpid(own, 0)

    def test_secrets_of_the_command_line_are_not_written(self, tmp_path: Path) -> None:
        output = tmp_path / "soak.json"
        run_soak(Settings([*command("never_begins"), "--api-key", "hunter2"], tmp_path / "run", output,
                          startup_timeout_s=0.5, sample_interval_s=0.1))  # fmt: skip
        assert "hunter2" not in output.read_text()

    @pytest.mark.parametrize("name", ["sample_interval_s", "startup_timeout_s", "stale_progress_s"])
    def test_settings_that_cannot_be_are_errors(self, tmp_path: Path, name: str) -> None:
        given: dict[str, Any] = {name: 0.0}
        with pytest.raises(SoakError, match=f"{name}: expected a number > 0, got 0.0"):
            Settings(["true"], tmp_path, tmp_path / "soak.json", **given)


def test_needs_no_torch_and_nothing_else_that_is_heavy() -> None:
    """UniLab's docstring says the same, and its import needs a simulator."""
    code = (
        "import sys\n"
        "blocked = ['torch', 'tensorboard', 'wandb', 'grpc', 'perfetto', 'requests', 'psutil']\n"
        "sys.modules.update(dict.fromkeys(blocked))\n"
        "import rltel.runs.soak.monitor, rltel.runs.manifest_counters\n"
    )
    ran = run_python(code)
    assert (ran.returncode, ran.stderr) == (0, "")


class TestUniLab:
    """The real monitor on the same commands: where both agree, and where ours differs from a fault of it."""

    settings: ClassVar = {"sample_interval_seconds": 0.1, "post_shutdown_grace_seconds": 0.5}

    def both(self, tmp_path: Path, behaviour: str, *more: str, **changed: Any) -> tuple[str, str]:
        root = unilab_soak.need_soak()
        folder = tmp_path / "theirs"
        theirs = unilab_soak.soak(root, folder, command(behaviour, *more), **{**self.settings, **changed})
        names = {"stale_progress_seconds": "stale_progress_s", "startup_timeout_seconds": "startup_timeout_s"}
        ours = soak(tmp_path, behaviour, *more, **{names[name]: value for name, value in changed.items()})
        assert list(theirs) == list(ours)
        assert set(theirs["resource_summary"]) <= set(ours["resource_summary"])
        assert set(theirs["monitor"]) <= set(ours["monitor"])
        # It has none of a command that ended before it came to look.
        for ours_sample, their_sample in zip(ours["samples"][:1], theirs["samples"][:1], strict=False):
            assert {name: set(part) for name, part in ours_sample.items() if isinstance(part, dict)} == {
                name: set(part) for name, part in their_sample.items() if isinstance(part, dict)
            }
        return outcome(ours), outcome(theirs)

    @staticmethod
    def text(**changed: Any) -> str:
        """A summary with the manifest's version that the real one takes."""
        return json.dumps({**SUMMARY, "runtime_manifest": {**MANIFEST, "schema_version": 2, **changed}})

    def test_agree_on_a_run_that_passes(self, tmp_path: Path) -> None:
        assert self.both(tmp_path, "writes", self.text()) == ("passed", "passed")

    def test_agree_on_a_killed_collector(self, tmp_path: Path) -> None:
        summary = failed("collector_failure")
        summary["runtime_manifest"]["schema_version"] = 2
        assert self.both(tmp_path, "writes", json.dumps(summary), "1") == ("collector_failure",) * 2

    def test_agree_on_a_missing_summary(self, tmp_path: Path) -> None:
        assert self.both(tmp_path, "writes_no_summary") == ("missing_run_summary",) * 2

    def test_agree_on_a_broken_shutdown_contract(self, tmp_path: Path) -> None:
        text = self.text(shutdown={**SHUTDOWN, "owner": ""})
        assert self.both(tmp_path, "writes", text) == ("shutdown_contract_violation",) * 2

    def test_agree_on_time_outs(self, tmp_path: Path) -> None:
        found = self.both(tmp_path, "never_begins", startup_timeout_seconds=0.5)
        assert found == ("timeout/startup",) * 2

    def test_differ_on_a_corrupt_summary(self, tmp_path: Path) -> None:
        """It was written: it is not missing."""
        assert self.both(tmp_path, "writes", "{") == ("invalid_run_summary", "missing_run_summary")

    def test_differ_on_what_a_stopped_trainer_says(self, tmp_path: Path) -> None:
        """Nobody cancelled it: it hung."""
        with_manifest_2 = self.both(tmp_path, "hangs", stale_progress_seconds=1.0)
        assert with_manifest_2 == ("timeout/stale_tick", "external_cancellation")

    def test_differ_on_a_summary_that_an_earlier_run_left(self, tmp_path: Path) -> None:
        """It passes a run that wrote none."""
        for folder in (tmp_path / "run", tmp_path / "theirs"):
            folder.mkdir()
            (folder / "run_summary.json").write_text(self.text())
        assert self.both(tmp_path, "writes_no_summary") == ("missing_run_summary", "passed")

    def test_differ_on_files_that_were_there_before(self, tmp_path: Path) -> None:
        """They are the first progress to it, so the time-out for the start does not hold."""
        for folder in (tmp_path / "run", tmp_path / "theirs"):
            folder.mkdir()
            (folder / "model_1000.pt").write_bytes(b"x")
        found = self.both(tmp_path, "never_begins", startup_timeout_seconds=0.5, stale_progress_seconds=1.0)
        assert found == ("timeout/startup", "timeout/stale_tick")

    def test_differ_on_a_leaked_child_that_left_its_parent(self, tmp_path: Path) -> None:
        """It looks for children of the command only, and in a list that kernels are built without, too."""
        note = tmp_path / "child"
        theirs = unilab_soak.soak(
            unilab_soak.need_soak(), tmp_path / "theirs", command("leaks_a_child", note), **self.settings
        )
        left = int(note.read_text())
        try:
            assert left in table()
            assert theirs["post_shutdown"]["residual_processes"] == []
        finally:
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        note.unlink()
        assert outcome(soak(tmp_path, "leaks_a_child", note)) == "resource_leak"
        wait_until(lambda: left not in table(), "it has ended")


def test_a_program_on_the_path_is_found(tmp_path: Path) -> None:
    assert shutil.which("true")
    made = run_soak(Settings(["true"], tmp_path / "run", tmp_path / "soak.json"))
    assert (made["returncode"], outcome(made), sys.platform) == (0, "missing_run_summary", "linux")
