"""Files of many hosts on one clock. Hosts are simulated: their clocks have origins, drifts and errors of their own."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from realparts.trace_making import MONOTONIC, REALTIME, TraceMaking
from rltel.core.errors import TraceError
from rltel.traces.clocks import Alignment, host_key, spell_ns
from rltel.traces.skim import Skimmed, skim

S, MS, US = 10**9, 10**6, 10**3
NOW = 1_795_987_020 * S


@dataclass
class Host:
    """A host, by the true time (ns since the epoch)."""

    name: str
    origin: int
    """What its monotonic clock shows at `NOW`."""
    ppm: float = 0.0
    wall_error: int = 0

    def monotonic(self, true: int) -> int:
        return self.origin + (true - NOW) + int((true - NOW) * self.ppm / 1e6)

    def process(self, uuid: int, start: int = NOW, step: int = 0) -> TraceMaking:
        """A process that begins at a true time; ``step``: what the wall clock was stepped by before."""
        mono, wall = self.monotonic(start), start + self.wall_error + step
        return TraceMaking(process=uuid, pid=uuid, name=f"p{uuid}", host=self.name, monotonic=mono, realtime=wall)


def measure(
    process: TraceMaking, here: Host, there: Host, reference: int, at: list[int], error: int, noise: random.Random
) -> None:
    """Offsets at true times, each off by up to the error that it states."""
    for true in at:
        off = noise.randint(-error, error)
        process.offset(here.monotonic(true), reference, here.monotonic(true) - there.monotonic(true) + off, error)


def aligned(folder: Path, *processes: TraceMaking) -> tuple[Alignment, list[Skimmed]]:
    files = [skim(process.write(folder / f"{number}.pftrace")) for number, process in enumerate(processes)]
    return Alignment(files), files


def last(*files: Skimmed, at: int) -> dict[str, int]:
    return {host_key(file): at for file in files}


class TestOneHost:
    def test_one_anchor_serves_all_its_processes(self, tmp_path: Path) -> None:
        """Anchors are a microsecond wide, and the wall clock may be stepped between two starts: no order may change."""
        host = Host("a", 500 * S)
        first, second = host.process(100), host.process(200, start=NOW + 60 * S, step=-5 * S)
        alignment, files = aligned(tmp_path, first, second)
        at = host.monotonic(NOW + 61 * S)
        assert [alignment.of(file).convert(at) for file in files] == [NOW + 61 * S] * 2
        assert alignment.uncertainty({}) == "one host: all processes read the same clock"
        assert alignment.uncertainty_ns({}) == 0

    def test_the_first_anchor_counts_whatever_the_names_of_the_files(self, tmp_path: Path) -> None:
        host = Host("a", 500 * S)
        late, early = host.process(100, start=NOW + 60 * S, step=-5 * S), host.process(200)
        alignment, files = aligned(tmp_path, late, early)
        assert alignment.of(files[0]).convert(host.monotonic(NOW)) == NOW

    def test_parts_of_a_process_without_a_host_id_use_its_first_anchor(self, tmp_path: Path) -> None:
        """Rotation after the wall clock was stepped by -5 s."""
        first = TraceMaking(process=100, monotonic=10 * S, realtime=NOW)
        second = TraceMaking(process=100, monotonic=70 * S, realtime=NOW + 55 * S)
        alignment, files = aligned(tmp_path, first, second)
        assert alignment.of(files[1]).convert(71 * S) == NOW + 61 * S
        assert alignment.uncertainty({}).startswith("one host")

    def test_every_clock_of_the_file_is_placed(self, tmp_path: Path) -> None:
        made = TraceMaking(host="a", monotonic=10 * S, realtime=NOW, boottime=25 * S)
        alignment, (file,) = aligned(tmp_path, made)
        placement = alignment.of(file)
        assert {clock: placement.convert(at + placement.clocks[clock]) for clock, at in file.snapshot.items()} == {
            MONOTONIC: NOW,
            6: NOW,
            REALTIME: NOW,
        }


class TestMeasuredHosts:
    @pytest.mark.parametrize("seed", range(20))
    def test_two_hosts_3_s_apart_and_drifting_are_ordered_within_the_stated_uncertainty(
        self, tmp_path: Path, seed: int
    ) -> None:
        noise = random.Random(seed)
        here = Host("a", 900 * S, ppm=noise.uniform(-40, 40), wall_error=0)
        there = Host("b", 40 * S, ppm=noise.uniform(-40, 40), wall_error=3 * S)
        reference, other = here.process(100), there.process(200)
        reference.offset(here.monotonic(NOW), 100, 0, 0)
        times = sorted(NOW + noise.randrange(600) * S for _ in range(noise.randint(2, 12)))
        measure(other, there, here, 100, times, 30 * US, noise)
        alignment, files = aligned(tmp_path, reference, other)
        ends = {host_key(file): host.monotonic(NOW + 700 * S) for file, host in zip(files, (here, there), strict=True)}
        bound = alignment.uncertainty_ns(ends)
        assert bound is not None
        for at in range(0, 700, 13):
            true = NOW + at * S
            one = alignment.of(files[0]).convert(here.monotonic(true))
            two = alignment.of(files[1]).convert(there.monotonic(true))
            assert abs(one - two) <= bound
        assert alignment.uncertainty(ends).startswith("2 hosts: offsets between them were measured")

    def test_the_bound_is_of_the_size_of_the_errors(self, tmp_path: Path) -> None:
        """A bound of a second would hold, too."""
        here, there, noise = Host("a", 900 * S), Host("b", 40 * S, ppm=30), random.Random(1)
        reference, other = here.process(100), there.process(200)
        measure(other, there, here, 100, [NOW + at * 60 * S for at in range(11)], 30 * US, noise)
        alignment, files = aligned(tmp_path, reference, other)
        bound = alignment.uncertainty_ns(last(*files, at=there.monotonic(NOW + 600 * S)))
        assert bound is not None
        assert bound <= 200 * US

    def test_a_process_without_measurements_uses_those_of_its_host(self, tmp_path: Path) -> None:
        """Collectors are in no process group."""
        here, there, noise = Host("a", 900 * S), Host("b", 40 * S, wall_error=3 * S), random.Random(2)
        reference, measured, collector = here.process(100), there.process(200), there.process(300, start=NOW + S)
        measure(measured, there, here, 100, [NOW, NOW + 60 * S], 0, noise)
        alignment, files = aligned(tmp_path, reference, measured, collector)
        assert alignment.of(files[2]).convert(there.monotonic(NOW + 2 * S)) == NOW + 2 * S

    def test_the_reference_s_wall_clock_is_the_one_of_all(self, tmp_path: Path) -> None:
        here, there = Host("a", 900 * S, wall_error=-7 * S), Host("b", 40 * S)
        reference, other = here.process(100), there.process(200)
        measure(other, there, here, 100, [NOW], 0, random.Random(3))
        alignment, files = aligned(tmp_path, other, reference)
        assert {
            alignment.of(files[0]).convert(there.monotonic(NOW)),
            alignment.of(files[1]).convert(here.monotonic(NOW)),
        } == {NOW - 7 * S}

    def test_hosts_measured_against_a_process_that_left_no_file_still_agree(self, tmp_path: Path) -> None:
        """`trace.ranks` may leave the reference out."""
        hosts = [Host(name, origin, wall_error=error) for name, origin, error in (("b", 40 * S, S), ("c", 7 * S, -S))]
        gone, noise = Host("a", 900 * S), random.Random(4)
        processes = [host.process(200 + number) for number, host in enumerate(hosts)]
        for process, host in zip(processes, hosts, strict=True):
            measure(process, host, gone, 100, [NOW, NOW + 60 * S], 0, noise)
        alignment, files = aligned(tmp_path, *processes)
        placed = {
            alignment.of(file).convert(host.monotonic(NOW + 5 * S)) for file, host in zip(files, hosts, strict=True)
        }
        assert len(placed) == 1
        assert abs(placed.pop() - NOW - 5 * S) <= S
        assert alignment.uncertainty_ns({}) is not None

    def test_offsets_add_up_along_a_chain(self, tmp_path: Path) -> None:
        """Two process groups with a host in common."""
        a, b, c, noise = Host("a", 900 * S), Host("b", 40 * S, ppm=20), Host("c", 7 * S, ppm=-30), random.Random(5)
        processes = [a.process(100), b.process(200), c.process(300)]
        times = [NOW + at * 60 * S for at in range(5)]
        measure(processes[1], b, a, 100, times, 10 * US, noise)
        measure(processes[2], c, b, 200, times, 10 * US, noise)
        alignment, files = aligned(tmp_path, *processes)
        true = NOW + 90 * S
        placed = [alignment.of(file).convert(h.monotonic(true)) for file, h in zip(files, (a, b, c), strict=True)]
        bound = alignment.uncertainty_ns({})
        assert bound is not None
        assert max(placed) - min(placed) <= bound

    def test_one_that_was_not_measured_is_as_good_as_its_wall_clock(self, tmp_path: Path) -> None:
        here, there, third = Host("a", 900 * S), Host("b", 40 * S), Host("c", 7 * S)
        reference, other, alone = here.process(100), there.process(200), third.process(300)
        measure(other, there, here, 100, [NOW], 0, random.Random(6))
        alignment, files = aligned(tmp_path, reference, other, alone)
        assert alignment.of(files[2]).convert(third.monotonic(NOW + S)) == NOW + S
        assert alignment.uncertainty_ns({}) is None
        words = alignment.uncertainty({})
        assert words.startswith("3 hosts: between 2 of them offsets were measured (within ")
        assert words.endswith("the others are as good as their clocks agree (NTP)")


class TestUnmeasuredHosts:
    def test_are_as_good_as_their_clocks_agree(self, tmp_path: Path) -> None:
        alignment, _ = aligned(tmp_path, Host("a", S).process(100), Host("b", 9 * S).process(200))
        assert alignment.uncertainty({}) == (
            "2 hosts: as good as their clocks agree (NTP); offsets between them were not measured"
        )
        assert alignment.uncertainty_ns({}) is None

    def test_equal_boot_times_are_two_hosts_if_their_ids_say_so(self, tmp_path: Path) -> None:
        alignment, _ = aligned(tmp_path, Host("a", S).process(100), Host("b", S).process(200))
        assert alignment.uncertainty({}).startswith("2 hosts")


class TestWallClockTimes:
    """Of profilers, that read the wall clock."""

    def test_follow_the_steps_of_the_wall_clock(self, tmp_path: Path) -> None:
        host = Host("a", 500 * S)
        made = host.process(100)
        made.anchor(host.monotonic(NOW + 60 * S), NOW + 55 * S)
        alignment, files = aligned(tmp_path, made)
        placement = alignment.of_wall(Skimmed(tmp_path / "k", snapshot={REALTIME: 0}), alignment.host_of([]))
        assert placement.convert(NOW + S) == NOW + S
        assert placement.convert(NOW + 56 * S) == NOW + 61 * S, "after the step of -5 s"
        assert files

    def test_of_a_process_of_one_host_of_several(self, tmp_path: Path) -> None:
        here, there = Host("a", 900 * S, wall_error=3 * S), Host("b", 40 * S)
        alignment, _ = aligned(tmp_path, here.process(100), there.process(200))
        found = alignment.host_of({0, 200})
        assert found is not None
        assert found.key == "host b"
        assert alignment.host_of({1}) is None
        assert alignment.host_of({100, 200}) is None

    def test_of_nobody_are_taken_as_they_are(self, tmp_path: Path) -> None:
        alignment, _ = aligned(tmp_path, Host("a", S).process(100), Host("b", 9 * S).process(200))
        placement = alignment.of_wall(Skimmed(tmp_path / "k", snapshot={REALTIME: 0}), None)
        assert placement.convert(NOW) == NOW


def test_a_file_without_an_anchor_is_refused_and_an_empty_one_is_not(tmp_path: Path) -> None:
    """google/perfetto#568."""
    (tmp_path / "empty").touch()
    Alignment([skim(tmp_path / "empty")])
    with pytest.raises(TraceError, match="has no clock anchor"):
        aligned(tmp_path, TraceMaking(monotonic=None))


@pytest.mark.parametrize(
    ("time", "said"), [(0, "0 ns"), (999, "999 ns"), (1_500, "1.5 us"), (-5 * S, "-5 s"), (123_456_789, "123 ms")]
)
def test_times_in_words(time: int, said: str) -> None:
    assert spell_ns(time) == said
