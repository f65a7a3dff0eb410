"""A lane's records as packets: every slice, on a track where it nests."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import STEPS, cut, drawn, joined, made
from realparts.official_events import OfficialEvents, as_bytes, track_of
from realparts.perfetto_reader import TracePacket, parse_packets
from rltel.export.perfetto import tracks as perfetto_tracks
from rltel.export.perfetto import wire as perfetto_wire
from rltel.export.perfetto.free_tracks import FreeTracks
from rltel.export.perfetto.tracks import LaneEncoder
from rltel.record.records import (
    Attached,
    Begin,
    CounterSample,
    End,
    Ids,
    Instant,
    Placed,
    Record,
    Site,
)

SEQUENCE = 7
A, B = Site("a", "c"), Site("b", "")


def describe(track: int, name: str) -> bytes:
    return perfetto_wire.track_packet(track, 1, name)


class Encoding:
    """An encoder, with all that it has written."""

    def __init__(self) -> None:
        self.free = FreeTracks(describe)
        self.lane = LaneEncoder(track_of, self.free)
        self.lane.begin_sequence(SEQUENCE)
        self.free.begin_sequence(SEQUENCE + 1)
        self.data = b""

    def encode(self, *pieces: Iterable[Record]) -> "Encoding":
        for piece in pieces:
            self.data += self.lane.encode(list(piece)) + self.free.take_packets()
        return self

    @property
    def packets(self) -> list[TracePacket]:
        return list(parse_packets(self.data))


EVENTS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Instant, st.integers(0, 2**62), st.text(max_size=3), st.sampled_from(["", "c"]), st.none(), st.none()),
    st.builds(CounterSample, st.integers(0, 2**62), st.text(max_size=3), st.just("rows"), st.floats()),
)


class TestAgreement:
    @given(st.lists(EVENTS | st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=8), st.integers(0, 40))
    def test_with_the_official_classes(self, given: list[Any], place: int) -> None:
        """Over two drains: what the first one named, the second refers to. A pair is a bare slice."""
        records: list[Record] = []
        expected: list[Record] = []
        now = 0
        for number, each in enumerate(given):
            records += [each] if isinstance(each, (Instant, CounterSample)) else [(A, B)[number % 2], *each]
            if isinstance(each, CounterSample):
                expected.append(each)
            elif isinstance(each, Instant):
                now = max(now, each.time_ns)
                expected.append(each._replace(time_ns=now))
            else:
                begin, now = max(now, each[0]), max(now, *each)
                expected += [Begin(begin, (A, B)[number % 2]), now]
        encoding = Encoding().encode(*cut(records, [place]))
        assert as_bytes(encoding.packets) == as_bytes(OfficialEvents(SEQUENCE).encode(expected))

    def test_of_slices_with_more_to_say(self) -> None:
        records: list[Record] = [Begin(1, A, (5,), {"x": 1}, 10), B, 2, 3, End(4, {"y": 2.5}, "ValueError", 20)]
        official = [records[0], Begin(2, B), 3, records[4]]
        assert as_bytes(Encoding().encode(records).packets) == as_bytes(OfficialEvents(SEQUENCE).encode(official))


class TestSlices:
    @given(STEPS, st.lists(st.integers(0, 200), max_size=3))
    def test_random_programs_are_drawn_as_they_were(self, steps: list[Any], places: list[int]) -> None:
        """Whatever crosses, and wherever the drains cut: every slice has its time, in one piece or in marked ones."""
        making = made(steps)
        found = drawn(Encoding().encode(*cut(making.records, places)).packets)
        assert joined(found) == sorted(each.what for each in making.slices)

    @given(STEPS)
    def test_within_one_drain_all_are_whole(self, steps: list[Any]) -> None:
        making = made(steps)
        found = drawn(Encoding().encode(making.records).packets)
        assert sorted(each.what for each in found) == sorted(each.what for each in making.slices)

    @given(STEPS, st.lists(st.integers(0, 200), max_size=3))
    def test_what_is_open_at_the_end_is_ended(self, steps: list[Any], places: list[int]) -> None:
        making = made(steps, ended=False)
        encoding = Encoding().encode(*cut(making.records, places))
        encoding.data += encoding.lane.close_open(10**6)
        still = {each.name for each in making.slices if each.end_ns is None}
        found = joined(drawn(encoding.packets))
        assert {name for name, _, end in found if end == 10**6} == still
        assert len(found) == len(making.slices)

    def test_one_that_crosses_over_two_drains_goes_on_marked(self) -> None:
        encoding = Encoding().encode([A, 1, Begin(2, B, (9,), {"x": 1})], [End(3, depth=1)], [4])
        assert [(each.what, each.is_continued) for each in drawn(encoding.packets)] == [
            (("a", 1, 3), False),
            (("b", 2, 3), False),
            (("b", 3, 4), True),
        ]
        flows = [list(each.track_event.flow_ids) for each in encoding.packets if each.track_event.flow_ids]
        assert flows == [[9]], "the arrow is drawn once"

    @pytest.mark.parametrize("rich", [False, True])
    @pytest.mark.parametrize("pieces", [[7], [3, 2, 2], [1] * 7])
    def test_a_begin_that_was_read_before_what_is_around_it_ended(self, pieces: list[int], rich: bool) -> None:
        """Garbage collection closes a generator between the reading of a clock and the record of it.

        By times alone, the end of the generator's slice would close the one that begins here.
        """
        begin: list[Record] = [Begin(105, B), End(120)] if rich else [B, 105, 120]
        records: list[Record] = [A, 100, 110, *begin, Begin(121, A), End(130)]
        encoding, at = Encoding(), 0
        for size in pieces:
            encoding.encode(records[at : at + size])
            at += size
        encoding.encode(records[at:])
        assert [each.what for each in drawn(encoding.packets)] == [("a", 100, 110), ("b", 110, 120), ("a", 121, 130)]
        times = [each.timestamp for each in encoding.packets if each.HasField("track_event")]
        assert times == sorted(times)

    def test_a_begin_that_was_read_before_what_crosses_it_ended(self) -> None:
        encoding = Encoding().encode([A, 1, B, 2], [End(10, depth=1), Begin(5, Site("c", "")), End(7), 12])
        assert joined(drawn(encoding.packets)) == [("a", 1, 10), ("b", 2, 12), ("c", 10, 10)]
        times = [each.timestamp for each in encoding.packets if each.HasField("track_event")]
        assert times == sorted(times)

    def test_attached_contexts_are_not_drawn(self) -> None:
        records: list[Record] = [Attached(Ids(1, 2)), A, 1, 2, 3, Attached(Ids(1, 2)), End(4)]
        assert [each.what for each in drawn(Encoding().encode(records).packets)] == [("a", 1, 2)]

    @pytest.mark.parametrize("end", [5, End(5), End(5, depth=2)])
    def test_an_end_without_a_begin_is_not_drawn(self, end: Record) -> None:
        assert drawn(Encoding().encode([end, A, 6, 7]).packets) == drawn(Encoding().encode([A, 6, 7]).packets)

    def test_a_lane_that_is_emptied_between_a_site_and_its_time(self) -> None:
        encoding = Encoding().encode([A])
        assert encoding.lane.awaits_time
        encoding.encode([1, 2])
        assert not encoding.lane.awaits_time
        assert [each.what for each in drawn(encoding.packets)] == [("a", 1, 2)]


class TestBounds:
    def test_a_new_sequence_knows_no_names_and_what_is_open(self) -> None:
        encoding = Encoding().encode([A, 1])
        encoding.lane.begin_sequence(9)
        assert encoding.lane.names == 0
        encoding.encode([A, 2, 3, 4])
        assert [each.what for each in drawn(encoding.packets)] == [("a", 1, 4), ("a", 2, 3)]
        assert {each.trusted_packet_sequence_id for each in encoding.packets} == {SEQUENCE, 9}

    def test_sites_made_on_the_way_are_not_remembered_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`slice(name, category)` may make a site for every call."""
        monkeypatch.setattr(perfetto_tracks, "_MAX_SITES", 5)
        encoding = Encoding().encode([record for time in range(20) for record in (Site("a", "c"), time, time)])
        assert len(encoding.lane._bare) <= 5
        assert len(drawn(encoding.packets)) == 20
        assert encoding.lane.names == 2


class TestWhatCannotBeDrawn:
    def test_is_counted(self) -> None:
        encoding = Encoding().encode([Begin(1, A, None, {"x": Raises()}), 2, CounterSample(3, Raises(), "", 1.0)])  # type: ignore[arg-type]  # as a program may
        assert encoding.lane.take_unreadable() == 2
        assert [each.what for each in drawn(encoding.packets)] == [("a", 1, 2)]

    @pytest.mark.parametrize("name", [["a"], None, 5])
    def test_a_counter_may_be_called_anything(self, name: Any) -> None:
        assert Encoding().encode([CounterSample(3, name, name, 1.0)]).packets

    def test_what_is_no_record_of_a_lane_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="not a record of a lane: Placed"):
            Encoding().encode([Placed("t", Begin(1, A), 2)])


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")
