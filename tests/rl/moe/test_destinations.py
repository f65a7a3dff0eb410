"""Where loads go: the real packages of the tracking services and TensorBoard, read back with their own readers."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vl_convert
from PIL import Image

from export.making import commit, recorded, run_python
from realparts.swanlab_reader import read_run
from realparts.tensorboard_reader import accumulated, scalars
from realparts.tracking import drive, labels, offline
from realparts.trackio_reader import read_store
from realparts.wandb_reader import read_offline
from rltel.core.config import SwanlabConfig, WandbConfig
from rltel.export.commit import Commit
from rltel.export.tensorboard.sink import TensorBoardSink
from rltel.export.tracking.swanlab import SwanlabClient
from rltel.export.tracking.wandb import WandbClient
from rltel.rl import moe

__all__ = ["offline"]  # a fixture
PANELS = Path(__file__).parents[3] / "docs" / "vega"
Counts = dict[int, list[int]]
_numbers = count()
SMALL: Counts = {0: [2, 2], 1: [3, 1], 10: [0, 0]}


def made(counts: Counts, **changed: Any) -> Commit:
    return commit(recorded(lambda trackers: moe.record(counts, tracker=trackers.default)), **changed)


def many(layers: int, experts: int) -> Counts:
    chance = np.random.default_rng(3)
    return {layer: chance.integers(0, 1000, experts).tolist() for layer in range(layers)}


def wandb_table(folder: Path, *commits: Commit) -> dict[str, Any]:
    """The table of the last commit, as W&B has it, beside that row's numbers."""
    # An id of its own, since W&B's process needs a moment to let go of one; and time to end on a busy machine.
    run = replace(labels(folder), run_id=f"moe-{next(_numbers)}", timeout_s=60.0)
    destination = drive(WandbClient(WandbConfig(mode="offline"), run), *commits)
    assert (destination.exported_total, destination.dropped_totals) == (len(commits), {})
    stored = read_offline(folder, timeout=60.0)
    files = folder.glob("wandb/offline-run-*/files/media/table/moe_balance/expert_loads_*.table.json")
    table = json.loads(max(files, key=lambda path: int(path.name.split("_")[2])).read_text())
    return {**table, "row": stored.rows[-1]}


@pytest.mark.usefixtures("offline")
class TestWandb:
    def test_one_table_a_step_and_the_layers_own_numbers(self, tmp_path: Path) -> None:
        found = wandb_table(tmp_path, made({0: [1, 0]}), made(SMALL, step=2))
        assert found["columns"] == ["layer", "expert", "tokens", "load_percent"]
        assert found["data"] == [
            [0, 0, 2, 50],
            [0, 1, 2, 50],
            [1, 0, 3, 75],
            [1, 1, 1, 25],
            [10, 0, 0, 0],
            [10, 1, 0, 0],
        ]
        assert found["row"]["moe_balance/layer_1/max_over_ideal"] == 1.5
        assert not [key for key in found["row"] if "expert_0" in key or "expert_1" in key]

    def test_areal_1693_more_than_ten_thousand_rows_lose_no_expert(self, tmp_path: Path) -> None:
        counts = many(48, 256)
        found = wandb_table(tmp_path, made(counts))
        assert len(found["data"]) == 48 * 256 > 10_000
        assert [row[2] for row in found["data"]] == [each for layer in counts.values() for each in layer]


def test_swanlab_has_every_expert_s_series(tmp_path: Path) -> None:
    drive(SwanlabClient(SwanlabConfig(mode="offline"), labels(tmp_path)), made(SMALL))
    series = read_run(tmp_path / "swanlab").series
    assert series["moe_balance/layer_1/expert_0/tokens"] == [(1, 3.0)]
    assert series["moe_balance/layer_1/expert_0/load_percent"] == [(1, 75.0)]
    assert series["moe_balance/layer_1/max_over_ideal"] == [(1, 1.5)]
    assert len([key for key in series if "/expert_" in key]) == 2 * 2 * len(SMALL)


