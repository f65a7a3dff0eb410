"""The verdict: which class comes first. The file itself is in `test_monitor`, as real soaks write it."""

import pytest

from rltel.runs.soak.artifact import judge
from rltel.runs.soak.finding import TOO_SHORT, Finding

NAMELESS, STALE, LEAK, SHORT = (
    Finding("code 1"),
    Finding("no progress", "timeout/stale_tick"),
    Finding("left", "resource_leak"),
    Finding("2 s", TOO_SHORT),
)


@pytest.mark.parametrize(
    ("findings", "producer", "classification"),
    [
        ([], None, None),
        ([], "collector_failure", None),
        ([NAMELESS], None, "unknown_failure"),
        ([NAMELESS, STALE, LEAK], None, "timeout/stale_tick"),
        ([STALE], "collector_failure", "collector_failure"),
        ([SHORT, SHORT], None, "too_short"),
        ([SHORT, NAMELESS], None, "unknown_failure"),
        ([SHORT, LEAK], None, "resource_leak"),
        ([SHORT], "collector_failure", "collector_failure"),
    ],
)
def test_the_producer_s_class_comes_first(
    findings: list[Finding], producer: str | None, classification: str | None
) -> None:
    verdict = judge(findings, producer)
    assert (verdict.classification, verdict.passed) == (classification, not findings)


def test_all_reasons_are_kept_in_order() -> None:
    assert judge([NAMELESS, STALE], None).reason == "code 1; no progress"
