"""A whole training, sent everywhere by `rltel.init`, and read back with each destination's own reader."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from export.making import run_python
from realparts.oteltap import OtelTap, oteltap
from realparts.otlp_receiver import rotel
from realparts.swanlab_reader import read_run as read_swanlab
from realparts.tensorboard_reader import steps as tensorboard_steps
from realparts.trackio_reader import read_store
from realparts.wandb_reader import read_offline
from rltel.export.jsonl import read_jsonl

MP4 = b"\x00\x00\x00\x18ftypmp42"
ROLLOUT_STEPS, TRAIN_STEPS = [8073, 8074, 8075], [0, 1, 2]

# Two axes, each with its own steps; a number that is none; a distribution; and something of each kind to look at.
TRAINING = """
import json, socket, sys
from pathlib import Path
config, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
connect = socket.socket.connect
def stay(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        print("left this machine:", address, file=sys.stderr)
        raise OSError("no network here")
    connect(self, address)
socket.socket.connect = stay
import numpy as np
import rltel
rltel.init(config, run_dir=folder / "run")
for number in range(3):
    rltel.get("rollout").scalar(reward=number + 0.5)
    rltel.commit(rltel.get("rollout").export(), step=8073 + number, axis="rollout")
    with rltel.slice("update"):
        rltel.scalar(loss=[0.25, float("nan"), 0.75][number])
        rltel.distribution(seq_len=np.array([1.0, 2.0, 3.0, 100.0]))
    rltel.commit(step=number)
if len(sys.argv) > 3:
    rltel.log_table("samples", {"prompt": ["1+1"], "answer": ["2"]}, step=2)
    rltel.log_text("note", "hello", step=2)
    rltel.log_file("script", folder / "notes.txt", step=2)
    rltel.log_video("play", folder / "play_video.mp4", step=2)
rltel.flush(60.0)
"""


class Trained(NamedTuple):
    """A finished training, and where it is."""

    run_dir: Path
    said: str


def trained(folder: Path, config: dict[str, Any], *with_media: str, **environ: str) -> Trained:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "play_video.mp4").write_bytes(MP4)
    (folder / "notes.txt").write_text("hi")
    arguments = (json.dumps({"pipeline": {"shutdown_timeout_s": 60.0}, **config}), folder, *with_media)
    ran = run_python(TRAINING, *arguments, timeout=120, HOME=str(folder / "home"), **environ)
    assert ran.returncode == 0, ran.stderr
    assert "left this machine" not in ran.stderr
    return Trained(folder / "run", ran.stderr)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One training with all tracking services."""
    config = {
        "wandb": {"mode": "offline", "project": "p"},
        "swanlab": {"mode": "local", "project": "p"},
        "trackio": {"mode": "local", "project": "p", "name": "mine"},
        "tensorboard": {"path": "{run_dir}/tb"},
    }
    return trained(tmp_path_factory.mktemp("tracked"), config, "media", WANDB_MODE="offline", TRACKIO_DIR="")


class TestTrackingServices:
    def test_only_what_tensorboard_cannot_hold_is_lost_and_that_is_said(self, run: Trained) -> None:
        assert re.findall(r".* lost .*", run.said) == ["tensorboard: lost 2 in all ({'unsupported': 2})"]

    def test_wandb_keeps_both_axes_and_everything_shown(self, run: Trained) -> None:
        found = read_offline(run.run_dir)
        rewards = found.series("rollout/reward", "rltel/step/rollout")
        assert rewards == list(zip(ROLLOUT_STEPS, [0.5, 1.5, 2.5], strict=True))
        losses = found.series("loss", "rltel/step/train")
        assert [step for step, _ in losses] == TRAIN_STEPS
        assert [str(value) for _, value in losses] == ["0.25", "nan", "0.75"]
        assert [sum(row["seq_len.values"]) for row in found.rows if "seq_len.values" in row] == [4, 4, 4]
        shown = {key: row[key] for row in found.rows for key in row if key.endswith("._type")}
        assert shown == {
            "seq_len._type": "histogram",
            "samples._type": "table-file",
            "note._type": "html-file",
            "play._type": "video-file",
        }
        (table,) = run.run_dir.glob("wandb/offline-run-*/**/*.table.json")
        assert json.loads(table.read_text())["data"] == [["1+1", "2"]]
        (video,) = run.run_dir.glob("wandb/offline-run-*/**/*.mp4")
        assert video.read_bytes() == MP4
        assert "script/train-2/notes.txt" in found.files
        assert found.exit_code == 0

    def test_swanlab_keeps_both_axes_and_everything_shown(self, run: Trained) -> None:
        found = read_swanlab(run.run_dir / "swanlab")
        assert found.series["rollout/reward"] == list(zip(ROLLOUT_STEPS, [0.5, 1.5, 2.5], strict=True))
        assert [step for step, _ in found.series["loss"]] == TRAIN_STEPS
        assert [str(value) for _, value in found.series["loss"]] == ["0.25", "nan", "0.75"]
        assert found.series["seq_len/max"] == [(step, 100.0) for step in TRAIN_STEPS]
        assert set(found.media) == {"samples", "note"}
        assert {Path(name).name for name in found.saved} >= {"notes.txt", "play_video.mp4"}, "it plays GIFs only"
        assert found.finish is not None

    def test_trackio_keeps_both_axes_and_everything_shown(self, run: Trained) -> None:
        found = read_store(run.run_dir / "trackio", "p", "mine")
        assert found.series("rollout/reward") == list(zip(ROLLOUT_STEPS, [0.5, 1.5, 2.5], strict=True))
        losses = found.series("loss")
        assert [step for step, _ in losses] == TRAIN_STEPS
        assert [str(value) for _, value in losses] == ["0.25", "nan", "0.75"]
        assert [kind["_type"] for _, kind in found.series("seq_len")] == ["trackio.histogram"] * 3
        shown = {key: found.series(key)[0][1]["_type"] for key in ("samples", "note", "play")}
        assert shown == {"samples": "trackio.table", "note": "trackio.markdown", "play": "trackio.video"}
        (video,) = (run.run_dir / "trackio").rglob("*.mp4")
        assert video.read_bytes() == MP4
        files = [path for path in (run.run_dir / "trackio" / "artifacts").rglob("*") if path.is_file()]
        assert [path.read_text() for path in files] == ["hi"]

    def test_tensorboard_has_the_same_steps(self, run: Trained) -> None:
        found = tensorboard_steps(run.run_dir / "tb")
        assert (found["rollout/reward"], found["loss"]) == (ROLLOUT_STEPS, TRAIN_STEPS)

    def test_the_record_has_the_same_too(self, run: Trained) -> None:
        lines = list(read_jsonl(run.run_dir))
        assert [(line.axis, line.step) for line in lines] == [
            ("rollout", 8073), ("train", 0), ("rollout", 8074), ("train", 1), ("rollout", 8075), ("train", 2)
        ]  # fmt: skip
        assert math.isnan(lines[3].values["loss"])


class TestOtlp:
    """Over each protocol, through receivers that are not Python's."""

    @pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
    def test_rotel_passes_on_metrics_and_spans_of_both_axes(self, protocol: str, tmp_path: Path) -> None:
        with rotel(tmp_path) as agent:
            endpoint = agent.grpc_endpoint if protocol == "grpc" else agent.http_endpoint
            made = trained(tmp_path / "run", {"otlp": {"enabled": True, "endpoint": endpoint, "protocol": protocol}})
            agent.wait_for(lambda: steps_of(agent) == sorted([*ROLLOUT_STEPS, *TRAIN_STEPS]), "all steps")
            agent.wait_for(lambda: len([span for span in agent.spans() if span.name == "update"]) == 3, "all spans")
            axes = {each.attributes["rl.axis"] for each in agent.metrics() if each.name == "rl.step"}
            found = [each for each in agent.metrics() if each.name == "rl.stats.rollout.reward"]
            in_time = sorted(found, key=lambda each: each.point.time_unix_nano)  # an agent may send several at once
            rewards = [each.value for each in in_time]
            of_run = {each.resource["service.instance.id"] for each in [*agent.metrics(), *agent.spans()]}
        assert "lost" not in made.said
        assert axes == {"rollout", "train"}
        assert rewards == [0.5, 1.5, 2.5]
        assert len(of_run) == 1

    @pytest.fixture
    def tap(self) -> Iterator[OtelTap]:
        with oteltap() as made:
            yield made

    def test_oteltap_reads_metrics_and_spans(self, tap: OtelTap, tmp_path: Path) -> None:
        """It takes only what is not compressed."""
        made = trained(tmp_path, {"otlp": {"enabled": True, "endpoint": tap.endpoint}})
        tap.wait_for(lambda: len(tap.values("rl.step")) == 6, "all steps")
        # It passes on every metric and span by itself: the step comes before the rest, and the process's span last.
        tap.wait_for(lambda: len(tap.values("rl.stats.loss")) == len(counts(tap)) == 3, "the last step's metrics")
        tap.wait_for(lambda: [span.name for span in tap.spans].count("update") == 3, "all spans")
        tap.wait_for(lambda: any(not span.parent_span_id for span in tap.spans), "the process's span")
        assert "lost" not in made.said
        assert sorted(tap.values("rl.step")) == sorted([*ROLLOUT_STEPS, *TRAIN_STEPS])
        assert tap.values("rl.stats.rollout.reward") == [0.5, 1.5, 2.5]
        losses = tap.values("rl.stats.loss")
        assert [str(value) for value in losses] == ["0.25", "nan", "0.75"]
        assert counts(tap) == [4, 8, 12]
        (root,) = [span for span in tap.spans if not span.parent_span_id]
        assert {span.trace_id for span in tap.spans} == {root.trace_id}


def counts(tap: OtelTap) -> list[int]:
    """Of every point of the distribution."""
    metrics = [metric for metric in [*tap.metrics] if metric.name == "rl.stats.seq_len.distribution"]
    return [point.count for metric in metrics for point in metric.histogram.data_points]


def steps_of(receiver: Any) -> list[int]:
    return sorted(int(each.value) for each in receiver.metrics() if each.name == "rl.step")
