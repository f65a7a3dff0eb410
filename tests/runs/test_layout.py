"""The video that a run made is found, and no other."""

import os
from pathlib import Path

from rltel.runs.layout import video_of

NOW = 1_795_987_020_000_000_000


def made(path: Path, at_ns: int = NOW, content: str = "video") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def test_play_video_comes_before_the_folder(tmp_path: Path) -> None:
    made(tmp_path / "videos" / "rl-video-step-100.mp4", NOW + 9)
    path = made(tmp_path / "play_video.mp4")
    assert video_of(tmp_path, NOW) == path


def test_of_a_folder_the_newest_is_taken(tmp_path: Path) -> None:
    made(tmp_path / "videos" / "play" / "b.mp4")
    path = made(tmp_path / "videos" / "play" / "a.mp4", NOW + 9)
    made(tmp_path / "videos" / "play" / "c.json", NOW + 99)
    assert video_of(tmp_path, NOW) == path


def test_an_older_one_is_another_run_s(tmp_path: Path) -> None:
    made(tmp_path / "play_video.mp4", NOW - 1)
    made(tmp_path / "videos" / "a.mp4", NOW - 1)
    assert video_of(tmp_path, NOW) is None


def test_an_empty_file_is_no_video(tmp_path: Path) -> None:
    made(tmp_path / "play_video.mp4", content="")
    assert video_of(tmp_path, NOW) is None


def test_a_run_without_any(tmp_path: Path) -> None:
    assert video_of(tmp_path, 0) is None
    assert video_of(tmp_path / "gone", 0) is None
