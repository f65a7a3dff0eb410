"""What routers promise: Hugging Face's real ones; Megatron's and buffers as their frameworks document them."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rltel.core.errors import RecordError
from rltel.reduce.trackers import Trackers
from rltel.rl import moe
from rltel.rl.moe.contracts import chosen, counter_buffer, hugging_face, is_auxiliary, layer_in, mapped, megatron

HUGGING_FACE = [
    ("qwen3_moe", "Qwen3MoeTopKRouter", {"norm_topk_prob": True, "hidden_size": 16}),
    ("qwen3_5_moe", "Qwen3_5MoeTopKRouter", {"hidden_size": 16}),
    ("qwen2_moe", "Qwen2MoeTopKRouter", {"norm_topk_prob": True, "hidden_size": 16}),
    ("qwen3_next", "Qwen3NextTopKRouter", {"norm_topk_prob": True, "hidden_size": 16}),
    ("qwen3_vl_moe", "Qwen3VLMoeTextTopKRouter", {"hidden_size": 16}),
    ("olmoe", "OlmoeTopKRouter", {"norm_topk_prob": True, "hidden_size": 16}),
    ("mixtral", "MixtralTopKRouter", {"hidden_size": 16, "num_local_experts": 8}),
]


class TopKRouter(nn.Module):
    """As Megatron Core's: probabilities and a routing map, both ``[tokens, experts]``, the map after drops."""

    def __init__(self, experts: int, layer_number: int | None = None, capacity: int | None = None) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_moe_experts=experts)
        self.layer_number = layer_number
        self.capacity = capacity

    def set_layer_number(self, layer_number: int) -> None:
        self.layer_number = layer_number

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(2, dim=1).indices, True)
        if self.capacity is not None:
            routing_map &= routing_map.cumsum(dim=0) <= self.capacity
        return logits.softmax(dim=1) * routing_map, routing_map


class Megatron(nn.Module):
    """A pipeline stage: routers that know their layer over all stages, and one of multi-token prediction."""

    def __init__(self, first: int, layers: int, **options: Any) -> None:
        super().__init__()
        self.decoder = nn.Module()
        self.decoder.layers = nn.ModuleList(self._layer(first + 1 + n, **options) for n in range(layers))
        self.mtp = nn.Module()
        self.mtp.layers = nn.ModuleList([self._layer(first + layers + 1, **options)])

    def _layer(self, number: int, **options: Any) -> nn.Module:
        layer = nn.Module()
        layer.mlp = nn.Module()
        layer.mlp.router = TopKRouter(4, number, **options)
        return layer

    def forward(self, logits: torch.Tensor) -> list[torch.Tensor]:
        return [layer.mlp.router(logits)[1] for layer in (*self.decoder.layers, *self.mtp.layers)]


class Counting(nn.Module):
    """A MoE layer that keeps its own counts, as Archon's and torchtitan's do."""

    def __init__(self, name: str, accumulates: bool) -> None:
        super().__init__()
        self.name, self.accumulates = name, accumulates
        self.register_buffer(name, torch.zeros(4, dtype=torch.int64), persistent=False)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(indices.flatten(), minlength=4)
        buffer = getattr(self, self.name)
        if self.accumulates:
            buffer.add_(counts)
        else:
            buffer.copy_(counts)
        return indices


class Stack(nn.Module):
    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(modules)

    def forward(self, given: torch.Tensor) -> list[Any]:
        return [layer(given) for layer in self.layers]


def counted(counter: moe.RouterCounter, trackers: Trackers) -> dict[int, list[float]]:
    """What it records, by layer."""
    counter.record()
    with trackers.taken() as snapshot:
        return {
            int(key.rsplit("_", 1)[1]): [v.value for v in metric.state.values() if v.stat == "tokens"]
            for key, metric in snapshot.items()
        }


@pytest.mark.parametrize(("package", "name", "settings"), HUGGING_FACE)
def test_hugging_face_s_routers_tell_whom_they_chose(package: str, name: str, settings: dict[str, Any]) -> None:
    module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    router = getattr(module, name)(SimpleNamespace(num_experts_per_tok=2, num_experts=8, **settings))
    torch.manual_seed(0)
    nn.init.normal_(router.weight)
    hidden = torch.randn(3, 5, 16)
    found = hugging_face("model.layers.2.mlp.gate", router)
    assert found is not None
    assert (found.layer, found.experts, found.is_global) == (2, 8, False)
    best = (hidden.reshape(-1, 16) @ router.weight.T).topk(2, dim=1).indices
    assert found.counts(router(hidden)).tolist() == torch.bincount(best.flatten(), minlength=8).tolist()


def test_a_router_that_fsdp_gave_a_class_of_its_own_is_known() -> None:
    """``fully_shard`` puts a class of its own before the module's."""
    module = importlib.import_module("transformers.models.qwen3_moe.modeling_qwen3_moe")
    sharded = type("FSDPQwen3MoeTopKRouter", (module.Qwen3MoeTopKRouter,), {})
    router = sharded(SimpleNamespace(num_experts_per_tok=1, num_experts=4, norm_topk_prob=True, hidden_size=2))
    assert hugging_face("_fsdp_wrapped_module.model.layers.11._checkpoint_wrapped_module.mlp.gate", router) is not None


