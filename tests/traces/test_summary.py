"""What timelines say in numbers."""

from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from realparts.trace_making import TraceMaking
from rltel.core.errors import TraceError
from rltel.traces.merge import merge
from rltel.traces.summary import Loop, Row, Summary, summarize
from rltel.traces.validate import validate

NOW = 1_795_987_020_000_000_000
MS = 1_000_000


def learner() -> TraceMaking:
    """Two iterations of 100 ms: a wait of 30 and 50, learning of 60 and 40, and what is left."""
    made = TraceMaking(process=100, pid=1, name="learner 0", host="h", monotonic=0, realtime=NOW)
    for start, wait, learning in ((0, 30, 60), (100, 50, 40)):
        made.begin(start * MS, "iteration", "rl.loop")
        made.slice(start * MS, (start + wait) * MS, "collector_wait", "exclusive")
        made.begin((start + wait) * MS, "learning", "exclusive")
        made.slice((start + wait) * MS, (start + wait + 10) * MS, "forward", "nested")
        made.end((start + wait + learning) * MS)
        made.end((start + 100) * MS)
    made.slice(200 * MS, 201 * MS, "checkpoint", "io")
    return made


def collector() -> TraceMaking:
    """Steps from 10 to 130 ms, then waits until 190."""
    made = TraceMaking(process=200, pid=2, name="collector 0", host="h", monotonic=0, realtime=NOW)
    made.begin(10 * MS, "cycle", "rl.loop")
    made.slice(10 * MS, 130 * MS, "env_step", "exclusive")
    made.slice(130 * MS, 190 * MS, "learner_action_wait", "exclusive")
    made.end(190 * MS)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for made in (learner(), collector()):
        made.write(tmp_path / "run" / "trace" / f"{made.name.replace(' ', '-')}.1.pftrace")
    return tmp_path / "run"


def row(summary: Summary, process: str, name: str) -> Row:
    (found,) = [each for each in summary.rows if (each.process, each.name) == (process, name)]
    return found


def test_counts_times_and_shares(run: Path) -> None:
    summary = summarize(run)
    lasted = np.array([30 * MS, 50 * MS])
    assert row(summary, "learner 0", "collector_wait") == Row(
        process="learner 0",
        loop="iteration",
        category="exclusive",
        name="collector_wait",
        count=2,
        total_ns=80 * MS,
        mean_ns=40 * MS,
        p50_ns=40 * MS,
        p99_ns=float(np.percentile(lasted, 99)),
        share=0.4,
        still_open=0,
    )
    assert row(summary, "learner 0", "forward").share == 0.1
    assert row(summary, "learner 0", "checkpoint").share is None, "it is no phase"
    assert summary.start_ns == NOW


def test_other_is_what_no_exclusive_phase_covers(run: Path) -> None:
    assert summarize(run).loops == [
        Loop("collector 0", "cycle", 1, 180 * MS, 0, 0.0),
        Loop("learner 0", "iteration", 2, 200 * MS, 20 * MS, 0.1),
    ]


def test_how_long_phases_of_different_processes_ran_at_once(run: Path) -> None:
    """Worked out by hand."""
    found = {(each.phase, each.other_phase): each.both_ns for each in summarize(run).overlaps}
    assert found == {
        ("env_step", "collector_wait"): (20 + 30) * MS,
        ("env_step", "learning"): 60 * MS,
        ("env_step", "forward"): 10 * MS,
        ("learner_action_wait", "collector_wait"): 20 * MS,
        ("learner_action_wait", "learning"): 40 * MS,
        ("learner_action_wait", "forward"): 10 * MS,
    }


