"""The rules: promtool's judgement, names that really are exposed, and values that agree with what was recorded."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from export.making import Points, commit, identity, recorded
from realparts import requirements
from realparts.processes import http_get
from realparts.prometheus import Labels
from realparts.requirements import REPOSITORY
from realparts.rule_series import NOT_IN_THE_DEMOS, Watched, small_llm_program, small_program, watched
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.core.config import OtlpConfig, RunConfig
from rltel.dashboards.all_of_them import DASHBOARDS
from rltel.dashboards.rule_model import PROCESS, Alert, Record, example_series
from rltel.dashboards.rules import files, groups
from rltel.dashboards.rules_page import tables
from rltel.export.otlp.metrics import open_otlp_metrics
from rltel.export.resource import resource_of
from rltel.reduce.trackers import Trackers

pytestmark = [
    pytest.mark.xdist_group("demo"),  # two demos at once would share two cores
    pytest.mark.timeout(900),  # whole trainings are in the first test's time, however busy the machine
]

FOLDER = REPOSITORY / "dashboards"
RULES = sorted((FOLDER / "rules").glob("*.yml"))
TESTS = sorted((FOLDER / "rules" / "tests").glob("*.yml"))
ALERTS = [alert for group in groups() for alert in group.alert]
RECORDS = [record for group in groups() for record in group.record]
OF_THE_SERVER = {"up": "Prometheus makes it of every scrape"}

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BY = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\b((?:rl|rltel|run:rl|up)\w*(?::\w+)*)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


class Selector(NamedTuple):
    """A metric that is asked for, and how its labels are."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def takes(self, labels: Labels) -> bool:
        return labels.get("__name__") == self.name and all(
            _holds(how, labels.get(label, ""), value) for label, how, value in self.matchers
        )


def _holds(how: str, have: str, want: str) -> bool:
    equal = bool(re.fullmatch(want, have)) if "~" in how else have == want
    return equal != how.startswith("!")


def selectors(text: str) -> set[Selector]:
    bare = _BY.sub(" ", text)
    return {
        Selector(name, tuple(_MATCHER.findall(matchers)))
        for name, matchers in _SELECTOR.findall(bare)
        if not is_in_string(name, bare)
    }


def is_in_string(name: str, text: str) -> bool:
    """Whether it only stands inside quotes or as a label."""
    outside = re.sub(r"\{[^}]*\}", "", _STRING.sub("", text))
    return not re.search(rf"(?<![\w:]){re.escape(name)}(?![\w:])", outside)


def grouped_by(text: str) -> set[str]:
    return {label.strip() for labels in _BY.findall(text) for label in labels.split(",")} - {"le"}


# --- the files ------------------------------------------------------------------------------------------------------


def test_checked_in_files_are_what_the_package_makes() -> None:
    """Else: `rltel dashboards build`."""
    stored = {str(path.relative_to(FOLDER)): path.read_text() for path in chain(RULES, TESTS)}
    assert stored == dict(files())


def test_promtool_finds_nothing_to_complain_of() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULES))
    assert done.returncode == 0, done.stdout
    assert sum(map(int, re.findall(r"SUCCESS: (\d+) rules", done.stdout))) == len(ALERTS) + len(RECORDS)


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.stem)
def test_examples_that_fire_an_alert_do_and_the_others_do_not(file: Path) -> None:
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout


def test_promtool_would_see_an_example_that_does_not_fire(tmp_path: Path) -> None:
    for path, text in files().items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("> 0.05", "> 5") if path == "rules/policy.yml" else text)
    done = promtool("test", "rules", str(tmp_path / "rules/tests/policy.yml"))
    assert done.returncode != 0
    assert "RLKLRunningAway" in done.stdout


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(requirements.need_promtool()), *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, text=True, timeout=120, check=False, **pipes)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.alert)
def test_an_alert_says_what_it_means_and_has_examples_for_both(alert: Alert) -> None:
    assert alert.fires
    assert alert.quiet
    for text in (alert.summary, alert.means, alert.look, alert.why):
        assert len(text.split()) > 1
    assert all(alert.annotations_of(example)["summary"] for example in alert.fires)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.alert)
