"""A copy under today's names: read by TensorBoard and by `extract`; the original as it was."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from realparts.event_runs import STAMP, digest, vector, write_run
from realparts.tensorboard_reader import scalars
from rltel.analysis import migrate as module
from rltel.analysis.extract import extract
from rltel.analysis.migrate import migrate
from rltel.core.errors import RltelError

V05 = vector("V05")
SUMMARY = {"status": "completed", "total_env_steps": 1024, "best_reward": 12.5}


def old_run(folder: Path, **more: Any) -> Path:
    """With all that a run directory has."""
    scalars_of = {tag: [float(number)] * 3 for tag, number in V05["input"]["legacy"].items()}
    write_run(folder, {**scalars_of, "my/tag": [1.0], "reward/upright": [0.5], **more}, SUMMARY)
    (folder / "git").mkdir()
    (folder / "git" / "unilab.diff").write_text("+1\n")
    (folder / "model_100.pt").write_bytes(b"\x00\x01")
    (folder / "latest.pt").symlink_to("model_100.pt")
    (folder / "run_config.json").write_text('{"run": {"algo": "sac"}}')
    return folder


def times(points: list[Any]) -> list[tuple[int, float]]:
    return [(point.step, point.wall_time) for point in points]


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run_summary.json").read_text())


def test_v05_values_and_units_in_the_copy(tmp_path: Path) -> None:
    made = migrate(old_run(tmp_path / "old"), tmp_path / "new")
    found = {tag: points[-1].value for tag, points in scalars(tmp_path / "new").items()}
    assert found == {
        **{tag: pytest.approx(number) for tag, number in V05["expect"]["canonical"].items()},
        "my/tag": 1.0,
        "reward/upright": 0.5,
    }
    assert set(made.left_out) == set(V05["expect"]["retired"])
    assert made.unknown == {"my/tag"}
    assert made.points["perf/iter_ms"] == 3


def test_steps_and_wall_times_are_the_original_s(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    made = migrate(tmp_path / "old", tmp_path / "new")
    old, new = scalars(tmp_path / "old"), scalars(tmp_path / "new")
    for before, after in {**made.renamed, "my/tag": "my/tag"}.items():
        assert times(new[after]) == times(old[before])


def test_the_original_is_not_touched(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    before = digest(tmp_path / "old")
    migrate(tmp_path / "old", tmp_path / "new")
    assert digest(tmp_path / "old") == before


def test_every_other_file_comes_along_as_it_is(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    migrate(tmp_path / "old", tmp_path / "new")
    (events,) = (tmp_path / "old").glob("events*")
    changed = {events.name, "run_summary.json", "."}
    old, new = digest(tmp_path / "old"), digest(tmp_path / "new")
    assert set(old) == set(new)
    assert {name: new[name] for name in new if name not in changed} == {
        name: old[name] for name in old if name not in changed
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_the_summary_has_the_version_and_says_where_it_came_from(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    made = migrate(tmp_path / "old", tmp_path / "new")
    found = summary_of(tmp_path / "new")
    (events,) = (tmp_path / "old").glob("events*")
    migrated = found.pop("migrated")
    assert found == {**SUMMARY, "metric_schema_version": 1}
    assert migrated["from"] == str(tmp_path / "old")
    assert migrated["event_files"] == {events.name: hashlib.sha256(events.read_bytes()).hexdigest()}
    assert (migrated["renamed"], migrated["left_out"]) == (made.renamed, made.left_out)
    assert migrated["by"].startswith("rltel ")
    assert migrated["algorithm"] == "sac"


def test_extract_reads_the_same_from_the_copy_as_from_the_original(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    migrate(tmp_path / "old", tmp_path / "new")
    old, new = extract(tmp_path / "old", reading="legacy-unversioned"), extract(tmp_path / "new")
    assert new.rows == pytest.approx(old.rows, rel=1e-6, nan_ok=True)
    assert not all(map(math.isnan, new.rows.values()))


@pytest.mark.parametrize("folder", ["tb", "."])
def test_a_run_without_a_summary_gets_one_that_extract_finds(tmp_path: Path, folder: str) -> None:
    write_run(tmp_path / "old" / folder, ["perf/iter_ms"])
    migrate(tmp_path / "old", tmp_path / "new")
    assert extract(tmp_path / "new").rows["iter_ms"] == pytest.approx(1.0)


def test_a_summary_above_the_event_files_is_stamped_where_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "old" / "tb", ["perf/iter_ms"])
    (tmp_path / "old" / "run_summary.json").write_text(json.dumps(SUMMARY))
    migrate(tmp_path / "old", tmp_path / "whole")
    assert summary_of(tmp_path / "whole")["metric_schema_version"] == 1
    assert not (tmp_path / "whole" / "tb" / "run_summary.json").exists()
    migrate(tmp_path / "old" / "tb", tmp_path / "part")
    assert summary_of(tmp_path / "part")["status"] == "completed"
    assert extract(tmp_path / "part").rows["iter_ms"] == pytest.approx(1.0)


def test_a_run_that_was_resumed_by_a_newer_unilab_becomes_one(tmp_path: Path) -> None:
    """Two event files in one folder, the first of old names."""
    older = write_run(tmp_path / "old", {"perf/iter_ms": [50.0]})
    older.rename(older.with_name("events.out.tfevents.1700000000.host.7.0"))  # TensorBoard reads them by name
    write_run(tmp_path / "old", {"Perf/iteration_time": [0.06]}, first_step=1024)
    migrate(tmp_path / "old", tmp_path / "new")
    found = scalars(tmp_path / "new")
    assert {tag: [point.value for point in points] for tag, points in found.items()} == {
        "Perf/iteration_time": pytest.approx([0.05, 0.06])
    }


def test_canonical_tags_without_a_version_only_get_it(tmp_path: Path) -> None:
    path = write_run(tmp_path / "old", {"Perf/iteration_time": [0.05]})
    migrate(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new" / path.name).read_bytes() == path.read_bytes()
    assert extract(tmp_path / "new").rows["iter_ms"] == pytest.approx(50.0)


@pytest.mark.parametrize(("algo", "new"), [("sac", "Loss/actor"), ("appo", "Loss/surrogate")])
def test_the_algorithm_is_asked_for_and_given_by_the_caller_or_the_run(tmp_path: Path, algo: str, new: str) -> None:
    write_run(tmp_path / "old", ["train/actor_loss"])
    with pytest.raises(RltelError, match=r"train/actor_loss had several meanings.*--algo"):
        migrate(tmp_path / "old", tmp_path / "none")
    assert migrate(tmp_path / "old", tmp_path / "given", algo=algo).renamed == {"train/actor_loss": new}
    (tmp_path / "old" / "run_config.json").write_text(json.dumps({"run": {"algo": algo}}))
    assert migrate(tmp_path / "old", tmp_path / "read").renamed == {"train/actor_loss": new}


def test_a_damaged_file_is_migrated_as_far_as_it_goes_with_a_note_in_the_copy(tmp_path: Path) -> None:
    path = write_run(tmp_path / "old", {"perf/iter_ms": [50.0, 60.0]})
    path.write_bytes(path.read_bytes()[:-1])
    made = migrate(tmp_path / "old", tmp_path / "new")
    assert made.notes == summary_of(tmp_path / "new")["migrated"]["notes"]
    assert "cut short" in made.notes[0]


def test_an_empty_folder_may_be_there(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    (tmp_path / "new").mkdir()
    migrate(tmp_path / "old", tmp_path / "new")
    assert summary_of(tmp_path / "new")["metric_schema_version"] == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("full", "expected a folder that is not there yet, or empty"),
        ("full/file", "expected a folder that is not there yet, or empty"),
        ("old", "expected a folder that is not there yet, or empty"),
        ("old/new", "expected a folder outside of the original"),
        ("link/new", "expected a folder outside of the original"),
        ("old/../old/new", "expected a folder outside of the original"),
    ],
)
def test_a_target_that_would_lose_something_is_refused_and_nothing_is_written(
    tmp_path: Path, target: str, said: str
) -> None:
    old_run(tmp_path / "old")
    (tmp_path / "link").symlink_to("old")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    before = digest(tmp_path)
    with pytest.raises(RltelError, match=said):
        migrate(tmp_path / "old", tmp_path / target)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("version", [1, 2, None])
def test_a_run_with_a_version_is_refused(tmp_path: Path, version: int | None) -> None:
    write_run(tmp_path / "old", ["perf/iter_ms"], {**STAMP, "metric_schema_version": version})
    with pytest.raises(RltelError, match="expected a run without metric_schema_version"):
        migrate(tmp_path / "old", tmp_path / "new")


def test_several_runs_or_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(RltelError, match=r"expected the event files of one run.*found none"):
        migrate(tmp_path / "old", tmp_path / "new")
    for name in ("a", "b"):
        write_run(tmp_path / "old" / name, ["perf/iter_ms"])
    with pytest.raises(RltelError, match=r"in one folder; found .*old/a, .*old/b"):
        migrate(tmp_path / "old", tmp_path / "new")


def test_a_run_of_another_program_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "old", ["loss", "accuracy"])
    with pytest.raises(RltelError, match="expected old or canonical tags of unilab-rl, found none"):
        migrate(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    old_run(tmp_path / "old")
    before = digest(tmp_path / "old")
    monkeypatch.setattr(module.shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left"):
        migrate(tmp_path / "old", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert digest(tmp_path / "old") == before


def test_an_archive_that_is_read_only_is_copied(tmp_path: Path) -> None:
    """The copy's folders are then read-only, too."""
    folder = old_run(tmp_path / "old")
    for path in (folder / "git", folder):
        path.chmod(0o555)
    try:
        migrate(folder, tmp_path / "new")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o555
    finally:
        for path in (folder, tmp_path / "new"):
            path.chmod(0o755)
            (path / "git").chmod(0o755)
    assert extract(tmp_path / "new").rows["iter_ms"] == pytest.approx(52.5)


def test_nan_of_a_summary_becomes_null_since_json_has_none(tmp_path: Path) -> None:
    write_run(tmp_path / "old", ["perf/iter_ms"], {"final_reward": math.nan})
    migrate(tmp_path / "old", tmp_path / "new")
    assert summary_of(tmp_path / "new")["final_reward"] is None
