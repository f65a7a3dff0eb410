"""Event files, read back with TensorBoard's own readers."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from export.making import TIME_NS, commit, environment, identity, recorded
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile, read_jsonl
from rltel.export.sink import Destination
from rltel.export.tensorboard import TensorBoardSink
from rltel.reduce.trackers import Trackers


def record(trackers: Trackers) -> None:
    tracker = trackers.default
    tracker.stat({"ppo_actor/update/loss": np.array([0.1, 0.2, 0.7])})
    tracker.scalar({"pass@1": 0.25, "eval-rollout/Reward (mean)": 1.0})
    tracker.distribution(seq_len=np.array([1, 2, 3]))
    tracker.count(episodes=2)
    with tracker.record_timing("rollout"):
        pass


def write(folder: Path, *commits: Commit, step_axis: str = "step") -> None:
    sink = TensorBoardSink(folder, step_axis)
    for made in commits:
        sink.write(made, [])
    sink.close()


def events(folder: Path) -> list[Event]:
    """Every event with values, in the order of the file."""
    (file,) = folder.glob("events.*")
    raw = list(RawEventFileLoader(str(file)).Load())
    return [event for event in map(Event.FromString, raw) if event.summary.value]


def scalars(folder: Path) -> dict[str, list[Any]]:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}


def as_float32(numbers: Sequence[float]) -> list[float]:
    return [float(np.float32(number)) for number in numbers]


class TestEvents:
    def test_one_event_a_commit_in_their_order(self, tmp_path: Path) -> None:
        commits = [commit(recorded(record), step=step, time_ns=TIME_NS + step) for step in (3, 1, 2)]
        write(tmp_path, *commits)
        assert [event.step for event in events(tmp_path)] == [3, 1, 2]

    def test_tags_are_the_keys_verbatim_and_in_order(self, tmp_path: Path) -> None:
        made = commit(recorded(record))
        write(tmp_path, made)
        (event,) = events(tmp_path)
        assert [value.tag for value in event.summary.value] == list(made.values)
        assert {"pass@1", "eval-rollout/Reward (mean)", "seq_len/p99", "ppo_actor/update/loss/avg"} <= set(made.values)

    def test_at_the_commit_s_own_time(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"x": 1.0}))
        assert events(tmp_path)[0].wall_time == TIME_NS / 1e9

    def test_counts_that_only_weight_are_left_out(self, tmp_path: Path) -> None:
        write(tmp_path, commit(recorded(record)))
        assert not [tag for tag in scalars(tmp_path) if tag.endswith("__count")]


class TestNumbers:
    def test_equal_what_the_jsonl_holds(self, tmp_path: Path) -> None:
        commits = [commit(recorded(record), number=step, step=step) for step in range(5)]
        write(tmp_path / "tb", *commits)
        file = JsonlFile(tmp_path / "record.jsonl", identity(), Destination("jsonl"))
        for made in commits:
            file.write(made)
        lines = list(read_jsonl(tmp_path / "record.jsonl"))
        found = scalars(tmp_path / "tb")
        assert found
        for tag, points in found.items():
            assert [point.step for point in points] == [line.step for line in lines]
            assert [point.value for point in points] == as_float32([line.values[tag] for line in lines])

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_shown(self, tmp_path: Path, number: float) -> None:
        write(tmp_path, commit({"x": number}))
        assert str(scalars(tmp_path)["x"][0].value) == str(number)
        assert scalars(tmp_path)["x/nonfinite"][0].value == 1.0

    def test_a_number_that_float32_cannot_hold_costs_no_other(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"big": 1e300, "ok": 1.0}))
        found = scalars(tmp_path)
        assert (found["big"][0].value, found["ok"][0].value) == (math.inf, 1.0)

    def test_ray_40586_a_bad_key_costs_no_other(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"ok": 1.0, "data/\udcff": 2.0}))
        found = scalars(tmp_path)
        assert (found["ok"][0].value, found["data/\\udcff"][0].value) == (1.0, 2.0)


class TestStepAxis:
    def test_environment_steps_if_asked(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"x": 1.0}, step=3, env_steps=3_000_000_000), step_axis="env_steps")
        assert scalars(tmp_path)["x"][0].step == 3_000_000_000

    def test_the_step_while_they_are_not_known(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"x": 1.0}, step=3), step_axis="env_steps")
        assert scalars(tmp_path)["x"][0].step == 3

    def test_numpy_s_integers_are_steps(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"x": 1.0}, step=np.int64(3), env_steps=np.int64(7)), step_axis="env_steps")
        assert scalars(tmp_path)["x"][0].step == 7

    def test_wandb_10628_axes_that_clash_are_both_kept(self, tmp_path: Path) -> None:
        write(tmp_path, commit({"r": 1.0}, step=8073, axis="rollout"), commit({"t": 2.0}, step=0, axis="train"))
        found = scalars(tmp_path)
        assert ([point.step for point in found["r"]], [point.step for point in found["t"]]) == ([8073], [0])


class TestFiles:
    def test_flush_brings_it_to_a_reader(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        sink.write(commit({"x": 1.0}), [])
        sink.flush()
        assert scalars(tmp_path)["x"][0].value == 1.0
        sink.close()

    def test_a_file_that_is_cut_loses_its_last_event_only(self, tmp_path: Path) -> None:
        write(tmp_path, *(commit({"x": float(step)}, step=step) for step in range(3)))
        (file,) = tmp_path.glob("events.*")
        file.write_bytes(file.read_bytes()[:-7])
        assert [point.step for point in scalars(tmp_path)["x"]] == [0, 1]

    def test_says_how_to_look_at_it(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        assert sink.describe() == f"tensorboard --logdir {tmp_path}"
        sink.close()


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['tensorboard.compat.proto.event_pb2'] = None\n"
        "from pathlib import Path\n"
        "from rltel.core.errors import ConfigError\n"
        "from rltel.export.tensorboard import TensorBoardSink\n"
        "try:\n    TensorBoardSink(Path(sys.argv[1]), 'step')\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "/nowhere"], env=environment(), capture_output=True, text=True, check=False
    )
    assert 'tensorboard.path: needs the extra: pip install "rltel[tensorboard]"' in ran.stdout, ran.stderr
    assert issubclass(ConfigError, ValueError)
