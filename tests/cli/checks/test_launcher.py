"""What launchers leave in the environment, and whether it can be."""

import pytest

from rltel.cli.checks.launcher import check_launcher
from rltel.core.config import RunConfig

ONE_HOST = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}


def found(environ, status, run=None):
    return [
        (finding.area, finding.what)
        for finding in check_launcher(run or RunConfig(), environ)
        if finding.status == status
    ]


def test_alone_there_is_nothing_to_say():
    assert found({}, "problem") == found({}, "warning") == []
    assert found({}, "ok")[-1] == ("launcher", "learner, rank 0 of 1, run id a new one")


def test_torchrun_s_own_are_right():
    environ = {"RANK": "1", "WORLD_SIZE": "2", **ONE_HOST}
    assert found(environ, "problem") == found(environ, "warning") == []
    assert found(environ, "ok")[-1] == ("launcher", "learner, rank 1 of 2, run id job")


@pytest.mark.parametrize(
    ("environ", "area", "what"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK", "RANK=2 is not below WORLD_SIZE=2"),
        ({"SLURM_PROCID": "4", "SLURM_NTASKS": "2"}, "SLURM_PROCID", "SLURM_PROCID=4 is not below SLURM_NTASKS=2"),
        ({"RANK": "first"}, "RANK", 'expected a whole number >= 0, got "first"'),
        ({"RANK": "-1"}, "RANK", 'expected a whole number >= 0, got "-1"'),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"},
            "LOCAL_WORLD_SIZE",
            "LOCAL_WORLD_SIZE=4 is above WORLD_SIZE=2",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "launcher", "2 ranks and no run id that they share"),
        ({"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}, "launcher", "2 ranks and no run id that"),
        ({"RLTEL_ROLE": "a/b"}, "launcher", 'role: expected letters, digits, "_" and "-", got "a/b"'),
    ],
)
def test_what_will_not_work(environ, area, what):
    ((where, said),) = found(environ, "problem")
    assert where == area
    assert said.startswith(what)


@pytest.mark.parametrize(
    ("environ", "what"),
    [
        ({"RANK": "0"}, "RANK=0 is set, and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "1"}, "WORLD_SIZE=1 is set, and RANK is not"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "RLTEL_RANK": "1", "RLTEL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "j"},
            "RLTEL_RANK=1 and RANK=0: RLTEL_RANK wins",
        ),
    ],
)
def test_what_may_not_be_meant(environ, what):
    assert [said for _, said in found(environ, "warning")] == [what]


def test_a_run_id_of_the_config_is_enough():
    assert found({"RANK": "0", "WORLD_SIZE": "2"}, "problem", RunConfig(id="x")) == []


def test_a_writer_that_does_not_exist():
    ((area, what),) = found({}, "problem", RunConfig(writer=3))
    assert (area, what) == ("run.writer", "rank 3 of a world of 1")


def test_every_finding_that_is_not_right_says_what_to_do():
    for environ in ({"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "0"}, {"RANK": "x"}, {"RANK": "0", "WORLD_SIZE": "2"}):
        assert all(finding.do for finding in check_launcher(RunConfig(), environ) if finding.status != "ok")
