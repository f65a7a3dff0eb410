"""Times that belong to no known loop: those of `record_timing`, which is how AReaL's trainers time all that they do."""

from collections.abc import Iterable, Iterator

from rltel.export.panel.labels import words
from rltel.export.panel.lines import Line, Timeline

PLAIN = "timings"
"""The role of those times, after the name of their tracker."""

_MARK = "timeperf/"


def is_plain_time(key: str) -> bool:
    """Whether it is a time, of the default tracker or of a named one (``rollout/timeperf/<name>``)."""
    return f"/{_MARK}" in f"/{key}"


def plain_timelines(keys: Iterable[str]) -> Iterator[Timeline]:
    """Means a call, by tracker. They may lie in one another: so they are shares of nothing."""
    found: dict[str, list[Line]] = {}
    for key in keys:
        tracker, _, name = f"/{key}".partition(f"/{_MARK}")
        found.setdefault(tracker.lstrip("/"), []).append(Line(key, words(name), "exclusive", quiet=False))
    for tracker, lines in found.items():
        yield Timeline(f"{tracker} {PLAIN}".strip(), None, "", "none", tuple(lines))
