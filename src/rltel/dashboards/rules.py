"""Recording and alert rules for what fails silently in RL, from ``rule_data/*.toml``, and the files that they are.

A rule stands there beside its reasons and with series that fire it and series that do not, from which the unit tests of
``promtool test rules`` are made.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files as files_of
from tomllib import loads
from typing import Any

import msgspec

from rltel.dashboards.rule_files import rules_file, tests_file
from rltel.dashboards.rule_model import RuleGroup

GROUPS = ("recording", "learning", "policy", "rollouts", "processes", "telemetry")
"""In the order of their files; recordings come first, since the others read them."""


@cache
def groups() -> tuple[RuleGroup, ...]:
    """All rules. Raises `msgspec.ValidationError` where a file says what no rule has."""
    folder = files_of("rltel.dashboards") / "rule_data"
    return tuple(_group(name, loads((folder / f"{name}.toml").read_text("utf-8"))) for name in GROUPS)


def files() -> Mapping[str, str]:
    """Relative paths, and what stands in the files: rules, and unit tests of each file of alerts."""
    recording, *alerting = groups()
    made = {f"rules/{group.name}.yml": rules_file(group) for group in groups()}
    made |= {f"rules/tests/{group.name}.yml": tests_file(group, recording) for group in alerting}
    return made


def _group(name: str, data: Mapping[str, Any]) -> RuleGroup:
    return msgspec.convert({"name": name, **data}, RuleGroup)
