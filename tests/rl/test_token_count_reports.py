"""Public reports about token counts of AReaL, each on groups laid out as in the report: four real ranks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

from realparts.ranks import Ranks, ranks
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.rl.throughput import Throughput

pytestmark = pytest.mark.xdist_group("four ranks")
MASK = [[1] * 12, [1] * 8 + [0] * 4]  # 20 tokens, of 24 places
TOKENS = 20.0


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, tmp_path_factory.mktemp("four")) as group:
        yield group


def own_group(rank: int, parts: Sequence[Sequence[int]]) -> Any:
    """The group that this rank is in; all ranks must make all of them."""
    groups = [dist.new_group(list(part)) for part in parts]
    return next(group for group, part in zip(groups, parts, strict=True) if rank in part)


def exported(layout: Callable[[int], dict[str, Any]], rank: int, masks: Sequence[Any]) -> dict[str, float]:
    """Each rank trains on its masks, under its groups, and all export over all."""
    trackers = Trackers(Recorder())
    perf = Throughput(lambda length: float(length**2), trackers=trackers, **layout(rank))
    for mask in masks:
        with perf.batch(torch.tensor(mask, dtype=torch.bool)):
            pass
    return dict(trackers.export_all(dist.group.WORLD))


def test_areal_627_tokens_of_sliced_inputs_under_context_parallelism(four: Ranks) -> None:
    """Each rank works on its quarter of every sequence, and the sequences are counted whole, once."""

    def on_rank(rank: int) -> dict[str, float]:
        sliced = torch.tensor(MASK).chunk(4, dim=-1)[rank]
        assert sliced.sum() < TOKENS  # what was counted then
        return exported(lambda own: {"duplicated_over": own_group(own, [range(4)])}, rank, [MASK])

    for found in four.run(on_rank):
        assert found["train_perf/tokens"] == TOKENS
        assert found["train_perf/estimated_flops"] == 12.0**2 + 8.0**2  # of whole sequences, not of quarters


def test_areal_1242_sft_token_counters_four_times_low_with_four_context_parallel_ranks(four: Ranks) -> None:
    """The same batches on four data-parallel ranks, and with context parallelism: as many tokens."""

    def data_parallel(rank: int) -> dict[str, float]:
        return exported(lambda own: {}, rank, [MASK])

    def context_parallel(rank: int) -> dict[str, float]:
        return exported(lambda own: {"duplicated_over": own_group(own, [range(4)])}, rank, [MASK] * 4)

    counts = [found["train_perf/tokens"] for run in (data_parallel, context_parallel) for found in four.run(run)]
    assert counts == [4 * TOKENS] * 8


def test_areal_1497_ranks_whose_keys_differ_under_context_parallelism(four: Ranks) -> None:
    """A rank that trained on nothing takes part in the reduction, and the others' numbers are right."""

    def on_rank(rank: int) -> dict[str, float]:
        return exported(lambda own: {}, rank, [MASK] if rank else [])

    found = four.run(on_rank)
    assert [each["train_perf/tokens"] for each in found] == [3 * TOKENS] * 4


def test_tensor_and_expert_parallel_copies_are_counted_once(four: Ranks) -> None:
    """Two pairs: the ranks of a pair hold the same sequences, the pairs different ones."""
    pairs, across = [[0, 1], [2, 3]], [[0, 2], [1, 3]]

    def by_copies(rank: int) -> dict[str, float]:
        return exported(lambda own: {"duplicated_over": own_group(own, pairs)}, rank, [MASK])

    def by_data(rank: int) -> dict[str, float]:
        return exported(lambda own: {"data_parallel_group": own_group(own, across)}, rank, [MASK])

    for run in (by_copies, by_data):
        assert [each["train_perf/tokens"] for each in four.run(run)] == [2 * TOKENS] * 4


def test_pipeline_stages_of_tensor_parallel_pairs_are_counted_once(four: Ranks) -> None:
    def on_rank(rank: int) -> dict[str, float]:
        def layout(own: int) -> dict[str, Any]:
            return {"duplicated_over": [own_group(own, [[0, 1], [2, 3]]), own_group(own, [[0, 2], [1, 3]])]}

        return exported(layout, rank, [MASK])

    assert [each["train_perf/tokens"] for each in four.run(on_rank)] == [TOKENS] * 4


def test_the_slowest_rank_s_time_counts_also_if_it_counts_no_tokens(four: Ranks) -> None:
    def on_rank(rank: int) -> dict[str, float]:
        trackers, ns = Trackers(Recorder()), [0]
        perf = Throughput(
            trackers=trackers, duplicated_over=own_group(rank, [range(4)]), now=lambda: ns[0], synchronize=lambda: None
        )
        with perf.batch(MASK):
            ns[0] += (rank + 1) * 1_000_000_000
        return dict(trackers.export_all(dist.group.WORLD))

    for found in four.run(on_rank):
        assert found["train_perf/seconds"] == pytest.approx(4.0)
        assert found["train_perf/tokens_per_second"] == pytest.approx(TOKENS / 4.0)
