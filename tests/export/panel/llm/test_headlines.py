"""The first look."""

import math

import pytest

from export.panel.making import ASYNC
from rltel.export.panel.llm.headlines import headlines
from rltel.export.panel.llm.rows import HEADLINES


def said(values: dict[str, float]) -> dict[str, float]:
    return {each.text: each.value for each in headlines(values)}


def test_all_of_them_in_their_order() -> None:
    assert said(ASYNC) == {
        "reward": 0.6875, "pass@1": 0.5625, "len": 987.5, "loss": -0.0213, "kl_k3": 0.0008, "ref_kl": 0.0031,
        "entropy": 0.4312, "clip": 0.0125, "grad": 0.85, "zero_var": 0.25, "stale": 0.75, "tokens/s": 50_000.0,
        "mfu": 0.3812, "moe": 2.6,
    }  # fmt: skip
    assert list(said(ASYNC)) == [text for text in HEADLINES if text != "acc"]


def test_nothing_of_nobody_s_keys() -> None:
    assert headlines({"x": 1.0, "timeperf/reward": 2.0}) == []


@pytest.mark.parametrize(
    ("values", "text", "value"),
    [
        ({"critic/grad_norm": 2.0, "actor/grad_norm": 1.0}, "grad", 1.0),
        ({"eval-rollout/reward": 2.0, "rollout/reward": 1.0}, "reward", 1.0),
        ({"rollout/reward": 2.0, "groups/reward/avg": 1.0}, "reward", 1.0),
        ({"loss": 2.0, "actor_loss": 1.0}, "loss", 1.0),
        ({"seq_len/avg": 2.0, "groups/length/avg": 1.0}, "len", 1.0),
        ({"rollout/sessions/staleness/avg": 2.0, "a/version_stats/sample_staleness_theta_avg": 1.0}, "stale", 1.0),
        ({"eval-rollout/reward": 2.0}, "reward", 2.0),
    ],
)
def test_of_several_the_policy_s_own(values: dict[str, float], text: str, value: float) -> None:
    for given in (values, dict(reversed(values.items()))):
        assert said(given) == {text: value}


def test_of_layers_the_worst() -> None:
    layers = {f"moe_balance/layer_{i}/max_over_ideal": float(i % 3) for i in range(6)}
    assert said(layers) == {"moe": 2.0}
    assert math.isnan(said({**layers, "moe_balance/layer_6/max_over_ideal": math.nan})["moe"])


def test_extremes_and_quantiles_are_none() -> None:
    assert said({"reward/max": 1.0, "seq_len/p90": 2.0, "entropy/min": 0.0}) == {}
