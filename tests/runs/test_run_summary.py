"""How a run went: what the file says, what trainers may add, and how it is read again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from export.making import TIME_NS, commit, identity
from rltel.core.claims import claim_place
from rltel.core.errors import RecordError, RltelError
from rltel.names.schema import METRIC_SCHEMA_VERSION
from rltel.runs.atomic import write_json
from rltel.runs.layout import RUN_SUMMARY
from rltel.runs.progress import REWARD, Progress
from rltel.runs.run_summary import Before, Now, checked_fields, earlier_starts, read_run_summary, run_summary

S = 1_000_000_000


def progress(steps: int = 3, reward: float = 1.0) -> Progress:
    made = Progress()
    for step in range(1, steps + 1):
        made.observe(commit({REWARD: reward}, step=step, env_steps=step * 100), step * S)
    return made


def summary(of: Progress | None = None, before: Before = Before(), **how: Any) -> dict[str, Any]:  # noqa: B008  # frozen
    about = how.pop("about", {})
    now = Now(identity(), TIME_NS, TIME_NS + 60 * S, 60.0, **how)
    return run_summary(now, before, of or progress(), about)


def test_the_schema_s_version_stands_at_the_top() -> None:
    made = summary()["metric_schema_version"]
    assert made == METRIC_SCHEMA_VERSION == 1
    assert type(made) is int


def test_a_run_that_goes_on() -> None:
    made = summary()
    assert (made["status"], made["ended_at_utc"], made["error"]) == ("running", None, None)
    assert (made["completed_iterations"], made["total_env_steps"]) == (3, 300)
    assert made["tail_env_steps_per_sec"] == 100.0
    assert (made["training_wall_time_sec"], made["incarnations"]) == (60.0, 1)


def test_a_run_that_failed_says_why() -> None:
    made = summary(status="failed", error=ValueError("no loss"))
    assert (made["status"], made["error_type"], made["error"]) == ("failed", "ValueError", "no loss")
    assert made["ended_at_utc"] == made["updated_at_utc"]


def test_an_error_without_end_has_one() -> None:
    made = summary(status="failed", error="x" * 20_000)
    assert len(made["error"]) < 10_100
    assert made["error"].endswith("(20000 characters)")


def test_everything_is_json_also_a_reward_that_is_none() -> None:
    made = json.loads(json.dumps(summary(progress(reward=math.nan)), allow_nan=False))
    assert (made["final_mean_reward"], made["best_mean_reward"]) == ("nan", None)


def test_nothing_was_committed_yet() -> None:
    made = summary(Progress())
    names = ("completed_iterations", "total_env_steps", "final_mean_reward", "tail_env_steps_per_sec")
    assert [made[name] for name in names] == [None] * 4


class TestResumed:
    """Motphys/UniLab #441: the time axis restarts at 0 on resume."""

    def test_time_and_steps_go_on(self, tmp_path: Path) -> None:
        write_json(tmp_path / RUN_SUMMARY, summary(progress(reward=9.0), status="failed"))
        before = earlier_starts(tmp_path)
        made = summary(progress(5, reward=2.0), before)
        assert (made["incarnations"], made["training_wall_time_sec"]) == (2, 120.0)
        assert (made["total_env_steps"], made["best_mean_reward"], made["final_mean_reward"]) == (500, 9.0, 2.0)
        assert [(each["status"], each["last_step"]) for each in made["starts"]] == [("failed", 3), ("running", 5)]
        assert made["started_at_utc"] == before.started

    def test_before_its_first_commit_it_is_where_it_was(self, tmp_path: Path) -> None:
        write_json(tmp_path / RUN_SUMMARY, summary(status="failed"))
        made = summary(Progress(), earlier_starts(tmp_path))
        assert (made["completed_iterations"], made["total_env_steps"]) == (3, 300)

    def test_a_start_that_was_killed_is_told_as_interrupted_wherever_that_was(self, tmp_path: Path) -> None:
        """A claim of another host's process looks held."""
        claim_place(tmp_path, "learner", 0)
        write_json(tmp_path / RUN_SUMMARY, summary())
        made = summary(before=earlier_starts(tmp_path))
        assert [each["status"] for each in made["starts"]] == ["interrupted", "running"]

    def test_many_starts_are_counted_and_the_last_hundred_listed(self, tmp_path: Path) -> None:
        for _ in range(120):
            write_json(tmp_path / RUN_SUMMARY, summary(Progress(), earlier_starts(tmp_path), status="completed"))
        found = read_run_summary(tmp_path) or {}
        assert (found["incarnations"], len(found["starts"]), found["training_wall_time_sec"]) == (120, 100, 7200.0)

    @pytest.mark.parametrize(
        "content",
        [
            {},
            {
                "status": "completed",
                "starts": 3,
                "training_wall_time_sec": "x",
                "incarnations": True,
                "total_env_steps": 1.5,
            },
        ],
    )
    def test_what_cannot_be_is_passed_over(self, tmp_path: Path, content: dict[str, Any]) -> None:
        write_json(tmp_path / RUN_SUMMARY, {"status": "completed", **content})
        before = earlier_starts(tmp_path)
        assert (before.starts, before.count, before.wall_time_s, before.env_steps) == ((), 0, 0.0, None)


