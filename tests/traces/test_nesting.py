"""Whether slices nest."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rltel.traces.events import BEGIN, END, Event
from rltel.traces.findings import Finding, Findings
from rltel.traces.nesting import Nesting


class Here:
    path = Path("t.pftrace")

    def __str__(self) -> str:
        return "here"


Step = tuple[int, int, str]


def checked(*steps: Step, track: int = 1) -> tuple[list[Finding], list[str]]:
    """Begins (with a name) and ends (without) at times."""
    findings = Findings()
    nesting = Nesting(findings)
    for kind, time, name in steps:
        nesting.take(Here(), time, Event(kind, track, name, "", 3, 2))
    return findings.all(), nesting.still_open()


def begin(time: int, name: str = "s") -> Step:
    return BEGIN, time, name


def end(time: int) -> Step:
    return END, time, ""


def test_nested_and_following_slices_are_well() -> None:
    assert checked(begin(0), begin(1), end(5), begin(5), end(9), end(9), begin(9), end(9)) == ([], [])


def test_an_end_without_a_begin() -> None:
    (found,), _ = checked(begin(0), end(1), end(2), end(3))
    assert str(found) == "problem: t.pftrace, here: a slice ends on track 1 that never began (2 such)"


def test_a_negative_duration() -> None:
    (found,), _ = checked(begin(5, "odd"), end(3))
    assert found.text == 'slice "odd" ends 2 ns before it begins'


def test_google_perfetto_4280_slices_that_overlap_on_one_track() -> None:
    """A 3+3.776, B 5+2 on one thread: one would be dropped, or both drawn with wrong lengths."""
    (found,), _ = checked(begin(3_000, "A"), end(6_776), begin(5_000, "B"), end(7_000))
    assert found.text == 'slice "B" [5000, 7000] overlaps "A" [3000, 6776] on track 1'


def test_slices_written_later_that_lie_within_or_beside_earlier_ones_are_well() -> None:
    """A file need not be in the order of time."""
    assert checked(begin(0), end(100), begin(20), end(30), begin(200), end(210), begin(150), end(160)) == ([], [])


def test_what_is_open() -> None:
    assert checked(begin(0, "outer"), begin(1, "inner"), end(2), begin(3, "other")) == ([], ["outer", "other"])


def test_tracks_are_apart() -> None:
    findings = Findings()
    nesting = Nesting(findings)
    for kind, time, track in ((BEGIN, 0, 1), (BEGIN, 1, 2), (END, 5, 1), (END, 9, 2), (BEGIN, 2, 3), (END, 3, 3)):
        nesting.take(Here(), time, Event(kind, track, "s", "", 3, 2))
    assert findings.all() == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=6))
def test_complete_slices_in_any_order_are_well_just_when_none_crosses_another(slices: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in slices]
    crossing = any(a < c < b < d for a, b in spans for c, d in spans)
    found, _ = checked(*(step for start, stop in spans for step in (begin(start), end(stop))))
    assert bool(found) == crossing
