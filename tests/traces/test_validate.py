"""Checks of traces: each fault is made, and must be found in words with its file and place."""

import random
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from export.making import run_python
from realparts.perfetto_reader import read_packets
from realparts.trace_making import TraceMaking, framed
from rltel.core.errors import TraceError
from rltel.traces.findings import Finding
from rltel.traces.merge import merge
from rltel.traces.validate import validate

NOW = 1_795_987_020_000_000_000
S = 10**9


def whole(**changed: object) -> TraceMaking:
    made = TraceMaking(**{"host": "h", "monotonic": 1_000, "realtime": NOW, **changed})  # type: ignore[arg-type]
    made.begin(2_000, "iteration", "rl.loop")
    for step in range(20):
        made.slice(2_100 + 10 * step, 2_105 + 10 * step, "learning", "exclusive")
    made.end(3_000)
    return made


def found(folder: Path, *processes: TraceMaking) -> list[Finding]:
    for number, made in enumerate(processes):
        made.write(folder / f"{number}.pftrace")
    return validate(folder)


def problems(findings: list[Finding]) -> list[str]:
    return [each.text for each in findings if each.kind == "problem"]


def notes(findings: list[Finding]) -> list[str]:
    return [each.text for each in findings if each.kind == "note"]


def test_a_whole_trace_has_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, whole(process=100), whole(process=200, pid=11)) == []


def test_a_merged_one_neither(tmp_path: Path) -> None:
    whole(process=100).write(tmp_path / "trace" / "a.pftrace")
    whole(process=200).write(tmp_path / "trace" / "b.pftrace")
    merge(tmp_path / "trace", tmp_path / "merged.pftrace")
    assert validate(tmp_path / "merged.pftrace") == []


PROGRAM = """
import asyncio, os, signal, sys, threading, time
import rltel
trace = {"enabled": True, "thread_time": True, "flush_interval_s": 0.05}
pipeline = {"shutdown_timeout_s": 60}  # a busy machine takes more than 2 s
rltel.init({"trace": trace, "pipeline": pipeline}, role="learner", run_dir=sys.argv[1])
async def episode(number):
    with rltel.slice("episode", attributes={"number": number}):
        await asyncio.sleep(0.001 * number)
        with rltel.slice("turn", flow=number + 1):
            await asyncio.sleep(0.001)
async def rollout():
    await asyncio.gather(*(episode(number) for number in range(5)))
clock = rltel.learner(phases=["rollout", "update"])
for step in range(20):
    with clock.iteration(step=step):
        with clock.phase("rollout"):
            asyncio.run(rollout())
        with clock.phase("update"):
            rltel.counter("queue", step, unit="rows")
    thread = threading.Thread(target=lambda: rltel.instant("checkpoint"))
    thread.start()
    thread.join()
if sys.argv[2] == "killed":
    with rltel.slice("open"):
        assert rltel.flush(60)
        os.kill(os.getpid(), signal.SIGKILL)
"""


class TestOurOwnTraces:
    """Real programs: phases, tasks that interleave, threads, CPU time, counters, arrows."""

    def test_of_a_clean_end_have_nothing(self, tmp_path: Path) -> None:
        assert run_python(PROGRAM, tmp_path, "ended").returncode == 0
        assert validate(tmp_path) == []

    def test_of_a_killed_process_have_no_problems_wherever_they_are_cut(self, tmp_path: Path) -> None:
        assert run_python(PROGRAM, tmp_path / "run", "killed").returncode == -9
        findings = validate(tmp_path / "run")
        assert problems(findings) == []
        assert notes(findings) == ['1 slice is open at the end: "open"']
        (path,) = (tmp_path / "run" / "trace").iterdir()
        data, chance = path.read_bytes(), random.Random(2)
        head = len(framed(next(read_packets(path))))
        for length in chance.sample(range(head, len(data)), 50):
            (tmp_path / "cut.pftrace").write_bytes(data[:length])
            assert problems(validate(tmp_path / "cut.pftrace")) == []


