"""Which files a command works on."""

import json
from pathlib import Path

import pytest

from realparts.trace_making import TraceMaking
from rltel.core.errors import TraceError
from rltel.traces.merge import merge
from rltel.traces.sources import gathered, spell_files

NOW = 1_795_987_020_000_000_000


def run(folder: Path, process: int, id: str | None = None) -> Path:
    """A run directory with one trace in it."""
    made = TraceMaking(process=process, pid=process, host="h", monotonic=0, realtime=NOW)
    made.slice(1_000, 2_000, "s")
    made.write(folder / "trace" / "learner-0.1.pftrace")
    if id is not None:
        (folder / "run.json").write_text(json.dumps({"id": id}))
    return folder


def test_merged_traces_of_a_folder_are_left_out_and_named(tmp_path: Path) -> None:
    """Every example leaves its timeline in its run directory, beside the folder of the traces."""
    folder = run(tmp_path / "run", 100)
    merge(folder, folder / "timeline.pftrace")
    given = gathered(tmp_path)
    assert given.paths == [folder / "trace" / "learner-0.1.pftrace"]
    assert given.merged_before == [folder / "timeline.pftrace"]


def test_one_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    merge(run(tmp_path / "run", 100), tmp_path / "m.pftrace")
    given = gathered(tmp_path / "m.pftrace")
    assert (given.paths, given.merged_before) == ([tmp_path / "m.pftrace"], [])


def test_where_all_are_merged_already_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    merge(run(tmp_path / "run", 100), tmp_path / "only" / "m.pftrace")
    with pytest.raises(TraceError, match=f"{tmp_path}/only: what is below it is merged already"):
        gathered(tmp_path / "only")


@pytest.mark.parametrize(
    ("ids", "runs"),
    [
        (("a", "b"), 2),
        (("a", "a"), 1),  # as the parts that two hosts had of it
        ((None, None), 1),  # nothing tells
        (("a", None), 1),
    ],
)
def test_runs_are_told_by_their_ids(tmp_path: Path, ids: tuple[str | None, ...], runs: int) -> None:
    for number, id in enumerate(ids):
        run(tmp_path / f"r{number}", 100 * (number + 1), id)
    assert gathered(tmp_path).runs == runs


def test_another_program_s_run_file_is_none(tmp_path: Path) -> None:
    for number, content in enumerate(("[1]", "no json", '{"id": 3}')):
        (run(tmp_path / f"r{number}", 100 + 2 * number) / "run.json").write_text(content)
    assert gathered(tmp_path).runs == 1


@pytest.mark.parametrize(("files", "runs", "said"), [(1, 1, "1 file"), (4, 1, "4 files"), (4, 2, "4 files of 2 runs")])
def test_in_words(files: int, runs: int, said: str) -> None:
    assert spell_files(files, runs) == said
