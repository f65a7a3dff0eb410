"""A timeline's rows: what adds up to what."""

import json
import math
from pathlib import Path

import pytest

from export.making import commit, recorded
from export.panel.making import APPO, LLM, PPO, SAC, SECOND, Panel
from rltel.export.panel.families import timelines
from rltel.export.panel.sample import Sample, sample_of
from rltel.export.panel.timing import TimeRow, Timing, timing_of
from rltel.names.phases import PhaseLabel
from rltel.record.kinds import TIMING
from rltel.reduce.trackers import Trackers

VECTORS = {
    each["id"][:3]: each
    for each in json.loads((Path(__file__).parents[2] / "vectors" / "unilab_vectors.json").read_text())["vectors"]
}
KEYS = {
    "collector_wait_time": "Perf/learner_collector_wait_ms",
    "inference_time": "Perf/learner_inference_ms",
    "sync_coordination_time": "Perf/learner_collector_release_ms",
    "replay_batch_wait_time": "Perf/learner_replay_batch_wait_ms",
    "learner_replay_stage_time": "Perf/learner_replay_stage_ms",
    "learner_replay_sample_time": "Perf/learner_replay_sample_ms",
    "weight_sync_time": "Perf/learner_weight_publish_ms",
    "train_time": "Perf/learning_time",
    "iteration_time": "Perf/iteration_time",
    "inference_h2d": "Perf/learner_inference_h2d_ms",
    "inference_forward": "Perf/learner_inference_forward_ms",
    "inference_d2h": "Perf/learner_inference_d2h_ms",
    "replay_ingress_h2d_submit": "Perf/replay_ingress_h2d_submit_ms",
    "rollout_ms": "Perf/collection_time",
}
"""What UniLab's logger calls its inputs."""


def persisted(seconds: dict[str, float | None]) -> dict[str, float]:
    """UniLab's inputs under the keys and in the units in which they are committed."""
    keyed = {KEYS[name]: value for name, value in seconds.items() if value is not None}
    return {key: value * 1e3 if key.endswith("_ms") else value for key, value in keyed.items()}


def collector(millis: dict[str, float]) -> dict[str, float]:
    return {f"Perf/collector_{name}": value for name, value in millis.items()}


def timings(panel: Panel, algo: str | None = None) -> dict[str, Timing]:
    view = panel.view
    found = {each.role: timing_of(each, view) for each in timelines(view.latest.keys(), view.labels, algo)}
    return {role: timing for role, timing in found.items() if timing is not None}


def of(*commits: dict[str, float], algo: str | None = None) -> dict[str, Timing]:
    panel = Panel()
    for values in commits:
        panel.add(values, after_s=0.1)
    return timings(panel, algo)


def by_text(timing: Timing) -> dict[str, TimeRow]:
    return {row.text: row for row in timing.rows}


