"""The drop-in over real ranks, beside AReaL's own tracker in the same process group."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from realparts.areal import TRACKER, need_areal, real_modules
from realparts.ranks import ranks
from rltel import stats_tracker

pytestmark = pytest.mark.xdist_group("two ranks")


def record(module: Any, rank: int) -> None:
    """What a trainer's rank records: unequal masks, scopes, scalars, and keys that only one rank has."""
    with module.scope("ppo_actor"), module.scope("update"):
        mask = torch.tensor([True, True, False, True] if rank == 0 else [False, True])
        values = torch.tensor([1.0, 2.0, 100.0, 6.0] if rank == 0 else [-50.0, 11.0])
        module.denominator(n_valid_tokens=mask)
        module.stat("n_valid_tokens", loss=values)
        module.stat(denominator="n_valid_tokens", reduce_type=module.ReduceType.SUM, tokens=values)
    module.scalar(lr=0.5 if rank == 0 else 0.25)
    module.get("rollout").scalar(reward=float(rank))


def on_rank(rank: int) -> tuple[dict[str, float], dict[str, float]]:
    with real_modules(TRACKER) as (areal,):
        for module in (areal, stats_tracker):
            record(module, rank)
        theirs = areal.export_all(reduce_group=dist.group.WORLD)
        ours = stats_tracker.export_all(reduce_group=dist.group.WORLD)
    return theirs, dict(ours)


def test_two_ranks_get_what_areal_s_own_tracker_gives_them(tmp_path: Path) -> None:
    need_areal()
    with ranks(2, tmp_path) as group:
        found = group.run(on_rank)
    for theirs, ours in found:
        assert ours == pytest.approx(theirs, rel=1e-6)  # AReaL reduces in float32
        assert ours == {
            "lr": 0.375,
            "lr__count": 2,
            "ppo_actor/update/loss/avg": 5.0,
            "ppo_actor/update/loss/max": 11.0,
            "ppo_actor/update/loss/min": 1.0,
            "ppo_actor/update/n_valid_tokens": 4.0,
            "ppo_actor/update/tokens": 20.0,
            "rollout/reward": 0.5,
            "rollout/reward__count": 2,
        }
    assert found[0][1] == found[1][1]
