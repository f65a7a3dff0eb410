"""What every dashboard has, and that the files in the repository are the ones that the code makes."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from realparts.requirements import REPOSITORY
from rltel.core.errors import RltelError
from rltel.dashboards.all_of_them import DASHBOARDS, files
from rltel.dashboards.dashboard import MARKS, Dashboard
from rltel.dashboards.page import page
from rltel.dashboards.panel import Panel
from rltel.dashboards.promql import LONG_AGO
from rltel.dashboards.series import series

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.slug)
PANELS = [(dashboard.slug, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]
each_panel = pytest.mark.parametrize("panel", [p for _, p in PANELS], ids=[f"{slug}-{p.title}" for slug, p in PANELS])


@pytest.mark.parametrize("name", files())
def test_the_file_in_the_repository_is_current(name: str) -> None:
    stored = (REPOSITORY / "dashboards" / name).read_text("utf-8")
    assert stored == files()[name], "run `rltel dashboards build`"


def test_the_page_is_current() -> None:
    stored = (REPOSITORY / "docs" / "dashboards.md").read_text("utf-8")
    assert stored == page(), "run `rltel dashboards page > docs/dashboards.md`"


def test_no_other_dashboards_lie_there() -> None:
    assert {path.name for path in (REPOSITORY / "dashboards").glob("*.json")} == set(files())


@each_dashboard
def test_it_can_be_filtered_by_run_role_rank_and_job(dashboard: Dashboard) -> None:
    names = [each["name"] for each in dashboard.model()["templating"]["list"]]
    assert {"datasource", "run", "role", "rank", "job", "window", "traces"} <= set(names)
    for panel in dashboard.panels:
        for query in panel.queries:
            assert all(f"${name}" in str(query.expr) for name in ("run", "role", "rank", "job")), query.expr


@each_dashboard
def test_every_variable_that_a_query_has_is_one(dashboard: Dashboard) -> None:
    names = {each["name"] for each in dashboard.model()["templating"]["list"]}
    used = {name for panel in dashboard.panels for query in panel.queries for name in variables(str(query.expr))}
    assert used <= names


def variables(text: str) -> set[str]:
    return {name for name in re.findall(r"\$(\w+)", text) if not name.startswith("__")}


@each_dashboard
def test_it_marks_restarts_checkpoints_and_weight_publishes(dashboard: Dashboard) -> None:
    marks = [each["name"] for each in dashboard.model()["annotations"]["list"]]
    assert marks == [mark.title for mark in MARKS] == ["Processes that began", "Checkpoints", "Weight publishes"]


@each_dashboard
def test_grafana_finds_the_queries_of_the_marks(dashboard: Dashboard) -> None:
    """Its Prometheus data source asks what stands in ``expr``, whatever ``target`` has."""
    for mark in dashboard.model()["annotations"]["list"]:
        assert mark["expr"] == mark["target"]["expr"] != ""
        assert mark["useValueForTime"] == ("1000 *" in mark["expr"])


@each_panel
def test_only_buckets_are_taken_apart_for_a_heatmap(panel: Panel) -> None:
    """In the format "heatmap" Grafana shows each series less the one below: right for ``le``, nonsense for experts."""
    for target in panel.model(1, 0, 0)["targets"]:
        assert (target["format"] == "heatmap") == (", le)" in target["expr"])


@each_dashboard
def test_nothing_lies_on_anything(dashboard: Dashboard) -> None:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in dashboard.model()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        taken.update((x, y) for x in columns for y in rows)
    assert set(taken.values()) == {1}


@each_dashboard
def test_panels_have_ids_of_their_own(dashboard: Dashboard) -> None:
    ids = [panel["id"] for panel in dashboard.model()["panels"]]
    assert len(set(ids)) == len(ids)
    assert len({panel.title for panel in dashboard.panels}) == len(list(dashboard.panels))


@each_panel
def test_a_panel_has_unit_legend_thresholds_and_description(panel: Panel) -> None:
    model = panel.model(1, 0, 0)
    field = model["fieldConfig"]["defaults"]
    assert len(model["description"]) > 10
    assert field["unit"]
    assert field["thresholds"]["steps"][0]["value"] is None
    assert all(target["legendFormat"] for target in model["targets"])
    values = [step["value"] for step in field["thresholds"]["steps"][1:]]
    assert values == sorted(values)


@each_panel
def test_a_legend_names_labels_that_the_answer_keeps(panel: Panel) -> None:
    for query in panel.queries:
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", str(query.expr)))))
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= kept, query


@each_panel
def test_a_panel_links_to_the_timeline_of_its_time(panel: Panel) -> None:
    (link,) = panel.model(1, 0, 0)["fieldConfig"]["defaults"]["links"]
    assert "${traces}/${__field.labels.rl_run_id}/timeline.pftrace" in link["url"]
    assert "visStart=${__from}000000&visEnd=${__to}000000" in link["url"], "milliseconds to nanoseconds"


@each_panel
def test_nothing_stands_in_for_what_is_missing(panel: Panel) -> None:
    for query in panel.queries:
        assert "vector(" not in str(query.expr)
        assert "absent" not in str(query.expr)


def test_the_first_few_are_those_of_each_run() -> None:
    """Else a large run beside a small one hides it."""
    for _, panel in PANELS:
        for query in panel.queries:
            assert str(query.expr).count("topk") == str(query.expr).count("topk by (rl_run_id"), query.expr


def test_the_window_of_a_query_is_the_variable_s() -> None:
    """Grafana's own interval is shorter than a step may be."""
    for _, panel in PANELS:
        for query in panel.queries:
            ranges = set(re.findall(r"\[([^]]*)]", str(query.expr)))
            assert ranges <= {"$window", LONG_AGO}, query.expr


def test_a_key_that_the_catalogue_lacks_is_refused() -> None:
    with pytest.raises(RltelError, match='expected a key of the catalogue, got "Loss/none/such"'):
        series("Loss/none/such")


def test_a_key_s_series_are_not_those_of_another_key_of_its_name() -> None:
    """`Train/mean_reward/time` is the same reward over another axis: a second one, for whoever adds up or picks one."""
    assert 'rl_axis=""' in str(series("Train/mean_reward"))
    assert 'rl_axis="time"' in str(series("Train/mean_reward/time"))
    assert "rl_scope" not in str(series("moe_balance/layer_{layer}/max_over_ideal")), "scopes are told apart, all shown"


def test_names_are_the_catalogue_s() -> None:
    found = series("Train/{norm}_gradient_norm", rl_gradient_norm_type="actor")
    assert found.part("_numerator").startswith("rl_train_gradient_norm_numerator{")
    assert 'rl_gradient_norm_type="actor"' in str(found)
    assert found.by == ("rl_run_id",)
    assert series("train_perf/tokens").name == "rl_train_tokens_total"


@pytest.mark.parametrize("name", files())
def test_a_file_is_json(name: str) -> None:
    model: dict[str, Any] = json.loads(files()[name])
    assert model["uid"] == f"rltel-{name.removesuffix('.json')}"
