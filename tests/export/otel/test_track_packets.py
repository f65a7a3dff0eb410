"""Packets for many tracks, as the official classes read them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TrackEvent

from realparts.perfetto_reader import parse_packets
from rltel.export.otel import track_packets
from rltel.export.otel.track_packets import TrackEncoder, counter_track, lane_track, process_track, thread_track


def value_of(annotation: Any) -> Any:
    if annotation.dict_entries:
        return {entry.name: value_of(entry) for entry in annotation.dict_entries}
    if annotation.array_values:
        return [value_of(entry) for entry in annotation.array_values]
    kind = annotation.WhichOneof("value")
    return None if kind is None else getattr(annotation, kind)


def read(encoder: TrackEncoder) -> list[tuple[int, TrackEvent, dict[str, Any]]]:
    """Every event: its time, itself, and its names looked up."""
    names: dict[str, dict[int, str]] = {}
    found = []
    for made in parse_packets(encoder.take()):
        if made.sequence_flags & made.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED:
            names = {"name": {}, "category": {}, "annotation": {}}
            assert made.trace_packet_defaults.timestamp_clock_id == BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        names.setdefault("name", {}).update({each.iid: each.name for each in made.interned_data.event_names})
        names.setdefault("category", {}).update({each.iid: each.name for each in made.interned_data.event_categories})
        table = {each.iid: each.name for each in made.interned_data.debug_annotation_names}
        names.setdefault("annotation", {}).update(table)
        if made.HasField("track_event"):
            event = made.track_event
            says = {names["annotation"][each.name_iid]: value_of(each) for each in event.debug_annotations}
            name = names["name"][event.name_iid] if event.name_iid else None
            category = names["category"][event.category_iids[0]] if event.category_iids else None
            found.append((made.timestamp, event, {"name": name, "category": category, "says": says}))
    return found


plain = st.recursive(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(
    begin=st.integers(0, (1 << 63) - 1),
    length=st.integers(0, 1 << 40),
    track=st.integers(1, (1 << 64) - 1),
    flows=st.lists(st.integers(0, (1 << 64) - 1), max_size=3),
    says=st.dictionaries(st.text(max_size=5), plain, max_size=4),
)
def test_a_slice_comes_back(begin: int, length: int, track: int, flows: list[int], says: dict[str, Any]) -> None:
    encoder = TrackEncoder()
    encoder.slice(track, begin, begin + length, "näme", "category", flows, says)
    (begun, event, known), (ended, end, _) = read(encoder)
    assert (begun, ended) == (begin, begin + length)
    assert (event.type, end.type) == (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END)
    assert event.track_uuid == end.track_uuid == track
    assert list(event.flow_ids) == flows
    assert known == {"name": "näme", "category": "category", "says": says}


def test_what_is_open_has_no_end() -> None:
    encoder = TrackEncoder()
    encoder.slice(1, 5, None, "s")
    assert [event.type for _, event, _ in read(encoder)] == [TrackEvent.TYPE_SLICE_BEGIN]


def test_a_time_below_zero_is_refused() -> None:
    encoder = TrackEncoder()
    encoder.instant(1, 5, "before")
    with pytest.raises(ValueError, match="-5"):
        encoder.instant(1, -5, "i")
    encoder.instant(1, 6, "after")
    assert [time for time, _, _ in read(encoder)] == [5, 6]


def test_what_no_annotation_can_hold_is_text() -> None:
    encoder = TrackEncoder()
    deep: Any = "end"
    for _ in range(30):
        deep = [deep]
    encoder.instant(1, 5, "i", "", {"big": 1 << 63, "none": None, "bytes": b"x", "lone": "\ud800", "deep": deep})
    ((_, _, known),) = read(encoder)
    deep_value = known["says"].pop("deep")
    assert known["says"] == {"big": str(1 << 63), "none": "None", "bytes": "b'x'", "lone": "?"}
    assert "end" in str(deep_value)


def test_instants_counters_and_arrows() -> None:
    encoder = TrackEncoder()
    encoder.instant(1, 5, "i", "c", {"n": 1})
    encoder.counter(2, 6, 0.5)
    encoder.arrow(3, 7, "s", 99, "a", "c")
    (_, instant, _), (_, counter, _), (time, arrow, known) = read(encoder)
    assert instant.type == TrackEvent.TYPE_INSTANT
    assert (counter.type, counter.track_uuid, counter.double_counter_value) == (TrackEvent.TYPE_COUNTER, 2, 0.5)
    assert (time, chr(arrow.legacy_event.phase), arrow.legacy_event.unscoped_id) == (7, "s", 99)
    assert arrow.legacy_event.bind_to_enclosing
    assert known["name"] == "a"


def test_names_begin_anew_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track_packets, "_MAX_NAMES", 10)
    encoder = TrackEncoder()
    for n in range(100):
        encoder.slice(n + 1, n, n + 1, f"name {n}", f"c {n}", (), {f"a{n}": n})
        assert len(encoder._tables[2]) <= 11
    known = [says for _, event, says in read(encoder) if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert known == [{"name": f"name {n}", "category": f"c {n}", "says": {f"a{n}": n}} for n in range(100)]


def test_what_was_discarded_is_said_again() -> None:
    encoder = TrackEncoder()
    encoder.instant(1, 5, "name")
    encoder.discard()
    assert len(encoder) == 0
    encoder.instant(1, 6, "name")
    assert [(time, known["name"]) for time, _, known in read(encoder)] == [(6, "name")]


def test_tracks() -> None:
    encoder = TrackEncoder()
    encoder.describe(process_track(1, 10, "p", ["a=b"]))
    encoder.describe(thread_track(2, 1, 10, 11, "t"))
    encoder.describe(lane_track(3, 2, "l"))
    encoder.describe(counter_track(4, 1, "c"))
    process, thread, lane, counter = (made.track_descriptor for made in parse_packets(encoder.take()))
    assert (process.process.pid, process.process.process_name, list(process.process.process_labels)) == (
        10,
        "p",
        ["a=b"],
    )
    assert (thread.parent_uuid, thread.thread.pid, thread.thread.tid, thread.thread.thread_name) == (1, 10, 11, "t")
    assert (lane.parent_uuid, lane.name) == (2, "l")
    assert counter.HasField("counter")
