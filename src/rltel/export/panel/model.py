"""What the panel shows at one moment: numbers in groups, the most important ones marked. No widths, no colours."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rltel.export.panel.families import is_timed, timelines
from rltel.export.panel.history import Progress, Trend
from rltel.export.panel.labels import EPISODE_LENGTH, MEAN_REWARD, OTHER, STEPS_RATE, TIMEOUT_RATE, Label, label_of
from rltel.export.panel.llm.groups import Section, sections, unplaced
from rltel.export.panel.llm.keys import is_llm_run
from rltel.export.panel.plain_times import is_plain_time, plain_timelines
from rltel.export.panel.session_times import covered
from rltel.export.panel.timing import Timing, timing_of
from rltel.export.panel.window import View

_METRICS = "metrics."
_LOSSES = "metrics.loss_policy"
_REWARDS = "rewards"
_SYSTEM_ROLES = {"collector"}  # robot runs have one; they show the state of MPS even if nobody told it
_HIGH_LOSS = 10.0


class MetricRow(NamedTuple):
    """A number with its label. ``section`` as in the metric schema."""

    text: str
    value: float
    section: str
    indent: bool = False
    is_red: bool = False
    is_count: bool = False
    """Whether it counts things: slots, batches."""


class RewardRow(NamedTuple):
    """A return or a reward term."""

    text: str
    value: float
    peak: float | None = None
    trend: Trend | None = None


class Fact(NamedTuple):
    """A size or setting of the run: a number, or a word."""

    text: str
    value: float | str


@dataclass(frozen=True, slots=True)
class Header:
    """The title and the line below it. None: not known."""

    algo: str | None
    task: str | None
    gpus: int
    iteration: int
    max_iterations: int | None
    elapsed_s: float
    eta_s: float | None
    episode_length: float | None
    steps_per_s: float | None
    rows_per_s: float | None
    window_s: float
    n: int
    age_s: float | None
    """How long ago the last commit was, where that is longer than the window."""
    status: str | None


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that a screen may show."""

    header: Header
    metrics: tuple[MetricRow, ...]
    rewards: tuple[RewardRow, ...]
    timings: tuple[Timing, ...]
    system: tuple[Fact, ...]
    others: tuple[MetricRow, ...]
    """Keys that neither the metric schema nor a group has, verbatim."""
    groups: tuple[Section, ...] = ()
    """Of an LLM run."""


def model_of(
    view: View,
    progress: Progress,
    facts: Mapping[str, Any],
    *,
    window_s: float,
    algo: str | None = None,
    task: str | None = None,
) -> Model:
    """What to show of a window.

    Args:
        view: the window's.
        progress: by the same samples.
        facts: what `rltel.system` was told.
        window_s: how long the window is.
        algo: the config's, if `facts` has none.
        task: the same.
    """
    algo = facts.get("algo", algo)
    is_llm = is_llm_run(view.latest)
    groups = sections(view, progress.trend) if is_llm else ()
    keys = unplaced(view.latest) if is_llm else list(view.latest)
    timings = tuple(_timings(view, algo, shows_plain=is_llm))
    shown = {line.key for timing in timings for line in timing.timeline.lines} | covered(view.latest)
    labelled = [(key, label_of(key)) for key in keys if key not in shown]
    return Model(
        header=_header(view, progress, facts, timings, window_s, algo, facts.get("task", task)),
        metrics=_metrics(view, labelled),
        rewards=() if is_llm else _rewards(view, progress, labelled),
        timings=timings,
        system=_system(view, facts, timings),
        others=_others(view, labelled),
        groups=groups,
    )


def _timings(view: View, algo: str | None, *, shows_plain: bool) -> Iterator[Timing]:
    """Every timeline that has something to show; those of no loop in an LLM run alone, where trainers have no other."""
    found = timelines(view.latest.keys(), view.labels, algo)
    if shows_plain:
        known = {line.key for timeline in found for line in timeline.lines} | covered(view.latest)
        plain = (key for key in view.latest if is_plain_time(key) and not is_timed(key, view.labels))
        found += plain_timelines(key for key in plain if key not in known)
    for timeline in found:
        timing = timing_of(timeline, view)
        if timing is not None:
            yield timing


