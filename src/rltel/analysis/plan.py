"""What becomes of the tags of an old event file."""

from collections.abc import Set
from dataclasses import dataclass, field

from rltel.core.errors import RltelError
from rltel.names.legacy import Renamed, Retired, successor
from rltel.names.schema import tag


@dataclass(slots=True)
class Plan:
    """``renamed`` and ``left_out`` (with the reason) by old tag; all others are carried as they are."""

    renamed: dict[str, Renamed] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    canonical: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


def plan_of(tags: Set[str], algo: str | None, where: str) -> Plan:
    """The plan for one file's scalar tags.

    Raises `RltelError` if one had several meanings and ``algo`` does not decide, or stands beside what it became:
    then nobody can say which of the two is right. ``where`` they are, for the message.
    """
    plan = Plan()
    for old in sorted(tags):
        found = successor(old, algo)
        if isinstance(found, Renamed):
            plan.renamed[old] = found
        elif isinstance(found, Retired):
            plan.left_out[old] = f"retired; instead: {found.instead}"
        else:
            (plan.unknown if tag(old) is None else plan.canonical).add(old)
    _check_both(plan, where)
    _choose(plan)
    return plan


def _check_both(plan: Plan, where: str) -> None:
    both = [f"{old} and {found.tag}" for old, found in plan.renamed.items() if found.tag in plan.canonical]
    if both:
        raise RltelError(f"{where}: expected old tags or what they became, found both: {', '.join(both)}")


def _choose(plan: Plan) -> None:
    """Of several old tags that became one, the preferred one."""
    taken: dict[str, str] = {}
    for old in sorted(plan.renamed, key=lambda name: plan.renamed[name].place):
        new = plan.renamed[old].tag
        if new in taken:
            plan.left_out[old] = f"{new} has {taken[new]}"
            del plan.renamed[old]
        else:
            taken[new] = old
