"""Who am I: every source of rank, role and run id, the writer, and processes that inherit what is not theirs."""

import json
import logging
import os
import subprocess
import sys
import uuid

import pytest

from realparts.requirements import need_package
from rltel.core.claims import start_of
from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError
from rltel.core.identity import Identity, Place, find_place, identify

RUN = RunConfig()
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job-7"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0"}

REPORT = """
import json, os, sys
from rltel.core.config import RunConfig
from rltel.core.identity import find_place, identify
run = RunConfig(log_root=sys.argv[1])
place = find_place(run, os.environ)
found, claim = identify(run, place, os.environ)
with open(f"{sys.argv[1]}/{found.rank}.answer", "x") as answer:
    json.dump([found.run_id, str(found.run_dir), found.rank, found.world_size, found.name, found.is_writer], answer)
"""


def ranks(place):
    return place.rank, place.world_size


def who(tmp_path, environ=None, *, role=None, rank=None, world_size=None, **run):
    """The identity that a process with these arguments, config and environment gets."""
    config = RunConfig(log_root=str(tmp_path), **run)
    place = find_place(config, environ or {}, role, rank, world_size)
    return identify(config, place, environ or {})[0]


def seem_elsewhere(run_dir):
    """Make every claim so far look like one of another machine."""
    for path in (run_dir / "claims").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "elsewhere"}))


