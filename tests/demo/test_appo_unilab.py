"""The APPO dual timeline: unilab-rl's own runner, its learner and its spawned collector, timed by our clocks."""

import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rltel
from realparts.requirements import REPOSITORY
from realparts.trace_processor import query
from realparts.unilab import need_unilab
from rltel.record.kinds import Moments
from rltel.record.phase_sets import APPO_COLLECTOR, APPO_LEARNER, PhaseSet

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

EXAMPLE = REPOSITORY / "examples" / "appo_unilab.py"
ITERATIONS = 40
STEPS_PER_ENV = 24

_TABLES = """
    create perfetto table phase_slice as
    select s.id, s.ts, s.ts + s.dur ended, s.dur, s.name, s.arg_set_id, around.id loop_id,
        extract_arg(around.arg_set_id, 'debug.rl_loop_iteration') number
    from slice s join slice around on s.parent_id = around.id where around.category = 'rl.loop';
    create perfetto index phase_slice_id on phase_slice(id);
    create perfetto table loop as
    select id, ts, ts + dur ended, dur, name, extract_arg(arg_set_id, 'debug.rl_loop_iteration') number,
        extract_arg(arg_set_id, 'debug.rl_policy_version') policy_version
    from slice where category = 'rl.loop';
"""
# From a rollout to the iteration that staged it.
_STAGED = """
    select o.loop_id rollout, i.loop_id iteration, o.ts published, i.ts staged, i.number step
    from flow f join phase_slice o on f.slice_out = o.id join phase_slice i on f.slice_in = i.id
    where o.name = 'ring_publish' and i.name = 'replay_stage'
"""
_QUERIES = {
    "phases": """
        select loop.name loop, s.name phase, count(*) n, sum(s.dur) ns
        from phase_slice s join loop on s.loop_id = loop.id group by 1, 2
        union all select name, name, count(*), sum(dur) from loop group by 1, 2
    """,
    "sums": """
        select i.number, i.dur wall, sum(s.dur) phases from loop i join phase_slice s on s.loop_id = i.id
        where i.name = 'iteration' group by 1
    """,
    "order": """
        select number, name from phase_slice where name in
            ('collector_wait', 'replay_stage', 'replay_sample', 'learning', 'weight_publish')
        group by number, name order by number, min(ts), name
    """,
    "last_before_next": """
        select count(*) n, sum(learned <= published) in_order from (
            select max(iif(name = 'learning', ended, null)) learned,
                min(iif(name = 'weight_publish', ts, null)) published
            from phase_slice group by loop_id) where published is not null
    """,
    "staged": f"select count(*) n, sum(staged > published) forwards from ({_STAGED})",
    # The learning on rollout N, and another rollout that was begun after N was published.
    "next_rollout": f"""
        with training as (
            select s.step, max(s.published) published, min(l.ts) begun, max(l.ended) ended
            from ({_STAGED}) s join phase_slice l on l.loop_id = s.iteration and l.name = 'learning' group by 1
        )
        select t.step, sum(max(0, min(r.ended, t.ended) - max(r.ts, t.begun))) ns
        from training t join loop r on r.name = 'rollout' and r.ts > t.published group by 1
    """,
    "waits": f"""
        with first as (select iteration, min(published) published from ({_STAGED}) group by 1),
        wait as (
            select loop_id, min(ts) ts, max(ended) ended, sum(dur) dur,
                min(extract_arg(arg_set_id, 'debug.ring_slots')) slots
            from phase_slice where name = 'collector_wait' group by 1
        )
        select slots > 0 slot_was_there, count(*) n, percentile(dur, 50) wait,
            sum(published < ts) published_before, sum(published < ended) published_in_time
        from wait join first on wait.loop_id = first.iteration group by 1
    """,
    "weights": """
        select count(*) n, min(i.ts - o.ts) least from flow f join phase_slice o on f.slice_out = o.id
        join phase_slice i on f.slice_in = i.id where o.name = 'weight_publish' and i.name = 'weight_pull'
    """,
    "versions": "select policy_version from loop where name = 'rollout' order by ts",
    "processes": "select name from process where name is not null order by 1",
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


@dataclass
class Training:
    """What one run of the example left."""

    run_dir: Path
    rows: dict[str, list[dict[str, Any]]]

    def drawn(self, loop: str) -> dict[str, dict[str, Any]]:
        """Count and nanoseconds of each phase of a loop, and of the loop itself."""
        return {row["phase"]: row for row in self.rows["phases"] if row["loop"] == loop}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    tmp_path = tmp_path_factory.mktemp("appo")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    process = subprocess.run(
        [sys.executable, EXAMPLE, "--iterations", str(ITERATIONS), "--log-root", tmp_path / "logs"],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(need_unilab())},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    (run_dir,) = (tmp_path / "logs").glob("appo/PointMasses/*")
    first, *others = _QUERIES.values()
    rows = query(run_dir / "timeline.pftrace", _TABLES + first, *others)
    return Training(run_dir, dict(zip(_QUERIES, rows, strict=True)))


def lines_of(training: Training) -> list[rltel.export.jsonl.Line]:
    return [line for line in rltel.read_jsonl(training.run_dir) if line.axis == "train"]


def recorded(training: Training, phases: PhaseSet) -> dict[str, Moments]:
    """What the JSONL holds of each phase, over the whole run."""
    keys = {phase.key: phase.name for phase in phases.phases} | {str(phases.loop_key): phases.loop}
    times: dict[str, Moments] = defaultdict(Moments)
    for line in lines_of(training):
        for key in keys.keys() & line.snapshot.keys():
            seen, moments = times[keys[key]], Moments(*line.snapshot[key].state.moments)
            times[keys[key]] = Moments(seen.total + moments.total, seen.n + moments.n)
    return times


def test_it_is_unilabs_own_training_and_it_learns(training: Training) -> None:
    returns = [line.values["Train/mean_reward"] for line in lines_of(training) if "Train/mean_reward" in line.values]
    assert returns[-1] > returns[0] / 2  # both negative: less than half as far from the goal
    assert (training.run_dir / "unilab" / f"model_{ITERATIONS}.pt").is_file()
    assert {"Loss/surrogate", "Loss/value", "Train/approx_kl", "Perf/total_fps"} <= lines_of(training)[5].values.keys()


def test_the_trace_processor_finds_no_fault_and_two_named_processes(training: Training) -> None:
    assert training.rows["errors"] == []
    assert [row["name"] for row in training.rows["processes"]] == ["collector 0", "learner 0"]


def test_every_iteration_has_its_phases_in_the_order_of_the_seed(training: Training) -> None:
    order: dict[int, list[str]] = defaultdict(list)
    for row in training.rows["order"]:
        order[row["number"]].append(row["name"])
    expected = ["collector_wait", "replay_stage", "replay_sample", "learning", "weight_publish"]
    assert order == dict.fromkeys(range(1, ITERATIONS + 1), expected)


def test_exclusive_phases_add_up_to_at_most_the_iteration(training: Training) -> None:
    assert len(training.rows["sums"]) == ITERATIONS
    assert all(0 < row["phases"] <= row["wall"] for row in training.rows["sums"])


def test_weights_are_published_after_learning(training: Training) -> None:
    assert training.rows["last_before_next"] == [{"n": ITERATIONS, "in_order": ITERATIONS}]


def test_the_next_rollout_overlaps_learning_on_the_last(training: Training) -> None:
    overlaps = [row["ns"] for row in training.rows["next_rollout"]]
    assert sum(overlaps) > 0
    assert sum(overlap > 0 for overlap in overlaps) > ITERATIONS / 2


def test_collector_wait_is_near_zero_when_a_slot_was_there(training: Training) -> None:
    """Beside the slots that UniLab's ring had: whether the rollout that was read was published before the wait."""
    waits = {bool(row["slot_was_there"]): row for row in training.rows["waits"]}
    there, not_there = waits[True], waits[False]
    assert there["n"] + not_there["n"] == ITERATIONS
    assert there["published_before"] == there["n"] > 0
    assert not_there["published_in_time"] == not_there["n"] > 0
    assert there["wait"] < not_there["wait"]


def test_arrows_join_rollouts_to_the_iteration_that_stages_them(training: Training) -> None:
    staged = training.drawn("iteration")["replay_stage"]["n"]
    assert training.rows["staged"] == [{"n": staged, "forwards": staged}]
    assert sum(line.values.get("rollouts/read", 0) for line in lines_of(training)) == staged >= ITERATIONS
    published = training.drawn("rollout")["ring_publish"]["n"]
    lost = sum(line.values.get("rollouts/overwritten", 0) for line in lines_of(training))
    assert staged + lost <= published


def test_arrows_join_published_weights_to_the_collector_that_pulls_them(training: Training) -> None:
    (row,) = training.rows["weights"]
    assert row["n"] > ITERATIONS / 2
    assert row["least"] > 0


def test_a_rollout_carries_the_policy_version_that_produced_it(training: Training) -> None:
    versions = [row["policy_version"] for row in training.rows["versions"]]
    assert versions == sorted(versions)
    assert versions[0] == 1
    assert 1 < len(set(versions)) <= ITERATIONS + 1


@pytest.mark.parametrize(("phases", "loop"), [(APPO_LEARNER, "iteration"), (APPO_COLLECTOR, "rollout")])
def test_the_record_has_the_same_times_as_the_picture(training: Training, phases: PhaseSet, loop: str) -> None:
    drawn, times = training.drawn(loop), recorded(training, phases)
    assert times.keys() == drawn.keys() - {"ring_publish", "weight_pull"}
    for name, moments in times.items():
        assert moments.total == pytest.approx(drawn[name]["ns"] / 1e9, rel=1e-9), name


def test_every_step_of_a_rollout_is_one_observation(training: Training) -> None:
    times = recorded(training, APPO_COLLECTOR)
    assert times["mlp_infer"].n == times["env_step"].n == STEPS_PER_ENV * times["rollout"].n


def test_the_clocks_lie_inside_unilabs_own_timers(training: Training) -> None:
    """UniLab reads the same clock around the same calls: a phase of ours is the shorter, by little."""
    tags = [phase.key for phase in APPO_LEARNER.phases]
    ours = dict.fromkeys(tags, 0.0)
    theirs = dict.fromkeys(tags, 0.0)
    for line in lines_of(training):
        for tag in tags:
            if f"unilab/{tag}" in line.values:
                assert line.values[tag] <= line.values[f"unilab/{tag}"] + 1e-6, (line.step, tag)
                ours[tag] += line.values[tag]
                theirs[tag] += line.values[f"unilab/{tag}"]
    assert all(total > 0 for total in ours.values())
    assert ours["Perf/learning_time"] > 0.9 * theirs["Perf/learning_time"]


def test_wrapped_methods_are_as_before_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    from appo_hooks import wrapped

    class Ring:
        def read(self) -> str:
            return "read"

        @property
        def version(self) -> str:
            return "version"

        @staticmethod
        def drain() -> str:
            return "drain"

    def use() -> None:
        with wrapped({(Ring, name): louder for name in ("read", "version", "drain")}):
            ring = Ring()
            assert (ring.read(), ring.version, ring.drain()) == ("READ", "VERSION", "DRAIN")
            raise KeyError

    def louder(original: Any) -> Any:
        return lambda *args: original(*args).upper()

    before = dict(vars(Ring))
    with pytest.raises(KeyError):
        use()
    assert dict(vars(Ring)) == before