def test_a_quiet_example_is_about_the_alert_s_own_series(alert: Alert) -> None:
    """One without any of them would be quiet whatever the threshold."""
    firing = {selector.name for example in alert.fires for series in example.series for selector in selectors(series)}
    for example in alert.quiet:
        assert firing & {selector.name for series in example.series for selector in selectors(series)}


def test_every_source_of_an_alert_s_measure_has_an_example_that_fires_it() -> None:
    for alert in ALERTS:
        tried = {
            selector.name for example in alert.fires for series in example.series for selector in selectors(series)
        }
        for selector in selectors(alert.promql):
            for record in RECORDS:
                labels = {"__name__": record.record, **record.labels}
                if selector.takes(labels):
                    names = {each.name for each in selectors(record.promql)}
                    assert names & tried, f"{alert.alert}: no example fires it from {record.source or record.record}"


def test_dashboards_that_alerts_name_are_there() -> None:
    assert {alert.dashboard for alert in ALERTS} <= {dashboard.title for dashboard in DASHBOARDS}


def test_the_page_has_every_rule() -> None:
    page = (REPOSITORY / "docs" / "alerts.md").read_text()
    assert tables() in page, "docs/alerts.md is stale: put in what rltel.dashboards.rules_page.tables() gives"


def test_yaml_says_what_the_rules_say() -> None:
    """The files are written by hand."""
    for group in groups():
        (stored,) = yaml.safe_load(files()[f"rules/{group.name}.yml"])["groups"]
        expressions = [each["expr"].strip() for each in stored["rules"]]
        assert expressions == [each.promql for each in (*group.record, *group.alert)]
        assert [each["annotations"] for each in stored["rules"] if "alert" in each] == [
            dict(each.annotations) for each in group.alert
        ]


@pytest.mark.parametrize("given", [{"expr": ""}, {"expr": "x", "weighted": "y", "window": "1m"}, {"weighted": "y"}])
def test_a_recording_that_is_neither_or_both_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected either expr, or weighted and window"):
        Record(record="run:x:y", about="", **given)


# --- names and labels, from real expositions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched"), RULES) as all_three:
        yield all_three


def asked_for() -> set[Selector]:
    expressions = [each.promql for each in (*RECORDS, *ALERTS)]
    return {selector for text in expressions for selector in selectors(text) if ":" not in selector.name}


def test_the_test_reads_promql() -> None:
    text = 'sum by (job, rl_x) (rate(rl_a_sum{rl_y=~"p|q"}[30m])) / on (rl_z) run:rl_b:mean offset 1h and rltel_c > 0'
    wanted = {("rl_a_sum", (("rl_y", "=~", "p|q"),)), ("run:rl_b:mean", ()), ("rltel_c", ())}
    assert set(selectors(text)) == wanted
    assert grouped_by(text) == {"job", "rl_x", "rl_z"}
    assert len(asked_for()) > 40


def test_every_series_that_a_rule_asks_for_is_exposed(scraped: Watched) -> None:
    every = [*(labels for labels, _ in scraped.demos), *scraped.program]
    missing = {
        selector
        for selector in asked_for()
        if selector.name not in OF_THE_SERVER and not any(selector.takes(labels) for labels in every)
    }
    assert not missing


def test_what_no_demo_has_is_listed_with_its_reason(scraped: Watched) -> None:
    in_demos = {labels["__name__"] for labels, _ in scraped.demos}
    without = {selector.name for selector in asked_for()} - in_demos - OF_THE_SERVER.keys()
    assert {re.sub("_(numerator|denominator)$", "", name) for name in without} == NOT_IN_THE_DEMOS.keys()


def test_every_label_that_a_rule_groups_by_is_exposed_or_of_the_server(scraped: Watched) -> None:
    every = [*(labels for labels, _ in scraped.demos), *scraped.program]
    known = {label for labels in every for label in labels} | {"job", "instance"}
    used = set(chain.from_iterable(grouped_by(each.promql) for each in (*RECORDS, *ALERTS)))
    assert used <= known | {"rl_source"}


