"""Loads of single experts, as a table instead of thousands of series."""

from rltel.export.media import Table
from rltel.export.tracking.expert_loads import expert_loads, without_experts


def test_experts_become_a_table_and_layers_stay_numbers() -> None:
    values = {
        "moe_balance/layer_1/expert_0/tokens": 30.0,
        "moe_balance/layer_0/expert_1/tokens": 10.0,
        "moe_balance/layer_0/expert_1/load_percent": 25.0,
        "moe_balance/layer_0/max_over_ideal": 1.5,
        "loss": 0.1,
    }
    rest, tables = expert_loads(values)
    assert rest == {"moe_balance/layer_0/max_over_ideal": 1.5, "loss": 0.1}
    columns = ("layer", "expert", "tokens", "load_percent")
    assert tables == {"moe_balance/expert_loads": Table(columns, ((0, 1, 10.0, 25.0), (1, 0, 30.0, None)))}


def test_layers_are_in_the_order_of_their_numbers() -> None:
    _, tables = expert_loads({f"moe_balance/layer_{n}/expert_0/tokens": 1.0 for n in (10, 9)})
    assert [row[0] for row in tables["moe_balance/expert_loads"].rows] == [9, 10]


def test_each_scope_has_its_table() -> None:
    _, tables = expert_loads({f"{name}/moe_balance/layer_0/expert_0/tokens": 1.0 for name in ("actor", "critic")})
    assert list(tables) == ["actor/moe_balance/expert_loads", "critic/moe_balance/expert_loads"]


def test_other_numbers_of_an_expert_stay_numbers() -> None:
    values = {"moe_balance/layer_0/expert_0/entropy": 1.0, "moe_balance/layer_0/expert_0/tokens/nonfinite": 1.0}
    assert expert_loads(values) == (values, {})


def test_layers_alone_are_left_for_those_who_show_no_expert() -> None:
    values = {"moe_balance/layer_0/expert_1/tokens": 1.0, "moe_balance/layer_0/max_over_ideal": 1.5, "loss": 0.1}
    assert without_experts(values) == {"moe_balance/layer_0/max_over_ideal": 1.5, "loss": 0.1}
    assert without_experts({"loss": 0.1}) == {"loss": 0.1}