@pytest.fixture
def fake_group():
    """torch.distributed, started: rank 1 of 3."""
    distributed = need_package("torch.distributed")
    fake = need_package("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group("fake", rank=1, world_size=3, store=fake.FakeStore())
    yield
    distributed.destroy_process_group()


# --- role, rank, world size -----------------------------------------------------------------------------------------


def test_alone_in_the_world():
    assert find_place(RUN, {}) == Place("learner", 0, 1, is_told=False)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RLTEL_RANK": "1", "RLTEL_WORLD_SIZE": "2"}, (1, 2)),
        (TORCHRUN, (2, 4)),
        (SLURM, (5, 8)),
        (SLURM | TORCHRUN, (2, 4)),
        (SLURM | TORCHRUN | {"RLTEL_RANK": "1", "RLTEL_WORLD_SIZE": "2"}, (1, 2)),
        (TORCHRUN | {"RLTEL_RANK": "3"}, (3, 4)),
        ({"RLTEL_RANK": " 1 ", "WORLD_SIZE": "4"}, (1, 4)),
        ({"RLTEL_RANK": "", "RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"RLTEL_RANK": "3"}, (3, 4)),
        ({"RLTEL_WORLD_SIZE": "3"}, (0, 3)),
    ],
)
def test_the_environment(environ, expected):
    assert ranks(find_place(RUN, environ)) == expected


def test_arguments_come_first():
    environ = TORCHRUN | {"RLTEL_RANK": "1", "RLTEL_WORLD_SIZE": "2", "RLTEL_ROLE": "collector"}
    assert find_place(RUN, environ, "rollout", 6, 7) == Place("rollout", 6, 7, is_told=True)
    assert find_place(RUN, environ, rank=0) == Place("collector", 0, 2, is_told=True)


def test_a_started_torch_distributed_comes_before_torchrun(fake_group):
    assert ranks(find_place(RUN, TORCHRUN)) == (1, 3)
    assert ranks(find_place(RUN, {"RLTEL_RANK": "0", "RLTEL_WORLD_SIZE": "2"})) == (0, 2)


def test_a_torch_distributed_that_has_not_started_says_nothing():
    need_package("torch.distributed")
    assert ranks(find_place(RUN, TORCHRUN)) == (2, 4)


def test_torch_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    find_place(RUN, TORCHRUN)
    assert "torch.distributed" not in sys.modules


def test_a_shell_in_an_allocation_is_no_rank():
    """salloc sets the size of the allocation everywhere in it; srun alone says who is who."""
    assert find_place(RUN, {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8"}) == Place("learner", 0, 1, is_told=False)
    assert ranks(find_place(RUN, {"WORLD_SIZE": "8"})) == (0, 1)


@pytest.mark.parametrize(
    ("rank", "world_size", "expected"), [(5, None, (5, 6)), (4, None, (4, 5)), (3, None, (3, 4)), (5, 9, (5, 9))]
)
def test_a_collectors_own_rank_need_not_fit_the_learners_inherited_world(rank, world_size, expected):
    assert ranks(find_place(RUN, TORCHRUN, "collector", rank, world_size)) == expected
    environ = TORCHRUN | {"RLTEL_RANK": str(rank)} | ({"RLTEL_WORLD_SIZE": str(world_size)} if world_size else {})
    assert ranks(find_place(RUN, environ, "collector")) == expected


@pytest.mark.parametrize(
    ("environ", "rank", "world_size", "message"),
    [
        ({}, 4, 4, "rank: expected 0 <= rank < world size (4), got 4"),
        ({}, -1, None, "rank: expected a whole number >= 0, got -1"),
        ({}, 0, 0, "world size: expected a whole number >= 1, got 0"),
        ({"RLTEL_WORLD_SIZE": "4"}, 4, None, "rank: expected 0 <= rank < world size (4), got 4"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None, None, "rank: expected 0 <= rank < world size (4), got 4"),
        ({"RANK": "2"}, None, 2, "rank: expected 0 <= rank < world size (2), got 2"),
        ({}, "0", None, "rank: expected a whole number, got '0'"),
        ({}, 1.5, None, "rank: expected a whole number, got 1.5"),
        ({}, 0, "2", "world_size: expected a whole number, got '2'"),
        ({"RLTEL_RANK": "first"}, None, None, 'RLTEL_RANK: expected a whole number, got "first"'),
        ({"WORLD_SIZE": "2.0", "RANK": "0"}, None, None, 'WORLD_SIZE: expected a whole number, got "2.0"'),
        ({"SLURM_PROCID": "x"}, None, None, 'SLURM_PROCID: expected a whole number, got "x"'),
    ],
)
def test_a_rank_that_cannot_be(environ, rank, world_size, message):
    with pytest.raises(IdentityError) as caught:
        find_place(RUN, environ, rank=rank, world_size=world_size)
    assert str(caught.value) == message


def test_a_weaker_source_is_not_even_read():
    environ = {"RANK": "garbage", "WORLD_SIZE": "garbage", "RLTEL_RANK": "0", "RLTEL_WORLD_SIZE": "2"}
    assert ranks(find_place(RUN, environ)) == (0, 2)


def test_any_whole_number_is_a_rank():
    numpy = need_package("numpy")
    place = find_place(RUN, {}, rank=numpy.int64(1), world_size=numpy.int32(2))
    assert ranks(place) == (1, 2)
    assert json.dumps(ranks(place)) == "[1, 2]"


@pytest.mark.parametrize("role", ["learner", "eval-rollout", "actor_2", "R2D2", "7", "größe"])
def test_role_names(role):
    assert find_place(RUN, {}, role).role == role
    assert find_place(RUN, {"RLTEL_ROLE": role}).role == role


@pytest.mark.parametrize("role", ["a/b", "a.b", "..", "a b", " ", "-", "_", "a\n", "a*", "a[0]", "{run_dir}"])
def test_role_names_that_no_file_or_label_can_hold(role):
    for arguments in ((RUN, {}, role), (RUN, {"RLTEL_ROLE": role}), (RunConfig(primary_role=role), {})):
        with pytest.raises(IdentityError) as caught:
            find_place(*arguments)
        assert str(caught.value) == f'role: expected letters, digits, "_" and "-", got "{role}"'


def test_the_role_is_the_primary_one_unless_somebody_says_so():
    assert find_place(RunConfig(primary_role="actor"), {}).role == "actor"
    assert find_place(RUN, {"RLTEL_ROLE": ""}).role == "learner"
    assert find_place(RUN, {"RLTEL_ROLE": "collector"}).role == "collector"


# --- the run's id ---------------------------------------------------------------------------------------------------


def test_a_single_process_makes_its_own_run(tmp_path):
    first, second = who(tmp_path), who(tmp_path)
    assert first.run_id != second.run_id
    assert first.run_dir != second.run_dir
    assert first.name == second.name == "learner-0.1"


def test_a_given_id_comes_before_the_launchers(tmp_path):
    assert who(tmp_path, TORCHRUN | SLURM, id="mine").run_id == "mine"


def test_torchruns_id_comes_before_slurms(tmp_path):
    assert who(tmp_path, TORCHRUN | SLURM).run_id == "job-7"


def test_the_directory_of_a_launched_run_is_named_by_its_id(tmp_path):
    assert who(tmp_path, TORCHRUN, algo="grpo").run_dir == tmp_path / "grpo" / "job-7"


@pytest.mark.parametrize("given", ["none", "None", " none ", "", None])
def test_several_ranks_without_an_id_are_told_how_to_set_one(tmp_path, given):
    environ = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    if given is not None:
        environ["TORCHELASTIC_RUN_ID"] = given
    with pytest.raises(IdentityError) as caught:
        who(tmp_path, environ)
    for word in ("4 ranks", "run.id", "RLTEL_RUN_ID", "--rdzv-id"):
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_have_only_arguments_need_an_id_too(tmp_path):
    with pytest.raises(IdentityError, match="run id: 2 ranks"):
        who(tmp_path, rank=0, world_size=2)
    assert who(tmp_path, rank=1, world_size=2, id="x").run_id == "x"


def test_with_nothing_on_no_id_is_needed_and_nothing_is_made(tmp_path):
    """A process that writes nothing must not fail for what only files need."""
    run = RunConfig(log_root=str(tmp_path), writer=9)
    identity, claim = identify(run, Place("learner", 1, 2), {}, claim=False)
    assert claim is None
    assert (identity.run_dir, identity.rank, identity.world_size, identity.is_writer) == (None, 1, 2, False)
    assert identity.name == "learner-1.1"
    assert identity.run_id
    assert identify(run, Place("learner", 1, 2), TORCHRUN, claim=False)[0].run_id == "job-7"
    assert list(tmp_path.iterdir()) == []


NONE_ON_ONE_HOST = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}


def error_file(launch, rank):
    return {
        "RANK": str(rank),
        "TORCHELASTIC_ERROR_FILE": f"/tmp/torchelastic_x/none_{launch}/attempt_0/{rank}/error.json",
    }


def test_ranks_of_one_torchrun_on_one_host_need_no_id(tmp_path):
    found = [who(tmp_path, NONE_ON_ONE_HOST | error_file("ab12", rank)) for rank in (0, 1)]
    assert [one.run_id for one in found] == ["torchrun-ab12"] * 2
    assert [one.name for one in found] == ["learner-0.1", "learner-1.1"]


def test_two_torchruns_are_two_runs(tmp_path):
    first, second = (who(tmp_path, NONE_ON_ONE_HOST | error_file(launch, 0)) for launch in ("ab12", "cd34"))
    assert first.run_dir != second.run_dir


@pytest.mark.parametrize("file", ["", "error.json", "/tmp/mine/error.json"])
def test_without_torchruns_folder_its_process_names_the_run(tmp_path, file):
    """With its start: in a container torchrun has the same pid every time."""
    found = who(tmp_path, NONE_ON_ONE_HOST | {"RANK": "1", "TORCHELASTIC_ERROR_FILE": file})
    assert found.run_id == f"torchrun-29500-{os.getppid()}-{start_of(os.getppid())}"


def test_none_without_sizes_says_nothing_about_the_host(tmp_path):
    with pytest.raises(IdentityError, match="run id: 2 ranks"):
        who(tmp_path, {"TORCHELASTIC_RUN_ID": "none"}, rank=0, world_size=2)


def test_ranks_of_a_real_torchrun_share_a_run(tmp_path):
    """Each rank is the child of a shell of its own, as launch scripts have it, so no two have the same parent."""
    need_package("torch.distributed.run")
    (tmp_path / "rank.py").write_text(REPORT)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "--rdzv-id", "none", "--no-python"]
    script = ["bash", "-c", '"$@"; exit $?', "bash", sys.executable, str(tmp_path / "rank.py"), str(tmp_path)]
    subprocess.run([sys.executable, *launch, *script], check=True, timeout=240, capture_output=True)
    found = [json.loads((tmp_path / f"{rank}.answer").read_text()) for rank in (0, 1)]
    assert found[0][:2] == found[1][:2]
    assert [one[2:] for one in found] == [[0, 2, "learner-0.1", True], [1, 2, "learner-1.1", False]]


def test_tasks_of_one_slurm_step_share_a_run(tmp_path):
    found = [who(tmp_path, SLURM | {"SLURM_PROCID": str(rank)}) for rank in (0, 5)]
    assert [one.run_id for one in found] == ["slurm-1234.0"] * 2
    assert [one.name for one in found] == ["learner-0.1", "learner-5.1"]


def test_two_steps_of_a_slurm_job_are_two_runs(tmp_path):
    first, second = (who(tmp_path, SLURM | {"SLURM_STEP_ID": step}) for step in ("0", "1"))
    assert first.run_dir != second.run_dir


def test_tasks_without_a_step_share_the_jobs_id(tmp_path):
    environ = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert who(tmp_path, environ).run_id == "slurm-1234"
    assert who(tmp_path, environ | {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}).run_id == "slurm-1234"


@pytest.mark.parametrize("step", [None, "4294967290", "4294967291"])
def test_programs_that_follow_each_other_in_a_slurm_job_are_runs_of_their_own(tmp_path, step):
    """A sweep's loop in a batch script, or an afternoon in an interactive shell: no srun, no step."""
    environ = {"SLURM_JOB_ID": "1234", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    if step:
        environ["SLURM_STEP_ID"] = step
    first, second = who(tmp_path, environ), who(tmp_path, environ)
    assert first.run_id != second.run_id
    assert first.is_writer
    assert second.is_writer


# --- places ---------------------------------------------------------------------------------------------------------


def test_names_and_instance_ids():
    def one(**changes):
        return Identity(**{
            "run_id": "r", "run_dir": None, "role": "learner", "rank": 0, "world_size": 1, "index": 2, "incarnation": 3,
            "is_writer": False,
        } | changes)  # fmt: skip

    assert one().name == "learner-2.3"
    assert uuid.UUID(one().instance_id).version == 5
    assert one(incarnation=4).instance_id == one().instance_id  # stable over restarts
    others = [one(run_id="s"), one(role="collector"), one(index=1), one()]
    assert len({other.instance_id for other in others}) == 4


def test_collectors_that_inherit_a_learners_rank_get_places_of_their_own(tmp_path, together):
    """Every collector of learner 2 has RANK=2 in its environment."""
    assert who(tmp_path, TORCHRUN, role="learner").name == "learner-2.1"
    found = together(4, lambda _: who(tmp_path, TORCHRUN, role="collector"))
    assert sorted(one.name for one in found) == [f"collector-{index}.1" for index in (2, 3, 4, 5)]
    assert len({one.instance_id for one in found}) == 4
    assert {one.rank for one in found} == {2}
    assert not any(one.is_writer for one in found)


def test_opentelemetry_python_2767_forked_processes_have_instance_ids_of_their_own(tmp_path, together):
    found = together(2, lambda _: who(tmp_path, id="x", role="collector"))
    assert len({one.instance_id for one in found}) == 2


def test_tensorflow_tensorboard_1011_only_one_process_of_a_directory_is_the_writer(tmp_path, together):
    found = together(6, lambda _: who(tmp_path, dir=str(tmp_path / "run")))
    assert [one.is_writer for one in found].count(True) == 1
    assert len({one.name for one in found}) == 6


def test_a_restarted_process_is_the_next_incarnation(tmp_path):
    run = RunConfig(log_root=str(tmp_path), id="x")
    first, claim = identify(run, Place("learner", 0, 1), {})
    claim.release()
    second, _ = identify(run, Place("learner", 0, 1), {})
    assert (first.name, second.name) == ("learner-0.1", "learner-0.2")
    assert second.is_writer
    assert first.instance_id == second.instance_id


def test_a_run_goes_on_in_its_directory_under_a_new_launch(tmp_path):
    """Every torchrun has a new id; the directory that was asked for says which run it is."""
    run = RunConfig(dir=str(tmp_path / "run"))
    first, claim = identify(run, Place("learner", 2, 4), TORCHRUN)
    claim.release()
    second, _ = identify(run, Place("learner", 2, 4), TORCHRUN | {"TORCHELASTIC_RUN_ID": "job-8"})
    assert (first.run_id, second.run_id) == ("job-7", "job-7")
    assert second.name == "learner-2.2"
    with pytest.raises(IdentityError, match='belongs to run "job-7", and this process to "job-8"'):
        who(tmp_path, dir=str(tmp_path / "run"), id="job-8")


@pytest.mark.parametrize("environ", [{"RANK": "0", "WORLD_SIZE": "1"}, {"RLTEL_RANK": "0"}])
def test_a_rank_that_moved_to_another_machine_is_followed(tmp_path, environ):
    """As after the loss of a node, or of a pod, whose process could not say that it ended."""
    first = who(tmp_path, environ, id="x")
    seem_elsewhere(first.run_dir)
    second = who(tmp_path, environ, id="x")
    assert (second.name, second.is_writer) == ("learner-0.2", True)


def test_a_rank_that_nobody_said_proves_nothing_about_another_machine(tmp_path):
    """Two hosts, each with a learner of its own in one directory by mistake: both live."""
    first = who(tmp_path, id="x")
    seem_elsewhere(first.run_dir)
    second = who(tmp_path, id="x")
    assert (second.name, second.is_writer) == ("learner-1.1", False)


def test_a_collectors_inherited_rank_proves_nothing_about_another_machine(tmp_path):
    first = who(tmp_path, TORCHRUN, role="collector")
    seem_elsewhere(first.run_dir)
    assert who(tmp_path, TORCHRUN, role="collector").name == "collector-3.1"


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    run_dir = who(tmp_path, id="x").run_dir
    for path in (run_dir / "claims").iterdir():
        path.unlink()
    (run_dir / "claims").rmdir()
    (run_dir / "claims").write_text("")
    with pytest.raises(IdentityError) as caught:
        who(tmp_path, id="x")
    assert str(run_dir / "claims") in str(caught.value)
    assert "set run.dir or run.log_root" in str(caught.value)


# --- the writer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writer", "world_size", "expected"), [(0, 1, 0), (0, 4, 0), (2, 4, 2), (3, 4, 3), ("last", 4, 3), ("last", 1, 0)]
)
def test_one_rank_of_the_primary_role_is_the_writer(tmp_path, writer, world_size, expected):
    found = [who(tmp_path, rank=rank, world_size=world_size, id="x", writer=writer) for rank in range(world_size)]
    assert [one.rank for one in found if one.is_writer] == [expected]


def test_no_other_role_has_the_writer(tmp_path):
    found = [who(tmp_path, role=role, id="x", primary_role="actor") for role in ("learner", "actor", "collector")]
    assert [one.is_writer for one in found] == [False, True, False]


def test_a_writer_that_no_rank_is_would_write_nothing(tmp_path):
    with pytest.raises(IdentityError) as caught:
        who(tmp_path, writer=4, rank=0, world_size=4, id="x")
    assert str(caught.value) == 'run.writer: expected "last" or a rank < world size (4), got 4'
    assert list(tmp_path.iterdir()) == []
    assert not who(tmp_path, writer=4, role="collector", id="x").is_writer  # its world is not the learners'


def test_a_writer_whose_place_is_taken_says_so(tmp_path, caplog):
    first = who(tmp_path, id="x")
    with caplog.at_level(logging.WARNING, "rltel"):
        second = who(tmp_path, id="x")
    assert (first.is_writer, second.is_writer) == (True, False)
    (record,) = caplog.records
    assert str(first.run_dir / "claims" / "learner-0.*") in record.getMessage()
    assert "this one is learner 1 and not the writer" in record.getMessage()


def test_nobody_else_says_so(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "rltel"):
        who(tmp_path, rank=0, world_size=2, id="x")
        who(tmp_path, rank=1, world_size=2, id="x")
        who(tmp_path, role="collector", id="x")
        who(tmp_path, role="collector", id="x")
    assert caplog.records == []


# --- resume ---------------------------------------------------------------------------------------------------------


def test_never_refuses_a_directory_that_holds_a_run(tmp_path):
    run = RunConfig(dir=str(tmp_path / "run"), resume="never")
    _, claim = identify(run, Place("learner", 0, 1), {})
    claim.release()
    with pytest.raises(IdentityError) as caught:
        identify(run, Place("learner", 0, 1), {})
    assert (
        str(caught.value) == f"run directory {tmp_path / 'run'} already holds a run of learner, and run.resume is never"
    )

    going_on, _ = identify(RunConfig(dir=str(tmp_path / "run")), Place("learner", 0, 1), {})
    assert going_on.is_writer  # the refused process does not hold the place


def test_never_lets_all_ranks_of_a_new_run_in(tmp_path):
    found = [who(tmp_path, rank=rank, world_size=3, id="x", resume="never") for rank in range(3)]
    assert [one.name for one in found] == ["learner-0.1", "learner-1.1", "learner-2.1"]


def test_never_lets_a_collector_be_restarted_within_the_run(tmp_path):
    run = RunConfig(log_root=str(tmp_path), id="x", resume="never")
    identify(run, Place("learner", 0, 1), {})
    _, claim = identify(run, Place("collector", 0, 1), {})
    claim.release()
    assert identify(run, Place("collector", 0, 1), {})[0].name == "collector-0.2"


def test_must_continues_and_starts_nothing(tmp_path):
    with pytest.raises(IdentityError, match=r"run\.resume is must"):
        who(tmp_path, id="x", resume="must")
    assert who(tmp_path, id="x").run_dir == who(tmp_path, id="x", resume="must").run_dir
