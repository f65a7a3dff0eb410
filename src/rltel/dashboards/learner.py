"""Where the time of learner and collectors goes."""

from rltel.dashboards.dashboard import Dashboard, Row
from rltel.dashboards.panel import Bound, Panel, Query
from rltel.dashboards.phases import (
    LOOP,
    OF_LEARNER,
    WAITS,
    at_once,
    other_per_iteration,
    per_cycle,
    per_iteration,
    phases,
    share_of_cycle,
    share_of_iteration,
    slowest_ranks,
)
from rltel.dashboards.promql import latest, mean, quantile
from rltel.dashboards.series import named, series

_QUEUES_NEEDED = "a collector with a queue of inference requests: unilab-rl's SAC has one, the demo's has not"
_PHASE = "{{rl_run_id}} {{rl_phase}}"

_LEARNER = Row(
    "Learner",
    [
        Panel(
            "Iteration by phase",
            "The learner's exclusive phases, stacked to the wall time of an iteration, with what is in none of them on "
            "top. The widest is what to speed up.",
            [
                Query(per_iteration(phases("learner", "exclusive")), _PHASE),
                Query(other_per_iteration(), "{{rl_run_id}} Other"),
            ],
            "s",
            look="stacked",
            width=12,
        ),
        Panel(
            "Inside phases",
            "Parts of phases of the learner, in one iteration. They are contained in the phases above.",
            [Query(per_iteration(phases("learner", "nested")), _PHASE)],
            "s",
            width=12,
        ),
        Panel(
            "Iteration",
            "Wall time of the learner's iterations: mean, median, slowest hundredth. A p99 far above the median is a "
            "phase that stalls now and then: open the timeline of that time.",
            [
                Query(mean(LOOP), "{{rl_run_id}} mean"),
                Query(quantile(0.5, LOOP), "{{rl_run_id}} p50"),
                Query(quantile(0.99, LOOP), "{{rl_run_id}} p99"),
            ],
            "s",
        ),
        Panel(
            "Slowest ranks",
            "Mean iteration of the five ranks that take longest; one above the others holds up all. Where ranks are "
            "reduced to one report there is one rank here: p99 above has the slowest then.",
            [Query(slowest_ranks(5), "{{rl_run_id}} rank {{rl_rank}}")],
            "s",
        ),
        Panel(
            "Beside the loop",
            "Work of the learner in the background, per iteration.",
            [
                Query(per_iteration(phases("learner", "background")), _PHASE),
                Query(
                    mean(named("rl.sync.duration", unit="s", key="sync").only(OF_LEARNER)),
                    "{{rl_run_id}} weights published",
                ),
            ],
            "s",
        ),
    ],
)

_COLLECTORS = Row(
    "Collectors",
    [
        Panel(
            "Cycle by phase",
            "The collector's exclusive phases, stacked to one cycle.",
            [Query(per_cycle(phases("collector", "exclusive")), _PHASE)],
            "s",
            look="stacked",
            width=12,
        ),
        Panel(
            "Inside the environment step",
            "Parts of the environment's step, in one cycle.",
            [
                Query(
                    per_cycle(phases("collector", "nested")),
                    _PHASE,
                    "an environment that times its parts: unilab's do",
                )
            ],
            "s",
            width=12,
        ),
        Panel(
            "Whole rollouts",
            "Wall time of one rollout, where collectors work in rollouts.",
            [
                Query(
                    mean(series("Perf/collection_time")),
                    "{{rl_run_id}}",
                    "a collector that works in rollouts: APPO, PPO",
                )
            ],
            "s",
        ),
    ],
)

_BETWEEN = Row(
    "Between them",
    [
        Panel(
            "Waits",
            "Which part of its time each side waits for the other. A learner above one half is starved: more "
            "collectors, or a faster environment. A collector above one half: the learner's iteration is too long.",
            [
                Query(
                    share_of_iteration(phases("learner", "exclusive").only(f'rl_phase=~"{WAITS}|sample"')),
                    "{{rl_run_id}} learner",
                ),
                Query(
                    share_of_cycle(phases("collector", "exclusive").only(f'rl_phase=~"{WAITS}"')),
                    "{{rl_run_id}} collectors",
                ),
            ],
            "percentunit",
            [Bound(0.5, "orange"), Bound(0.8)],
        ),
        Panel(
            "Overlap",
            "How many roles work at a time, on average, over the learner's time. 1: one after the other. 2: both all "
            "the time. Below 1 all wait.",
            [Query(at_once(), "{{rl_run_id}}")],
            "none",
        ),
        Panel(
            "Inference queue",
            "Requests that wait for the learner, are on their way, or have an answer that nobody fetched. A queue that "
            "grows is a learner that does not keep up.",
            [
                Query(latest(series(f"Perf/collector_inference_{key}")), f"{{{{rl_run_id}}}} {title}", _QUEUES_NEEDED)
                for key, title in (
                    ("queue_depth", "waiting"),
                    ("in_flight", "in flight"),
                    ("max_in_flight", "in flight at most"),
                    ("action_backlog", "backlog"),
                    ("max_action_backlog", "backlog at most"),
                )
            ],
            "suffix: requests",
        ),
        Panel(
            "Publication lag",
            "Ticks by which collectors are behind the weights that the learner published.",
            [
                Query(latest(series("Perf/collector_inference_publication_lag")), "{{rl_run_id}}", _QUEUES_NEEDED),
                Query(
                    latest(series("Perf/collector_inference_max_publication_lag")),
                    "{{rl_run_id}} at most",
                    _QUEUES_NEEDED,
                ),
            ],
            "suffix: ticks",
            [Bound(2, "orange"), Bound(8)],
        ),
    ],
)

DASHBOARD = Dashboard(
    "learner",
    "Learner and collectors",
    "Where the time goes, who waits for whom, and which rank is the slowest.",
    [_LEARNER, _COLLECTORS, _BETWEEN],
)
