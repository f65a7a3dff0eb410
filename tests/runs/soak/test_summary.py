"""Which run summary is this run's."""

import json
from pathlib import Path

import pytest

from rltel.runs.soak.summary import Summaries, manifest_of, shutdown_of


def kind(summaries: Summaries) -> str | None:
    finding = summaries.read().finding
    return None if finding is None else finding.kind


def test_is_found_wherever_below_the_folder_it_is(tmp_path: Path) -> None:
    summaries = Summaries(tmp_path)
    (tmp_path / "sac" / "task").mkdir(parents=True)
    (tmp_path / "sac" / "task" / "run_summary.json").write_text('{"status": "completed"}')
    assert summaries.read().content == {"status": "completed"}


def test_one_from_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    """UniLab passes a run that wrote nothing, if the folder holds the summary of one that passed."""
    (tmp_path / "run_summary.json").write_text('{"status": "completed"}')
    summaries = Summaries(tmp_path)
    read = summaries.read()
    assert read.content is None
    assert read.finding is not None
    assert "from before the start" in read.finding.reason
    (tmp_path / "run_summary.json").write_text('{"status": "failed"}')
    assert summaries.read().content == {"status": "failed"}


@pytest.mark.parametrize("text", [b'{"status": "comp', b"[]", b"3", b"\xff\xfe", b""])
def test_a_broken_one_is_not_a_missing_one(tmp_path: Path, text: bytes) -> None:
    """UniLab says of broken JSON that the trainer did not write a summary."""
    summaries = Summaries(tmp_path)
    assert kind(summaries) == "missing_run_summary"
    (tmp_path / "run_summary.json").write_bytes(text)
    assert kind(summaries) == "invalid_run_summary"


def test_two_are_not_one(tmp_path: Path) -> None:
    summaries = Summaries(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run_summary.json").write_text("{}")
    assert kind(summaries) == "invalid_run_summary"


def test_sections_that_are_no_mappings_are_none() -> None:
    summary = json.loads('{"runtime_manifest": {"shutdown": [1]}}')
    assert (shutdown_of(summary), manifest_of({"runtime_manifest": 1}), shutdown_of(None)) == (None, None, None)
