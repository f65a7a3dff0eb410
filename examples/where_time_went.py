"""A table of where a run's time went, from its JSONL record alone.

python examples/where_time_went.py RUN_DIR
"""

import sys
from pathlib import Path

import rltel
from rltel.record.kinds import Moments
from rltel.record.phase_sets import SAC_COLLECTOR, SAC_LEARNER, PhaseSet

HEADER = f"{'phase':32} {'seconds':>8} {'share':>7} {'mean ms':>9}"


def where_time_went(run_dir: Path) -> str:
    """Learner phases as shares of the iterations, collector phases as shares of the cycles; Other is what is left."""
    totals: dict[str, Moments] = {}
    for line in rltel.read_jsonl(run_dir):
        for key, metric in line.snapshot.items():
            seen = totals.get(key, Moments())
            moments = Moments(*metric.state.moments)
            totals[key] = Moments(seen.total + moments.total, seen.n + moments.n)
    return "\n".join([HEADER, *_rows(SAC_LEARNER, totals), "", *_rows(SAC_COLLECTOR, totals)])


def _rows(phases: PhaseSet, totals: dict[str, Moments]) -> list[str]:
    exclusive = [phase for phase in phases.phases if phase.kind == "exclusive"]
    accounted = sum(totals[phase.key].total for phase in exclusive if phase.key in totals)
    whole = totals.get(phases.loop_key or "", Moments(total=accounted)).total
    rows = [f"{phases.role}, {phases.loop}s"]
    for outer in exclusive:
        for phase in (outer, *(each for each in phases.phases if each.parent == outer.name)):
            if phase.key in totals:
                spent = totals[phase.key]
                indent = "  " if phase is outer else "    "
                rows.append(_row(indent + phase.name, spent.total, whole, spent.total / spent.n))
    if phases.loop_key:
        rows.append(_row("  other", max(whole - accounted, 0.0), whole, None))
        rows.append(_row("  whole", whole, whole, None))
    return rows


def _row(name: str, seconds: float, whole: float, mean: float | None) -> str:
    shown = "" if mean is None else f"{mean * 1e3:9.3f}"
    return f"{name:32} {seconds:8.2f} {seconds / whole if whole else 0:7.1%} {shown}"


if __name__ == "__main__":
    print(where_time_went(Path(sys.argv[1])))
