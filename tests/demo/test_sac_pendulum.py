"""The demo, run as a user runs it, and everything it writes read back by the official readers."""

import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rltel
from export.making import wait_until
from realparts.otlp_receiver import rotel
from realparts.perfetto_reader import read_packets
from realparts.prometheus import promtool_check_metrics
from realparts.sac_demo import DEMO, Demo, found, run, run_dir_of, start
from realparts.trace_processor import query
from rltel.core.config import TelemetryConfig
from rltel.record.kinds import Moments
from rltel.record.phase_sets import SAC_COLLECTOR, SAC_LEARNER, PhaseSet
from rltel.traces.merge import merge

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

# --- the training ---------------------------------------------------------------------------------------------------


def test_the_agent_learns(demo: Demo) -> None:
    assert float(found("first 20 episodes", demo.out)) < -900
    assert float(found("last 20 episodes", demo.out)) > -400
    assert float(found("evaluation return", demo.out)) > -400


def test_telemetry_changes_nothing_of_the_training(tmp_path: Path) -> None:
    outs = [
        run(tmp_path / mode, "--ticks", "1500", "--telemetry", mode, PROMETHEUS_PORT=0)[0]
        for mode in ("on", "off")
        if not (tmp_path / mode).mkdir()
    ]
    for label in ("parameter hash", "evaluation return", "last 20 episodes"):
        assert found(label, outs[0]) == found(label, outs[1])
    assert not (tmp_path / "off" / "logs").exists()


def test_the_start_says_where_each_thing_goes(demo: Demo) -> None:
    first = demo.err.splitlines()[0]
    for place in ("jsonl", "trace", "prometheus http://127.0.0.1:", "tensorboard", "otlp", "terminal"):
        assert place in first


def test_output_is_plain_lines_without_a_terminal(demo: Demo) -> None:
    assert "\x1b" not in demo.out + demo.err
    assert re.search(r"^step \d+ \| env steps \d+ .*reward -", demo.out, re.MULTILINE)


# --- the record -----------------------------------------------------------------------------------------------------


def test_every_commit_is_a_line(demo: Demo) -> None:
    assert [line.step for line in demo.lines] == [*range(9, 8000, 10), 8000]


def test_the_collectors_numbers_reach_the_learners_commits(demo: Demo) -> None:
    with_reward = [line for line in demo.lines if "Train/mean_reward" in line.values]
    assert len(with_reward) > 700
    assert all("Perf/collector_env_step_ms" in line.values for line in with_reward)
    episodes = sum(line.values.get("episodes", 0) for line in demo.lines)
    assert 100 < episodes < 8000 * 4 / 200


def test_masked_target_values_lie_between_their_extremes(demo: Demo) -> None:
    values = [line.values for line in demo.lines if "replay/target_q/avg" in line.values]
    assert len(values) > 700
    for each in values:
        assert each["Train/target_q_min"] <= each["replay/target_q/avg"] <= each["Train/target_q_max"]
        assert each["replay/target_q/max"] == each["Train/target_q_max"]
        assert each["replay/valid_samples"] <= 128 * 10


# --- the timeline ---------------------------------------------------------------------------------------------------

_PHASES = """
    select p.name process, s.name phase, count(*) n, sum(s.dur) ns
    from slice s join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid)
    where s.category in ('exclusive', 'nested', 'background', 'rl.loop') group by 1, 2
"""
_ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
_SPANS = """
    select s.ts, s.dur, s.name from slice s join thread_track t on s.track_id = t.id join thread using (utid)
    join process p using (upid) where p.name = '{process}' and s.name = '{name}' order by s.ts
"""
_PARENTS = """
    select s.name, root.name root, count(*) n from slice s join slice root on root.id = (
        select a.id from ancestor_slice(s.id) a where a.depth = 0)
    where s.category in ('exclusive', 'nested', 'background') group by 1, 2
"""
_FLOWS = """
    select o.name source, i.name target, count(*) n, min(i.ts - o.ts) least
    from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id group by 1, 2
"""
_BY_ITERATION = """
    select extract_arg(i.arg_set_id, 'debug.rl_loop_iteration') step, s.name phase, sum(s.dur) ns
    from slice i join slice s on s.parent_id = i.id or s.parent_id in (select id from slice c where c.parent_id = i.id)
    where i.name = 'iteration' group by 1, 2
"""


@pytest.fixture(scope="module")
def timeline(demo: Demo) -> dict[str, list[dict[str, Any]]]:
    names = ["phases", "errors", "parents", "flows", "env_step", "learning", "by_iteration", "processes"]
    rows = query(
        demo.run_dir / "timeline.pftrace",
        _PHASES,
        _ERRORS,
        _PARENTS,
        _FLOWS,
        _SPANS.format(process="collector 0", name="env_step"),
        _SPANS.format(process="learner 0", name="learning"),
        _BY_ITERATION,
        "select name from process where name is not null order by 1",
    )
    return dict(zip(names, rows, strict=True))