def test_waits_and_what_ran_meanwhile(run: Path) -> None:
    first, second = summarize(run).waits
    assert (first.process, first.phase, first.total_ns, first.share) == ("learner 0", "collector_wait", 80 * MS, 0.4)
    assert [(each.phase, each.both_ns) for each in first.meanwhile] == [
        ("env_step", 50 * MS),
        ("learner_action_wait", 20 * MS),
    ]
    assert [(each.start_ns, each.duration_ns) for each in first.longest] == [(100 * MS, 50 * MS), (0, 30 * MS)]
    assert [(each.process, each.phase, each.both_ns) for each in first.longest[0].meanwhile] == [
        ("collector 0", "env_step", 30 * MS),
        ("collector 0", "learner_action_wait", 20 * MS),
    ]
    assert (second.phase, second.total_ns, second.share) == ("learner_action_wait", 60 * MS, 60 / 180)


def test_a_merged_file_says_the_same(run: Path, tmp_path: Path) -> None:
    merge(run, tmp_path / "merged.pftrace")
    apart, merged = summarize(run), summarize(tmp_path / "merged.pftrace")
    assert (merged.rows, merged.loops, merged.overlaps, merged.waits) == (
        apart.rows,
        apart.loops,
        apart.overlaps,
        apart.waits,
    )
    assert merged.uncertainty == "merged before"
    assert apart.uncertainty.startswith("one host")


def test_a_single_file_needs_no_anchor(tmp_path: Path) -> None:
    made = learner()
    made.packets = [
        each for each in made.packets if not each.HasField("clock_snapshot") and not each.timestamp_clock_id
    ]
    summary = summarize(made.write(tmp_path / "t.pftrace"))
    assert row(summary, "learner 0", "learning").count == 2
    assert summary.uncertainty == "no anchor: its own clock"


def test_parts_count_as_one_process(tmp_path: Path) -> None:
    whole = learner()
    cut = next(number for number, each in enumerate(whole.packets) if each.timestamp == 100 * MS)
    first, second = learner(), learner()
    first.packets = whole.packets[:cut]
    head = [each for each in whole.packets[:cut] if not each.HasField("track_event") or each.timestamp_clock_id]
    second.packets = head + whole.packets[cut:]
    first.write(tmp_path / "parts" / "a.1.pftrace")
    second.write(tmp_path / "parts" / "a.1.part2.pftrace")
    whole.write(tmp_path / "whole" / "a.1.pftrace")
    parts, one = summarize(tmp_path / "parts"), summarize(tmp_path / "whole")
    assert (parts.rows, parts.loops, parts.waits) == (one.rows, one.loops, one.waits)


def test_a_background_phase_s_share_is_of_the_iterations_beside_it(tmp_path: Path) -> None:
    made = learner()
    made.packets.append(made.thread_packet(3, 500, tid=11))
    made.slice(10 * MS, 60 * MS, "ingress", "background", sequence=3)
    assert row(summarize(made.write(tmp_path / "t.pftrace")), "learner 0", "ingress").share == 0.25


def test_processes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """A process and the one that was started in its place."""
    for number in (1, 2):
        made = TraceMaking(process=100 * number, pid=number, host="h")
        made.slice(2_000, 2_001, "s")
        made.write(tmp_path / f"learner-0.{number}.pftrace")
    assert {each.process for each in summarize(tmp_path).rows} == {"learner 0", "learner 0 #2"}


def test_nothing_recorded_is_an_empty_summary(tmp_path: Path) -> None:
    TraceMaking().write(tmp_path / "t.pftrace")
    summary = summarize(tmp_path)
    assert (summary.rows, summary.loops, summary.overlaps, summary.waits, summary.start_ns) == ([], [], [], [], None)


def test_a_phase_that_never_ended_has_no_times(tmp_path: Path) -> None:
    """Averages of nothing are omitted, never made up."""
    made = TraceMaking()
    made.begin(2_000, "learning", "exclusive")
    (found,) = summarize(made.write(tmp_path / "t.pftrace")).rows
    assert (found.count, found.total_ns, found.mean_ns, found.p50_ns, found.p99_ns, found.share) == (
        0,
        0,
        None,
        None,
        None,
        None,
    )
    assert found.still_open == 1


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"{tmp_path}: no trace files"):
        summarize(tmp_path)


