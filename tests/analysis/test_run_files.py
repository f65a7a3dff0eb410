"""Which files are the run's. Several runs are never taken for one."""

import json
import shutil
from pathlib import Path

import pytest

from export.making import commit, identity
from realparts.event_runs import STAMP, write_run
from realparts.ledgered import keep_record
from rltel.analysis.run_files import algorithm_of, event_files, find_run, points_of_record, read_object
from rltel.core.errors import RltelError


def mark_ours(folder: Path) -> None:
    (folder / ".rltel").mkdir(parents=True)
    (folder / ".rltel" / "run.json").write_text('{"run": "run-1"}')


def test_one_event_file_however_deep(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a" / "b", ["x"])
    assert find_run(tmp_path).events == (path,)


@pytest.mark.parametrize("folders", [("a", "b"), ("a", "a"), ("a", "a/out_of_order")])
def test_several_event_files_are_refused_by_name(tmp_path: Path, folders: tuple[str, str]) -> None:
    paths = [write_run(tmp_path / folder, ["x"]) for folder in folders]
    with pytest.raises(RltelError, match="expected one event file at or below it, found 2") as raised:
        find_run(tmp_path)
    for path in paths:
        assert str(path.relative_to(tmp_path)) in str(raised.value)


def test_several_of_a_folder_that_says_whose_it_is_are_one_run(tmp_path: Path) -> None:
    mark_ours(tmp_path / "tensorboard")
    events = [write_run(tmp_path / "tensorboard", ["x"]) for _ in range(3)]
    late = [write_run(tmp_path / "tensorboard" / name, ["x"]) for name in ("out_of_order", "out_of_order-2")]
    found = find_run(tmp_path)
    assert ([*found.events], [*found.late]) == (events, sorted(late))


def test_a_writer_s_tenth_file_comes_after_its_ninth(tmp_path: Path) -> None:
    names = [f"events.out.tfevents.1700000000.host.7.{number}" for number in range(8, 12)]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in event_files(tmp_path)] == names


@pytest.mark.parametrize("other", ["writer-1", "other-run", ".."])
def test_but_not_those_of_another_writer_or_run(tmp_path: Path, other: str) -> None:
    mark_ours(tmp_path / "tensorboard")
    write_run(tmp_path / "tensorboard", ["x"])
    write_run(tmp_path / "tensorboard" / other, ["x"])
    with pytest.raises(RltelError, match="found 2"):
        find_run(tmp_path)


def test_nothing_to_read_is_an_error_that_names_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(RltelError, match=r"expected an event file .* or metrics/\*\.jsonl; found neither"):
        find_run(tmp_path)
    with pytest.raises(RltelError, match="expected a run's folder, found nothing"):
        find_run(tmp_path / "missing")
    with pytest.raises(RltelError, match="expected a run's folder, found a file"):
        find_run(write_run(tmp_path, ["x"]))


def test_a_folder_of_that_name_is_no_event_file(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").mkdir()
    assert event_files(tmp_path) == ()


def test_the_record_is_taken_where_there_is_no_event_file(tmp_path: Path) -> None:
    record = keep_record(tmp_path, [commit({"a": 1.0}, identity=identity(tmp_path))])
    assert find_run(tmp_path).record == (record,)
    path = write_run(tmp_path, ["x"])
    assert (find_run(tmp_path).record, find_run(tmp_path).events) == ((), (path,))


def test_only_the_writer_s_record_counts_and_each_process_is_a_part(tmp_path: Path) -> None:
    for incarnation, is_writer in ((1, True), (2, True), (3, False)):
        who = identity(tmp_path, incarnation=incarnation, is_writer=is_writer)
        made = [commit({"a": float(incarnation)}, identity=who, step=incarnation, time_ns=incarnation)]
        keep_record(tmp_path, made, who)
    assert list(points_of_record(find_run(tmp_path))) == [(0, 1, {"a": 1.0}), (1, 2, {"a": 2.0})]


def test_the_summary_is_read_beside_the_event_file_only(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ["x"])
    (tmp_path / "run_summary.json").write_text(json.dumps(STAMP))
    for log_dir in (tmp_path, tmp_path / "run"):
        assert find_run(log_dir).beside("run_summary.json") is None


def test_but_for_folders_that_runs_have_for_their_event_files(tmp_path: Path) -> None:
    write_run(tmp_path / "run" / "tb", ["x"])
    summary = tmp_path / "run" / "run_summary.json"
    summary.write_text(json.dumps(STAMP))
    for log_dir in (tmp_path / "run", tmp_path / "run" / "tb"):
        assert find_run(log_dir).beside("run_summary.json") == summary.absolute()
    shutil.move(tmp_path / "run" / "tb", tmp_path / "run" / "events")
    assert find_run(tmp_path / "run").beside("run_summary.json") is None
    mark_ours(tmp_path / "run" / "events")
    assert find_run(tmp_path / "run").beside("run_summary.json") == summary.absolute()


def test_the_algorithm_is_what_the_run_s_config_says(tmp_path: Path) -> None:
    write_run(tmp_path, ["x"])
    assert algorithm_of(find_run(tmp_path)) is None
    config = tmp_path / "run_config.json"
    config.write_text('{"run": {"algo": "appo"}}')
    assert algorithm_of(find_run(tmp_path)) == "appo"
    config.write_text('{"run": "appo"}')
    assert algorithm_of(find_run(tmp_path)) is None


@pytest.mark.parametrize("content", ["", "[1]", "{", "\x00", '"text"', "[" * 100_000])
def test_a_summary_that_is_no_object_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run_summary.json"
    path.write_text(content)
    with pytest.raises(RltelError, match=r"run_summary\.json: (cannot be read|expected a JSON object)"):
        read_object(path)


def test_nan_of_a_summary_is_null(tmp_path: Path) -> None:
    path = tmp_path / "run_summary.json"
    path.write_text('{"final_reward": NaN, "best": -Infinity}')
    assert read_object(path) == {"final_reward": None, "best": None}
    assert read_object(None) is None
