"""The catalogue: a data file whose every entry must be usable."""

import re
import tomllib
from importlib.resources import files
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.names.catalogue import SCOPE, Catalogue, Entry, catalogue
from rltel.names.phases import RlPart
from rltel.names.prometheus import prometheus_name

ENTRIES = catalogue().entries
OTEL_RULES = re.compile(r"rl(\.[a-z][a-z0-9_]*)+")
UNITS = {"", "s", "By", "1"}
ANNOTATED = re.compile(r"\{[a-z]+\}(/s)?")
KNOWN_PARTS = {
    "threshold": "1.5", "source": "rollout", "estimator": "k3", "sign": "zero", "reference": "theta", "age": "stale",
    "k": "8", "part": "truncated",
}  # fmt: skip
ANYWHERE = [entry for entry in ENTRIES if entry.any_scope is not None]


def example(entry: Entry) -> str:
    return re.sub(r"\{\w+\}", "x", entry.key)


def elsewhere(entry: Entry, scope: str) -> str:
    """Its key under another scope."""
    tail = entry.key.removeprefix(f"{entry.any_scope}/") if entry.any_scope else entry.key
    own = re.sub(r"\{(\w+)\}", lambda part: KNOWN_PARTS[part[1]], tail)
    return f"{scope}/{own}" if scope else own


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
class TestEveryEntry:
    def test_follows_the_conventions(self, entry: Entry) -> None:
        """Lower-case dotted names without unit or ``_total``; UCUM units, or annotations."""
        assert OTEL_RULES.fullmatch(entry.name)
        assert not entry.name.endswith(("_total", ".total", "_seconds", "_ms", "_bytes"))
        assert entry.unit in UNITS or ANNOTATED.fullmatch(entry.unit)
        assert entry.unit != "s" or entry.name.endswith((".duration", ".time"))
        assert all(OTEL_RULES.fullmatch(name) for name in entry.attributes)

    def test_is_found_by_its_own_key(self, entry: Entry) -> None:
        match = catalogue().find(example(entry))
        assert match is not None
        assert match.entry is entry, "an earlier entry hides it"

    def test_says_what_it_is(self, entry: Entry) -> None:
        assert entry.kind in ("gauge", "counter", "histogram")
        assert entry.about.endswith(".")

    def test_stays_out_of_the_names_by_rule(self, entry: Entry) -> None:
        assert not entry.name.startswith("rl.stats")

    def test_parts_of_its_key_are_all_it_uses(self, entry: Entry) -> None:
        parts = set(re.findall(r"\{(\w+)\}", entry.key))
        used = {
            part
            for text in (*entry.attributes.values(), entry.headline or "")
            for part in re.findall(r"\{(\w+)\}", text)
        }
        assert used <= parts

    def test_a_key_in_milliseconds_is_scaled_to_seconds(self, entry: Entry) -> None:
        assert entry.scale == (0.001 if re.search("_ms(_|$)", entry.key) else 1.0)

    def test_only_the_phase_of_a_role_is_a_part_of_an_iteration(self, entry: Entry) -> None:
        assert entry.rl is None or (entry.rl in get_args(RlPart) and entry.name == "rl.phase.duration")
        assert entry.rl is None or "rl.role" in entry.attributes


@pytest.mark.parametrize("entry", ANYWHERE, ids=lambda entry: entry.key)
class TestUnderAnyScope:
    def test_the_same_key_has_the_same_entry_and_says_its_scope(self, entry: Entry) -> None:
        scope = "my/critic" if "critic" in entry.key else "my/actor"
        match = catalogue().find(elsewhere(entry, scope))
        assert match is not None
        assert match.entry is entry, "an earlier entry hides it"
        assert match.attributes[SCOPE] == scope
        assert entry.attributes.keys() == match.attributes.keys() - {SCOPE}

    def test_a_metric_that_says_its_scope_does_not_under_the_usual_one(self, entry: Entry) -> None:
        match = catalogue().find(elsewhere(entry, entry.any_scope or ""))
        assert match is not None
        assert SCOPE not in match.attributes

    def test_each_part_says_what_it_may_be(self, entry: Entry) -> None:
        assert set(re.findall(r"\{(\w+)\}", entry.key)) == entry.parts.keys() - {"scope"}


