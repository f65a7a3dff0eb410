"""Where a run lives: layout, who makes it, who may join it."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltel.core import rundir
from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError
from rltel.core.rundir import Run, find_run

STAMP = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"


class StoppedDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


@pytest.fixture
def one_second(monkeypatch):
    """It stays the same second."""
    monkeypatch.setattr(rundir, "datetime", StoppedDatetime)


def run_in(tmp_path, **fields):
    return RunConfig(log_root=str(tmp_path), **fields)


def files_in(tmp_path):
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))


def test_the_layout_is_unilabs(tmp_path, one_second):
    found = find_run(run_in(tmp_path, algo="sac", task="walk", backend="mujoco"), None)
    assert found.dir == tmp_path / "sac" / "walk" / "2026-01-02_03-04-05_mujoco"
    assert json.loads((found.dir / "run.json").read_text()) == {"id": found.id, "name": None}


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({}, STAMP),
        ({"algo": "sac"}, rf"sac/{STAMP}"),
        ({"task": "walk"}, rf"walk/{STAMP}"),
        ({"backend": "isaac"}, rf"{STAMP}_isaac"),
    ],
)
def test_parts_that_are_not_set_are_left_out(tmp_path, fields, pattern):
    found = find_run(run_in(tmp_path, **fields), None)
    assert re.fullmatch(pattern, str(found.dir.relative_to(tmp_path)))


def test_the_name_is_kept_with_the_run(tmp_path):
    found = find_run(run_in(tmp_path, name="my run"), "x")
    assert json.loads((found.dir / "run.json").read_text()) == {"id": "x", "name": "my run"}


def test_a_relative_directory_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_run(RunConfig(dir="here/run"), None)
    assert found.dir == tmp_path / "here" / "run"
    assert find_run(RunConfig(log_root="logs"), "x").dir == tmp_path / "logs" / "x"


def test_two_runs_of_the_same_second_get_directories_of_their_own(tmp_path, one_second):
    runs = [find_run(run_in(tmp_path, backend="b"), None) for _ in range(3)]
    assert [run.dir.name for run in runs] == [f"2026-01-02_03-04-05_b{end}" for end in ("", "-2", "-3")]
    assert len({run.id for run in runs}) == 3


def test_a_second_with_too_many_runs_is_named(tmp_path, one_second):
    stem = tmp_path / "2026-01-02_03-04-05"
    for end in ("", *(f"-{number}" for number in range(2, 999))):
        Path(f"{stem}{end}").mkdir()
    assert find_run(run_in(tmp_path), None).dir.name == f"{stem.name}-999"
    with pytest.raises(IdentityError) as caught:
        find_run(run_in(tmp_path), None)
    assert str(caught.value) == f"run directory {stem}: 999 runs of the same second exist; set run.dir"


def test_runs_started_at_once_get_directories_of_their_own(tmp_path, one_second, together):
    runs = together(8, lambda _: find_run(run_in(tmp_path), None))
    assert len({run.dir for run in runs}) == 8
    assert len({run.id for run in runs}) == 8
    for run in runs:
        assert json.loads((run.dir / "run.json").read_text())["id"] == run.id


def test_tensorflow_tensorboard_1011_two_writers_never_share_a_made_directory(tmp_path, one_second):
    first, second = (find_run(run_in(tmp_path, algo="sac", task="walk"), None) for _ in range(2))
    assert first.dir != second.dir


def test_processes_with_one_id_come_to_one_run(tmp_path, together):
    runs = together(8, lambda _: find_run(run_in(tmp_path, algo="grpo"), "job-7"))
    assert set(runs) == {Run("job-7", tmp_path / "grpo" / "job-7")}
    assert files_in(tmp_path) == ["grpo", "grpo/job-7", "grpo/job-7/run.json"]


def test_processes_with_one_directory_come_to_one_run(tmp_path, together):
    """Whoever makes run.json names the run; all others take its name."""
    runs = together(8, lambda _: find_run(RunConfig(dir=str(tmp_path / "run")), None))
    assert len(set(runs)) == 1


def test_a_directory_that_was_asked_for_is_continued(tmp_path):
    first = find_run(RunConfig(dir=str(tmp_path / "run")), None)
    assert find_run(RunConfig(dir=str(tmp_path / "run")), None) == first


def test_a_directory_that_was_asked_for_keeps_its_run_under_another_launch(tmp_path):
    """torchrun and SLURM name every start anew: continuing a run must not fail for that."""
    first = find_run(RunConfig(dir=str(tmp_path / "run")), "torchrun-1")
    assert find_run(RunConfig(dir=str(tmp_path / "run")), "torchrun-2") == first == Run("torchrun-1", tmp_path / "run")


def test_a_directory_of_another_run_is_refused_to_one_with_an_id(tmp_path):
    find_run(RunConfig(dir=str(tmp_path / "run"), id="a"), "a")
    with pytest.raises(IdentityError) as caught:
        find_run(RunConfig(dir=str(tmp_path / "run"), id="b"), "b")
    assert str(caught.value) == f'run directory {tmp_path / "run"} belongs to run "a", and this process to "b"'


def test_two_ids_that_make_one_folder_name_are_told_apart(tmp_path):
    find_run(run_in(tmp_path), "a/b")
    with pytest.raises(IdentityError, match='belongs to run "a/b", and this process to "a_b"'):
        find_run(run_in(tmp_path), "a_b")


def test_must_continues_what_is_there(tmp_path):
    first = find_run(run_in(tmp_path), "x")
    assert find_run(run_in(tmp_path, resume="must"), "x") == first
    assert find_run(RunConfig(dir=str(first.dir), resume="must"), None) == first


@pytest.mark.parametrize("shared_id", [None, "x"])
def test_must_makes_nothing(tmp_path, shared_id):
    with pytest.raises(IdentityError, match=r"run\.resume is must"):
        find_run(run_in(tmp_path, resume="must", algo="sac"), shared_id)
    with pytest.raises(IdentityError, match=r"holds no run to continue, and run\.resume is must"):
        find_run(RunConfig(dir=str(tmp_path / "run"), resume="must"), shared_id)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id": 7}', '{"id": null}'])
def test_a_run_json_that_is_none_of_ours_is_named(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(IdentityError) as caught:
        find_run(RunConfig(dir=str(tmp_path)), None)
    assert str(tmp_path / "run.json") in str(caught.value)
    assert "set run.dir" in str(caught.value)
    assert (tmp_path / "run.json").read_text() == content


@pytest.mark.parametrize("fields", [{"dir": "file/run"}, {"log_root": "file"}, {"log_root": "file", "id": "x"}])
def test_a_place_that_cannot_be_made_is_named(tmp_path, monkeypatch, fields):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(IdentityError) as caught:
        find_run(RunConfig(**fields), fields.get("id"))
    assert "file" in str(caught.value)
    assert re.search("Not a directory|File exists", str(caught.value))
    assert "set run.dir or run.log_root" in str(caught.value)


UNILABS = {"algo": "sac", "task": "walk", "backend": "mujoco"}


def test_several_gpus_end_the_name(tmp_path, one_second):
    found = find_run(run_in(tmp_path, **UNILABS), None, 4)
    assert found.dir == tmp_path / "sac" / "walk" / "2026-01-02_03-04-05_mujoco_gpux4"
    assert find_run(run_in(tmp_path), None, 2).dir == tmp_path / "2026-01-02_03-04-05_gpux2"


def test_ranks_of_one_launch_come_to_one_directory_that_is_named_by_the_time(tmp_path, one_second, together):
    runs = together(8, lambda _: find_run(run_in(tmp_path, **UNILABS), "job-7", 8))
    made = tmp_path / "sac" / "walk" / "2026-01-02_03-04-05_mujoco_gpux8"
    assert set(runs) == {Run("job-7", made)}
    assert files_in(tmp_path / "sac" / "walk") == [".job-7.json", made.name, f"{made.name}/run.json"]


def test_a_launch_that_comes_again_later_continues_its_run(tmp_path, monkeypatch):
    """A requeued job has its id again, not its time; an elastic one fewer ranks."""
    first = find_run(run_in(tmp_path, **UNILABS), "slurm-7.0", 8)
    monkeypatch.setattr(rundir, "datetime", StoppedDatetime)
    assert find_run(run_in(tmp_path, **UNILABS), "slurm-7.0", 4) == first
    assert find_run(run_in(tmp_path, resume="must", **UNILABS), "slurm-7.0", 4) == first


def test_two_launches_of_one_second_get_directories_of_their_own(tmp_path, one_second):
    first, second = (find_run(run_in(tmp_path, **UNILABS), name, 2) for name in ("job-1", "job-2"))
    assert [found.dir.name for found in (first, second)] == [
        f"2026-01-02_03-04-05_mujoco_gpux2{end}" for end in ("", "-2")
    ]


def test_an_id_that_was_asked_for_names_the_directory(tmp_path):
    run = run_in(tmp_path, id="mine", **UNILABS)
    assert find_run(run, "mine", 8).dir == tmp_path / "sac" / "walk" / "mine"


def test_a_run_that_its_id_named_is_continued(tmp_path):
    first = find_run(run_in(tmp_path, algo="sac", task="walk"), "job-7")
    for resume in ("must", "auto"):
        assert find_run(run_in(tmp_path, resume=resume, **UNILABS), "job-7") == first


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"folder": "../../elsewhere"}', '{"folder": ".."}'])
def test_a_note_that_leads_nowhere_or_out_is_named(tmp_path, content):
    note = tmp_path / "sac" / "walk" / ".job-7.json"
    note.parent.mkdir(parents=True)
    note.write_text(content)
    with pytest.raises(IdentityError, match=r"\.job-7\.json: expected .*; set run\.dir"):
        find_run(run_in(tmp_path, **UNILABS), "job-7")
    assert files_in(tmp_path) == ["sac", "sac/walk", "sac/walk/.job-7.json"]


@pytest.mark.parametrize("part", ["..", ".", "...", ""])
def test_a_name_with_nothing_to_keep(tmp_path, part):
    if part:
        with pytest.raises(IdentityError, match=re.escape(f'"{part}" has no character that a folder name can hold')):
            find_run(run_in(tmp_path, algo=part), None)
    assert find_run(run_in(tmp_path), None).dir.parent == tmp_path


@settings(deadline=None)
@given(algo=st.text(), task=st.text(), backend=st.text(), run_id=st.none() | st.text(min_size=1, max_size=60))
def test_no_name_leads_out_of_the_log_root(tmp_path_factory, algo, task, backend, run_id):
    root = tmp_path_factory.mktemp("root")
    try:
        found = find_run(RunConfig(log_root=str(root), algo=algo, task=task, backend=backend), run_id)
    except IdentityError:
        return
    parts = found.dir.relative_to(root).parts
    assert len(parts) == 1 + bool(algo) + bool(task)
    assert found.dir.resolve() == found.dir
    assert {path.parent for path in root.rglob("*.json")} <= {found.dir, found.dir.parent}
    assert all(re.fullmatch(r"[A-Za-z0-9._=+-]+", part) and not part.startswith(".") for part in parts)


def test_run_ids_are_unique_and_name_the_time():
    ids = {Run.new_id() for _ in range(100)}  # of 1000 in one second, two are the same once in 9000 times
    assert len(ids) == 100
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", made) for made in ids)


def test_run_ids_do_not_come_from_random(together):
    import random

    def made(_):
        random.seed(42)
        return Run.new_id()

    assert len(set(together(4, made))) == 4
