"""Loads over real ranks of gloo, in the layouts of groups that trainers have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from realparts.measures import Flat, Record, areal_vector, differences, exported, reduced_in_rank
from realparts.ranks import Ranks, ranks
from rltel.record.tracker import Tracker
from rltel.rl import moe
from rltel.rl.moe.contracts import chosen, layer_in

EXPERTS = 4
pytestmark = pytest.mark.xdist_group("ranks with experts")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    # One may import transformers much faster than the other.
    with ranks(2, Path(tmp_path_factory.mktemp("two")), timeout_s=120.0) as started:
        yield started


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, Path(tmp_path_factory.mktemp("four"))) as started:
        yield started


def reduced(group: Ranks, records: list[Record]) -> Flat:
    """What all ranks export, which is the same on each."""
    results: list[Flat] = group.run(reduced_in_rank, records)
    assert all(result == results[0] for result in results)
    return results[0]


def counts(given: dict[int, list[int]], **options: Any) -> Record:
    return lambda tracker: moe.record(given, tracker=tracker, **options)


def of_layers(given: dict[str, list[int]]) -> dict[int, list[int]]:
    return {int(name.removeprefix("layer ")): each for name, each in given.items()}


class Stage(nn.Module):
    """A rank's part of a model: layers that route what they are given."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(layers))

    def forward(self, indices: torch.Tensor) -> list[Any]:
        return [layer((indices + n) % EXPERTS) for n, layer in enumerate(self.layers)]


def routing(indices: list[int], layers: int = 2, **options: Any) -> Record:
    """A rank that trains on tokens whose experts these are."""

    def contract(path: str, module: nn.Module) -> moe.Router | None:
        layer = layer_in(path)
        return None if layer is None else moe.Router(layer, lambda output: chosen(output, EXPERTS), EXPERTS)

    def train(tracker: Tracker) -> None:
        model = Stage(layers)
        counter = moe.attach(model, contracts=[contract], tracker=tracker, **options)
        if indices:
            model(torch.tensor(indices))
        counter.record()

    return train


def nothing(tracker: Tracker) -> None:
    """A rank that has no router."""


def test_areal_sums_before_it_normalises(two: Ranks) -> None:
    vector = areal_vector("moe_two_ranks")
    records = [counts(of_layers(vector["input"][f"rank{rank}"])) for rank in range(2)]
    assert not differences(reduced(two, records), vector["output"])


def test_areal_divides_replicas_out(two: Ranks) -> None:
    vector = areal_vector("moe_two_ranks_replicas2")
    each = counts(of_layers(vector["input"]["each rank"]), replicas=vector["input"]["replicas"])
    assert not differences(reduced(two, [each, each]), vector["output"])


def test_areal_1693_a_rank_without_counts_takes_part(two: Ranks, four: Ranks) -> None:
    """There it skips the collective, and the others wait for it."""
    for group in (two, four):
        others = [nothing] * (len(group.processes) - 1)
        assert reduced(group, [*others, routing([0, 1, 1])]) == exported(routing([0, 1, 1]))


def test_a_rank_that_trained_on_nothing_adds_nothing(two: Ranks) -> None:
    assert reduced(two, [routing([0, 1, 1]), routing([])]) == exported(routing([0, 1, 1]))


def test_ranks_without_any_assignment_report_zeros(two: Ranks) -> None:
    found = reduced(two, [routing([]), routing([])])
    assert len(found) == 2 * (4 + 2 * EXPERTS)
    assert set(found.values()) == {0.0}


def test_data_and_expert_parallel_ranks_each_route_their_own(four: Ranks) -> None:
    parts = [[0, 1], [1, 2, 3], [3], [0, 0, 0, 1]]
    assert reduced(four, [routing(part) for part in parts]) == exported(routing([e for part in parts for e in part]))


def test_tensor_parallel_ranks_hold_the_same_and_count_once(four: Ranks) -> None:
    """Two data-parallel ranks, each with two tensor-parallel ones."""
    sharing = [routing(part, replicas=2) for part in ([0, 1, 1], [0, 1, 1], [2, 3], [2, 3])]
    assert reduced(four, sharing) == exported(routing([0, 1, 1, 2, 3]))


def test_areal_1242_context_parallel_ranks_add_their_slices(four: Ranks) -> None:
    tokens = [0, 1, 2, 3, 0, 1, 1, 1]
    slices = [routing(tokens[begin : begin + 2]) for begin in range(0, 8, 2)]
    assert reduced(four, slices) == exported(routing(tokens))


def test_pipeline_stages_have_layers_of_their_own(four: Ranks) -> None:
    """Two stages, each with two data-parallel ranks: every rank gets every layer."""
    parts = ([0, 1], [2, 2, 3])
    records = [routing(part, first_layer=stage * 2) for stage in range(2) for part in parts]
    found = reduced(four, records)
    whole = exported(*(routing([0, 1, 2, 2, 3], first_layer=stage * 2) for stage in range(2)))
    assert found == whole
    assert {key.split("/")[1] for key in found} == {f"layer_{n}" for n in range(4)}


def test_any_split_over_ranks_is_the_same(two: Ranks, four: Ranks) -> None:
    chance = random.Random(5)
    for group in (two, four):
        for _ in range(5):
            tokens = [chance.randrange(EXPERTS) for _ in range(chance.randrange(1, 40))]
            parts: list[list[int]] = [[] for _ in group.processes]
            for token in tokens:
                chance.choice(parts).append(token)
            assert reduced(group, [routing(part) for part in parts]) == exported(routing(tokens))


def test_forty_eight_layers_of_a_hundred_and_twenty_eight_experts_arrive_whole(two: Ranks) -> None:
    chance = random.Random(7)
    mine = [{n: [chance.randrange(1000) for _ in range(128)] for n in range(48)} for _ in range(2)]
    total = {n: [a + b for a, b in zip(mine[0][n], mine[1][n], strict=True)] for n in range(48)}
    assert reduced(two, [counts(each) for each in mine]) == exported(counts(total))


def trained_qwen3(rank: int, wrapper: str) -> dict[int, float]:
    """Assignments by layer of a real model that this rank trains on 4 tokens and its number more, checkpointed."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    from rltel.record.recorder import Recorder
    from rltel.reduce.trackers import Trackers

    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 8, "moe_intermediate_size": 8, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    experts = {"num_hidden_layers": 2, "num_experts": EXPERTS, "num_experts_per_tok": 2}
    model: Any = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, **experts)).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    if wrapper == "ddp":
        model = DistributedDataParallel(model, find_unused_parameters=True)
    else:
        mesh = init_device_mesh("cpu", (2,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    trackers = Trackers(Recorder())
    counter = moe.attach(model, tracker=trackers.default)
    tokens = torch.arange(4 + rank).reshape(1, -1)
    model(tokens, labels=tokens).loss.backward()
    counter.record()
    found = trackers.export_all(reduce_group=dist.group.WORLD)
    return {n: sum(found[f"moe_balance/layer_{n}/expert_{e}/tokens"] for e in range(EXPERTS)) for n in (0, 1)}


@pytest.mark.parametrize("wrapper", ["ddp", "fully_shard"])
def test_a_real_model_under_a_real_wrapper_counts_each_rank_s_tokens_once(two: Ranks, wrapper: str) -> None:
    """DDP puts the model inside another module, ``fully_shard`` puts classes of its own before its modules'."""
    expected = 2.0 * (4 + 5)  # top 2 of all ranks' tokens, and no recomputed ones
    assert two.run(trained_qwen3, wrapper, timeout=300.0) == [{0: expected, 1: expected}] * 2