class TestTruncation:
    def test_a_cut_is_a_note_with_its_byte_and_packet(self, tmp_path: Path) -> None:
        data = whole().data(blocks=0)
        path = tmp_path / "t.pftrace"
        path.write_bytes(data[:-4])
        cut, opened = validate(path)
        end = framed(whole().packets[-1])
        packets = len(whole().packets) - 1
        assert cut == Finding(
            "note",
            str(path),
            f"packet {packets} (at byte {len(data) - len(end) - len(framed(whole().packets[-2]))})",
            f"is cut at byte {len(data) - 4}: {len(end) - 4} bytes after the last whole packet are of one that is "
            "incomplete",
        )
        assert opened.text == '1 slice is open at the end: "iteration"'

    @pytest.mark.parametrize("blocks", [0, 7])
    def test_a_cut_anywhere_is_no_problem(self, tmp_path: Path, blocks: int) -> None:
        data, chance = whole().data(blocks), random.Random(1)
        for length in sorted(chance.sample(range(len(data)), 60)):
            (tmp_path / "t.pftrace").write_bytes(data[:length])
            texts = problems(validate(tmp_path))
            assert texts in ([], [texts[0]] if texts and "no clock anchor" in texts[0] else [])

    def test_an_empty_file_is_a_note(self, tmp_path: Path) -> None:
        (tmp_path / "t.pftrace").touch()
        (only,) = validate(tmp_path)
        assert (only.kind, only.text) == ("note", "is empty: its process was killed at its start, or has just begun")

    def test_many_open_slices_are_named_in_part(self, tmp_path: Path) -> None:
        made = TraceMaking(host="h")
        for number in range(8):
            made.begin(2_000 + number, f"s{number}")
        assert notes(found(tmp_path, made)) == ['8 slices are open at the end: "s0", "s1", "s2", "s3", "s4" and 3 more']

    def test_what_ends_in_the_next_part_is_not_open(self, tmp_path: Path) -> None:
        first, second = TraceMaking(host="h"), TraceMaking(host="h")
        first.begin(2_000, "s")
        second.end(3_000)
        first.write(tmp_path / "a.1.pftrace")
        second.write(tmp_path / "a.1.part2.pftrace")
        assert validate(tmp_path) == []
        (only,) = validate(tmp_path / "a.1.part2.pftrace")
        assert "never began" in only.text


class TestDamage:
    def test_a_block_that_cannot_be_inflated_is_a_problem_with_its_place(self, tmp_path: Path) -> None:
        data = whole().data()
        path = tmp_path / "t.pftrace"
        path.write_bytes(data + framed(TracePacket(compressed_packets=b"not zlib")) + data)
        (first, *_) = validate(path)
        assert first.kind == "problem"
        assert first.place == f"packet {len(whole().packets)} (at byte {len(data)})"
        assert first.text.startswith("a damaged block of packets: ")

    def test_other_bytes_among_the_packets(self, tmp_path: Path) -> None:
        data = whole().data()
        path = tmp_path / "t.pftrace"
        path.write_bytes(data + b"\x00" * 10)
        assert f"byte 0x00 at {len(data)} where a packet should begin" in problems(validate(path))[0]

    @pytest.mark.parametrize("flip", [1, 3, 100, -20])
    def test_bytes_that_changed_never_raise(self, tmp_path: Path, flip: int) -> None:
        data = bytearray(whole().data())
        data[flip] ^= 0x55
        (tmp_path / "t.pftrace").write_bytes(data)
        assert validate(tmp_path)


class TestIds:
    def test_equal_tracks_of_two_processes(self, tmp_path: Path) -> None:
        one, other = whole(process=100, name="a"), whole(process=99, pid=11, name="b", host="i")
        texts = problems(found(tmp_path, one, other))  # 99's thread is track 100
        assert len(texts) == 1
        assert texts[0].startswith('track 100 ("MainThread") is also "a" of ')

    def test_two_processes_with_one_id(self, tmp_path: Path) -> None:
        texts = problems(found(tmp_path, whole(name="a"), whole(name="b", host="i")))
        assert any('track 100 ("b") is also "a"' in text for text in texts)
        assert any("is of another host than" in text for text in texts)

    def test_names_that_are_not_defined(self, tmp_path: Path) -> None:
        made = whole()
        for _ in range(3):
            made.event(4_000, TrackEvent(type=TrackEvent.TYPE_INSTANT, name_iid=77))
        assert problems(found(tmp_path, made)) == ["name 77 of sequence 2 is not defined (3 such)"]

    def test_a_sequence_that_was_not_begun(self, tmp_path: Path) -> None:
        """Its first packet was lost."""
        made = whole()
        made.event(4_000, TrackEvent(type=TrackEvent.TYPE_INSTANT, name="x"), sequence=9)
        assert problems(found(tmp_path, made)) == [
            "sequence 9 was not begun (no packet that clears its state before)",
            "events of sequence 9 are on no track: nothing before them names one",
        ]

    def test_a_track_that_nothing_describes(self, tmp_path: Path) -> None:
        made = whole()
        made.slice(4_000, 4_001, "x", track=1234)
        assert problems(found(tmp_path, made)) == [
            "events of sequence 2 are on track 1234, which nothing before them describes"
        ]