class TestLearner:
    def test_vector_01_other_and_percentages(self) -> None:
        given, expect = VECTORS["V01"]["input"], VECTORS["V01"]["expect"]
        times = given["seconds"] | given["nested_seconds"] | given["background_seconds"]
        timing = of(persisted(times | {"iteration_time": given["iteration_time"]}), algo="sac")["learner"]
        rows = by_text(timing)
        assert rows["Other"].ms == pytest.approx(expect["other_s"] * 1e3, abs=1e-6)
        assert {text: row.share for text, row in rows.items()} == {
            text: pytest.approx(value / 100, abs=1e-9) for text, value in expect["percent"].items()
        }
        assert timing.accounted is None

    def test_vector_01_rows_add_up_to_the_wall(self) -> None:
        timing = of(SAC)["learner"]
        assert timing.loop is not None
        assert sum(row.ms for row in timing.rows) == pytest.approx(timing.loop.ms)
        assert sum(row.share or 0 for row in timing.rows) == pytest.approx(1.0)

    def test_vector_02_what_takes_more_than_the_wall_is_a_violation(self) -> None:
        given, expect = VECTORS["V02"]["input"], VECTORS["V02"]["expect"]
        timing = of(persisted(given["seconds"] | {"iteration_time": given["iteration_time"]}), algo="sac")["learner"]
        assert by_text(timing)["Other"].ms == expect["other_s"]
        assert timing.accounted == pytest.approx(expect["accounted_percent"] / 100)
        assert expect["contract_violation"]

    def test_a_rounding_error_is_none(self) -> None:
        """V03's phases are 0.018 s in all, and 0.018000000000000002 as floats are added."""
        given = VECTORS["V03"]["input"]
        timing = of(persisted(given["seconds"] | {"iteration_time": given["iteration_time"]}), algo="appo")["learner"]
        assert by_text(timing)["Other"].ms == pytest.approx(VECTORS["V03"]["expect"]["other_s"], abs=1e-9)
        assert timing.accounted is None

    def test_vector_04_without_a_wall_the_phases_are_all_there_is(self) -> None:
        given, expect = VECTORS["V04"]["input"], VECTORS["V04"]["expect"]
        timing = of(persisted(given["seconds"]), algo="sac")["learner"]
        assert timing.loop is not None
        assert timing.loop.ms == pytest.approx(expect["terminal_iter_wall_s"] * 1e3)
        assert timing.loop.share == 1.0
        assert "Other" not in by_text(timing)

    def test_vector_08_other_over_the_window(self) -> None:
        """0.035 s of learning in 0.045 s of wall time, averaged over four iterations."""
        times = ("train_time", "iteration_time")
        inputs = [{name: each[name] for name in times} for each in VECTORS["V08"]["input"]["samples"][1:]]
        timing = of(*map(persisted, inputs), algo="sac")["learner"]
        assert by_text(timing)["Other"].ms == pytest.approx(VECTORS["V08"]["expect"]["Other_s"] * 1e3)

    def test_only_the_familys_phases(self) -> None:
        """Replay Stage and Weight Publish exist for APPO alone; SAC's inference for SAC alone."""
        sac, appo = by_text(of(SAC)["learner"]), by_text(of(APPO)["learner"])
        assert {"Replay Stage", "Weight Publish"} <= appo.keys()
        assert not {"Replay Stage", "Weight Publish"} & sac.keys()
        assert not {"Inference", "Collector Release", "Replay Batch Wait"} & appo.keys()

    def test_what_is_nested_or_in_the_background_has_no_row_for_robots(self) -> None:
        assert list(by_text(of(SAC)["learner"])) == [
            "Collector Wait", "Inference", "Collector Release", "Replay Batch Wait", "Replay Sample", "Learning",
            "Other",
        ]  # fmt: skip

    def test_a_collector_wait_of_more_than_a_millisecond_is_red(self) -> None:
        assert by_text(of(SAC)["learner"])["Collector Wait"].is_red
        assert not by_text(of(APPO)["learner"])["Collector Wait"].is_red  # it is 1.0 ms

    def test_an_iteration_that_did_not_enter_a_phase_spent_no_time_in_it(self) -> None:
        """A checkpoint of 5 s once in 100 iterations: 5 s is no part of the mean iteration."""
        usual = {"timeperf/iteration": 0.02, "timeperf/train": 0.015}
        rare = {"timeperf/iteration": 5.02, "timeperf/train": 0.015, "timeperf/checkpoint": 5.0}
        panel = Panel(window_s=1000.0)
        for i in range(100):
            panel.add(rare if i == 50 else usual, after_s=0.1)
        timing = timings(panel)["learner"]
        assert timing.accounted is None
        assert by_text(timing)["Checkpoint"].share == pytest.approx(5.0 / (99 * 0.02 + 5.02))
        assert sum(row.ms for row in timing.rows) == pytest.approx(timing.loop.ms if timing.loop else 0)

    def test_a_commit_of_many_iterations_counts_for_all_of_them(self) -> None:
        """Ten iterations with a learning time in only three of them, as at a run's start."""
        panel = Panel()
        fractions = {"Perf/iteration_time": (1.0, 10.0), "Perf/learning_time": (0.3, 3.0)}
        values = {key: seconds / count for key, (seconds, count) in fractions.items()}
        panel.put(Sample("train", 1, None, 1, values, fractions, {}))
        timing = timings(panel, "sac")["learner"]
        assert by_text(timing)["Learning"].share == pytest.approx(0.3)
        assert timing.accounted is None

    def test_a_phase_that_is_not_in_the_window_is_not_in_the_sum(self) -> None:
        panel = Panel()
        panel.add({"timeperf/iteration": 1.0, "timeperf/train": 0.1, "timeperf/evaluate": 0.9})
        panel.add({"timeperf/iteration": 0.1, "timeperf/train": 0.1}, after_s=10.0)
        assert list(by_text(timings(panel)["learner"])) == ["Train", "Other"]

    def test_a_time_that_is_not_a_number_stays_visible(self) -> None:
        rows = by_text(of({**SAC, "Perf/learning_time": math.nan})["learner"])
        assert math.isnan(rows["Learning"].ms)
        assert math.isnan(rows["Other"].ms)

    def test_ppo_collects_and_learns_in_turn(self) -> None:
        found = of(PPO)
        assert list(found) == ["learner"]
        assert {text: row.share for text, row in by_text(found["learner"]).items()} == {
            "Collection": pytest.approx(0.75),
            "Learning": pytest.approx(0.25),
        }


