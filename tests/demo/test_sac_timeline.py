"""The SAC dual timeline: what the picture of learner and collector promises, asked of the demo's merged trace by SQL.

Both processes run on one host, whose clock they share, so no relation needs a tolerance.
"""

from typing import Any

import pytest

from realparts.sac_demo import Demo
from realparts.trace_processor import query

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

TICKS = 8000
"""Of the demo; one more begins, in which the learner says stop."""

_LEARNER = ("collector_wait", "inference", "collector_release", "replay_batch_wait", "replay_sample", "learning")
_COLLECTOR = ("inference_request", "learner_action_wait", "env_step", "transition_extract", "replay_write")
_COLUMNS = ", ".join(
    f"min(iif(name = '{name}', ts, null)) {name}_begin, max(iif(name = '{name}', ended, null)) {name}_end"
    for name in _LEARNER + _COLLECTOR
)
# A row per tick: when each of its phases began and ended, on either side.
_TABLES = f"""
    create perfetto table tick_slice as
    select s.id, s.ts, s.ts + s.dur ended, s.name,
        extract_arg(coalesce(above.arg_set_id, around.arg_set_id), 'debug.rl_loop_iteration') tick
    from slice s join slice around on s.parent_id = around.id left join slice above on around.parent_id = above.id
    where s.category in ('exclusive', 'background');
    create perfetto index tick_slice_id on tick_slice(id);
    create perfetto table tick as
    select tick, {_COLUMNS}, lag(max(iif(name = 'learning', ended, null))) over (order by tick) last_learning_end
    from tick_slice group by tick;
"""
_SERVED = "tick where inference_begin is not null"
_WAITS = """
    select inference_request_end < collector_wait_begin request_was_there, count(*) n,
        percentile(collector_wait_end - collector_wait_begin, 50) wait,
        percentile(learner_action_wait_end - learner_action_wait_begin, 50) action_wait,
        sum(collector_wait_end <= inference_request_begin) before_the_request
    from tick group by 1
"""
_RELATIONS = {
    "served": f"""
        select count(*) n,
            sum(inference_begin >= inference_request_begin and inference_end <= learner_action_wait_end) answered,
            sum(inference_begin >= learner_action_wait_begin and inference_end <= learner_action_wait_end) inside,
            sum(collector_release_begin >= inference_end and collector_release_begin <= learner_action_wait_end) ends,
            sum(env_step_begin >= learner_action_wait_end) stepped
        from {_SERVED}
    """,
    "parallel": f"""
        select count(*) n,
            sum(env_step_begin >= collector_release_begin) released,
            sum(max(env_step_begin, learning_begin) < min(replay_write_end, learning_end)) at_once,
            sum(max(0, min(replay_write_end, learning_end) - max(env_step_begin, learning_begin))) ns
        from {_SERVED} and learning_begin is not null
    """,
    "waits": _WAITS,
    "inference": f"""
        select count(*) n,
            sum(inference_begin >= last_learning_end) after_last, sum(inference_end <= learning_begin) before
        from {_SERVED} and learning_begin is not null and last_learning_end is not null
    """,
    "flows": """
        select o.name source, i.name target, count(*) n, min(i.ts - o.ts) least,
            min(i.tick - o.tick) least_ticks, max(i.tick - o.tick) most_ticks
        from flow f join tick_slice o on f.slice_out = o.id join tick_slice i on f.slice_in = i.id group by 1, 2
    """,
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


@pytest.fixture(scope="module")
def timeline(demo: Demo) -> dict[str, list[dict[str, Any]]]:
    first, *others = _RELATIONS.values()
    return dict(zip(_RELATIONS, query(demo.timeline, _TABLES + first, *others), strict=True))


def test_inference_is_the_last_part_of_the_collectors_action_wait(timeline: dict[str, Any]) -> None:
    """In the few ticks that begin earlier, the collector lost its core between its request and its wait."""
    (row,) = timeline["served"]
    assert row["n"] == TICKS
    assert row["answered"] == row["ends"] == row["stepped"] == TICKS
    assert row["inside"] > 0.9 * TICKS


def test_env_step_and_replay_write_overlap_learning(timeline: dict[str, Any]) -> None:
    (row,) = timeline["parallel"]
    assert row["n"] > 7000
    assert row["released"] == row["n"]
    assert row["at_once"] > 100  # of thousands; how many depends on who gets the cores
    assert row["ns"] > 0


def test_inference_never_overlaps_learning(timeline: dict[str, Any]) -> None:
    (row,) = timeline["inference"]
    assert row["n"] > 7000
    assert row["after_last"] == row["before"] == row["n"]


def test_collector_wait_is_near_zero_when_the_request_was_there(timeline: dict[str, Any]) -> None:
    """The collector then waits for the rest of the learner's update, while the learner only reads what is there."""
    waits = {bool(row["request_was_there"]): row for row in timeline["waits"]}
    assert waits[True]["n"] > 100
    assert waits[False]["n"] > 0  # the first at least: the collector still starts
    assert waits[True]["wait"] < waits[False]["wait"]
    assert waits[True]["wait"] < waits[True]["action_wait"]


def test_collector_wait_never_ends_before_the_request(timeline: dict[str, Any]) -> None:
    assert sum(row["n"] for row in timeline["waits"]) == TICKS + 1
    assert [row["before_the_request"] for row in timeline["waits"]] == [0] * len(timeline["waits"])


@pytest.mark.parametrize(
    ("source", "target", "ticks"),
    [
        ("inference_request", "inference", 0),
        ("inference", "collector_release", 0),
        ("collector_release", "env_step", 0),
        ("replay_write", "replay_ingress_h2d_submit", 1),
    ],
)
def test_arrows_join_what_belongs_together_forwards_in_time(
    timeline: dict[str, Any], source: str, target: str, ticks: int
) -> None:
    """A tick's request, its answer and its step; a write is ingested in the iteration after it."""
    flows = {(row["source"], row["target"]): row for row in timeline["flows"]}
    row = flows[source, target]
    assert row["n"] == TICKS
    assert row["least"] > 0
    assert (row["least_ticks"], row["most_ticks"]) == (ticks, ticks)


def test_there_are_no_other_arrows_and_no_faults(timeline: dict[str, Any]) -> None:
    assert len(timeline["flows"]) == 4
    assert timeline["errors"] == []
