"""Where a key stands on the panel and what it is called: by the metric schema, else among the others, as it is."""

from functools import lru_cache
from typing import NamedTuple

from rltel.names.schema import tag

ITERATION = "Train/iteration"
MEAN_REWARD = "Train/mean_reward"
EPISODE_LENGTH = "Train/mean_episode_length"
TIMEOUT_RATE = "Episode/timeout_rate"
STEPS_RATE = "Perf/total_fps"
COLLECTOR_WAIT = "Perf/learner_collector_wait_ms"

OTHER = "metrics.other"
HIDDEN = ""
_REMEMBERED = 4096
_COPIES = "/time"  # what rsl_rl writes a second time, over seconds


class Label(NamedTuple):
    """A key's place: its section by the schema, its text, and its position there."""

    section: str
    text: str
    order: int
    indent: bool = False
    quiet: bool = False
    """Shown only where it takes 1% of its loop."""
    is_gauge: bool = False
    is_known: bool = True
    """Whether the schema has it: what it has not comes last, under its key."""


@lru_cache(_REMEMBERED)
def label_of(key: str) -> Label:
    """A flat key's place. `HIDDEN`: it is for the persistent destinations only."""
    found = tag(key.removesuffix("/avg"))
    if found is None:
        return Label(OTHER, key, 0, is_known=False)
    shown = found.terminal
    if shown is None:
        is_diagnostic = found.clock is not None or key.endswith(_COPIES)
        return Label(HIDDEN if is_diagnostic else OTHER, key, 0, is_known=is_diagnostic)
    return Label(shown.section, shown.label, shown.order, shown.indent, shown.quiet, found.kind == "gauge")


def words(name: str) -> str:
    """A phase's name as a label: ``old_logprobs`` is Old Logprobs."""
    return name.replace("_", " ").replace("/", " / ").title()
