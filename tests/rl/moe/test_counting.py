"""Counting in a real mixture of experts: transformers' Qwen3-MoE, tiny, with random weights."""

import copy
import gc
import logging
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Qwen3_5MoeTextConfig, Qwen3MoeConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeForCausalLM

from realparts.measures import fake_cuda
from rltel.core.errors import RecordError
from rltel.reduce.trackers import Trackers
from rltel.rl import moe
from rltel.rl.moe.contracts import chosen, layer_in, mapped

EXPERTS, TOP, LAYERS, VOCABULARY = 8, 2, 3, 64
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": EXPERTS,
    "num_experts_per_tok": TOP,
}


def qwen3() -> Any:
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**_SIZES, intermediate_size=32, decoder_sparse_step=1)).train()


def qwen3_5() -> Any:
    torch.manual_seed(0)
    linear = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "shared_expert_intermediate_size": 16}
    layers = {"layer_types": ["full_attention", "linear_attention", "full_attention"]}
    return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**_SIZES, **linear, **heads, **layers)).train()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


class Counted:
    """A model with a counter, and what its routers are seen to choose by somebody else."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        self.model, self.trackers = model, Trackers()
        self.counter = moe.attach(model, tracker=self.trackers.default, **options)
        self.chosen: list[Any] = []

    def train(self, *inputs: Any, **more: Any) -> None:
        output = self.model(*inputs, labels=inputs[0], **more)
        output.loss.backward()

    def record(self) -> dict[int, list[float]]:
        self.counter.record()
        flat = self.trackers.export_all()
        layers = sorted(self.counter.layers)
        return {n: [flat[f"moe_balance/layer_{n}/expert_{e}/tokens"] for e in range(EXPERTS)] for n in layers}


def own_choice(model: Any, tokens: torch.Tensor) -> dict[int, list[float]]:
    """The top-k of the router's own logits, which the model returns."""
    with torch.no_grad():
        logits = model(tokens, output_router_logits=True).router_logits
    best = [each.reshape(-1, EXPERTS).topk(TOP, dim=1).indices for each in logits]
    return {n: torch.bincount(each.flatten(), minlength=EXPERTS).double().tolist() for n, each in enumerate(best)}