class TestReadBack:
    def test_a_killed_run_reads_interrupted(self, tmp_path: Path) -> None:
        write_json(tmp_path / RUN_SUMMARY, summary())
        assert json.loads((tmp_path / RUN_SUMMARY).read_text())["status"] == "running"
        assert (read_run_summary(tmp_path) or {})["status"] == "interrupted"

    def test_one_that_still_goes_on_reads_running(self, tmp_path: Path) -> None:
        claim = claim_place(tmp_path, "learner", 0)
        write_json(tmp_path / RUN_SUMMARY, summary())
        assert (read_run_summary(tmp_path) or {})["status"] == "running"
        claim.release()
        assert (read_run_summary(tmp_path) or {})["status"] == "interrupted"

    def test_a_run_without_one(self, tmp_path: Path) -> None:
        assert read_run_summary(tmp_path) is None
        (tmp_path / RUN_SUMMARY).write_text('{"status": "completed"}')
        assert read_run_summary(tmp_path) is None, "another program's"


class TestTrainers:
    def test_their_own_fields_and_what_they_know_better(self) -> None:
        fields = checked_fields({"last_checkpoint": Path("model_5.pt"), "final_mean_reward": 7, "mine": {"a": (1, 2)}})
        made = summary(about=fields)
        assert (made["last_checkpoint"], made["final_mean_reward"], made["mine"]) == ("model_5.pt", 7, {"a": [1, 2]})

    @pytest.mark.parametrize("name", ["metric_schema_version", "starts", "run_id", "written_by", "dropped"])
    def test_ours_are_refused(self, name: str) -> None:
        with pytest.raises(RecordError, match=f"summary: {name}: rltel itself writes this"):
            checked_fields({name: 2})

    def test_what_json_cannot_hold_is_refused_by_its_path(self) -> None:
        with pytest.raises(RecordError, match=r"summary: mine\.a: expected numbers"):
            checked_fields({"mine": {"a": object()}})

    def test_a_status_that_is_none_is_refused(self) -> None:
        with pytest.raises(RecordError, match="status: expected one of"):
            checked_fields({"status": "done"})

    def test_a_runtime_manifest_that_breaks_its_contract_is_refused(self) -> None:
        with pytest.raises(RltelError, match=r"replay_ingress"):
            checked_fields({"runtime_manifest": {"schema_version": 1, "replay_ingress": {"occupancy": -1}}})
        manifest = {"schema_version": 1, "inference_ring_capacity": 1}
        assert summary(about=checked_fields({"runtime_manifest": manifest}))["runtime_manifest"] == manifest

    def test_ppo_s_diagnostics_stand_at_the_top(self) -> None:
        with pytest.raises(RecordError, match=r"summary: backend_diagnostics\.available"):
            checked_fields({"backend_diagnostics": {"available": 1}})
        given = {"available": False, "unavailable_reason": "no such backend"}
        assert summary(about=checked_fields({"backend_diagnostics": given}))["backend_diagnostics"] == given

    def test_what_was_not_given_is_not_there(self) -> None:
        assert not {"runtime_manifest", "backend_diagnostics"} & summary().keys()
