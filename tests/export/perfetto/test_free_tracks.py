"""Slices that may overlap anything: on as many tracks as it takes, and no more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import Drawn, drawn
from realparts.perfetto_reader import parse_packets
from rltel.export.perfetto import free_tracks
from rltel.export.perfetto import wire as perfetto_wire
from rltel.export.perfetto.free_tracks import FreeTracks
from rltel.record.records import Begin, End, FreeBegin, FreeEnd, Placed, Record, Site

SPANS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=25)
"""Begins and lengths."""


class Tracks:
    """Free tracks with all that was written."""

    def __init__(self) -> None:
        self.described: list[tuple[int, str]] = []
        self.tracks = FreeTracks(self._describe)
        self.tracks.begin_sequence(3)
        self.data = b""

    def _describe(self, track: int, name: str) -> bytes:
        self.described.append((track, name))
        return perfetto_wire.track_packet(track, 1, name)

    def add(self, *records: Record) -> list[Drawn]:
        for record in records:
            self.tracks.add(record)
        self.data += self.tracks.take_packets()
        return drawn(parse_packets(self.data))


def begin(number: int, at: int, name: Any = "s") -> FreeBegin:
    return FreeBegin(number, Begin(at, Site(name, "")))


def end(number: int, at: int) -> FreeEnd:
    return FreeEnd(number, End(at))


def laminar(slices: list[Drawn]) -> bool:
    """Whether no two of one track cross or begin inside each other."""
    by_track: dict[int, list[Drawn]] = {}
    for each in slices:
        by_track.setdefault(each.track, []).append(each)
    return all(
        (before.end_ns or 0) <= after.begin_ns
        for of_track in by_track.values()
        for before, after in zip(
            sorted(of_track, key=lambda each: (each.begin_ns, each.end_ns)),
            sorted(of_track, key=lambda each: (each.begin_ns, each.end_ns))[1:],
            strict=False,
        )
    )


def depth(spans: list[tuple[int, int]]) -> int:
    """How many are open at once, at most."""
    moments = sorted([(at, 1) for at, length in spans if length] + [(at + length, 0) for at, length in spans if length])
    deepest = now = 0
    for _, opens in moments:
        now += 1 if opens else -1
        deepest = max(deepest, now)
    return deepest


class TestFree:
    def test_what_overlaps_gets_a_track_of_its_own_and_the_first_is_used_again(self) -> None:
        tracks = Tracks()
        found = tracks.add(begin(1, 10), begin(2, 20), end(1, 30), begin(3, 30), end(2, 40), end(3, 50))
        assert [(each.begin_ns, each.end_ns) for each in found] == [(10, 30), (20, 40), (30, 50)]
        assert found[0].track == found[2].track != found[1].track
        assert [name for _, name in tracks.described] == ["s", "s"]

    def test_other_names_have_other_tracks(self) -> None:
        tracks = Tracks()
        tracks.add(begin(1, 10, "a"), end(1, 20), begin(2, 30, "b"), end(2, 40))
        assert [name for _, name in tracks.described] == ["a", "b"]

    def test_an_end_of_what_was_left_out_is_nothing(self) -> None:
        assert Tracks().add(end(5, 10)) == []

    def test_what_is_open_at_the_end_is_ended(self) -> None:
        tracks = Tracks()
        tracks.add(begin(1, 10), begin(2, 20))
        tracks.tracks.close_open(99)
        assert [each.end_ns for each in tracks.add()] == [99, 99]

    @given(SPANS)
    def test_random_ones_stay_whole_on_as_few_tracks_as_possible(self, spans: list[tuple[int, int]]) -> None:
        moments = [(at, 1, number) for number, (at, _) in enumerate(spans)]
        moments += [(at + length, 0, number) for number, (at, length) in enumerate(spans) if length]
        tracks, found = Tracks(), list[Drawn]()
        for at, opens, number in sorted(moments):
            found = tracks.add(*([begin(number, at)] if opens else [end(number, at)]))
            if opens and not spans[number][1]:
                found = tracks.add(end(number, at))
        assert sorted((each.begin_ns, each.end_ns) for each in found) == sorted((a, a + n) for a, n in spans)
        assert laminar(found)
        assert len(tracks.described) <= depth(spans) + 1  # one more: of no length, between two that touch


class TestPlaced:
    @given(SPANS)
    def test_random_ones_in_any_order_stay_whole(self, spans: list[tuple[int, int]]) -> None:
        tracks = Tracks()
        found = tracks.add(*(Placed("cuda:0", Begin(at, Site("k", "")), at + length) for at, length in spans))
        assert sorted((each.begin_ns, each.end_ns) for each in found) == sorted((a, a + n) for a, n in spans)
        assert laminar(found)

    @given(SPANS)
    def test_in_the_order_of_begins_they_take_as_few_tracks_as_possible(self, spans: list[tuple[int, int]]) -> None:
        tracks = Tracks()
        tracks.add(*(Placed("t", Begin(at, Site("k", "")), at + length) for at, length in sorted(spans) if length))
        assert len(tracks.described) == depth(spans)

    def test_back_to_back_work_shares_a_track(self) -> None:
        found = Tracks().add(*(Placed("t", Begin(at, Site("k", "")), at + 10) for at in (0, 10, 20)))
        assert len({each.track for each in found}) == 1

    def test_an_end_before_its_begin_is_drawn_with_no_length(self) -> None:
        (found,) = Tracks().add(Placed("t", Begin(10, Site("k", "")), 5))
        assert (found.begin_ns, found.end_ns) == (10, 10)

    @pytest.mark.parametrize("time_ns", [1.5, None, "soon"])
    def test_times_that_are_none_cost_only_themselves(self, time_ns: Any) -> None:
        tracks = Tracks()
        placed = Placed("t", Begin(time_ns, Site("k", "")), 5), Placed("t", Begin(1, Site("ok", "")), 5)
        assert [each.name for each in tracks.add(*placed)][-1] == "ok"
        assert tracks.tracks.take_unreadable() == 1


class TestBounds:
    def test_names_made_up_on_the_way_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(free_tracks, "_MAX_NAMES", 10)
        tracks = Tracks()
        tracks.add(begin(1, 0, "open all the time"))
        for number in range(2, 100):
            tracks.add(begin(number, number, f"rollout {number}"), end(number, number))
        assert len(tracks.tracks._tracks) <= 10
        assert len(tracks.tracks._described) <= 12
        found = tracks.add(end(1, 100))
        assert (found[0].end_ns, len(found)) == (100, 99)

    def test_a_new_file_is_told_of_a_track_before_it_is_used(self) -> None:
        tracks = Tracks()
        tracks.add(begin(1, 10))
        tracks.tracks.begin_sequence(4)
        assert tracks.tracks.names == 0
        tracks.add(end(1, 20))
        assert len(set(tracks.described)) == 1
        assert len(tracks.described) == 2

    def test_a_name_may_be_anything(self) -> None:
        tracks = Tracks()
        assert [each.end_ns for each in tracks.add(begin(1, 1, ["a"]), end(1, 2))] == [2]
        assert tracks.described[0][1] == "['a']"
