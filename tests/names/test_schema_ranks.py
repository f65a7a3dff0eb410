"""UniLab's worked example of a reduction over ranks (V07), on real ranks, with each tag's own rules."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch.distributed

from realparts.ranks import ranks
from rltel.names.schema import gauge_rule
from rltel.reduce.trackers import Trackers

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "unilab_vectors.json").read_text())["vectors"]
(EXAMPLE,) = (each for each in VECTORS if each["id"].startswith("V07"))
ROWS = "Rows/s"


def measured(rank: Mapping[str, float | None]) -> dict[str, float]:
    """What one rank records. What it does not have it leaves out."""
    given = {
        **rank,
        "Perf/learning_time": rank["train_time"],
        "Perf/iteration_time": rank["iteration_time"],
        "Perf/total_fps": rank["env_steps"] / rank["iteration_time"],
        ROWS: rank["rows"] / rank["iteration_time"],
    }
    return {key: value for key, value in given.items() if "/" in key and value is not None}


def reduced(rank: int, recorded: list[dict[str, float]]) -> dict[str, float]:
    trackers = Trackers()
    for key, value in recorded[rank].items():
        rule = gauge_rule(key)
        trackers.default.gauge({key: value}, ranks=rule.ranks, local=rule.local, alpha=rule.alpha)
    return dict(trackers.export_all(reduce_group=torch.distributed.group.WORLD))


@pytest.mark.xdist_group("two ranks")
def test_ranks_merge_by_each_tags_rule(tmp_path: Path) -> None:
    recorded = [measured(rank) for rank in EXAMPLE["input"]["ranks"]]
    with ranks(2, tmp_path) as two:
        first, second = two.run(reduced, recorded)
    expected = {key: value for key, value in EXAMPLE["expect"].items() if "/" in key}
    expected[ROWS] = EXAMPLE["expect"]["rows_per_s"]
    assert first == second == pytest.approx(expected, rel=EXAMPLE["tolerance"])
    assert first["Perf/total_fps"] != pytest.approx(EXAMPLE["expect"]["wrong_total_fps_if_ratio_of_means"], rel=1e-3)