def test_series_of_examples_are_as_they_are_exposed(scraped: Watched) -> None:
    """A name, and exactly the labels that the exporter gives it, beside those of every process."""
    every = [*(labels for labels, _ in scraped.demos), *scraped.program]
    shapes = {(labels["__name__"], frozenset(labels) - {"__name__"}) for labels in every}
    wrong = []
    for series in {series for alert in ALERTS for each in (*alert.fires, *alert.quiet) for series in each.series}:
        (selector,) = selectors(example_series(series))
        labels = frozenset(label for label, _, _ in selector.matchers)
        of_process = frozenset({*PROCESS, "rl_role", "rl_rank"})
        if selector.name != "up" and (selector.name, labels | of_process) not in shapes:
            wrong.append(series)
    assert not wrong


def test_labels_that_tell_processes_apart_come_over_otlp_too() -> None:
    resource = {name.replace(".", "_") for name in resource_of(identity(), RunConfig(), {}).attributes}
    assert {"rl_run_id", "rl_role", "rl_rank"} <= resource


# --- values ----------------------------------------------------------------------------------------------------------


def test_prometheus_evaluates_every_rule_on_the_demos(scraped: Watched) -> None:
    found = json.loads(http_get(f"{scraped.server.url}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in found for rule in group["rules"]]
    assert len(rules) == len(ALERTS) + len(RECORDS)
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


def recording(name: str, source: str) -> Record:
    (found,) = [each for each in RECORDS if (each.record, each.source) == (name, source)]
    return found


def test_the_demos_rewards_are_those_of_their_records(scraped: Watched) -> None:
    environment = recording("run:rl_reward:mean", "environment").promql
    ((_, latest),) = scraped.at_the_end("sac", "rl_environment_reward_mean", environment)
    assert latest == scraped.values("sac", "Train/mean_reward")[-1]
    of_groups = recording("run:rl_reward:mean", "groups").promql
    ((_, mean),) = scraped.at_the_end("grpo", "rl_group_groups", of_groups)
    assert mean == pytest.approx(np.mean(scraped.values("grpo", "groups/reward_mean/avg")))  # all with as many groups


@pytest.mark.parametrize(
    ("run", "name", "source"),
    [
        ("sac", "run:rl_throughput:rate", "samples"),
        ("sac", "run:rl_entropy:mean", "policy"),
        ("sac", "run:rl_gradient_norm:mean", "learner"),
        ("sac", "run:rl_collector_wait:ratio", "collectors"),
        ("sac", "run:rl_learner_wait:ratio", ""),
        ("grpo", "run:rl_throughput:rate", "tokens"),
        ("grpo", "run:rl_entropy:mean", "tokens"),
        ("grpo", "run:rl_kl:mean", "train_infer"),
        ("grpo", "run:rl_kl:mean", "recorded"),
        ("grpo", "run:rl_clip:ratio", "recorded"),
        ("grpo", "run:rl_gradient_norm:mean", "recorded"),
        ("grpo", "run:rl_ratio_outside:ratio", ""),
        ("grpo", "run:rl_group_zero_variance:ratio", ""),
        ("grpo", "run:rl_staleness:p99", "tokens"),
        ("grpo", "run:rl_staleness:p99", "sessions"),
        ("grpo", "run:rl_collector_wait:ratio", "sessions"),
        ("grpo", "run:rl_learner_wait:ratio", ""),
        ("program", "run:rl_kl:mean", "approx_kl"),
        ("llm-program", "run:rl_kl:mean", "recorded"),
        ("program", "run:rl_clip:ratio", "clip_fraction"),
        ("llm-program", "run:rl_clip:ratio", "recorded"),
        ("llm-program", "run:rl_entropy:mean", "ppo_actor"),
        ("llm-program", "run:rl_gradient_norm:mean", "recorded"),
        ("program", "run:rl_throughput:rate", "tokens"),
    ],
)
def test_every_recording_has_a_value(run: str, name: str, source: str, scraped: Watched) -> None:
    matchers = f'rl_run_id="{run}"' + (f',rl_source="{source}"' if source else "")
    found = scraped.server.query(f"last_over_time({name}{{{matchers}}}[10m])")
    assert found
    assert all(np.isfinite(value) for _, value in found)
    if name.endswith(":ratio"):
        assert all(0 <= value <= 1.001 for _, value in found)


def test_healthy_demos_fire_nothing(scraped: Watched) -> None:
    firing = scraped.server.query('last_over_time(ALERTS{alertstate="firing",rl_run_id=~"sac|grpo"}[10m])')
    assert [labels["alertname"] for labels, _ in firing] == []


def test_what_the_small_programs_lost_fires(scraped: Watched) -> None:
    """Its first loss is one that no increase shows."""
    firing = scraped.server.query('last_over_time(ALERTS{alertstate="firing",rl_run_id="program"}[10m])')
    assert {labels["alertname"] for labels, _ in firing} == {"RLTelemetryDropping"}


# --- the other route -------------------------------------------------------------------------------------------------


RUN_OF = {small_program: "run-1", small_llm_program: "run-2"}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    """Two ranks, three steps each, over OTLP; the divergence of rank 1 weighs three times as much."""

    def record(trackers: Trackers, rank: int, of_run: Callable[[Trackers], None]) -> None:
        of_run(trackers)
        with trackers.default.scope("ppo_actor/train_infer"):
            mask = np.ones(1 + 2 * rank, dtype=bool)
            trackers.default.denominator(n_valid_tokens=mask)
            trackers.default.stat(
                {"kl_k3": np.full(mask.shape, 0.1 * rank)}, denominator="n_valid_tokens", reduce_type="avg"
            )

    now_ns = time.time_ns()
    with victoria_metrics(tmp_path_factory.mktemp("victoria")) as server:
        for rank, of_run in ((0, small_program), (1, small_program), (0, small_llm_program)):
            who = identity(rank=rank, index=rank, world_size=2, run_id=RUN_OF[of_run])
            config, resource = OtlpConfig(endpoint=server.otlp_endpoint), resource_of(who, RunConfig(), {})
            sink, points = open_otlp_metrics(config, resource, now_ns - 200 * 10**9, {}), Points()
            for step in range(3):
                at = now_ns - (3 - step) * 30 * 10**9
                made = commit(recorded(partial(record, rank=rank, of_run=of_run)), time_ns=at, identity=who)
                sink.write(made, points.of(made))
            sink.close()
        yield server


@pytest.mark.parametrize("rule", [*RECORDS, *ALERTS], ids=lambda rule: getattr(rule, "alert", "") or rule.record)
def test_victoria_metrics_takes_every_expression(rule: Record | Alert, sent: VictoriaMetrics) -> None:
    """They are plain PromQL: a refusal raises."""
    sent.query(rule.promql)


def test_averages_over_otlp_weigh_ranks_right(sent: VictoriaMetrics) -> None:
    found = sent.query(recording("run:rl_kl:mean", "train_infer").promql)
    ((labels, value),) = [each for each in found if each[0]["rl_run_id"] == "run-1"]
    assert labels == {"rl_run_id": "run-1"}
    assert value == pytest.approx(0.1 * 3 / 4)


@pytest.mark.parametrize(
    ("name", "source", "run", "value"),
    [
        ("run:rl_kl:mean", "approx_kl", "run-1", 0.01),
        ("run:rl_kl:mean", "approx_kl", "run-2", 0.2),  # not the mean of average, minimum and maximum
        ("run:rl_kl:mean", "recorded", "run-2", 0.2),
        ("run:rl_clip:ratio", "clip_fraction", "run-1", 0.1),
        ("run:rl_entropy:mean", "ppo_actor", "run-2", 0.2),
        ("run:rl_gradient_norm:mean", "recorded", "run-2", 1.5),
        ("run:rl_throughput:rate", "iterations", "run-2", 2.0),
    ],
)
def test_the_same_rules_serve_otlp(name: str, source: str, run: str, value: float, sent: VictoriaMetrics) -> None:
    (found,) = [of for labels, of in sent.query(recording(name, source).promql) if labels["rl_run_id"] == run]
    assert found == pytest.approx(value)


def test_an_error_of_ours_is_not_swallowed(sent: VictoriaMetrics) -> None:
    """What the test above relies on."""
    with pytest.raises(Exception, match="parse"):
        sent.query("sum by (job (rl_step)")