def test_megatron_s_counts_are_those_after_drops_of_its_own_layers() -> None:
    trackers = Trackers()
    stage = Megatron(first=6, layers=2, capacity=2)
    counter = moe.attach(stage, tracker=trackers.default)
    assert counter.layers == {6: "decoder.layers.0.mlp.router", 7: "decoder.layers.1.mlp.router"}
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]] * 5)  # all want the first two experts, which take two tokens each
    maps = stage(logits)
    assert maps[0].sum() == 4
    assert counted(counter, trackers) == {6: [2.0, 2.0, 0.0, 0.0], 7: [2.0, 2.0, 0.0, 0.0]}


def test_megatron_s_virtual_pipeline_chunks_are_one_rank_s() -> None:
    trackers = Trackers()
    chunks = [Megatron(first=0, layers=1), Megatron(first=4, layers=1)]
    counter = moe.attach(chunks, tracker=trackers.default)
    for chunk in chunks:
        chunk(torch.tensor([[0.0, 0.0, 1.0, 1.0]]))
    assert counted(counter, trackers) == {0: [0.0, 0.0, 1.0, 1.0], 4: [0.0, 0.0, 1.0, 1.0]}


@pytest.mark.parametrize(("name", "accumulates"), [("routing_counts", False), ("tokens_per_expert", True)])
def test_modules_that_count_for_themselves_are_read_after_each_forward(name: str, accumulates: bool) -> None:
    trackers = Trackers()
    model = Stack(Counting(name, accumulates), Counting(name, accumulates))
    contract = counter_buffer(name, accumulates=accumulates)
    counter = moe.attach(model, contracts=[contract], tracker=trackers.default)
    model(torch.tensor([[0, 1], [0, 3]]))
    model(torch.tensor([[0, 2]]))
    with torch.no_grad():
        model(torch.tensor([[3, 3]]))
    model.layers[1](torch.tensor([[2, 2]]))  # recomputed in backward: the model is not entered
    assert counted(counter, trackers) == {0: [3.0, 1.0, 1.0, 1.0], 1: [3.0, 1.0, 1.0, 1.0]}
    model(torch.tensor([[1, 1]]))
    assert counted(counter, trackers) == {0: [0.0, 2.0, 0.0, 0.0], 1: [0.0, 2.0, 0.0, 0.0]}


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_buffer_may_come_with_the_first_forward(accumulates: bool) -> None:
    trackers = Trackers()
    model = Stack(Counting("counts", accumulates))
    made, model.layers[0].counts = model.layers[0].counts, None
    contract = counter_buffer("counts", accumulates=accumulates)
    counter = moe.attach(model, contracts=[contract], tracker=trackers.default)
    counter.record()
    assert not trackers.export_all()
    model.layers[0].register_forward_pre_hook(lambda module, _: setattr(module, "counts", made))
    model(torch.tensor([[0, 1], [0, 3]]))
    assert counted(counter, trackers) == {0: [2.0, 1.0, 0.0, 1.0]}


def test_a_buffer_that_is_gone_stops_no_training() -> None:
    trackers = Trackers()
    model = Stack(Counting("counts", True), Counting("counts", True))
    counter = moe.attach(model, contracts=[counter_buffer("counts", accumulates=True)], tracker=trackers.default)
    model(torch.tensor([[0, 1]]))
    del model.layers[1].counts
    model.layers[1].forward = lambda given: given
    for _ in range(2):
        model(torch.tensor([[0, 1]]))
    assert counted(counter, trackers) == {0: [3.0, 3.0, 0.0, 0.0]}


def test_routing_counts_are_known_without_being_asked_for() -> None:
    assert dict(moe.attach(Stack(Counting("routing_counts", False))).layers) == {0: "layers.0"}


def test_a_contract_of_one_s_own() -> None:
    class Switch(nn.Module):
        def forward(self, given: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"expert": given % 3}

    def switch(path: str, module: nn.Module) -> moe.Router | None:
        if not isinstance(module, Switch):
            return None
        return moe.Router(layer_in(path) or 0, lambda output: chosen(output["expert"], 3), experts=3)

    trackers = Trackers()
    model = Stack(Switch(), Switch())
    counter = moe.attach(model, first_layer=10, contracts=[switch, *moe.CONTRACTS], tracker=trackers.default)
    model(torch.arange(7))
    assert counted(counter, trackers) == {10: [3.0, 2.0, 2.0], 11: [3.0, 2.0, 2.0]}


def test_routers_of_multi_token_prediction_are_auxiliary() -> None:
    plain, told = nn.Module(), nn.Module()
    told.is_mtp_layer = True
    assert is_auxiliary("mtp.layers.0.mlp.gate", plain)
    assert is_auxiliary("model.mtp_block.layers.0.router", plain)
    assert is_auxiliary("decoder.layers.0.mlp.router", told)
    assert not is_auxiliary("model.layers.0.mlp.gate", plain)
    assert megatron("mtp.layers.0.router", TopKRouter(2, 1)) is None


def test_a_routing_map_of_another_shape_is_refused() -> None:
    with pytest.raises(RecordError, match=r"routing map: expected \[tokens, experts\], got"):
        mapped(torch.zeros(3))
