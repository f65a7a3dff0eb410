"""What lies where in a run directory, of the files that a run has once."""

from pathlib import Path

RUN_CONFIG = "run_config.json"
RUN_SUMMARY = "run_summary.json"
PLAY_VIDEO = "play_video.mp4"
_VIDEOS = "videos"


def video_of(run_dir: Path, since_ns: int) -> Path | None:
    """The video that the run made: ``play_video.mp4``, else the newest ``.mp4`` below ``videos/``; None without one.

    ``since_ns``: wall clock, ns since the epoch. An older file is another run's, or was shown by an earlier start.
    """
    for candidates in ([run_dir / PLAY_VIDEO], sorted((run_dir / _VIDEOS).rglob("*.mp4"))):
        made = {path: changed for path in candidates if (changed := _changed_ns(path)) >= since_ns}
        if made:
            return max(made, key=made.__getitem__)
    return None


def _changed_ns(path: Path) -> int:
    """When a file with something in it was last written; -1 if there is none."""
    try:
        found = path.stat()
    except OSError:
        return -1
    return found.st_mtime_ns if found.st_size else -1
