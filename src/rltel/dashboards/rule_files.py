"""Rules as the YAML that Prometheus reads, and examples as the unit tests that promtool runs.

Written by hand: the package does not need a YAML library.
"""

import textwrap
from collections.abc import Iterator, Mapping

from rltel.dashboards.rule_model import Alert, Fires, Quiet, Record, RuleGroup, example_series

_MADE = "# Made by `rltel dashboards build`; change src/rltel/dashboards/rule_data instead.\n"
_WIDTH = 116


def rules_file(group: RuleGroup) -> str:
    """A file for ``rule_files``."""
    rules = [_record(each) for each in group.record] + [_alert(each) for each in group.alert]
    head = f"groups:\n  - name: {_named(group)}\n    rules:\n"
    return f"{_MADE}{head}" + "\n".join(textwrap.indent(rule, "      ") for rule in rules)


def tests_file(group: RuleGroup, recording: RuleGroup) -> str:
    """A file for ``promtool test rules``, in a folder beside the rules."""
    files = "".join(f"  - ../{each.name}.yml\n" for each in (recording, group))
    tests = [_test(alert, example) for alert in group.alert for example in _examples(alert)]
    order = f"group_eval_order: [{_named(recording)}, {_named(group)}]\n"  # else it is by chance
    return f"{_MADE}rule_files:\n{files}{order}evaluation_interval: 1m\ntests:\n" + "\n".join(tests)


def _examples(alert: Alert) -> tuple[Fires | Quiet, ...]:
    return *alert.fires, *alert.quiet


def _named(group: RuleGroup) -> str:
    return f"rltel-{group.name}"


def _record(rule: Record) -> str:
    lines = [*_comment(rule.about), f"- record: {rule.record}", *_block("expr", rule.promql)]
    return _text([*lines, *_mapping("labels", rule.labels)])


def _alert(rule: Alert) -> str:
    lines = [*_comment(rule.why), f"- alert: {rule.alert}", *_block("expr", rule.promql), f"  for: {rule.held}"]
    return _text([*lines, *_mapping("labels", {"severity": rule.severity}), *_mapping("annotations", rule.annotations)])


def _test(rule: Alert, example: Fires | Quiet) -> str:
    fires = isinstance(example, Fires)
    lines = [f"  - name: {rule.alert} {'fires' if fires else 'stays quiet'}", "    interval: 1m", "    input_series:"]
    for series, values in example.series.items():
        lines += [f"      - series: {_quoted(example_series(series))}", f"        values: {_quoted(values)}"]
    lines += ["    alert_rule_test:", f"      - eval_time: {example.at}", f"        alertname: {rule.alert}"]
    if isinstance(example, Fires):
        lines += ["        exp_alerts:", *_expected(rule, example)]
    return _text(lines)


def _expected(rule: Alert, example: Fires) -> Iterator[str]:
    labels = _mapping("exp_labels", rule.labels_of(example))
    annotations = _mapping("exp_annotations", rule.annotations_of(example))
    for number, line in enumerate((*labels, *annotations)):
        yield f"          {'-' if number == 0 else ' '} {line.removeprefix('  ')}"


def _mapping(name: str, of: Mapping[str, str]) -> list[str]:
    return [f"  {name}:", *(f"    {key}: {_quoted(value)}" for key, value in of.items())] if of else []


def _block(name: str, text: str) -> list[str]:
    return [f"  {name}: |", *(f"    {line}" for line in text.splitlines())]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH - 8)]


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
