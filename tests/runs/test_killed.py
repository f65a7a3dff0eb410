"""How far a killed start got, as its record has it."""

import signal
from pathlib import Path
from typing import Any

import pytest

from export.making import TIME_NS, commit, identity, run_python
from realparts.ledgered import keep_record
from rltel.export.commit import Commit
from rltel.runs import killed
from rltel.runs.killed import made_up_for
from rltel.runs.progress import REWARD
from rltel.runs.run_config import utc
from rltel.runs.run_summary import read_run_summary

S = 1_000_000_000


def committed(number: int, **how: Any) -> Commit:
    known = {"number": number, "step": number, "env_steps": 10 * number, "time_ns": TIME_NS + number * S}
    return commit({REWARD: float(number)}, **{**known, **how})


def start(**known: Any) -> dict[str, Any]:
    """As its last summary had it: with what it had seen by then."""
    blank = dict.fromkeys(("axis", "first_step", "last_step", "first_env_steps", "last_env_steps"))
    about = {"process": "learner-0.1", "status": "running", "started_at_utc": utc(TIME_NS), "wall_time_sec": 0.5}
    return {**about, "killed": False, "commits": 0, **blank, **known}


def test_it_got_as_far_as_its_last_commit(tmp_path: Path) -> None:
    record = keep_record(tmp_path, [committed(n) for n in range(6)])
    made, progress = made_up_for(start(), record)
    assert made == start(
        status="interrupted",
        killed=True,
        wall_time_sec=pytest.approx(5.0, abs=0.01),
        commits=6,
        axis="train",
        first_step=0,
        last_step=5,
        first_env_steps=0,
        last_env_steps=50,
    )
    assert progress.best_reward == 5.0


def test_what_its_summary_knew_stays(tmp_path: Path) -> None:
    record = keep_record(tmp_path, [committed(n) for n in range(6)])
    seen = start(commits=4, axis="train", first_step=100, last_step=103, wall_time_sec=60.0)
    made, progress = made_up_for(seen, record)
    assert (made["commits"], made["first_step"], made["last_step"], made["wall_time_sec"]) == (6, 100, 5, 60.0)
    assert progress.commits == 2


def test_its_steps_are_of_the_axis_that_its_summary_counted(tmp_path: Path) -> None:
    made = [committed(0, axis="rollout", step=7), committed(1, axis="rollout", step=8), committed(2, axis="eval")]
    record = keep_record(tmp_path, made)
    seen = start(commits=1, axis="rollout", first_step=7, last_step=7)
    assert made_up_for(seen, record)[0]["last_step"] == 8


def test_of_a_long_record_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed, "_TAIL_BYTES", 1000)
    record = keep_record(tmp_path, [committed(n) for n in range(100)])
    assert record.stat().st_size > 10_000
    made, progress = made_up_for(start(), record)
    assert (made["commits"], made["last_step"]) == (100, 99)
    assert made["first_step"] is None, "what is not known is not made up"
    assert 0 < progress.commits < 20


def test_a_record_that_processes_share_or_that_is_torn_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    record = keep_record(tmp_path, [committed(n) for n in range(3)])
    other = identity(tmp_path, incarnation=2)
    lines = keep_record(tmp_path, [committed(n, identity=other) for n in range(9)], other).read_bytes()
    with record.open("ab") as file:
        file.write(lines + b'{"v": 2, "type": "comm')
    assert made_up_for(start(), record)[0]["commits"] == 3


@pytest.mark.parametrize("text", [None, b"", b"{}\n", b"no json\n", b'{"v": 99}\n'])
def test_without_a_record_it_is_marked_all_the_same(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "r.jsonl").write_bytes(text)
    made, _ = made_up_for(start(last_step=3, commits=4), tmp_path / "r.jsonl")
    assert made == start(last_step=3, commits=4, status="interrupted", killed=True)


@pytest.mark.parametrize("path", [None, "{run_dir}/elsewhere.jsonl"])
def test_the_start_after_a_sigkill_lists_it_as_it_was(tmp_path: Path, path: str | None) -> None:
    code = (
        "import os, signal, sys, rltel\n"
        "on = {'console': {'enabled': True}, 'jsonl': {'path': eval(sys.argv[2])}}\n"
        "rltel.init(on, run_dir=sys.argv[1])\n"
        "for step in range(int(sys.argv[3])):\n"
        "    rltel.log({'Train/mean_reward': 10.0 - step}, step=step, env_steps=100 * step)\n"
        "if sys.argv[3] == '5':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(code, tmp_path, repr(path), "5").returncode == -signal.SIGKILL
    ran = run_python(code, tmp_path, repr(path), "0")
    assert ran.returncode == 0, ran.stderr
    found = read_run_summary(tmp_path) or {}
    first, second = found["starts"]
    assert (first["status"], first["killed"], first["commits"]) == ("interrupted", True, 5)
    assert (first["first_step"], first["last_step"], first["last_env_steps"]) == (0, 4, 400)
    assert (second["status"], second["killed"]) == ("completed", False)
    assert (found["completed_iterations"], found["total_env_steps"], found["best_mean_reward"]) == (4, 400, 10.0)
