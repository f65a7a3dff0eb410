"""Where the time of an iteration went, in PromQL: shares and parts of loops, from the histograms of phases."""

from rltel.dashboards.promql import Expr, grown, own
from rltel.dashboards.series import RANK, ROLE, RUN, Series, named

WAITS = "(.+_)?wait"
"""Phases in which a role waits for another."""
_ON = f"on ({RUN}) group_left ()"

OF_LEARNER = 'rl_role!~"collector|controller|rollout"'
"""Those other roles say that a loop, or a part of one, is theirs; a learner's is its process's, whatever its role."""

LOOP = named("rl.loop.duration", key="Perf/iteration_time", unit="s").only(OF_LEARNER)
"""The learner's loop."""


def phases(role: str, kind: str) -> Series:
    """A role's phases of one kind."""
    found = named("rl.phase.duration", "rl_phase", unit="s")
    return found.only(rl_role=role, rl_phase_kind=kind)


def iterations() -> Expr:
    """Of the learner, in a second of iterating. (How many a second all ranks together make would say little.)"""
    return own(f"{grown(LOOP, '_count')} / ({grown(LOOP, '_sum')} > 0)")


def per_iteration(of: Series) -> Expr:
    """Seconds of each phase in one iteration of the learner."""
    return own(f"{grown(of, '_sum')} / {_ON} {_iterations()}")


def other_per_iteration() -> Expr:
    """Seconds of an iteration that are in no exclusive phase."""
    inside = grown(_all(phases("learner", "exclusive")), "_sum")
    return own(f"clamp_min({grown(LOOP, '_sum')} - {inside}, 0) / {_iterations()}")


def share_of_iteration(of: Series) -> Expr:
    """Which part of the learner's loop these phases take: 0 to 1."""
    return own(f"{grown(_all(of), '_sum')} / ({grown(LOOP, '_sum')} > 0)")


def per_cycle(of: Series) -> Expr:
    """Seconds of each of the collector's phases in one cycle: there are as many cycles as its commonest phase."""
    cycles = f"max by ({RUN}) ({grown(phases('collector', 'exclusive'), '_count')})"
    return own(f"{grown(of, '_sum')} / {_ON} ({cycles} > 0)")


def share_of_cycle(of: Series) -> Expr:
    """Which part of the collector's exclusive time these phases take: 0 to 1."""
    return own(f"{grown(_all(of), '_sum')} / ({grown(_all(phases('collector', 'exclusive')), '_sum')} > 0)")


def at_once() -> Expr:
    """How many roles worked at a time, on average: their time that is no waiting, over the learner's time."""
    busy = named("rl.phase.duration", unit="s").only('rl_phase_kind="exclusive"', f'rl_phase!~"{WAITS}|sample"')
    return own(f"{grown(busy, '_sum')} / ({grown(LOOP, '_sum')} > 0)")


def slowest_ranks(count: int) -> Expr:
    """Seconds of an iteration, of the ranks of each run that take longest."""
    ranks = LOOP.also_by("rl_rank")
    return own(f"topk by ({RUN}) ({count}, {grown(ranks, '_sum')} / ({grown(ranks, '_count')} > 0))")


def begins() -> Expr:
    """When processes began, in ms since the epoch: the first of each role, and those that came a minute later or more.

    A thousand ranks that start together are one mark; one of them that is restarted has its own.
    """
    starts = named("rl.process.start_time", ROLE, "rl_incarnation", unit="s")
    group = ", ".join(starts.by)
    first = f"min by ({group}) ({starts})"
    late = f"max by ({group}, {RANK}) ({starts}) > on ({group}) group_left () ({first} + 60)"
    return own(f"1000 * ({first} or {late}) >= $__from")


def happened(of: Series) -> Expr:
    """Where a phase came to its end."""
    return own(f"sum by ({', '.join(of.by)}) (increase({of.part('_count')}[$__rate_interval])) > 0")


def _iterations() -> str:
    return f"({grown(LOOP, '_count')} > 0)"


def _all(of: Series) -> Series:
    """Together, whatever phase."""
    return Series(of.name, of.key, of.where)
