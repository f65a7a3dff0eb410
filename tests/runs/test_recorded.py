"""The record of a run, file by file."""

from pathlib import Path

import pytest

from export.making import TIME_NS, commit, identity, run_python
from realparts.ledgered import keep_record
from rltel.core.claims import claim_place
from rltel.core.errors import RltelError
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile
from rltel.export.sink import Destination
from rltel.runs.recorded import is_running, recorded


def some(number: int, first: int = 0, **changed: object) -> list[Commit]:
    return [
        commit({"x": float(n)}, number=n, step=10 * n, time_ns=TIME_NS + n, **changed)
        for n in range(first, first + number)
    ]


class TestRecorded:
    def test_has_every_process_in_the_order_of_their_beginning(self, tmp_path: Path) -> None:
        late = identity(tmp_path, incarnation=2)
        keep_record(tmp_path, [commit(identity=late, number=0, time_ns=TIME_NS + 9)], late)
        first = identity(tmp_path, incarnation=10)
        keep_record(tmp_path, some(3, identity=first), first)
        assert [(each.process, each.numbers) for each in recorded(tmp_path)] == [
            ("learner-0.10", [0, 1, 2]),
            ("learner-0.2", [0]),
        ]

    def test_gives_the_commits_back_as_they_were(self, tmp_path: Path) -> None:
        made = [
            commit({"x": 1.5}, identity=identity(tmp_path), step=3, env_steps=24, epoch=1, epoch_step=2, axis="rollout")
        ]
        keep_record(tmp_path, made)
        (found,) = recorded(tmp_path)
        (back,) = found.commits(tmp_path)
        assert (back.identity.name, back.identity.instance_id) == (made[0].identity.name, made[0].identity.instance_id)
        for name in ("number", "time_ns", "step", "axis", "env_steps", "epoch", "epoch_step", "values"):
            assert getattr(back, name) == getattr(made[0], name), name

    def test_processes_that_share_a_file_are_told_apart(self, tmp_path: Path) -> None:
        path = tmp_path / "all.jsonl"
        who = [identity(tmp_path, index=index) for index in (0, 1)]
        files = [JsonlFile(path, each, Destination("jsonl")) for each in who]
        for n in range(3):
            for file, each in zip(files, who, strict=True):
                file.write(commit({"x": float(each.index)}, identity=each, number=n))
        found = recorded(tmp_path, [path])
        assert [each.process for each in found] == ["learner-0.1", "learner-1.1"]
        assert [[made.values["x"] for made in each.commits(tmp_path)] for each in found] == [[0.0] * 3, [1.0] * 3]

    def test_a_line_that_was_cut_is_passed_over(self, tmp_path: Path) -> None:
        path = keep_record(tmp_path, some(3))
        path.write_bytes(path.read_bytes()[:-9])
        (found,) = recorded(tmp_path)
        assert found.numbers == [made.number for made in found.commits(tmp_path)] == [0, 1]

    @pytest.mark.parametrize("what", ["no folder", "no file", "no commit"])
    def test_without_a_record_the_error_says_where_it_was_looked_for(self, tmp_path: Path, what: str) -> None:
        if what != "no folder":
            (tmp_path / "metrics").mkdir()
        if what == "no commit":
            keep_record(tmp_path, [])
        with pytest.raises(RltelError, match=r"metrics: expected a run's record"):
            recorded(tmp_path)


class TestRunning:
    def test_is_known_by_the_claim(self, tmp_path: Path) -> None:
        assert not is_running(tmp_path, "learner-0.1")  # nobody claimed it
        claim = claim_place(tmp_path, "learner", 0)
        assert is_running(tmp_path, "learner-0.1")
        claim.release()
        assert not is_running(tmp_path, "learner-0.1")

    def test_one_that_was_killed_is_not(self, tmp_path: Path) -> None:
        code = "import os, sys\nfrom pathlib import Path\nfrom rltel.core.claims import claim_place\n"
        code += "claim_place(Path(sys.argv[1]), 'learner', 0)\nos.kill(os.getpid(), 9)\n"
        assert run_python(code, tmp_path).returncode == -9
        assert not is_running(tmp_path, "learner-0.1")
