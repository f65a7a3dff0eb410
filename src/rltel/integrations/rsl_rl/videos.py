"""Which videos are to be shown now. rsl_rl names every file below its folder at every iteration, finished or not."""

from pathlib import Path

_State = tuple[int, int]


class Videos:
    """A video is due once it is as it was the last time, and again when it has changed since it was shown."""

    def __init__(self) -> None:
        self._seen: dict[Path, _State] = {}
        self._shown: dict[Path, _State] = {}

    def is_due(self, video: Path) -> bool:
        """Look at it. It goes by its path: two folders may hold one name."""
        state = _state(video)
        if state is None:
            return False
        is_still = self._seen.get(video) == state
        self._seen[video] = state
        if not is_still or self._shown.get(video) == state:
            return False
        self._shown[video] = state
        return True

    def left(self) -> list[Path]:
        """Those that were seen and are not shown as they are now; they count as shown."""
        found = {video: _state(video) for video in self._seen}
        due = {video: state for video, state in found.items() if state is not None and self._shown.get(video) != state}
        self._shown.update(due)
        return list(due)


def _state(video: Path) -> _State | None:
    try:
        found = video.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