class TestCollector:
    def test_vector_09_rows_and_shares_of_the_cycle(self) -> None:
        given, expect = VECTORS["V09"]["input"]["collector_ms"], VECTORS["V09"]["expect"]
        timing = of(collector(given))["collector"]
        assert timing.loop is not None
        assert timing.loop.ms == pytest.approx(expect["cycle_ms"])
        shown = [round(row.ms, 6) for row in timing.rows]
        assert shown == [given[name] for name in expect["shown_in_order"]]
        assert [row.share for row in timing.rows] == [
            pytest.approx(expect["percent"][name] / 100, abs=1e-8) for name in expect["shown_in_order"]
        ]

    def test_vector_09_with_a_phase_missing_there_is_no_cycle_and_every_row_shows(self) -> None:
        given, expect = VECTORS["V09"]["input"]["collector_ms"], VECTORS["V09"]["expect"]
        assert expect["cycle_without_transition_extract"] is None
        without = {name: value for name, value in given.items() if name != "transition_extract_ms"}
        timing = of(collector(without))["collector"]
        assert timing.loop is None
        assert len(timing.rows) == len(without)
        assert all(row.share is None for row in timing.rows)

    def test_core_rows_are_shown_however_little_they_take(self) -> None:
        given = {**VECTORS["V09"]["input"]["collector_ms"], "replay_write_ms": 0.0001}
        assert "Replay Write" in by_text(of(collector(given))["collector"])

    def test_reports_that_come_seldom_stay(self) -> None:
        panel = Panel()
        panel.add(collector(VECTORS["V09"]["input"]["collector_ms"]))
        for _ in range(10):
            panel.add({"Perf/iteration_time": 1.0}, after_s=1.0)
        timing = timings(panel)["collector"]
        assert timing.loop is not None
        assert timing.loop.ms == pytest.approx(31.65)

    def test_a_phase_of_every_tenth_cycle_counts_for_a_tenth(self) -> None:
        """Metrics are published every ten ticks: 0.4 ms each time is 0.04 ms a cycle."""
        panel = Panel()
        names = ("inference_request", "learner_action_wait", "env_step", "transition_extract", "replay_write")
        fractions = {f"Perf/collector_{name}_ms": (0.01, 10.0) for name in names}
        fractions["Perf/collector_metrics_publish_ms"] = (0.0004, 1.0)
        values = {key: seconds / count * 1e3 for key, (seconds, count) in fractions.items()}
        panel.put(Sample("train", 1, None, 1, values, fractions, {}))
        timing = timings(panel)["collector"]
        assert timing.loop is not None
        assert timing.loop.ms == pytest.approx(5.04)

    def test_vector_03_appo_shows_milliseconds_only(self) -> None:
        given, expect = VECTORS["V03"]["input"], VECTORS["V03"]["expect"]
        assert expect["collector_cycle_ms"] is None
        millis = given["collector_ms"]
        values = {
            "Perf/collector_mlp_infer_ms": millis["mlp_infer_ms"],
            "Perf/collector_env_step_ms": millis["env_step_ms"],
            "Perf/collection_time": millis["rollout_ms"] / 1e3,
            "Perf/learner_replay_stage_ms": 2.0,
        }
        timing = of(values)["collector"]
        assert [(row.text, row.ms, row.share) for row in timing.rows] == [
            ("MLP Infer", pytest.approx(0.3), None),
            ("Env Step", pytest.approx(0.4), None),
        ]
        assert timing.loop is not None
        assert (timing.loop.text, timing.loop.ms, timing.loop.share) == ("Rollout Wall", pytest.approx(18.0), None)


