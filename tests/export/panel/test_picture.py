"""A recorded run as a picture."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from export.making import commit, identity
from export.panel.making import SAC, SECOND
from rltel.core.errors import RltelError
from rltel.export.jsonl import JsonlFile
from rltel.export.panel.picture import last_screen, svg
from rltel.export.sink import Destination


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    who = identity(tmp_path, world_size=2)
    file = JsonlFile(tmp_path / "metrics" / "learner-0.1.jsonl", who, Destination("jsonl"))
    for step in range(10):
        values = {**SAC, "Train/iteration": float(step), "Loss/actor": float(step)}
        file.write(commit(values, identity=who, number=step, step=step, time_ns=step * SECOND))
    file.close()
    return tmp_path


def test_the_end_of_the_run_by_the_times_of_its_commits(run_dir: Path) -> None:
    text = "\n".join(line.plain for line in last_screen(run_dir, 100, algo="sac", task="go2"))
    assert "rltel | sac | go2 | GPUs 2 | iter 9" in text
    assert "Elapsed 0:00:09" in text
    assert "Avg 2s (n=3)" in text  # of the last two seconds
    assert "8.0000" in text  # (7 + 8 + 9) / 3


def test_the_time_between_two_starts_is_not_elapsed(run_dir: Path) -> None:
    """Two ranks come back, a moment apart."""
    for rank in (0, 1):
        who = identity(run_dir, world_size=2, rank=rank, index=rank, incarnation=2)
        file = JsonlFile(run_dir / "metrics" / f"learner-{rank}.2.jsonl", who, Destination("jsonl"))
        for step in range(10, 15):
            time_ns = (3600 + step) * SECOND + rank
            file.write(
                commit({**SAC, "Train/iteration": float(step)}, identity=who, number=step, step=step, time_ns=time_ns)
            )
        file.close()
    text = "\n".join(line.plain for line in last_screen(run_dir, 100, algo="sac", task="go2"))
    assert "iter 14" in text
    assert "Elapsed 0:00:13" in text  # 9 s and 4 s


def test_an_svg_that_fetches_nothing(run_dir: Path) -> None:
    drawn = svg(last_screen(run_dir, 100), "title")
    ET.fromstring(drawn)
    assert "Learner" in drawn
    assert "url(http" not in drawn.replace('"', "")
    assert "font-face" not in drawn


def test_the_same_run_gives_the_same_picture(run_dir: Path) -> None:
    assert svg(last_screen(run_dir)) == svg(last_screen(run_dir))


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RltelError, match="expected a run directory with the commits of a learner, found none"):
        last_screen(tmp_path)