def test_names_that_are_no_utf_8_are_names_all_the_same(tmp_path: Path) -> None:
    """Other producers write what they have; the official classes hand it out as bytes."""
    made = learner()
    made.packets[1].track_descriptor.process.process_labels.append("label")
    made.event(202 * MS, TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, name="in full", categories=["given"]))
    made.end(203 * MS)
    data = made.data(blocks=0)
    for name in (b"learner 0", b"MainThread", b"checkpoint", b"exclusive", b"in full", b"given", b"label", b"host h"):
        assert name in data
        data = data.replace(name, b"\xff" + name[1:])
    path = tmp_path / "t.pftrace"
    path.write_bytes(data)
    rows = summarize(path).rows
    assert {row.process for row in rows} == {"\ufffdearner 0"}
    assert {"\ufffdheckpoint", "\ufffdn full"} < {row.name for row in rows}
    assert {"\ufffdxclusive", "\ufffdiven"} < {row.category for row in rows}
    assert validate(path) == []
    merge(path, tmp_path / "merged.pftrace")
    assert [row.name for row in summarize(tmp_path / "merged.pftrace").rows] == [row.name for row in rows]


def rollout_worker() -> TraceMaking:
    """Two rollouts at once from 10 to 40 ms, on two lanes; a timing, and a slice of its own from 0 to 90."""
    made = TraceMaking(process=300, pid=3, name="rollout 0", host="h", monotonic=0, realtime=NOW)
    made.slice(0, 90 * MS, "engine")
    for number, (start, end) in enumerate(((10, 30), (20, 40))):
        made.packets.append(made.thread_packet(7 + number, 310 + number, tid=70 + number))
        made.slice(start * MS, end * MS, "rollout", "rollout", track=310 + number)
    made.slice(91 * MS, 93 * MS, "tool_wait", "timing")
    return made


def test_rollouts_and_timings_are_work_and_slices_of_a_program_s_own_are_not(tmp_path: Path) -> None:
    for number, made in enumerate((learner(), rollout_worker())):
        made.write(tmp_path / f"{number}.pftrace")
    summary = summarize(tmp_path)
    (wait,) = summary.waits
    assert [(each.process, each.phase, each.both_ns) for each in wait.meanwhile] == [("rollout 0", "rollout", 20 * MS)]
    found = {(each.phase, each.other_phase): (each.both_ns, each.share, each.other_share) for each in summary.overlaps}
    assert found["collector_wait", "rollout"] == (20 * MS, 20 / 80, 20 / 30), (
        "of rollouts at once, each moment counts once"
    )
    assert not any("engine" in pair for pair in found)


def test_a_timing_is_no_wait(tmp_path: Path) -> None:
    """Waits are phases: they have a share of an iteration."""
    assert summarize(rollout_worker().write(tmp_path / "t.pftrace")).waits == []


def test_a_loop_around_another_one_has_no_other(tmp_path: Path) -> None:
    """The step of rltel.step is around the iteration of a clock: what the phases do not cover is counted there."""
    made = TraceMaking()
    made.begin(0, "step", "rl.loop")
    made.begin(0, "iteration", "rl.loop")
    made.slice(0, 6 * MS, "learning", "exclusive")
    made.end(10 * MS)
    made.end(12 * MS)
    loops = {
        loop.name: (loop.other_ns, loop.other_share) for loop in summarize(made.write(tmp_path / "t.pftrace")).loops
    }
    assert loops == {"iteration": (4 * MS, 0.4), "step": (None, None)}


def test_merged_traces_beside_the_others_are_left_out(run: Path) -> None:
    merge(run, run / "timeline.pftrace")
    summary = summarize(run.parent)
    assert (summary.files, summary.left_out) == (summarize(run).files, [str(run / "timeline.pftrace")])
    assert summary.rows == summarize(run).rows


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "t.pftrace").touch()
    assert summarize(tmp_path).uncertainty == "empty"
