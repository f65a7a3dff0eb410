"""Progress by bytes, with time told by the test."""

from pathlib import Path

import pytest

from rltel.runs.soak.progress import Liveness, Progress


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_what_was_there_before_is_no_progress(tmp_path: Path) -> None:
    write(tmp_path / "old" / "events", 100)
    progress = Progress(tmp_path, ())
    assert progress.sizes() == {}
    write(tmp_path / "old" / "events", 101)
    write(tmp_path / "metrics" / "new.jsonl", 7)
    assert sorted(progress.sizes().values()) == [7, 101]
    assert Progress.sample(progress.sizes())["bytes_total"] == 108


@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "run_config.json", "run_summary.json", ".run_summary.json.17.ab"),
        *("claims/learner-0.1.json", "prometheus_sd/learner-0.json", "ledger/otlp.json", "soak.json"),
    ],
)
def test_files_that_a_hung_trainer_writes_as_well_are_no_progress(tmp_path: Path, name: str) -> None:
    progress = Progress(tmp_path, [tmp_path / "soak.json"])
    write(tmp_path / name, 10)
    assert progress.sizes() == {}


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert Progress(tmp_path / "later", ()).sizes() == {}


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "file", 5)
    watched = tmp_path / "watched"
    watched.mkdir()
    progress = Progress(watched, ())
    (watched / "loop").symlink_to(watched)
    (watched / "away").symlink_to(tmp_path / "elsewhere")
    assert progress.sizes() == {}


def kind(liveness: Liveness, now: float, **sizes: int) -> str | None:
    found = liveness.look(now, sizes)
    return None if found is None else found.kind


def test_the_first_progress_has_a_time_out_of_its_own() -> None:
    liveness = Liveness(startup_s=100, stale_s=10, now=0)
    assert kind(liveness, 100) is None
    assert kind(liveness, 100.1) == "timeout/startup"


def test_after_that_each_has_to_follow_the_one_before() -> None:
    liveness = Liveness(startup_s=100, stale_s=10, now=0)
    assert kind(liveness, 99, a=1) is None
    assert kind(liveness, 109, a=1) is None
    assert kind(liveness, 109.5, a=2) is None
    assert kind(liveness, 119.6, a=2) == "timeout/stale_tick"


def test_a_file_that_grows_as_another_shrinks_is_progress() -> None:
    """UniLab compares sums."""
    liveness = Liveness(startup_s=100, stale_s=10, now=0)
    assert kind(liveness, 1, a=10, b=0) is None
    assert kind(liveness, 10, a=0, b=10) is None
    assert kind(liveness, 19, a=0, b=10) is None