def test_trackio_has_every_expert_s_series(tmp_path: Path) -> None:
    """In a process of its own: the package reads where its store is once, when it is imported."""
    tests = str(Path(__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {tests!r})\n"
        "from pathlib import Path\n"
        "from realparts.tracking import drive, labels\n"
        "from rltel.core.config import TrackioConfig\n"
        "from rltel.export.tracking.trackio import TrackioClient\n"
        "from export.making import commit, recorded\n"
        "from rltel.rl import moe\n"
        "made = commit(recorded(lambda trackers: moe.record({1: [3, 1]}, tracker=trackers.default)))\n"
        "client = TrackioClient(TrackioConfig(mode='local'), labels(Path(sys.argv[1])))\n"
        "assert drive(client, made).exported_total == 1\n"
    )
    ran = run_python(code, tmp_path / "run", timeout=240, HOME=str(tmp_path / "home"))
    assert ran.returncode == 0, ran.stderr
    stored = read_store(tmp_path / "run" / "trackio", "rltel", "run-1")
    assert stored.series("moe_balance/layer_1/expert_0/tokens") == [(1, 3.0)]
    assert stored.series("moe_balance/layer_1/expert_1/load_percent") == [(1, 25.0)]
    assert stored.series("moe_balance/layer_1/max_over_ideal") == [(1, 1.5)]


class TestTensorBoard:
    def test_layers_are_scalars_and_experts_an_image(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        for step in (1, 2):
            sink.write(made(SMALL, step=step), [])
        sink.close()
        assert set(scalars(tmp_path)) == {
            f"moe_balance/layer_{layer}/{name}" for layer in SMALL for name in moe.Balance._fields
        }
        images = accumulated(tmp_path).Images("moe_balance/expert_loads")
        assert [image.step for image in images] == [1, 2]
        read = Image.open(io.BytesIO(images[0].encoded_image_string))
        assert read.size == (images[0].width, images[0].height)

    def test_a_large_model_is_one_small_event(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        sink.write(made(many(48, 128)), [])
        sink.close()
        (file,) = tmp_path.glob("*tfevents*")
        assert file.stat().st_size < 60_000


# --- the panels of docs/moe.md --------------------------------------------------------------------------------------


def drawn(panel: str, rows: list[dict[str, Any]], fields: dict[str, str], **strings: str) -> str:
    """A panel as SVG, filled in as W&B does: with a query's rows, and what its user chose for fields and texts."""
    text = (PANELS / f"{panel}.json").read_text()
    text = re.sub(r"\$\{field:(\w+)\}", lambda found: fields[found[1]], text)
    text = re.sub(r"\$\{string:(\w+)\}", lambda found: strings[found[1]], text)
    assert "${" not in text
    spec = json.loads(text)
    assert spec["data"] == {"name": "wandb"}
    return str(vl_convert.vegalite_to_svg({**spec, "data": {"values": rows}, "width": 400, "height": 300}, "5.21"))


def marks(svg: str, role: str) -> list[dict[str, str]]:
    """What the drawn marks of a sort say of themselves, for readers who hear them."""
    described = re.findall(rf'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="{role}"', svg)
    return [dict(part.split(": ", 1) for part in each.split("; ")) for each in described]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What W&B's own table has."""
    table = wandb_table(tmp_path_factory.mktemp("panels"), made({**SMALL, 11: [1, 7]}))
    return [{"name": "run", **dict(zip(table["columns"], row, strict=True))} for row in table["data"]]


COLUMNS = {name: name for name in ("layer", "expert", "tokens", "load_percent", "step")}


def test_the_heatmap_has_a_cell_for_each_expert(rows: list[dict[str, Any]]) -> None:
    cells = marks(drawn("moe_expert_loads", rows, COLUMNS, title="Experts"), "rect mark")
    assert len(cells) == len(rows)
    (hot,) = [cell for cell in cells if (cell["layer"], cell["expert"]) == ("11", "1")]
    assert (hot["tokens"], float(hot["load, %"]), float(hot["load / ideal"])) == ("7", 87.5, 1.75)


def test_the_history_has_a_cell_for_each_step_and_layer() -> None:
    history = [
        {"step": step, **{f"moe_balance/layer_{layer}/max_over_ideal": 1.0 + step for layer in (0, 3, 47)}}
        for step in range(5)
    ]
    cells = marks(drawn("moe_balance_by_step", history, COLUMNS, title="Layers"), "rect mark")
    assert {(cell["step"], cell["layer"]) for cell in cells} == {
        (str(s), n) for s in range(5) for n in ("0", "3", "47")
    }
    assert {float(cell["max / ideal"]) for cell in cells} == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_the_bars_are_one_layer_s_with_the_ideal_load(rows: list[dict[str, Any]]) -> None:
    svg = drawn("moe_layer_bars", rows, COLUMNS, title="Layer", layer="11")
    bars = marks(svg, "bar")
    assert [(bar["expert"], float(bar["load, %"])) for bar in bars] == [("0", 12.5), ("1", 87.5)]
    (rule,) = marks(svg, "rule mark")
    assert [float(value) for value in rule.values()] == [50.0]
