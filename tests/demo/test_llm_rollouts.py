"""Asynchronous GRPO: overlapping rollouts, the update that consumes them, and a user's own spans inside."""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rltel
from realparts.otlp_receiver import ReceivedSpan, otlp_sink
from realparts.requirements import REPOSITORY
from realparts.trace_processor import query
from rltel.record.kinds import Moments
from rltel.record.phase_sets import LLM_LEARNER
from rltel.rl import sessions

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

EXAMPLE = REPOSITORY / "examples" / "llm_rollouts.py"
ITERATIONS = 60
ROLLOUTS = 64
"""Of an order."""
ORDERS = ITERATIONS + 2
"""The worker is ahead by two."""
CLIENT = "text_completion toy-gru"

_TABLES = """
    create perfetto table rollout as
    select id, ts, ts + dur ended, dur, track_id, depth, extract_arg(arg_set_id, 'debug.order') number,
        extract_arg(arg_set_id, 'debug.rl_policy_version') policy_version,
        extract_arg(arg_set_id, 'debug.span_id') span_id
    from slice where name = 'rollout';
    create perfetto index rollout_id on rollout(id);
    create perfetto table train as
    select s.id, s.ts, s.ts + s.dur ended, extract_arg(i.arg_set_id, 'debug.rl_loop_iteration') step
    from slice s join slice i on s.parent_id = i.id where s.name = 'train' and i.name = 'iteration';
    create perfetto index train_id on train(id);
"""
_QUERIES = {
    "phases": """
        select s.name, s.category, i.name parent, count(*) n, sum(s.dur) ns, min(s.dur) least
        from slice s left join slice i on s.parent_id = i.id group by 1, 2, 3
    """,
    "rollouts": "select id, ts, ended, track_id, depth, number, policy_version, span_id from rollout order by ts",
    "parts": """
        select r.id, group_concat(s.name, ' ') parts from rollout r
        join (select parent_id, name from slice where category = 'session' order by ts) s on s.parent_id = r.id
        group by 1
    """,
    "consumed": """
        select t.step, count(*) n, min(r.number) least_order, max(r.number) most_order,
            min(r.policy_version) least_version, max(r.policy_version) most_version, min(t.ts - r.ended) least
        from flow f join rollout r on f.slice_out = r.id join train t on f.slice_in = t.id group by 1
    """,
    "at_once": """
        with ordered as (select number, min(ts) ts, max(ended) ended from rollout group by 1)
        select count(*) n, sum(max(o.ts, t.ts) < min(o.ended, t.ended)) at_once
        from train t join ordered o on o.number = t.step + 1
    """,
    "weights": """
        select count(*) n, min(i.ts - o.ts) least from flow f join slice o on f.slice_out = o.id
        join slice i on f.slice_in = i.id where o.name = 'weight_publish' and i.name = 'weight_load'
    """,
    "client": f"""
        select ts, ts + dur ended, extract_arg(arg_set_id, 'debug.parent_span_id') parent,
            extract_arg(arg_set_id, 'debug.gen_ai_request_model') model
        from slice where name = '{CLIENT}'
    """,
    "engine": """
        select max(value) most, count(*) n from counter c join track t on c.track_id = t.id where t.name = 'engine/rows'
    """,
    "processes": "select name from process where name is not null order by 1",
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


def run(folder: Path, iterations: int, **environ: str) -> Path:
    """Runs the example; returns the run's directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    process = subprocess.run(
        [sys.executable, EXAMPLE, "--iterations", str(iterations), "--log-root", folder / "logs"],
        cwd=folder,
        env={**clean, "RLTEL_PROMETHEUS_PORT": "0", **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    (run_dir,) = (folder / "logs").glob("grpo/sums/*")
    return run_dir


def rewards_of(run_dir: Path) -> list[float]:
    return [line.values["reward"] for line in rltel.read_jsonl(run_dir) if "reward" in line.values]


@dataclass
class Training:
    """What one run of the example left, and what arrived at the receiver."""

    run_dir: Path
    rows: dict[str, list[dict[str, Any]]]
    spans: list[ReceivedSpan]

    def count(self, name: str, parent: str | None) -> int:
        """How many slices of a name lie in slices of another."""
        return sum(row["n"] for row in self.rows["phases"] if (row["name"], row["parent"]) == (name, parent))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    with otlp_sink() as sink:
        run_dir = run(
            tmp_path_factory.mktemp("llm"),
            ITERATIONS,
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint,
            RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S="20",  # so that nothing is dropped, however busy the machine
        )
        spans = sink.spans()
    first, *others = _QUERIES.values()
    rows = query(run_dir / "timeline.pftrace", _TABLES + first, *others)
    return Training(run_dir, dict(zip(_QUERIES, rows, strict=True)), spans)


# --- the training ---------------------------------------------------------------------------------------------------


def test_the_reward_improves(training: Training) -> None:
    rewards = rewards_of(training.run_dir)
    assert len(rewards) == ITERATIONS
    assert np.mean(rewards[:5]) < 0.15
    assert np.mean(rewards[-10:]) > 2.5 * np.mean(rewards[:5])
    assert np.mean(rewards[-10:]) > 0.3


def test_a_seed_gives_the_same_training_whatever_the_timing(training: Training, tmp_path: Path) -> None:
    again = rewards_of(run(tmp_path, 10))
    assert again == rewards_of(training.run_dir)[:10]


def test_the_record_holds_what_both_processes_recorded(training: Training) -> None:
    lines = [line.values for line in rltel.read_jsonl(training.run_dir) if "reward" in line.values]
    for step, values in enumerate(lines):
        assert values["policy/version"] == step + 1
        assert values["policy/staleness"] == (0 if step == 0 else 1)
        assert values["policy/n_chosen_tokens"] == 2 * ROLLOUTS  # of both micro-batches
        assert values["policy/ratio/min"] <= values["policy/ratio/avg"] <= values["policy/ratio/max"]
        assert values["seq_len/min"] >= 3 + 1 + 2 + 2  # two terms, the calculator's digits, the answer's
        assert values["rollout/correct__count"] == ROLLOUTS
        assert values["rollout/tokens/max"] == values["seq_len/max"]
    assert {"timeperf/sample", "timeperf/forward", "rollout/timeperf/decode"} <= lines[0].keys()
    assert all(values["groups/n_rollouts"] == ROLLOUTS for values in lines)
    assert sum(values["rollout/sessions/consumed"] for values in lines) == ITERATIONS * ROLLOUTS
    every = [line.values.get("rollout/correct__count", 0) for line in rltel.read_jsonl(training.run_dir)]
    assert sum(every) == ORDERS * ROLLOUTS  # those at the end, too, that no update consumed


def test_staleness_by_tokens_and_by_sessions_is_what_the_orders_make_it(training: Training) -> None:
    """The first update's rollouts are of its own policy, all others' of the one before."""
    lines = [line.values for line in rltel.read_jsonl(training.run_dir) if "reward" in line.values]
    for step, values in enumerate(lines):
        age = 0 if step == 0 else 1
        assert values["rollout/sessions/staleness/min"] == values["rollout/sessions/staleness/max"] == age
        tokens = "ppo_actor/update/version_stats/sample_staleness_theta_"
        assert values[f"{tokens}min"] == values[f"{tokens}max"] == age


def test_what_groups_are_like_goes_with_the_reward(training: Training) -> None:
    lines = [line.values for line in rltel.read_jsonl(training.run_dir) if "reward" in line.values]
    for values in lines:
        passes = [values[f"groups/pass@{k}"] for k in (1, 2, 4, 8)]
        assert passes == sorted(passes)
        assert values["groups/reward/avg"] == pytest.approx(values["reward"])
        assert values["groups/reward_mean/avg"] == pytest.approx(values["reward"])
        assert passes[-1] == pytest.approx(1 - values["groups/none_correct_fraction"])
    assert np.mean([values["groups/pass@8"] for values in lines[-10:]]) > lines[0]["groups/pass@8"]
    gaps = [values["ppo_actor/train_infer/logp_abs_diff/avg"] for values in lines]
    assert gaps[0] < 1e-5 < min(gaps[1:])  # the first rollouts' policy is the one that learns from them


def test_every_rollout_is_a_session_and_the_update_that_consumed_it_is_known(training: Training) -> None:
    found = list(sessions.read(training.run_dir))
    assert len(found) == ORDERS * ROLLOUTS
    assert {session["status"] for session in found} == {"accepted"}
    spans = {row["span_id"]: row for row in training.rows["rollouts"]}
    for session in found:
        order, version = session["attributes"]["order"], session["policy_version"]
        drawn = spans[session["span_id"]]
        assert (drawn["number"], drawn["policy_version"]) == (order, version)
        assert session["total_s"] * 1e9 + 1 >= drawn["ended"] - drawn["ts"]
        assert [phase for phase, _, _ in session["calls"]] == ["prefill", "tool_call", "prefill", "decode", "reward"]
        consumed = [(by["step"], by["staleness"], by["process"]) for by in session["consumed"]]
        assert consumed == ([(order, order - version, "learner-0.1")] if order < ITERATIONS else [])


# --- the timeline ---------------------------------------------------------------------------------------------------


def test_the_trace_processor_finds_no_fault_and_three_named_processes(training: Training) -> None:
    """The third is the user's own TracerProvider, by the Perfetto exporter."""
    assert training.rows["errors"] == []
    assert [row["name"] for row in training.rows["processes"]] == ["learner 0", "rollout 0", "toy-inference"]


def test_the_trainers_phases_nest_and_their_times_are_those_of_the_record(training: Training) -> None:
    for name in ("sample", "reward", "train", "sync"):
        assert training.count(name, "iteration") == ITERATIONS
    assert training.count("batch_wait", "sample") == training.count("optimizer", "train") == ITERATIONS
    assert training.count("forward", "train") == training.count("backward", "train") == 2 * ITERATIONS
    assert training.count("weight_publish", "sync") == ITERATIONS
    keys = {phase.key: phase.name for phase in LLM_LEARNER.phases} | {str(LLM_LEARNER.loop_key): LLM_LEARNER.loop}
    total: dict[str, float] = defaultdict(float)
    for line in rltel.read_jsonl(training.run_dir):
        for key in keys.keys() & line.snapshot.keys():
            total[keys[key]] += Moments(*line.snapshot[key].state.moments).total
    drawn: Counter[str] = Counter()
    for row in training.rows["phases"]:
        if row["category"] in {"exclusive", "nested", "rl.loop"}:
            drawn[row["name"]] += row["ns"]
    assert total.keys() == drawn.keys()
    assert len(total) >= 12
    for name, seconds in total.items():
        assert seconds == pytest.approx(drawn[name] / 1e9, rel=1e-9), name


def test_overlapping_rollouts_stay_whole_on_lanes(training: Training) -> None:
    rollouts = training.rows["rollouts"]
    assert len(rollouts) == ORDERS * ROLLOUTS
    assert {row["depth"] for row in rollouts} == {0}
    lanes: dict[int, int] = {}
    overlapping = 0
    last_end = 0
    for row in rollouts:
        assert row["ended"] > row["ts"]  # none is open
        assert row["ts"] >= lanes.get(row["track_id"], 0)  # one after the other on its lane
        lanes[row["track_id"]] = row["ended"]
        overlapping += row["ts"] < last_end
        last_end = max(last_end, row["ended"])
    assert len(lanes) > 1
    assert overlapping > len(rollouts) / 2


def test_every_rollout_has_its_parts_in_order(training: Training) -> None:
    parts = Counter(row["parts"] for row in training.rows["parts"])
    assert parts == {"prefill tool_call prefill decode reward": ORDERS * ROLLOUTS}


def test_arrows_join_every_rollout_to_the_update_that_consumes_it(training: Training) -> None:
    """And which policy made it follows from the order, whatever the timing."""
    consumed = training.rows["consumed"]
    assert [row["step"] for row in consumed] == list(range(ITERATIONS))
    for row in consumed:
        assert row["n"] == ROLLOUTS
        assert row["least_order"] == row["most_order"] == row["step"]
        assert row["least_version"] == row["most_version"] == max(row["step"] - 1, 0)
        assert row["least"] > 0  # it is over before the update begins


def test_rollouts_overlap_the_update_before_theirs(training: Training) -> None:
    (row,) = training.rows["at_once"]
    assert row["n"] == ITERATIONS
    assert row["at_once"] > ITERATIONS / 2


def test_arrows_join_published_weights_to_their_load(training: Training) -> None:
    (row,) = training.rows["weights"]
    assert row["n"] == ITERATIONS
    assert row["least"] > 0


def test_the_engine_serves_several_rollouts_at_once(training: Training) -> None:
    (row,) = training.rows["engine"]
    assert row["n"] > ORDERS
    assert row["most"] > 1


def test_a_users_spans_are_drawn_inside_their_rollout(training: Training) -> None:
    """The SDK reads the wall clock and the timeline the monotonic one, hence a millisecond's tolerance."""
    rollouts = {row["span_id"]: row for row in training.rows["rollouts"]}
    spans = training.rows["client"]
    assert len(spans) == 3 * len(rollouts)
    for span in spans:
        rollout = rollouts[span["parent"]]
        assert rollout["ts"] - 1_000_000 <= span["ts"] <= span["ended"] <= rollout["ended"] + 1_000_000
        assert span["model"] == "toy-gru"


# --- OpenTelemetry --------------------------------------------------------------------------------------------------


def test_iterations_arrive_as_rl_loop_with_their_parts(training: Training) -> None:
    loops = {span.span.span_id: span for span in training.spans if span.name == "rl.loop"}
    assert len(loops) == ITERATIONS
    assert {span.resource["rl.role"] for span in loops.values()} == {"learner"}
    for name in ("rl.sample", "rl.reward", "rl.train", "rl.sync"):
        parents = {span.span.parent_span_id for span in training.spans if span.name == name} & loops.keys()
        assert len(parents) == ITERATIONS
    assert sorted(span.attributes["rl.loop.iteration"] for span in loops.values()) == list(range(ITERATIONS))


def test_rollouts_arrive_with_the_users_spans_as_children(training: Training) -> None:
    rollouts = {span.span.span_id: span for span in training.spans if span.name == "rl.rollout"}
    children = [span for span in training.spans if span.name == CLIENT]
    assert len(rollouts) == ORDERS * ROLLOUTS
    assert len(children) > ROLLOUTS  # the SDK's queue may drop some
    for child in children:
        rollout = rollouts[child.span.parent_span_id]
        assert child.span.trace_id == rollout.span.trace_id
        assert child.attributes["gen_ai.operation.name"] == "text_completion"
        assert child.resource["service.name"] == "toy-inference"
        assert rollout.resource["rl.role"] == "rollout"


def test_rollouts_belong_to_the_iteration_that_ordered_them(training: Training) -> None:
    """The order carries the trace context, so that a rollout's trace tells which update its policy came from."""
    by_id = {span.span.span_id: span for span in training.spans}
    checked = 0
    for span in training.spans:
        if span.name == "rl.rollout" and span.attributes["rl.policy.version"] > 0:
            above = by_id[span.span.parent_span_id]
            while above.name != "rl.loop":
                above = by_id[above.span.parent_span_id]
            assert above.attributes["rl.loop.iteration"] == span.attributes["rl.policy.version"] - 1
            checked += 1
    assert checked == (ORDERS - 2) * ROLLOUTS
