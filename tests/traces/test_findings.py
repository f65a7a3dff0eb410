"""What checks find, collected."""

from pathlib import Path

from rltel.traces.findings import Finding, Findings

PATH = Path("t.pftrace")


class Here:
    path = PATH

    def __init__(self, place: str) -> None:
        self.place = place

    def __str__(self) -> str:
        return self.place


def test_problems_come_first_and_each_in_its_words() -> None:
    findings = Findings()
    findings.note(PATH, "", "is cut")
    findings.problem(PATH, "packet 3", "is damaged")
    assert [str(each) for each in findings.all()] == [
        "problem: t.pftrace, packet 3: is damaged",
        "note: t.pftrace: is cut",
    ]


def test_of_what_repeats_the_first_is_told_and_all_are_counted() -> None:
    findings = Findings()
    for number in range(3):
        findings.repeated(Here(f"packet {number}"), "same", f"of {number}")
    findings.repeated(Here("packet 9"), "other", "once")
    assert findings.all() == [
        Finding("problem", "t.pftrace", "packet 0", "of 0 (3 such)"),
        Finding("problem", "t.pftrace", "packet 9", "once"),
    ]


def test_of_one_kind_in_several_files_the_first_is_told() -> None:
    findings = Findings()
    for name in ("a", "b", "b"):
        here = Here(f"packet of {name}")
        here.path = Path(name)
        findings.repeated(here, "same", f"of {name}")
    assert findings.all() == [Finding("problem", "a", "packet of a", "of a (3 such, in 2 files)")]


def test_a_place_is_put_into_words_only_for_the_first() -> None:
    """A damaged file has a million of them."""

    class Costly(Here):
        asked = 0

        def __str__(self) -> str:
            Costly.asked += 1
            return "here"

    findings = Findings()
    for _ in range(100):
        findings.repeated(Costly(""), "same", "text")
    assert Costly.asked == 1