class TestLlm:
    def test_nested_rows_stand_below_their_phase_and_small_ones_are_hidden(self) -> None:
        rows = [(row.text, row.indent) for row in of(LLM)["learner"].rows]
        assert rows == [
            ("Sample", False), ("Generate", True), ("Reward", False), ("Verify", True), ("Train", False),
            ("Forward", True), ("Backward", True), ("Optimizer", True), ("Sync", False), ("Other", False),
            ("Checkpoint Write", True),
        ]  # fmt: skip

    def test_background_is_never_a_share(self) -> None:
        row = by_text(of(LLM)["learner"])["Checkpoint Write"]
        assert (row.ms, row.share) == (pytest.approx(6000.0), None)

    def test_nested_rows_are_not_added(self) -> None:
        timing = of(LLM)["learner"]
        assert by_text(timing)["Other"].ms == pytest.approx(500.0)
        assert timing.accounted is None

    def test_the_rollout_has_its_own_wall(self) -> None:
        timing = of(LLM)["rollout"]
        assert timing.loop is not None
        assert (timing.loop.text, timing.loop.ms) == ("Session Wall", pytest.approx(20_000.0))
        assert by_text(timing)["Other"].ms == pytest.approx(3_500.0)


class TestOwnPhases:
    def own(self, *labels: tuple[str, str, str, float], loop_s: float | None) -> Timing:
        panel = Panel()
        fractions = {f"timeperf/{name}": (seconds, 1.0) for _, name, _, seconds in labels}
        found = {f"timeperf/{name}": PhaseLabel(role, name, kind) for role, name, kind, _ in labels}
        if loop_s is not None:
            fractions["timeperf/round"], found["timeperf/round"] = (loop_s, 1.0), PhaseLabel("trainer", "round", "loop")
        values = {key: seconds for key, (seconds, _) in fractions.items()}
        panel.put(Sample("train", 1, None, 1, values, fractions, found))
        return timings(panel)["trainer"]

    def test_by_the_labels_that_a_clock_gave_them(self) -> None:
        timing = self.own(("trainer", "fit", "exclusive", 0.6), ("trainer", "fit_a", "nested", 0.3), loop_s=1.0)
        assert [(row.text, row.share) for row in timing.rows] == [
            ("Fit", pytest.approx(0.6)),
            ("Fit A", pytest.approx(0.3)),
            ("Other", pytest.approx(0.4)),
        ]

    def test_without_a_loop_of_its_own_the_sum_is_the_whole(self) -> None:
        timing = self.own(("trainer", "fit", "exclusive", 0.6), ("trainer", "test", "exclusive", 0.2), loop_s=None)
        assert [row.share for row in timing.rows] == [pytest.approx(0.75), pytest.approx(0.25)]


def test_no_times_no_timelines() -> None:
    assert of({"Loss/actor": 1.0}) == {}


def test_nothing_measured_is_nothing_shown() -> None:
    """A key that was reported once, long ago, in a wall's timeline."""
    panel = Panel()
    panel.add({"timeperf/evaluate": 1.0})
    panel.add({"x": 1.0}, after_s=10.0)
    assert timings(panel) == {}