def _header(
    view: View,
    progress: Progress,
    facts: Mapping[str, Any],
    timings: Iterable[Timing],
    window_s: float,
    algo: str | None,
    task: str | None,
) -> Header:
    rate = view.rate(STEPS_RATE)
    status = facts.get("status")
    return Header(
        algo=algo,
        task=task,
        gpus=facts.get("gpus", view.newest.world_size),
        iteration=progress.iteration,
        max_iterations=facts.get("max_iterations"),
        elapsed_s=progress.elapsed_s,
        eta_s=progress.eta_s,
        episode_length=view.mean(EPISODE_LENGTH) or None,  # 0: no episode has ended
        steps_per_s=view.env_steps_rate if rate is None else rate,
        rows_per_s=_rows_per_s(view, facts, timings),
        window_s=window_s,
        n=view.n,
        age_s=view.age_s if view.age_s > window_s else None,
        status=None if status == "Training" else status,
    )


def _rows_per_s(view: View, facts: Mapping[str, Any], timings: Iterable[Timing]) -> float | None:
    """All ranks' rows over the mean iteration: exact where ranks take equally long, as synchronous ones do."""
    if "rows_per_s" in facts:
        return float(facts["rows_per_s"])
    wall = next((timing.loop for timing in timings if timing.timeline.basis == "wall" and timing.loop), None)
    rows = facts.get("rows")
    if rows is None or wall is None or not wall.ms:
        return None
    return float(rows * view.newest.world_size / wall.ms * 1e3)


def _metrics(view: View, labelled: Iterable[tuple[str, Label]]) -> tuple[MetricRow, ...]:
    """The schema's, in its order: losses and policy, training, ingress, other."""
    mine = [(key, label) for key, label in labelled if label.is_known and label.section.startswith(_METRICS)]
    mine.sort(key=lambda each: each[1].order)
    texts = _told_apart(mine)
    return tuple(_metric(texts[key], value, label) for key, label, value in _valued(view, mine))


def _metric(text: str, value: float, label: Label) -> MetricRow:
    is_red = label.section == _LOSSES and value > _HIGH_LOSS
    return MetricRow(text, value, label.section, label.indent, is_red or not math.isfinite(value), label.is_gauge)


def _told_apart(labelled: Iterable[tuple[str, Label]]) -> dict[str, str]:
    """Labels that two keys share say which is which: ``Temperature (Loss)``, ``Temperature (Policy)``."""
    labels = {key: label.text for key, label in labelled}
    shared = {text for text in labels.values() if list(labels.values()).count(text) > 1}
    return {key: f"{text} ({key.partition('/')[0]})" if text in shared else text for key, text in labels.items()}


def _others(view: View, labelled: Iterable[tuple[str, Label]]) -> tuple[MetricRow, ...]:
    mine = [(key, label) for key, label in labelled if not label.is_known and label.section == OTHER]
    mine = sorted((each for each in mine if not is_timed(each[0], view.labels)), key=lambda each: each[0])
    return tuple(MetricRow(key, value, OTHER, is_red=not math.isfinite(value)) for key, _, value in _valued(view, mine))


def _rewards(view: View, progress: Progress, labelled: Iterable[tuple[str, Label]]) -> tuple[RewardRow, ...]:
    rows = []
    whole = view.mean(MEAN_REWARD)
    if whole is not None:
        rows.append(RewardRow("Reward", whole, progress.peak, progress.trend))
    terms = sorted(key for key, label in labelled if label.section == _REWARDS and key != MEAN_REWARD)
    rows.extend(RewardRow(label_of(key).text, value) for key in terms if (value := view.mean(key)) is not None)
    return tuple(rows)


def _system(view: View, facts: Mapping[str, Any], timings: Iterable[Timing]) -> tuple[Fact, ...]:
    is_robot = any(timing.timeline.role in _SYSTEM_ROLES for timing in timings)
    known: dict[str, float | str | None] = {
        "Buffer": facts.get("buffer"),
        "Timeout Rate": facts.get("timeout_rate", view.mean(TIMEOUT_RATE)),
        "Envs": facts.get("environments"),
        "Batch/Rank": facts.get("batch"),
        "CUDA MPS": facts.get("mps", "off" if is_robot else None),
    }
    return tuple(Fact(text, value) for text, value in known.items() if value is not None)


def _valued(view: View, labelled: Iterable[tuple[str, Label]]) -> Iterable[tuple[str, Label, float]]:
    for key, label in labelled:
        value = view.mean(key)
        if value is not None:
            yield key, label, value
