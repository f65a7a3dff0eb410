"""Which videos are due."""

from __future__ import annotations

import os
from pathlib import Path

from rltel.integrations.rsl_rl.videos import Videos


def test_once_it_has_ceased_to_grow(tmp_path: Path) -> None:
    videos, video = Videos(), tmp_path / "play_video.mp4"
    video.write_bytes(b"half")
    assert not videos.is_due(video)
    video.write_bytes(b"half and half")
    assert not videos.is_due(video)
    assert [videos.is_due(video) for _ in range(3)] == [True, False, False]


def test_again_when_it_has_changed(tmp_path: Path) -> None:
    videos, video = Videos(), tmp_path / "play_video.mp4"
    video.write_bytes(b"one")
    assert [videos.is_due(video) for _ in range(2)] == [False, True]
    video.write_bytes(b"two")
    os.utime(video, ns=(1, 1))
    assert [videos.is_due(video) for _ in range(3)] == [False, True, False]


def test_two_of_one_name_in_two_folders(tmp_path: Path) -> None:
    videos = Videos()
    paths = [tmp_path / folder / "step-0.mp4" for folder in ("train", "play")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(b"film")
    assert [videos.is_due(path) for path in paths * 2] == [False, False, True, True]


def test_what_is_left_at_the_end(tmp_path: Path) -> None:
    videos, shown, late, gone = Videos(), *(tmp_path / f"{name}.mp4" for name in ("shown", "late", "gone"))
    for video in (shown, late, gone):
        video.write_bytes(b"film")
        videos.is_due(video)
    assert videos.is_due(shown)
    gone.unlink()
    assert videos.left() == [late]
    assert videos.left() == []


def test_one_that_is_not_there(tmp_path: Path) -> None:
    assert not Videos().is_due(tmp_path / "never.mp4")