class TestNesting:
    def test_is_told_with_its_place(self, tmp_path: Path) -> None:
        made = whole()
        made.end(4_000)
        (only,) = found(tmp_path, made)
        assert only.place.startswith(f"packet {len(made.packets)} (at byte ")
        assert only.text == "a slice ends on track 101 that never began"


class TestClocks:
    def test_no_anchor_is_a_problem(self, tmp_path: Path) -> None:
        made = whole(monotonic=None)
        assert problems(found(tmp_path, made)) == [
            "has no clock anchor (ClockSnapshot with the wall clock): it cannot be merged with others"
        ]

    def test_a_step_is_a_note_that_says_when(self, tmp_path: Path) -> None:
        made = whole()
        made.anchor(1_000 + 60 * S, NOW + 60 * S)
        made.anchor(1_000 + 120 * S, NOW + 115 * S)
        (only,) = found(tmp_path, made)
        assert (only.kind, only.place) == ("note", "between 60.000 and 120.000 s")
        assert only.text == "the wall clock stepped by -5 s (no slice shows that)"

    def test_a_step_between_two_parts_is_seen(self, tmp_path: Path) -> None:
        whole().write(tmp_path / "a.1.pftrace")
        whole(monotonic=60 * S, realtime=NOW + 55 * S).write(tmp_path / "a.1.part2.pftrace")
        assert notes(validate(tmp_path)) == ["the wall clock stepped by -5 s (no slice shows that)"]

    def test_drift_is_a_note(self, tmp_path: Path) -> None:
        made = whole()
        for minute in range(1, 11):
            made.anchor(1_000 + minute * 60 * S, NOW + minute * (60 * S - 3_000_000))
        assert notes(found(tmp_path, made)) == ["the wall clock drifted by -30 ms over 600 s (-50.0 ppm)"]

    def test_sleep_is_a_note_and_no_step(self, tmp_path: Path) -> None:
        made = whole()
        made.anchor(1_000 + 60 * S, NOW + 160 * S, boottime=1_000 + 160 * S)
        assert notes(found(tmp_path, made)) == ["the machine slept for 100 s (no slice shows that)"]

    def test_a_quiet_clock_is_nothing(self, tmp_path: Path) -> None:
        made = whole()
        made.anchor(1_000 + 60 * S, NOW + 60 * S + 20_000)
        assert found(tmp_path, made) == []

    def test_measurements_that_contradict_each_other_are_a_note(self, tmp_path: Path) -> None:
        made = whole()
        made.offset(2_000, 7, 0, 10)
        made.offset(2_000 + S, 7, 50_000_000, 90_000_000)
        assert notes(found(tmp_path, made)) == [
            "measured offsets contradict each other: by +50 ms within 1 s (the surer one is used)"
        ]


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"{tmp_path}: no trace files"):
        validate(tmp_path)


def test_of_a_folder_the_first_problem_of_a_kind_is_told(tmp_path: Path) -> None:
    """A fault of the program is in the files of all its processes, and on all their tracks."""
    many = [whole(process=100 * number, pid=number) for number in (1, 2, 3)]
    for made in many[:2]:
        made.end(4_000)
        made.end(4_001)
    assert problems(found(tmp_path, *many)) == ["a slice ends on track 101 that never began (4 such, in 2 files)"]


def test_of_all_tracks_of_a_copy_the_first_is_told(tmp_path: Path) -> None:
    one, other = whole(process=100), whole(process=100, pid=11)
    other.packets[1].track_descriptor.process.process_name = "other"
    texts = problems(found(tmp_path, one, other))
    assert len(texts) == 1
    assert texts[0].endswith(" such)")


def test_merged_traces_of_a_folder_are_noted_and_left_out(tmp_path: Path) -> None:
    """Checked together, each of their tracks would be two processes'."""
    whole(process=100).write(tmp_path / "run" / "trace" / "a.pftrace")
    merge(tmp_path / "run", tmp_path / "run" / "timeline.pftrace")
    (only,) = validate(tmp_path)
    assert (only.kind, only.file) == ("note", str(tmp_path / "run" / "timeline.pftrace"))
    assert only.text.startswith("is a merged trace already: left out")
