"""Slices collected from many files, against a model that holds them all."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from realparts.trace_making import TraceMaking
from rltel.core.errors import TraceError
from rltel.traces.clocks import Alignment
from rltel.traces.progress import Meter
from rltel.traces.skim import skim
from rltel.traces.slices import Group, Key, Slices

NOW = 1_795_987_020_000_000_000


def collect(folder: Path, *processes: TraceMaking, align: bool = False) -> Slices:
    files = [skim(made.write(folder / f"{number}.pftrace")) for number, made in enumerate(processes)]
    slices = Slices()
    slices.read(files, Alignment(files) if align else None, Meter([file.path for file in files], None))
    return slices


def pairs(group: Group) -> list[tuple[int, int]]:
    return list(zip(group.starts, group.ends, strict=True))


Tree = list[tuple[str, str, Any]]
"""Slices: name, category, and those inside."""
LEAVES = st.just([])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["rl.loop", "exclusive", "nested", "background", "", "x"]),
            inner,
        ),
        max_size=3,
    ),
    max_leaves=12,
)


class Model:
    """Draws a tree, and says what must come out of it."""

    def __init__(self, made: TraceMaking) -> None:
        self.made = made
        self.now = 2_000
        self.expected: dict[Key, list[tuple[int, int]]] = {}
        self.inside: dict[Key, int] = {}
        self.other: dict[tuple[str, str], int] = {}

    def draw(self, tree: Tree, sequence: int, loop: str, spent: dict[Key, int]) -> None:
        for name, category, inner in tree:
            start = self.now
            self.made.begin(start, name, category, sequence)
            self.now += 3
            own: dict[Key, int] = {} if category == "rl.loop" else spent
            self.draw(inner, sequence, name if category == "rl.loop" else loop, own)
            self.now += 5
            self.made.end(self.now, sequence)
            is_phase = category in ("exclusive", "nested", "background")
            key = Key("100", loop if is_phase else "", category, name)
            self.expected.setdefault(key, []).append((start, self.now))
            if category == "rl.loop":
                exclusive = sum(time for each, time in own.items() if each.category == "exclusive")
                rest = max(self.now - start - exclusive, 0)
                self.other["100", name] = self.other.get(("100", name), 0) + rest
                for each, time in own.items():
                    self.inside[each] = self.inside.get(each, 0) + time
            elif is_phase and loop:
                spent[key] = spent.get(key, 0) + self.now - start


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES, TREES)
def test_every_slice_is_in_its_group(tmp_path: Path, one: Tree, other: Tree) -> None:
    made = TraceMaking()
    made.packets.append(made.thread_packet(3, 500, tid=11))
    model = Model(made)
    model.draw(one, 2, "", {})
    model.draw(other, 3, "", {})
    slices = collect(tmp_path, made)
    assert {key: pairs(group) for key, group in slices.groups.items()} == model.expected
    assert {key: group.in_iterations for key, group in slices.groups.items() if group.in_iterations} == model.inside
    assert slices.other == model.other
    assert slices.unmatched == 0


def test_interleaved_threads_do_not_mix(tmp_path: Path) -> None:
    made = TraceMaking()
    made.packets.append(made.thread_packet(3, 500, tid=11))
    made.begin(2_000, "iteration", "rl.loop")
    made.begin(2_001, "background work", "background", sequence=3)
    made.begin(2_002, "learning", "exclusive")
    made.end(2_010, sequence=3)
    made.end(2_012)
    made.end(2_020)
    groups = collect(tmp_path, made).groups
    assert {key[1:]: pairs(group) for key, group in groups.items()} == {
        ("", "rl.loop", "iteration"): [(2_000, 2_020)],
        ("iteration", "exclusive", "learning"): [(2_002, 2_012)],
        ("", "background", "background work"): [(2_001, 2_010)],
    }


def test_open_slices_are_counted_and_their_iteration_gives_no_share(tmp_path: Path) -> None:
    """A killed process: what ended counts, what did not is said to be open."""
    made = TraceMaking()
    made.begin(2_000, "iteration", "rl.loop")
    made.slice(2_001, 2_005, "learning", "exclusive")
    made.begin(2_006, "learning", "exclusive")
    slices = collect(tmp_path, made)
    learning = slices.groups[Key("100", "iteration", "exclusive", "learning")]
    assert (pairs(learning), learning.still_open, learning.in_iterations) == ([(2_001, 2_005)], 1, 0)
    assert slices.groups[Key("100", "", "rl.loop", "iteration")].still_open == 1
    assert slices.other == {}


def test_a_slice_goes_on_in_the_next_part(tmp_path: Path) -> None:
    first, second = TraceMaking(), TraceMaking()
    first.begin(2_000, "iteration", "rl.loop")
    first.begin(2_001, "learning", "exclusive")
    second.end(2_010)
    second.end(2_020)
    slices = collect(tmp_path, first, second)
    assert slices.groups[Key("100", "iteration", "exclusive", "learning")].in_iterations == 9
    assert slices.other == {("100", "iteration"): 11}


def test_ends_without_a_begin_are_counted(tmp_path: Path) -> None:
    made = TraceMaking()
    made.end(2_000)
    made.slice(2_001, 2_002, "s")
    made.end(2_003)
    slices = collect(tmp_path, made)
    assert slices.unmatched == 2
    assert [len(group.starts) for group in slices.groups.values()] == [1]


def test_times_are_on_one_clock(tmp_path: Path) -> None:
    first = TraceMaking(process=100, host="a", monotonic=1_000, realtime=NOW)
    second = TraceMaking(process=200, host="b", monotonic=900_000, realtime=NOW + 50)
    first.slice(1_100, 1_110, "s")
    second.slice(900_100, 900_110, "s")
    groups = collect(tmp_path, first, second, align=True).groups
    assert [pairs(group) for group in groups.values()] == [[(NOW + 100, NOW + 110)], [(NOW + 150, NOW + 160)]]


def test_by_measured_offsets_too(tmp_path: Path) -> None:
    first = TraceMaking(process=100, host="a", monotonic=1_000, realtime=NOW)
    second = TraceMaking(process=200, host="b", monotonic=900_000, realtime=NOW + 10**9)
    second.offset(900_000, 100, 899_000, 1)
    second.slice(900_100, 900_110, "s")
    (group,) = collect(tmp_path, first, second, align=True).groups.values()
    assert pairs(group) == [(NOW + 100, NOW + 110)]


def test_tracks_without_a_name_of_two_files_are_two(tmp_path: Path) -> None:
    made = [TraceMaking(process=100), TraceMaking(process=200)]
    for each in made:
        each.packets = each.packets[:1]
        each.begin(2_000, "s", sequence=7)
        each.end(2_001 + each.process, sequence=7)
    slices = collect(tmp_path, *made)
    assert sorted(pairs(group) for group in slices.groups.values()) == [[(2_000, 2_101)], [(2_000, 2_201)]]
    assert set(slices.names.values()) == {"0.pftrace", "1.pftrace"}


def test_an_event_on_a_clock_without_an_anchor_is_refused(tmp_path: Path) -> None:
    made = TraceMaking(host="a")
    made.begin(5, "s")
    made.packets[-1].timestamp_clock_id = 64
    with pytest.raises(TraceError, match="an event is on clock 64"):
        collect(tmp_path, made, align=True)


def test_sixteen_bytes_a_slice(tmp_path: Path) -> None:
    made = TraceMaking()
    for at in range(5_000):
        made.slice(2_000 + at, 2_001 + at, "s")
    (group,) = collect(tmp_path, made).groups.values()
    assert group.starts.itemsize + group.ends.itemsize == 16
    assert len(group.starts) == 5_000