SESSIONS = {
    "rollout/timeperf/session/total": 20.0,
    "rollout/timeperf/session/queue": 1.0,
    "rollout/timeperf/session/generate": 18.0,
    "rollout/timeperf/session/tool_call": 4.0,
    "rollout/timeperf/session/idle": 0.1,
}


class TestSessions:
    def test_phases_that_overlap_are_nothing_wrong(self) -> None:
        """A tool is called while others still generate: 23 s of phases in 20 s."""
        timing = of(SESSIONS)["sessions"]
        assert [(row.text, row.ms, row.share) for row in timing.rows] == [
            ("Queue", pytest.approx(1e3), pytest.approx(0.05)),
            ("Generate", pytest.approx(18e3), pytest.approx(0.9)),
            ("Tool Call", pytest.approx(4e3), pytest.approx(0.2)),
        ]
        assert timing.loop == TimeRow("Session Wall", pytest.approx(20e3), 1.0)
        assert timing.accounted is None

    def test_what_no_phase_has_shows_from_a_percent(self) -> None:
        assert "Idle" in by_text(of({**SESSIONS, "rollout/timeperf/session/idle": 0.3})["sessions"])

    def test_a_phase_that_few_sessions_have_is_of_the_average_session(self) -> None:
        """One of four calls a tool, for 8 s: the average session spends 2 s there."""

        def record(trackers: Trackers) -> None:
            tracker = trackers.get("rollout")
            for i in range(4):
                tracker.timing_appender("timeperf/session/total", TIMING)(20 * SECOND)
                if i == 0:
                    tracker.timing_appender("timeperf/session/tool_call", TIMING)(8 * SECOND)

        panel = Panel()
        panel.put(sample_of(commit(recorded(record))))
        timing = timings(panel)["sessions"]
        assert by_text(timing)["Tool Call"].ms == pytest.approx(2e3)
        assert timing.loop is not None
        assert timing.loop.ms == pytest.approx(20e3)

    def test_every_tracker_has_its_own(self) -> None:
        of_tests = {f"eval-{key}": value for key, value in SESSIONS.items()}
        assert set(of({**SESSIONS, **of_tests})) == {"sessions", "eval sessions"}

    def test_without_totals_there_is_none(self) -> None:
        assert of({"rollout/timeperf/session/generate": 1.0, "reward": 1.0}) == {}

    def test_a_commit_without_sessions_does_not_take_them_off_the_screen(self) -> None:
        panel = Panel()
        panel.add({**SESSIONS, "timeperf/iteration": 40.0})
        panel.wait(60)
        panel.add({"timeperf/iteration": 40.0})
        assert by_text(timings(panel)["sessions"])["Generate"].ms == pytest.approx(18e3)


class TestPlainTimes:
    """AReaL's trainers time their steps by name, and no loop around them."""

    def of(self, values: dict[str, float]) -> dict[str, list[tuple[str, float, float | None]]]:
        panel = Panel()
        panel.add(values)
        return {
            timing.timeline.role: [(row.text, row.ms, row.share) for row in timing.rows]
            for timing in panel.model.timings
        }

    def test_milliseconds_and_no_shares(self) -> None:
        assert self.of({"timeperf/rollout": 31.0, "timeperf/train_step": 25.0}) == {
            "timings": [("Rollout", 31e3, None), ("Train Step", 25e3, None)]
        }

    def test_of_a_named_tracker_under_its_name(self) -> None:
        assert self.of({"rollout/timeperf/verify/parse": 0.5}) == {"rollout timings": [("Verify / Parse", 500.0, None)]}

    def test_what_a_clock_or_a_session_has_is_not_said_again(self) -> None:
        values = {**SESSIONS, "rollout/timeperf/generate": 9.0, "timeperf/iteration": 2.0, "timeperf/train": 1.0}
        assert set(self.of(values)) == {"learner", "sessions"}

    def test_a_robot_s_run_has_none(self) -> None:
        assert set(self.of({**SAC, "timeperf/tokenize": 1.0})) == {"learner", "collector"}