def test_the_trace_processor_finds_no_fault(timeline: dict[str, Any]) -> None:
    assert timeline["errors"] == []


def test_there_are_two_named_processes(timeline: dict[str, Any]) -> None:
    assert [row["name"] for row in timeline["processes"]] == ["collector 0", "learner 0"]


def test_slices_nest_under_iterations_and_cycles(timeline: dict[str, Any]) -> None:
    roots = {row["name"]: row["root"] for row in timeline["parents"]}
    for phases, root in ((SAC_LEARNER, "iteration"), (SAC_COLLECTOR, "cycle")):
        seen = {phase.name for phase in phases.phases} & roots.keys()
        assert len(seen) >= 6
        assert {roots[name] for name in seen} == {root}
    assert len(timeline["parents"]) == len(roots)  # no phase has slices under both


def phase_times(demo: Demo, phases: PhaseSet) -> dict[str, Moments]:
    """What the JSONL holds of each phase, over the whole run."""
    times: dict[str, Moments] = defaultdict(Moments)
    keys = {phase.key: phase.name for phase in phases.phases}
    keys |= {phases.loop_key: phases.loop} if phases.loop_key else {}
    for line in demo.lines:
        for key in keys.keys() & line.snapshot.keys():
            seen, moments = times[keys[key]], Moments(*line.snapshot[key].state.moments)
            times[keys[key]] = Moments(seen.total + moments.total, seen.n + moments.n)
    return times


@pytest.mark.parametrize(("phases", "process"), [(SAC_LEARNER, "learner 0"), (SAC_COLLECTOR, "collector 0")])
def test_phase_durations_in_the_record_equal_their_slices(
    demo: Demo, timeline: dict[str, Any], phases: PhaseSet, process: str
) -> None:
    drawn = {row["phase"]: row for row in timeline["phases"] if row["process"] == process}
    recorded = phase_times(demo, phases)
    assert len(recorded) >= 6
    for name, moments in recorded.items():
        assert moments.total == pytest.approx(drawn[name]["ns"] / 1e9, rel=1e-9), name
    loops = drawn[phases.loop]["n"]
    assert loops == 8001  # 8000 ticks, and the one in which the learner says stop


def test_phase_durations_of_every_commit_equal_their_slices(demo: Demo, timeline: dict[str, Any]) -> None:
    by_step: dict[str, dict[int, int]] = defaultdict(dict)
    for row in timeline["by_iteration"]:
        by_step[row["phase"]][row["step"]] = row["ns"]
    compared = 0
    for before, line in zip([-1, *(line.step for line in demo.lines)], demo.lines, strict=False):
        for phase in SAC_LEARNER.phases:
            if phase.key in line.snapshot:
                drawn = sum(by_step[phase.name].get(step, 0) for step in range(before + 1, line.step + 1))
                assert Moments(*line.snapshot[phase.key].state.moments).total == pytest.approx(drawn / 1e9, rel=1e-9)
                compared += 1
    assert compared > 7000


def test_other_is_under_five_percent(demo: Demo) -> None:
    times = phase_times(demo, SAC_LEARNER)
    accounted = sum(times[phase.name].total for phase in SAC_LEARNER.phases if phase.kind == "exclusive")
    wall = times["iteration"].total
    assert 0 <= wall - accounted < 0.05 * wall


