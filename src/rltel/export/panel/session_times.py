"""How long rollouts take, as `rltel.rl.sessions` records it: a timeline for each tracker that has sessions."""

import re
from collections.abc import Collection, Iterator

from rltel.export.panel.labels import words
from rltel.export.panel.lines import Line, Timeline

_KEY = re.compile(r"(?P<tracker>(?:.*/)?)timeperf/session/(?P<name>[^/]+)")
_MARK = "timeperf/session/"
_TOTAL, _QUEUE, _IDLE = "total", "queue", "idle"
_ROLES = {"rollout/": "sessions", "eval-rollout/": "eval sessions"}


def session_timelines(seen: Collection[str]) -> Iterator[Timeline]:
    """From the queue through the phases to what is none of these."""
    for tracker, names in _times(seen).items():
        prefix = f"{tracker}{_MARK}"
        phases = [name for name in names if name not in (_TOTAL, _QUEUE, _IDLE)]
        ordered = [name for name in (_QUEUE, *phases, _IDLE) if name in names]
        lines = tuple(Line(prefix + name, words(name), "exclusive", name not in phases) for name in ordered)
        role = _ROLES.get(tracker, f"{tracker.rstrip('/')} sessions")
        yield Timeline(role, prefix + _TOTAL, "Session Wall", "parts", lines)


def covered(seen: Collection[str]) -> set[str]:
    """The keys that these timelines show, and the same phases' times by call."""
    keys: set[str] = set()
    for tracker, names in _times(seen).items():
        keys.update(f"{tracker}{_MARK}{name}" for name in names)
        keys.update(f"{tracker}timeperf/{name}" for name in names)
    return keys


def _times(seen: Collection[str]) -> dict[str, list[str]]:
    """By what leads the keys, the names of times, in the order in which they came; of those that have a total."""
    found: dict[str, list[str]] = {}
    for key in seen:
        match = _KEY.fullmatch(key)
        if match:
            found.setdefault(match["tracker"], []).append(match["name"])
    return {tracker: names for tracker, names in found.items() if _TOTAL in names}
