"""The events of a file, against the official classes."""

from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from realparts.trace_making import BOOTTIME, MONOTONIC, REALTIME, TraceMaking
from rltel.traces.events import BEGIN, END, Event, EventReader, Track, process_of


def read(made: TraceMaking, folder: Path) -> tuple[list[tuple[int, Event]], EventReader]:
    reader = EventReader(made.write(folder / "t.pftrace"))
    return list(reader.events()), reader


def said(events: list[tuple[int, Event]]) -> list[tuple[int, int, str, str, int]]:
    return [(time, event.kind, event.name, event.category, event.track) for time, event in events]


def test_names_and_categories_by_number_or_in_full(tmp_path: Path) -> None:
    made = TraceMaking()
    made.begin(1_001, "interned", "exclusive")
    made.event(1_002, TrackEvent(type=BEGIN, name="in full", categories=["rl.loop", "more"]))
    made.end(1_003)
    made.end(1_004)
    events, _ = read(made, tmp_path)
    assert said(events) == [
        (1_001, BEGIN, "interned", "exclusive", 101),
        (1_002, BEGIN, "in full", "rl.loop", 101),
        (1_003, END, "", "", 101),
        (1_004, END, "", "", 101),
    ]
    assert not any(event.faults for _, event in events)


def test_a_number_that_is_given_anew_after_the_state_is_cleared_is_the_new_name(tmp_path: Path) -> None:
    made = TraceMaking()
    for name in ("first", "second"):
        made.packets.append(made.thread_packet(2, made.thread))
        named = TracePacket(trusted_packet_sequence_id=2)
        named.interned_data.event_names.add(iid=1, name=name)
        made.packets.append(named)
        made.event(1_001, TrackEvent(type=BEGIN, name_iid=1))
    events, _ = read(made, tmp_path)
    assert [event.name for _, event in events] == ["first", "second"]


def test_numbers_are_those_of_their_sequence(tmp_path: Path) -> None:
    made = TraceMaking()
    made.packets.append(made.thread_packet(3, 500, tid=11))
    for sequence, name in ((2, "of two"), (3, "of three")):
        named = TracePacket(trusted_packet_sequence_id=sequence)
        named.interned_data.event_names.add(iid=1, name=name)
        made.packets.append(named)
    for sequence in (2, 3, 2):
        made.event(1_001, TrackEvent(type=BEGIN, name_iid=1), sequence)
    events, _ = read(made, tmp_path)
    assert [(event.name, event.track) for _, event in events] == [("of two", 101), ("of three", 500), ("of two", 101)]


def test_what_is_not_defined_is_a_fault_until_it_is(tmp_path: Path) -> None:
    made = TraceMaking()
    made.event(1_001, TrackEvent(type=BEGIN, name_iid=9, category_iids=[8]))
    named = TracePacket(trusted_packet_sequence_id=2)
    named.interned_data.event_names.add(iid=9, name="late")
    named.interned_data.event_categories.add(iid=8, name="late too")
    made.packets.append(named)
    made.event(1_001, TrackEvent(type=BEGIN, name_iid=9, category_iids=[8]))
    made.event(1_002, TrackEvent(type=END), sequence=7)
    events, _ = read(made, tmp_path)
    assert [event.faults for _, event in events] == [
        ("name 9 of sequence 2 is not defined", "category 8 of sequence 2 is not defined"),
        (),
        ("sequence 7 was not begun (no packet that clears its state before)",),
    ]
    assert events[1][1].name == "late"


def test_clocks_of_the_packet_of_the_sequence_and_of_the_trace(tmp_path: Path) -> None:
    made = TraceMaking()
    made.end(1_001)
    made.end(1_002)
    made.packets[-1].timestamp_clock_id = BOOTTIME
    made.event(1_003, TrackEvent(type=END, track_uuid=9), sequence=8)
    events, _ = read(made, tmp_path)
    assert [event.clock for _, event in events] == [MONOTONIC, BOOTTIME, BOOTTIME]
    made.packets[0].clock_snapshot.primary_trace_clock = REALTIME
    assert [event.clock for _, event in read(made, tmp_path)[0]][-1] == REALTIME


def test_events_on_no_track_are_apart_by_sequence(tmp_path: Path) -> None:
    made = TraceMaking()
    for sequence in (7, 8):
        made.event(1_001, TrackEvent(type=END), sequence)
    events, _ = read(made, tmp_path)
    assert len({event.track for _, event in events}) == 2
    assert all(event.track < 0 for _, event in events)


def test_equal_events_are_one_object(tmp_path: Path) -> None:
    """What makes reading fast, and what readers build on."""
    made = TraceMaking()
    for at in range(100):
        made.slice(10**13 + at, 10**13 + at, "s")
    events, reader = read(made, tmp_path)
    assert len({id(event) for _, event in events}) == 2
    assert [time for time, _ in events] == [10**13 + at for at in range(100) for _ in (0, 1)]
    assert reader.packets == len(made.packets)


def test_tracks_and_whose_they_are(tmp_path: Path) -> None:
    made = TraceMaking(process=100, pid=10, name="learner 0")
    for uuid, parent, name in (
        (300, 101, "lane"),
        (301, 300, "lane of a lane"),
        (302, 999, "orphan"),
        (303, 304, "x"),
        (304, 303, "y"),
    ):
        described = TracePacket()
        described.track_descriptor.uuid, described.track_descriptor.parent_uuid = uuid, parent
        described.track_descriptor.name = name
        made.packets.append(described)
    _, reader = read(made, tmp_path)
    process = Track(100, 0, "learner 0", 10, 0, "learner 0")
    assert reader.tracks[100] == process
    assert reader.tracks[101] == Track(101, 100, "MainThread", 10, 10, "")
    assert [process_of(reader.tracks, uuid) for uuid in (100, 101, 300, 301)] == [process] * 4
    orphan = process_of(reader.tracks, 302)
    assert orphan is not None
    assert orphan.name == "orphan"
    assert process_of(reader.tracks, 303) is not None, "tracks that are each other's parents end nowhere"
    assert process_of(reader.tracks, 12345) is None


def test_a_thread_below_no_track_is_of_the_process_with_its_pid(tmp_path: Path) -> None:
    """As other producers describe theirs."""
    made = TraceMaking(process=100, pid=10)
    made.packets[-1].track_descriptor.ClearField("parent_uuid")
    _, reader = read(made, tmp_path)
    found = process_of(reader.tracks, 101)
    assert found is not None
    assert found.uuid == 100
