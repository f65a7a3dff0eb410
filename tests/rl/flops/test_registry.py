"""Which architecture is estimated how."""

import logging
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rltel.core.errors import RecordError
from rltel.rl.flops import flops_estimator, register_flops_estimator
from rltel.rl.flops.registry import _factories, _said

TINY = {"model_type": "mine", "active_parameters": 5}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What a test registers and says is forgotten."""
    factories, said = dict(_factories), set(_said)
    yield
    _factories.clear()
    _factories.update(factories)
    _said.clear()
    _said.update(said)


def test_a_factory_of_ones_own_sees_the_config_as_an_object() -> None:
    register_flops_estimator("mine", lambda config: lambda length: 6.0 * config.active_parameters * length)
    for given in (TINY, SimpleNamespace(**TINY)):
        estimate = flops_estimator(given)
        assert estimate is not None
        assert estimate(7) == 210.0


def test_registering_replaces_what_is_there() -> None:
    register_flops_estimator("llama", lambda config: lambda length: 1.0)
    estimate = flops_estimator({"model_type": "llama"})
    assert estimate is not None
    assert estimate(100) == 1.0


def test_an_object_is_handed_on_as_it_is() -> None:
    seen: list[Any] = []

    def factory(config: Any) -> Any:
        seen.append(config)
        return float

    register_flops_estimator("mine", factory)
    inner, plain = SimpleNamespace(**TINY), SimpleNamespace(**TINY)
    flops_estimator(SimpleNamespace(model_type="vision", text_config=inner))
    flops_estimator(plain)
    assert seen[0] is inner
    assert seen[1] is plain


def test_an_unknown_architecture_has_none_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="rltel"):
        assert flops_estimator({"model_type": "brand_new"}) is None
        assert flops_estimator({"model_type": "brand_new"}) is None
    assert len(caplog.records) == 1
    assert "'brand_new'" in caplog.text
    assert "register_flops_estimator" in caplog.text


@pytest.mark.parametrize("arguments", [("", float), (3, float), (None, float), ("mine", None), ("mine", 3)])
def test_what_cannot_be_registered_is_refused(arguments: tuple[Any, Any]) -> None:
    with pytest.raises(RecordError, match="register_flops_estimator"):
        register_flops_estimator(*arguments)


@pytest.mark.parametrize("answer", [-1.0, math.nan, math.inf, None, "7"])
def test_an_estimator_that_cannot_be_right_is_refused_before_training(answer: Any) -> None:
    register_flops_estimator("mine", lambda config: lambda length: answer)
    with pytest.raises(RecordError, match="mine: expected a finite number >= 0 for a length of 1"):
        flops_estimator(TINY)


def test_a_factory_must_return_a_function() -> None:
    register_flops_estimator("mine", lambda config: 3.0)  # type: ignore[arg-type,return-value]  # what is refused
    with pytest.raises(RecordError, match="expected its factory to return a function"):
        flops_estimator(TINY)


def test_packed_sequences_count_one_by_one() -> None:
    """Attention of the whole pack as one sequence would be twice as much here."""
    estimate = flops_estimator(
        {
            "model_type": "llama",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "vocab_size": 8,
        }
    )
    assert estimate is not None
    assert 2 * estimate(100) < estimate(200)


@pytest.mark.parametrize("head", [-1, True, 1.0, "value", "1"])
def test_what_is_no_head_is_refused(head: Any) -> None:
    with pytest.raises(RecordError, match=r'head: expected "auto", "lm", None or a number of outputs >= 0, got'):
        flops_estimator(TINY, head=head)


def test_a_factory_of_ones_own_says_itself_what_head_it_counts() -> None:
    register_flops_estimator("mine", lambda config: lambda length: 1.0)
    with pytest.raises(RecordError, match="mine: head: expected none, as its own factory says what it counts, got 1"):
        flops_estimator(TINY, head=1)
