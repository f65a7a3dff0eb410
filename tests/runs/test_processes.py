"""How the processes of a run ended, and which of them the run ended from."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from export.making import environment
from realparts.requirements import need_package
from rltel.core.claims import claim_place
from rltel.runs.atomic import write_json
from rltel.runs.ending import Outcome
from rltel.runs.processes import End, cause, end_of, ends, of_entry, told
from rltel.runs.run_summary import read_run_summary
from rltel.runs.scrub import Scrub

CLOSED = RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:1")
S = 1_000_000_000


def failed(process: str, at: int, error: str = "no memory", **how: Any) -> End:
    return End(process, "failed", "RuntimeError", error, at, **how)


class TestOwnEnd:
    def test_an_exception_without_secrets(self) -> None:
        outcome = Outcome("failed", ValueError("bad key hunter2secret"))
        found = end_of("learner-1.1", outcome, 5, Scrub([{"api_key": "hunter2secret"}]))
        assert (found.status, found.error_type, found.ended_ns, found.lost_peer) == ("failed", "ValueError", 5, False)
        assert "hunter2" not in str(found.error)

    def test_one_that_another_rank_s_end_has_caused(self) -> None:
        assert end_of("learner-0.1", Outcome("failed", CLOSED), 5).lost_peer
        assert not end_of("learner-0.1", Outcome("failed", str(CLOSED)), 5).lost_peer

    def test_an_error_whose_text_cannot_be_made(self) -> None:
        class OddError(Exception):
            def __str__(self) -> str:
                raise ValueError

        assert end_of("learner-0.1", Outcome("failed", OddError()), 5).error == "<OddError without a text>"

    def test_it_is_read_back_from_the_list_of_a_summary(self) -> None:
        end = failed("learner-1.1", 7 * S, lost_peer=True)
        assert of_entry(json.loads(json.dumps(end.entry()))) == end


class TestEnds:
    def leave(self, run_dir: Path, end: End, role: str, index: int) -> None:
        claim_place(run_dir, role, index).release(asdict(end))

    def test_those_that_ended_otherwise_than_well_in_the_order_of_time(self, tmp_path: Path) -> None:
        self.leave(tmp_path, failed("learner-1.1", 20), "learner", 1)
        self.leave(tmp_path, failed("env_worker-0.1", 10), "env_worker", 0)
        self.leave(tmp_path, End("learner-2.1", "completed", ended_ns=30), "learner", 2)
        claim_place(tmp_path, "learner", 3)  # goes on
        claim_place(tmp_path, "learner", 4).release()  # an earlier version's
        assert [(each.process, each.role) for each in ends(tmp_path, "learner-0.1", 0, 0)] == [
            ("env_worker-0.1", "env_worker"),
            ("learner-1.1", "learner"),
        ]

    def test_one_that_another_incarnation_follows_is_left_out(self, tmp_path: Path) -> None:
        self.leave(tmp_path, failed("collector-0.1", 20), "collector", 0)
        claim_place(tmp_path, "collector", 0)
        assert ends(tmp_path, "learner-0.1", 0, 0) == []

    def test_one_of_an_earlier_start_is_left_out_unless_it_ended_in_this(self, tmp_path: Path) -> None:
        self.leave(tmp_path, failed("collector-0.1", 20), "collector", 0)
        claimed = (tmp_path / "claims" / "collector-0.1.json").stat().st_mtime_ns
        assert ends(tmp_path, "learner-0.1", claimed + 1, 30) == []
        assert len(ends(tmp_path, "learner-0.1", claimed + 1, 15)) == 1

    def test_one_that_was_killed(self, tmp_path: Path) -> None:
        claim = claim_place(tmp_path, "learner", 1)
        content = json.loads(claim.path.read_text())
        claim.path.write_text(json.dumps({**content, "started": content["started"] + 1}))
        (found,) = ends(tmp_path, "learner-0.1", 0, 0)
        assert (found.process, found.status, found.killed) == ("learner-1.1", "interrupted", True)

    @pytest.mark.parametrize("content", ["", "[]", "{}", "not json", '{"status": null}'])
    def test_what_says_nothing_is_passed_over(self, tmp_path: Path, content: str) -> None:
        claim_place(tmp_path, "learner", 1).path.with_suffix(".ended").write_text(content)
        assert ends(tmp_path, "learner-0.1", 0, 0) == []

    def test_a_run_without_claims(self, tmp_path: Path) -> None:
        assert ends(tmp_path, "learner-0.1", 0, 0) == []


class TestCause:
    lost = failed("learner-0.1", 10, "peer", lost_peer=True)

    def test_the_earliest_failure_that_says_more_than_that_a_peer_is_gone(self) -> None:
        others = [failed("learner-3.1", 12), failed("learner-2.1", 5, lost_peer=True), failed("learner-1.1", 11)]
        found = cause(self.lost, others)
        assert found is not None
        assert found.process == "learner-1.1"

    def test_its_own_if_that_is_the_earliest(self) -> None:
        assert cause(failed("learner-0.1", 10), [failed("learner-1.1", 11)]) is None
        assert cause(failed("learner-0.1", 10), [failed("learner-1.1", 9)]) is not None

    def test_nobody_knows_more(self) -> None:
        others = [failed("learner-1.1", 9, lost_peer=True), End("learner-2.1", "interrupted", killed=True)]
        assert cause(self.lost, others) is None

    def test_of_a_killed_writer_only_a_rank_of_its_role(self) -> None:
        killed = End("learner-0.1", "interrupted", killed=True)
        assert cause(killed, [failed("collector-0.1", 9)]) is None
        assert cause(killed, [failed("learner-1.1", 9)]) is not None


class TestTold:
    def test_a_run_that_went_well_lists_who_did_not(self) -> None:
        made = told(End("learner-0.1", "completed", ended_ns=10), [failed("collector-0.1", 5)])
        assert [each["process"] for each in made["processes"]] == ["collector-0.1"]
        assert (made.get("error"), made["error_process"], made.get("status")) == (None, None, None)

    def test_what_the_trainer_said_stays(self) -> None:
        own, others = End("learner-0.1", "interrupted", ended_ns=10), [failed("learner-1.1", 5)]
        assert told(own, others)["status"] == "failed"
        assert "status" not in told(own, others, keeps_status=True)
        assert "error" not in told(own, others, keeps_error=True)


TRAIN = """
import datetime, os, sys, time
import torch, torch.distributed as dist
import rltel
run_dir, rank, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = dist.FileStore(run_dir + ".store", 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
rltel.init({"jsonl": {"write": "commit"}, "tensorboard": {"path": "{run_dir}/tb"}, "run": {"id": "r"}}, run_dir=run_dir)
dist.barrier()
for step in range(3):
    with rltel.step(step, reduce_group=dist.group.WORLD):
        rltel.scalar(loss=1.0)
        if step == 1 and rank == 1:
            if how == "killed":
                os.kill(os.getpid(), 9)
            raise RuntimeError("CUDA out of memory (pretend)")
"""


def train(run_dir: Path, how: str) -> dict[str, Any]:
    """Two ranks, of which the second fails. Gives the run's summary, as it lies there."""
    command = [sys.executable, "-c", TRAIN, str(run_dir)]
    ranks = [
        subprocess.Popen([*command, str(rank), how], env=environment(OMP_NUM_THREADS="1"), stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=250)[1].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert "lost another rank" in told[0], told
    found = json.loads((run_dir / "run_summary.json").read_text())
    assert isinstance(found, dict)
    return found


def test_the_summary_names_the_rank_that_failed_first(tmp_path: Path) -> None:
    """What the writer itself saw was only that its peer was gone."""
    need_package("torch")
    found = train(tmp_path / "run", "fails")
    assert (found["status"], found["error_type"]) == ("failed", "RuntimeError")
    assert (found["error"], found["error_process"]) == ("CUDA out of memory (pretend)", "learner-1.1")
    entries = {each["process"]: each for each in found["processes"]}
    assert entries["learner-1.1"]["error"] == "CUDA out of memory (pretend)"
    assert (entries["learner-0.1"]["error_type"], entries["learner-0.1"]["lost_peer"]) == ("ReductionError", True)


def test_a_rank_that_was_killed_is_listed(tmp_path: Path) -> None:
    need_package("torch")
    found = train(tmp_path / "run", "killed")
    assert (found["status"], found["error_type"], found["error_process"]) == ("failed", "ReductionError", "learner-0.1")
    assert [(each["process"], each["killed"]) for each in found["processes"]] == [
        ("learner-0.1", False),
        ("learner-1.1", True),
    ]


class TestReadAgain:
    """The writer ended before the others could say anything."""

    def summary(self, run_dir: Path, **more: Any) -> dict[str, Any]:
        claim_place(run_dir, "learner", 1).release(asdict(failed("learner-1.1", 30 * S)))
        start = {"process": "learner-0.1", "started_at_utc": "1970-01-01T00:00:01.000+00:00", "wall_time_sec": 1.0}
        write_json(run_dir / "run_summary.json", {"process": "learner-0.1", "starts": [start], "error": None, **more})
        return read_run_summary(run_dir) or {}

    def test_one_that_its_launcher_stopped_failed_with_the_other_rank(self, tmp_path: Path) -> None:
        found = self.summary(tmp_path, status="running")
        assert (found["status"], found["error"], found["error_process"]) == ("failed", "no memory", "learner-1.1")
        assert [each["process"] for each in found["processes"]] == ["learner-1.1", "learner-0.1"]

    def test_one_that_only_lost_its_peer(self, tmp_path: Path) -> None:
        own = failed("learner-0.1", 20 * S, "peer", lost_peer=True)
        found = self.summary(
            tmp_path, status="failed", error="peer", error_process="learner-0.1", processes=[own.entry()]
        )
        assert (found["status"], found["error"], found["error_process"]) == ("failed", "no memory", "learner-1.1")

    def test_one_with_an_error_of_its_own_stays_as_it_is(self, tmp_path: Path) -> None:
        own = failed("learner-0.1", 20 * S, "mine")
        found = self.summary(
            tmp_path, status="failed", error="mine", error_process="learner-0.1", processes=[own.entry()]
        )
        assert (found["error"], found["error_process"]) == ("mine", "learner-0.1")

    def test_an_earlier_version_s_file_reads_as_it_is(self, tmp_path: Path) -> None:
        assert self.summary(tmp_path, status="failed", error="old")["error"] == "old"
