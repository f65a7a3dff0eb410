"""StatsLogger on real ranks: one of them commits."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from realparts.ranks import ranks
from rltel.export.jsonl import read_jsonl

pytestmark = pytest.mark.xdist_group("two ranks")


def on_rank(rank: int, root: str) -> dict[str, Any]:
    import rltel
    from rltel.stats_logger import StatsLogger

    named = {"experiment_name": "e", "trial_name": "t", "fileroot": root}
    logger = StatsLogger({"stats_logger": {**named, "tensorboard": {"path": f"{root}/tb"}}}, None)
    for step in range(2):
        rltel.scalar(reward=float(rank))
        stats = rltel.export_all(reduce_group=dist.group.WORLD)
        logger.commit(0, step, step, stats)
    logger.close()
    return logger.state_dict()


def test_one_rank_commits_what_both_recorded(tmp_path: Path) -> None:
    with ranks(2, tmp_path) as group:
        states = group.run(on_rank, str(tmp_path / "root"))
    assert states == [{"last_commit_step": 1}, {"last_commit_step": -1}]
    (record,) = (tmp_path / "root").rglob("*.jsonl")
    assert [(line.step, dict(line.values)) for line in read_jsonl(record)] == [
        (0, {"reward": 0.5, "reward__count": 2}),
        (1, {"reward": 0.5, "reward__count": 2}),
    ]
    assert len(list((tmp_path / "root" / "tb").glob("events.*"))) == 1