class TestScopes:
    def test_no_scope_at_all_is_a_slash(self) -> None:
        match = catalogue().find("train_infer/kl_k3")
        assert match is not None
        assert match.attributes == {"rl.train_infer.kl.estimator": "k3", SCOPE: "/"}

    @pytest.mark.parametrize(
        "key",
        [
            *("x/train_infer/mine", "x/train_infer/kl_mine", "x/train_infer/my_nll", "x/train_infer/ratio_outside_box"),
            *("x/advantage_clipped_fraction", "x/groups/mine", "x/groups/pass@all", "x/groups/loop_fraction"),
            *("x/groups/my_fraction", "x/version_stats/v_mine", "x/update/loss", "x/updates/lr", "x/update/lr/y"),
            *("critic/update/lr", "critic/update/approx_kl", "critic/update/clip_ratio", "critics/update/loss"),
            *("ppo_actor/update/loss", "update/loss", "my_groups/reward", "/groups/reward", "groups/loop_fraction"),
        ],
    )
    def test_other_keys_stay_the_users_own(self, key: str) -> None:
        assert catalogue().find(key) is None

    @pytest.mark.parametrize("scope", ["critic", "ppo_critic", "trainer/critic", "my-critic"])
    def test_a_critics_loss_and_gradients_are_the_critics(self, scope: str) -> None:
        found = [catalogue().find(f"{scope}/update/{key}") for key in ("loss", "critic_loss", "grad_norm")]
        types = [(each.entry.name, next(iter(each.attributes.values()))) for each in found if each]
        assert types == [("rl.train.loss", "critic"), ("rl.train.loss", "critic"), ("rl.train.gradient_norm", "critic")]

    def test_a_key_that_is_written_out_comes_first(self) -> None:
        match = catalogue().find("timeperf/groups/reward")
        assert match is not None
        assert match.entry.name == "rl.timing.duration"

    def test_headlines_of_two_scopes_are_two(self) -> None:
        found = [catalogue().find(key) for key in ("groups/pass@1", "actor/groups/pass@1")]
        assert [match and match.headline for match in found] == ["pass@1", "actor/pass@1"]

    def test_a_scope_that_the_key_does_not_begin_with_is_refused(self) -> None:
        with pytest.raises(ValueError, match='"a/b" does not begin with its any_scope "c"'):
            Catalogue((Entry("a/b", "rl.x", "", "gauge", ".", any_scope="c"),))


def test_one_name_has_one_unit_and_one_kind() -> None:
    """Else two keys of one metric would contradict each other in a backend."""
    shapes: dict[str, tuple[str, str]] = {}
    for entry in ENTRIES:
        assert shapes.setdefault(entry.name, (entry.unit, entry.kind)) == (entry.unit, entry.kind)


def test_two_names_are_two_in_prometheus() -> None:
    names = {entry.name: entry.unit for entry in ENTRIES}
    assert len({prometheus_name(name, unit, "gauge") for name, unit in names.items()}) == len(names)


def test_a_part_spans_no_slash_unless_the_entry_is_deep() -> None:
    assert catalogue().find("Loss/a/b") is None
    match = catalogue().find("timeperf/update/actor")
    assert match is not None
    assert match.attributes == {"rl.timing": "update/actor"}


def test_an_exact_key_comes_before_a_pattern() -> None:
    pattern, exact = Entry("a/{x}", "rl.pattern", "", "gauge", "."), Entry("a/b", "rl.exact", "", "gauge", ".")
    match = Catalogue((pattern, exact)).find("a/b")
    assert match is not None
    assert match.entry is exact


def test_a_part_that_a_pattern_never_has_is_left_to_others() -> None:
    narrow, wide = Entry("a/{x}", "rl.n", "", "gauge", ".", never=("b",)), Entry("{y}/b", "rl.w", "", "gauge", ".")
    match = Catalogue((narrow, wide)).find("a/b")
    assert match is not None
    assert match.entry is wide


def test_the_headline_is_filled_in() -> None:
    match = catalogue().find("Loss/critic")
    assert match is not None
    assert match.headline == "critic"


@given(st.text())
def test_any_text_may_be_looked_up(key: str) -> None:
    catalogue().find(key)


def test_names_the_convention_it_follows() -> None:
    assert "experimental" in tomllib.loads(files("rltel.names").joinpath("catalogue.toml").read_text())["convention"]
