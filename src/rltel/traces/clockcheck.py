"""What the clock packets of a process say about its clocks, in words."""

from itertools import pairwise

from rltel.core.clock import Anchor
from rltel.traces.clocks import spell_ns
from rltel.traces.drift import MOST_DRIFT
from rltel.traces.findings import Findings
from rltel.traces.skim import REALTIME, Skimmed

_STEP_NS = 10_000_000  # more than clocks are slewed by between two anchors, and anchors are wide
_DRIFT_NS = 1_000_000


def check_clocks(parts: list[Skimmed], findings: Findings) -> None:
    """The parts of one process: can they be placed in time, and did their wall clock behave?"""
    for file in parts:
        if file.has_packets and not file.is_merged and not file.anchors and REALTIME not in file.snapshot:
            text = "has no clock anchor (ClockSnapshot with the wall clock): it cannot be merged with others"
            findings.problem(file.path, "", text)
    hosts = sorted({file.host for file in parts if file.host})
    if len(hosts) > 1:
        text = f"is of another host than {parts[0].path}, and their processes have one id"
        findings.problem(parts[-1].path, "", text)
    if not parts[0].is_merged:
        _check_wall(parts, findings)
        _check_measured(parts, findings)


def _check_wall(parts: list[Skimmed], findings: Findings) -> None:
    known = [(anchor, file) for file in parts for anchor in file.joint_readings]
    stepped = False
    for (before, _), (after, file) in pairwise(known):
        step, slept = _ahead(after) - _ahead(before), _asleep(after) - _asleep(before)
        place = f"between {_seconds(before, known[0][0])} and {_seconds(after, known[0][0])} s"
        if slept > _STEP_NS:
            findings.note(file.path, place, f"the machine slept for {spell_ns(slept)} (no slice shows that)")
        if abs(step - slept) > _STEP_NS:
            stepped = True
            findings.note(file.path, place, f"the wall clock stepped by {_signed(step - slept)} (no slice shows that)")
    if known and not stepped:
        _check_drift(known[0][0], known[-1][0], parts[-1], findings)


def _check_drift(first: Anchor, last: Anchor, file: Skimmed, findings: Findings) -> None:
    drift = _ahead(last) - _ahead(first) - (_asleep(last) - _asleep(first))
    if abs(drift) > _DRIFT_NS:
        over = last.monotonic_ns - first.monotonic_ns
        text = f"the wall clock drifted by {_signed(drift)} over {spell_ns(over)} ({drift / over * 1e6:+.1f} ppm)"
        findings.note(file.path, "", text)


def _check_measured(parts: list[Skimmed], findings: Findings) -> None:
    for file in parts:
        for before, after in pairwise(file.measured):
            apart, moved = after.time_ns - before.time_ns, after.offset_ns - before.offset_ns
            if before.reference == after.reference and abs(moved) > MOST_DRIFT * max(apart, 0):
                text = f"measured offsets contradict each other: by {_signed(moved)} within {spell_ns(apart)}"
                findings.note(file.path, f"clock offset at {after.time_ns} ns", f"{text} (the surer one is used)")


def _ahead(anchor: Anchor) -> int:
    return anchor.realtime_ns - anchor.monotonic_ns


def _asleep(anchor: Anchor) -> int:
    return anchor.boottime_ns - anchor.monotonic_ns


def _seconds(anchor: Anchor, zero: Anchor) -> str:
    return f"{(anchor.monotonic_ns - zero.monotonic_ns) / 1e9:.3f}"


def _signed(time_ns: int) -> str:
    return f"{'+' if time_ns >= 0 else '-'}{spell_ns(abs(time_ns))}"