@pytest.fixture(params=[qwen3, qwen3_5], ids=["qwen3_moe", "qwen3_5_moe"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_counts_are_the_routers_own_top_k(model: Any) -> None:
    counted = Counted(model)
    assert counted.counter.layers == {n: f"model.layers.{n}.mlp.gate" for n in range(LAYERS)}
    counted.train(ids(2, 10))
    expected = own_choice(model, ids(2, 10))
    assert counted.record() == expected
    assert all(sum(tokens) == 2 * 10 * TOP for tokens in expected.values())


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_does_not_count(model: Any, reentrant: bool) -> None:
    runs: list[int] = []
    counted = Counted(model)
    expected = own_choice(model, ids(2, 10))
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.model.layers[0].mlp.gate.register_forward_hook(lambda *_: runs.append(1))
    counted.train(ids(2, 10))
    assert len(runs) == 2  # it really ran again
    assert counted.record() == expected


def test_micro_batches_add_up() -> None:
    model = qwen3()
    counted = Counted(model)
    for part in ids(4, 6).split(1):
        counted.train(part)
    by_parts = counted.record()
    counted.train(ids(4, 6))
    assert by_parts == counted.record()


def test_padding_counts_as_it_is_executed() -> None:
    counted = Counted(qwen3())
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    counted.train(ids(1, 5), attention_mask=mask)
    assert sum(counted.record()[0]) == 5 * TOP


def _evaluated(model: Any) -> None:
    model.eval()
    model(ids(1, 5))
    model.train()


def _without_gradients(model: Any) -> None:
    with torch.no_grad():
        model(ids(1, 5))


def _in_inference_mode(model: Any) -> None:
    with torch.inference_mode():
        model(ids(1, 5))


def _generated(model: Any) -> None:
    model.generate(ids(1, 3), max_new_tokens=2, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize("forward", [_evaluated, _without_gradients, _in_inference_mode, _generated])
def test_evaluation_generation_and_reference_forwards_do_not_count(forward: Callable[[Any], None]) -> None:
    counted = Counted(qwen3())
    forward(counted.model)
    assert counted.record() == {n: [0.0] * EXPERTS for n in range(LAYERS)}


def test_paused_forwards_do_not_count() -> None:
    counted = Counted(qwen3())
    with counted.counter.paused():
        counted.train(ids(1, 5))
    assert sum(counted.record()[0]) == 0
    counted.train(ids(1, 5))
    assert sum(counted.record()[0]) == 5 * TOP


def test_a_whole_model_checkpointed_without_reentrance_counts_once() -> None:
    model = qwen3()
    counted = Counted(model)
    checkpoint(lambda given: model(given, labels=given).loss, ids(1, 5), use_reentrant=False).backward()
    assert counted.record() == own_choice(model, ids(1, 5))


def test_a_compiled_model_counts_the_same() -> None:
    model = qwen3()
    counted = Counted(model)
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        compiled(ids(1, 5), labels=ids(1, 5)).loss.backward()
    expected = own_choice(model, ids(1, 5))
    assert counted.record() == {n: [2 * each for each in tokens] for n, tokens in expected.items()}


def test_a_forward_that_raises_leaves_nothing_open() -> None:
    model = qwen3()
    counted = Counted(model)
    handle = model.lm_head.register_forward_pre_hook(_raise)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(ids(1, 5))
    handle.remove()
    counted.record()
    model.model.layers[0].mlp.gate(torch.zeros(3, 32))  # outside of the model: nothing that training does
    assert sum(counted.record()[0]) == 0
    counted.train(ids(1, 5))
    assert sum(counted.record()[0]) == 5 * TOP


def _raise(*_: Any) -> None:
    raise RuntimeError("out of memory")


def test_layers_of_a_later_stage_have_their_ids_over_all_stages() -> None:
    counted = Counted(qwen3(), first_layer=24)
    counted.train(ids(1, 4))
    assert sorted(counted.record()) == [24, 25, 26]


def test_detached_it_counts_no_more() -> None:
    counted = Counted(qwen3())
    counted.counter.detach()
    counted.train(ids(1, 4))
    assert sum(counted.record()[0]) == 0
    assert not counted.model._forward_hooks
    assert not counted.model._forward_pre_hooks


def test_outputs_and_gradients_are_untouched() -> None:
    plain, hooked = qwen3(), qwen3()
    Counted(hooked).train(ids(1, 5))
    plain(ids(1, 5), labels=ids(1, 5)).loss.backward()
    for (name, one), other in zip(plain.named_parameters(), hooked.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), name


class Two(nn.Module):
    """Two stacks of layers, as of an encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = qwen3().model, qwen3().model


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
    ],
    ids=["deepcopy", "pickle", "cloudpickle"],
)
def test_a_copy_of_the_model_is_another_model_and_a_checkpoint_of_it_is_one(copied: Callable[[Any], Any]) -> None:
    """A copy that trains on its own (a critic, say) must not count as the model that was attached to."""
    counted = Counted(qwen3())
    other = copied(counted.model)
    other(ids(1, 5), labels=ids(1, 5)).loss.backward()
    assert sum(counted.record()[0]) == 0
    counted.train(ids(1, 5))
    assert sum(counted.record()[0]) == 5 * TOP
    for another in (copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        another(ids(1, 5))
    again = Counted(other)
    again.train(ids(1, 4))
    assert sum(again.record()[0]) == 4 * TOP
    assert sum(counted.record()[0]) == 0


def test_a_model_that_is_gone_is_not_kept() -> None:
    counted = Counted(qwen3())
    counted.train(ids(1, 5))
    seen = weakref.ref(counted.model), weakref.ref(counted.model.model.layers[0].mlp.gate)
    counted.model = nn.Identity()
    gc.collect()
    assert [each() for each in seen] == [None, None]
    assert sum(counted.record()[0]) == 5 * TOP


def test_several_models_are_counted_apart() -> None:
    actor, critic = Counted(qwen3()), Counted(qwen3())
    actor.train(ids(1, 5))
    critic.train(ids(1, 3))
    assert [sum(each.record()[0]) for each in (actor, critic)] == [5 * TOP, 3 * TOP]


def test_threads_that_train_one_model_count_all() -> None:
    counted = Counted(qwen3())
    threads = [threading.Thread(target=lambda: [counted.model(ids(1, 5)) for _ in range(5)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counted.record()[0]) == 3 * 5 * 5 * TOP


def test_layers_that_are_compiled_on_their_own_count_the_same() -> None:
    model = qwen3()
    for number, layer in enumerate(model.model.layers):
        model.model.layers[number] = torch.compile(layer, backend="eager")
    counted = Counted(model)
    counted.train(ids(1, 5))
    assert [sum(tokens) for tokens in counted.record().values()] == [5 * TOP] * LAYERS


def test_what_is_exported_as_a_program_is_no_training() -> None:
    """The numbers of a program that is being made are none, and nothing of it must stay to be recorded."""
    model = Routed(torch.zeros((5, 2), dtype=torch.int64))
    trackers = Trackers()
    counter = moe.attach(model, contracts=[first_choices], tracker=trackers.default)
    torch.export.export(model, ())
    counter.record()
    assert trackers.export_all()["moe_balance/layer_0/expert_0/tokens"] == 0


def test_a_model_without_numbers_is_no_training() -> None:
    model = Routed(torch.zeros((5, 2), dtype=torch.int64, device="meta"))
    trackers = Trackers()
    counter = moe.attach(model, contracts=[first_choices], tracker=trackers.default)
    model()
    counter.record()
    assert trackers.export_all()["moe_balance/layer_0/expert_0/tokens"] == 0


class Broken(nn.Module):
    """Layers of which the second's router does as another version might."""

    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in outputs)
        self.outputs = list(outputs)

    def forward(self) -> None:
        for layer, output in zip(self.layers, self.outputs, strict=True):
            layer(output)


@pytest.mark.usefixtures("unsaid")
@pytest.mark.parametrize("broken", [(), (1, 2), (1, 2, None), (1, 2, torch.tensor([[8]])), (1, 2, "text")])
def test_a_router_that_breaks_its_contract_stops_no_training_and_its_layer_is_left_out(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def contract(path: str, module: nn.Module) -> moe.Router | None:
        layer = layer_in(path)
        return None if layer is None else moe.Router(layer, lambda output: chosen(output[2], 8), experts=8)

    good = (1, 2, torch.tensor([[3, 4]]))
    model, trackers = Broken(good, good), Trackers()
    counter = moe.attach(model, contracts=[contract], tracker=trackers.default)
    model()
    model.outputs[1] = broken
    with caplog.at_level(logging.WARNING, "rltel"):
        model()
        model()
    assert len(caplog.records) == 1
    assert "moe: layer 1 (layers.1) is left out from now on" in caplog.text
    counter.record()
    stats = trackers.export_all()
    assert stats["moe_balance/layer_0/expert_3/tokens"] == 3
    assert not [key for key in stats if "layer_1" in key]
    assert dict(counter.layers) == {0: "layers.0"}


@pytest.mark.usefixtures("unsaid")
def test_a_forward_around_the_attached_module_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A trainer that calls the inner model would see zeros, and not know why."""
    counted = Counted(qwen3())
    with caplog.at_level(logging.WARNING, "rltel"):
        with torch.no_grad():
            counted.model.model(ids(1, 5))
        assert not caplog.records
        for _ in range(2):
            counted.model.model(ids(1, 5))
    assert len(caplog.records) == 1
    assert "attach to the module that the trainer calls" in caplog.text
    assert sum(counted.record()[0]) == 0


def test_a_hook_of_somebody_else_that_raises_leaves_nothing_open() -> None:
    model = qwen3()
    handle = model.register_forward_pre_hook(_raise)
    counted = Counted(model)
    with warnings.catch_warnings(record=True) as said, pytest.raises(RuntimeError, match="out of memory"):
        model(ids(1, 5))
    handle.remove()
    assert not said  # as torch would, of a hook of ours that fails there
    model.model.layers[0].mlp.gate(torch.zeros(3, 32))
    counted.train(ids(1, 5))
    assert sum(counted.record()[0]) == 5 * TOP


def test_chunks_come_in_any_list() -> None:
    for several in (lambda *stages: nn.ModuleList(stages), lambda *stages: iter(stages)):
        stages = [
            Routed(torch.tensor([[0, 1]])),
            Routed(torch.zeros((0, 2), dtype=torch.int64), torch.tensor([[2, 2]])),
        ]
        stages[1].layers[0] = nn.ReLU()  # only the second of its layers routes
        trackers = Trackers()
        counter = moe.attach(several(*stages), contracts=[first_choices], tracker=trackers.default)
        for stage in stages:
            stage()
        counter.record()
        stats = trackers.export_all()
        assert [stats[f"moe_balance/layer_{n}/expert_{e}/tokens"] for n, e in ((0, 0), (0, 1), (1, 2))] == [1, 1, 2]


@pytest.mark.parametrize("given", [None, 7, [], [None], [nn.Identity(), 3], {"a": nn.Identity()}])
def test_what_is_no_module_is_refused(given: Any) -> None:
    with pytest.raises(RecordError, match="moe: attach: expected a torch module, or a list of them, got"):
        moe.attach(given)


@pytest.mark.parametrize("first_layer", [-1, 1.0, "1", None, True])
def test_the_first_layer_is_a_whole_number(first_layer: Any) -> None:
    with pytest.raises(RecordError, match="first_layer: expected a whole number >= 0"):
        moe.attach(nn.Identity(), first_layer=first_layer)


def test_two_routers_of_one_layer_are_refused_and_nothing_is_left_on_the_model() -> None:
    model = Two()
    with pytest.raises(RecordError, match=r"layer 0 has two routers, one.layers.0.mlp.gate and other.layers.0.mlp"):
        moe.attach(model)
    assert not model.one.layers[0].mlp.gate._forward_hooks


class StrangeRouter(nn.Module):
    """One that no contract knows."""


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(moe.counting, "_said", set())
    return


@pytest.mark.usefixtures("unsaid")
def test_unknown_routers_emit_nothing_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    trackers = Trackers()
    with caplog.at_level(logging.WARNING, "rltel"):
        for _ in range(2):
            moe.attach(nn.Sequential(StrangeRouter()), tracker=trackers.default).record()
    assert [record.getMessage() for record in caplog.records] == [
        "moe: no contract knows the routers StrangeRouter: no moe_balance of them (said once)"
    ]
    assert not trackers.export_all()


@pytest.mark.usefixtures("unsaid")
def test_a_dense_model_emits_nothing_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rltel"):
        assert not moe.attach(nn.Linear(2, 2)).layers
    assert not caplog.records


class Routed(nn.Module):
    """Routes as told: what a router computes does not matter here."""

    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in outputs)
        self.outputs = outputs

    def forward(self) -> list[Any]:
        return [layer(output) for layer, output in zip(self.layers, self.outputs, strict=True)]


def first_choices(path: str, module: nn.Module) -> moe.Router | None:
    """A contract of the layers of `Routed`: their output is whom they chose, of 8."""
    layer = layer_in(path) if isinstance(module, nn.Identity) else None
    return None if layer is None else moe.Router(layer, lambda output: chosen(output, 8), experts=8)


def test_a_device_is_not_waited_for() -> None:
    """Not when it counts, and not when it records: CUDA tensors without numbers refuse to be read."""

    def contract(path: str, module: nn.Module) -> moe.Router | None:
        layer = layer_in(path)
        take = (lambda output: chosen(output, 8), mapped)
        return None if layer is None else moe.Router(layer, take[layer])

    with fake_cuda() as spy, torch.device("cuda"):
        model = Routed(torch.zeros((5, 2), dtype=torch.int64), torch.zeros((5, 8), dtype=torch.bool))
        trackers = Trackers()
        counter = moe.attach(model, contracts=[contract], tracker=trackers.default)
        for _ in range(2):
            model()
            model()
            counter.record()
        assert spy.calls > 0
        assert spy.seen == []