def overlap(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> int:
    """How long two sequences of intervals, each in order and without overlaps, ran at once."""
    total = i = j = 0
    while i < len(left) and j < len(right):
        total += max(0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def test_drawn_overlap_is_confirmed_by_the_examples_own_stamps(demo: Demo, timeline: dict[str, Any]) -> None:
    """The example's stamps are taken just inside the phases, without rltel: each lies in its slice."""
    drawn, stamped = [], []
    for name, role in (("env_step", "collector"), ("learning", "learner")):
        to_realtime = offset_of(demo.run_dir / "trace" / f"{role}-0.1.pftrace")
        slices = [(row["ts"], row["ts"] + row["dur"]) for row in timeline[name]]
        stamps = [
            (stamp["begin_ns"] + to_realtime, stamp["end_ns"] + to_realtime)
            for stamp in demo.stamps
            if stamp["what"] == name
        ]
        assert len(stamps) == len(slices) > 7000
        tolerance = 50_000  # the anchors' own width, when the machine is busy
        assert all(
            outer[0] - tolerance <= inner[0] and inner[1] <= outer[1] + tolerance
            for outer, inner in zip(slices, stamps, strict=True)
        )
        drawn.append(slices)
        stamped.append(stamps)
    assert overlap(*stamped) > 20e6  # of seconds on two cores; how much it is depends on who gets them
    assert overlap(*drawn) >= overlap(*stamped)


def offset_of(trace: Path) -> int:
    """From the monotonic clock to the wall clock, by the anchor in a file."""
    clocks = next(packet.clock_snapshot.clocks for packet in read_packets(trace) if packet.HasField("clock_snapshot"))
    times = {clock.clock_id: clock.timestamp for clock in clocks}
    return times[1] - times[3]


def test_flows_join_requests_to_responses_and_writes_to_their_ingest(timeline: dict[str, Any]) -> None:
    flows = {(row["source"], row["target"]): row for row in timeline["flows"]}
    assert flows["replay_write", "replay_ingress_h2d_submit"]["n"] == 8000
    assert flows["inference_request", "inference"]["n"] == 8000
    assert flows["inference", "collector_release"]["n"] == 8000
    assert flows["collector_release", "env_step"]["n"] == 8000
    assert all(row["least"] > 0 for row in flows.values())  # every arrow points forwards in time


# --- Prometheus, OTLP, TensorBoard ------------------------------------------------------------------------------------


def test_prometheus_scraped_the_run(demo: Demo) -> None:
    window = f"{int(demo.ended)}"
    assert max(value for _, value in demo.prometheus.query("max_over_time(up[5m])", float(window))) == 1
    assert promtool_check_metrics(demo.exposition) == (0, "")


def test_the_last_scraped_reward_equals_the_last_line(demo: Demo) -> None:
    ended = demo.ended  # asked as of then, however long the tests before this one took
    ((_, samples),) = demo.prometheus.samples("rl_environment_reward_mean[10m]", ended)
    last = [line.values["Train/mean_reward"] for line in demo.lines if "Train/mean_reward" in line.values][-1]
    assert samples[-1][1] == pytest.approx(last, rel=1e-12)
    ((_, steps),) = demo.prometheus.samples('rl_step{rl_axis="train"}[10m]', ended)
    assert steps[-1][1] == 8000


def test_tensorboard_has_one_point_a_step_equal_to_the_record(demo: Demo) -> None:
    events = EventAccumulator(str(demo.run_dir / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"Train/mean_reward", "Loss/actor", "Loss/critic", "Perf/iteration_time", "Perf/total_fps"} <= tags
    assert {"Perf/learner_inference_ms", "Perf/collector_env_step_ms", "Train/target_q_max"} <= tags
    assert not any(tag.endswith("__count") for tag in tags)
    for tag in sorted(tags - {"eval/return"}):
        recorded = [(line.step, line.values[tag]) for line in demo.lines if tag in line.values]
        points = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in points] == [step for step, _ in recorded], tag
        assert [value for _, value in points] == pytest.approx([value for _, value in recorded], rel=1e-6), tag


def test_otlp_over_grpc_brings_every_step_with_its_own_time(demo: Demo) -> None:
    points = [metric for metric in demo.otlp if metric.name == "rl.environment.reward.mean"]
    recorded = [line for line in demo.lines if "Train/mean_reward" in line.values]
    arrived = sorted((point.point.time_unix_nano, point.value) for point in points)  # the relay may reorder
    assert arrived == [(line.time_ns, line.values["Train/mean_reward"]) for line in recorded]
    assert points[0].resource["rl.role"] == "learner"
    phases = {m.attributes["rl.phase"] for m in demo.otlp if m.name == "rl.phase.duration"}
    assert {"learning", "inference", "env_step", "learner_action_wait"} <= phases


def test_otlp_over_http_brings_the_same(tmp_path: Path) -> None:
    with rotel(tmp_path) as receiver:
        run(
            tmp_path,
            "--ticks",
            "300",
            PROMETHEUS_ENABLED=0,
            OTLP_ENABLED=1,
            OTLP_ENDPOINT=receiver.http_endpoint,
            PIPELINE_SHUTDOWN_TIMEOUT_S=20,  # so that nothing is dropped, however busy the machine
        )
        lines = [line for line in rltel.read_jsonl(run_dir_of(tmp_path)) if "Loss/critic" in line.values]
        receiver.wait_for(lambda: len(losses(receiver)) == len(lines), "every commit's loss", timeout=120)
        assert losses(receiver) == [line.values["Loss/critic"] for line in lines]


def losses(receiver: Any) -> list[float]:
    """In the order of their times: the relay may reorder what it takes."""
    points = sorted(
        (m.point.time_unix_nano, m.value)
        for m in receiver.metrics()
        if m.name == "rl.train.loss" and m.attributes["rl.loss.type"] == "critic"
    )
    return [value for _, value in points]


# --- ends -----------------------------------------------------------------------------------------------------------


def wait_for_step(process: subprocess.Popen[str], step: int, least_s: float) -> list[str]:
    """Read the console until it has shown this step, and so many seconds after the first one."""
    assert process.stdout is not None
    seen = []
    began = 0.0
    for line in process.stdout:
        seen.append(line)
        match = re.match(r"step (\d+)", line)
        if match:
            began = began or time.monotonic()
            if int(match[1]) >= step and time.monotonic() - began >= least_s:
                return seen
    raise AssertionError(f"the demo ended early: {''.join(seen)}")


def child_of(process: subprocess.Popen[str]) -> int:
    """The collector: the child that multiprocessing spawned."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError("no collector")


@pytest.mark.parametrize("victim", ["learner", "collector"])
def test_kill_loses_no_committed_step_and_at_most_a_second_of_trace(tmp_path: Path, victim: str) -> None:
    """What was open at the last flush is there, open.

    (One flush may fall between two iterations, or come late on a busy machine; not every one.)
    """
    found = []
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        is_open, missing_s = left_by_a_kill(folder, victim)
        if is_open and missing_s < 1.5:  # a flush every second, and what starting it takes
            return
        found.append((is_open, missing_s))
    raise AssertionError(f"whether something was open, and how much was missing: {found}")


def left_by_a_kill(tmp_path: Path, victim: str) -> tuple[bool, float]:
    """Kill it, look at what is left: whether slices are open there, and how many seconds are missing at the end."""
    process = start(tmp_path, PROMETHEUS_PORT=0, CONSOLE_INTERVAL_S=0.001)
    shown = wait_for_step(process, 700, least_s=2.5)  # also on a fast machine some flushes
    collector = child_of(process)
    os.kill(process.pid if victim == "learner" else collector, signal.SIGKILL)
    killed = time.time_ns()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if victim == "learner" else 1)
    printed = [int(step) for step in re.findall(r"^step (\d+)", "".join(shown) + out, re.MULTILINE)]

    lines = [line.step for line in rltel.read_jsonl(run_dir_of(tmp_path))]
    assert lines == list(range(9, lines[-1] + 1, 10))
    assert lines[-1] >= max(printed)

    while Path(f"/proc/{collector}").exists():  # a learner that is killed takes its collector along
        time.sleep(0.05)
    traces = {path.name.split("-")[0]: path for path in (run_dir_of(tmp_path) / "trace").iterdir()}
    assert set(traces) == {"learner", "collector"}
    for path in traces.values():
        assert sum(1 for _ in read_packets(path)) > 1000
    merged = merge(run_dir_of(tmp_path), tmp_path / "merged.pftrace").path
    process_name = f"{victim} 0"
    open_or_last = f"""
        select max(s.ts) last, sum(s.dur = -1) open from slice s join thread_track t on s.track_id = t.id
        join thread using (utid) join process p using (upid) where p.name = '{process_name}'
    """
    ((row,), errors) = query(merged, open_or_last, _ERRORS)
    assert errors == []
    return row["open"] > 0, (killed - row["last"]) / 1e9


@pytest.mark.parametrize("after_s", [0.0, 2.0, 5.0])
def test_interrupt_leaves_readable_files_and_exits_soon(tmp_path: Path, after_s: float) -> None:
    """From its imports on: before them Python itself is still being started, which takes Ctrl+C as it does."""
    process = start(tmp_path, PROMETHEUS_PORT=0)
    wait_until(lambda: b"_multiarray_umath" in Path(f"/proc/{process.pid}/maps").read_bytes(), "it imports")
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    interrupted = time.monotonic()
    _, err = process.communicate(timeout=120)
    assert time.monotonic() - interrupted < 15  # some 2 s; it would linger for 30, and go on for longer
    assert process.returncode == 130
    assert "Traceback" not in err
    if (tmp_path / "logs").exists():
        folder = run_dir_of(tmp_path)
        list(rltel.read_jsonl(folder))
        for path in folder.glob("trace/*.pftrace"):
            list(read_packets(path))


def test_a_taken_port_is_passed_over_and_the_used_one_named(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, err = run(tmp_path, "--ticks", "20", PROMETHEUS_PORT=port)
    named = re.search(r"prometheus http://127.0.0.1:(\d+)/metrics", err)
    assert named
    assert port < int(named[1]) <= port + 100


def test_the_demo_config_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo switches on what issue and README say it does."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    import sac_pendulum

    config = sac_pendulum.Config(0, 1, 1, 1, None, telemetry=True, log_root="logs")
    resolved = rltel.core.resolve.resolve(sac_pendulum.telemetry_config(config), {})
    assert isinstance(resolved, TelemetryConfig)
    assert resolved.trace.enabled
    assert resolved.prometheus.enabled
    assert resolved.tensorboard.path
    assert resolved.terminal.enabled
