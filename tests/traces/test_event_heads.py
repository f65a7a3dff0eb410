"""What an event is, without what hangs on it."""

from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from rltel.traces.event_heads import event_head

HEADS = st.builds(
    TrackEvent,
    type=st.sampled_from([TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END]),
    name_iid=st.integers(0, 300),
    category_iids=st.lists(st.integers(1, 300), max_size=2),
    track_uuid=st.integers(0, (1 << 64) - 1),
    name=st.text(max_size=3),
)
HANGING = st.builds(
    lambda notes, flows, values: [
        *(TrackEvent(debug_annotations=[{"name_iid": iid, "string_value": text}]) for iid, text in notes),
        *(TrackEvent(flow_ids=[flow]) for flow in flows),
        *(TrackEvent(extra_counter_values=[value]) for value in values),
    ],
    st.lists(st.tuples(st.integers(1, 300), st.text(max_size=200)), max_size=3),
    st.lists(st.integers(0, (1 << 64) - 1), max_size=2),
    st.lists(st.integers(0, 1 << 40), max_size=1),
)


def tail(event: bytes, sequence: int = 2) -> bytes:
    """As our own writer lays it out."""
    length = TracePacket(compressed_packets=event).SerializeToString()[2 : -len(event) or None]
    return b"\x50" + bytes((sequence,)) + b"\x68\x02\x5a" + length + event


@given(HEADS, HANGING, HANGING)
def test_events_that_differ_in_what_hangs_on_them_are_equal(
    head: TrackEvent, one: list[TrackEvent], other: list[TrackEvent]
) -> None:
    raw = head.SerializeToString()
    made = [event_head(tail(raw + b"".join(each.SerializeToString() for each in parts))) for parts in (one, other)]
    assert made[0] == made[1] == event_head(tail(raw))
    assert made[0] is not None


@given(HEADS, HEADS, st.integers(1, 9), st.integers(1, 9))
def test_events_that_differ_otherwise_do_not(one: TrackEvent, other: TrackEvent, first: int, second: int) -> None:
    same = (one, first) == (other, second)
    heads = event_head(tail(one.SerializeToString(), first)), event_head(tail(other.SerializeToString(), second))
    assert (heads[0] == heads[1]) == same


def test_what_says_more_behind_what_hangs_on_it_is_left_to_the_official_classes() -> None:
    note = TrackEvent(flow_ids=[7]).SerializeToString()
    assert event_head(tail(note + TrackEvent(name="late").SerializeToString())) is None


@given(st.binary(max_size=30))
def test_any_bytes_are_a_head_or_none(data: bytes) -> None:
    for made in (data, b"\x50\x02\x68\x02\x5a" + data, tail(data) if data else b""):
        assert event_head(made) is None or len(event_head(made) or b"") <= len(made)
