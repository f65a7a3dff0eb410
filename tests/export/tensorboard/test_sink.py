"""Event files, read back with TensorBoard's own readers."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tbparse import SummaryReader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from export.making import PATIENT, TIME_NS, commit, environment, identity, recorded, run_python, wait_until
from realparts.tensorboard_reader import accumulated, all_events, event_files, pages, scalars, steps
from rltel.core.config import RunConfig, TelemetryConfig, TensorBoardConfig, WandbConfig
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile, read_jsonl
from rltel.export.sink import Destination
from rltel.export.tensorboard.event_file import EventFile
from rltel.export.tensorboard.sink import TensorBoardSink, open_tensorboard
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
    """Every event with values, in the order of the files."""
    return [event for event in all_events(folder) if event.summary.value]


def as_float32(numbers: Sequence[float]) -> list[float]:
    return [float(np.float32(number)) for number in numbers]


class TestEvents:
    def test_one_event_a_commit_in_their_order(self, tmp_path: Path) -> None:
        commits = [commit(recorded(record), step=step, time_ns=TIME_NS + step) for step in (1, 2, 2, 3)]
        write(tmp_path, *commits)
        assert [event.step for event in events(tmp_path)] == [1, 2, 2, 3]

    def test_tags_are_the_keys_verbatim_and_in_order(self, tmp_path: Path) -> None:
        made = commit(recorded(record))
        write(tmp_path, made)
        (event,) = events(tmp_path)
        numbers = [value.tag for value in event.summary.value if value.HasField("simple_value")]
        assert numbers == list(made.values)
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
        (file,) = event_files(tmp_path)
        file.write_bytes(file.read_bytes()[:-7])
        assert [point.step for point in scalars(tmp_path)["x"]] == [0, 1]

    def test_says_how_to_look_at_it(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        assert sink.describe() == f"tensorboard --logdir {tmp_path}"
        sink.close()

    def test_what_is_written_is_with_the_kernel_at_once(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        sink.write(commit({"x": 1.0}), [])
        assert steps(tmp_path) == {"x": [1]}

    def test_verl_191_what_was_written_before_os_exit_is_there(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, rltel\n"
            "rltel.init({'tensorboard': {'path': sys.argv[1]}}, run_dir=sys.argv[2])\n"
            "rltel.log({'x': 1.0}, step=7)\nassert rltel.flush(60)\nos._exit(1)\n"
        )
        ran = run_python(code, tmp_path / "tb", tmp_path / "run")
        assert (ran.returncode, steps(tmp_path / "tb")) == (1, {"x": [7]}), ran.stderr

    @pytest.mark.parametrize("more", ["", "rltel.log_text('said', 'a text', step=1)\n"])
    def test_a_short_program_without_shutdown_loses_nothing(self, tmp_path: Path, more: str) -> None:
        """TensorBoard's packages are imported while the interpreter ends, when threads may no longer be made."""
        code = (
            "import sys, rltel\n"
            "rltel.init({'tensorboard': {'path': sys.argv[1]}, 'run': {'config': {'lr': 1}}}, run_dir=sys.argv[2])\n"
            f"rltel.log({{'x': 1.0}}, step=7)\n{more}"
            "assert 'torch' not in sys.modules\n"
        )
        ran = run_python(code, tmp_path / "tb", tmp_path / "run", **PATIENT)
        assert (ran.returncode, steps(tmp_path / "tb")) == (0, {"x": [7]}), ran.stderr
        assert [line for line in ran.stderr.splitlines() if not line.startswith("rltel: run ")] == []
        found = accumulated(tmp_path / "tb").Tags()["tensors"]
        assert [tag for tag in found if not tag.startswith("_")] == ["config", *(["said"] if more else [])]

    def test_the_name_of_the_host_is_nowhere(self, tmp_path: Path) -> None:
        sink = open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path / "tb")
        sink.write(commit({"x": 1.0}), [])
        sink.close()
        (file,) = event_files(tmp_path / "tb")
        host = os.uname().nodename
        assert host not in file.name.split(".")
        assert host.encode() not in file.read_bytes()

    def test_a_full_disk_costs_what_did_not_fit_and_nothing_else(self, tmp_path: Path) -> None:
        code = (
            "import resource, sys\nfrom pathlib import Path\nimport signal\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "from export.making import commit\nfrom rltel.export.tensorboard.sink import TensorBoardSink\n"
            "sink = TensorBoardSink(Path(sys.argv[1]), 'step')\nsink.write(commit({'x': 1.0}, step=1), [])\n"
            "unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (300, unlimited[1]))\n"
            "try:\n    sink.write(commit({'y' * 1000: 1.0}, step=2), [])\nexcept OSError:\n    print('refused')\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\nsink.write(commit({'x': 3.0}, step=3), [])\n"
        )
        ran = run_python(code, tmp_path, PYTHONPATH=str(Path(__file__).parents[2]))
        assert ran.stdout == "refused\n", ran.stderr
        assert steps(tmp_path) == {"x": [1, 3]}


def distributed(numbers: Sequence[float]) -> Commit:
    return commit(recorded(lambda trackers: trackers.default.distribution(seq_len=np.array(numbers))))


class TestHistograms:
    def test_are_what_was_recorded(self, tmp_path: Path) -> None:
        numbers = np.concatenate([np.random.default_rng(0).normal(0, 100, 5000), [0.0, -1e-3]])
        write(tmp_path, distributed(numbers))
        (found,) = accumulated(tmp_path).Histograms("seq_len")
        made = found.histogram_value
        assert (found.step, made.num, made.min, made.max) == (1, len(numbers), numbers.min(), numbers.max())
        assert made.sum == pytest.approx(numbers.sum())
        assert made.sum_squares == pytest.approx((numbers**2).sum(), rel=0.05)
        edges = [made.min, *made.bucket_limit]
        assert len(made.bucket) == len(made.bucket_limit) <= 128
        assert edges == sorted(edges)
        for limit, counted in zip(made.bucket_limit, np.cumsum(made.bucket), strict=True):
            assert counted == (numbers <= limit).sum()

    def test_are_shown_beside_their_numbers_on_the_pages(self, tmp_path: Path) -> None:
        write(tmp_path, distributed([1.0, 2.0, 4.0]))
        with pages(tmp_path) as shown:
            wait_until(lambda: "seq_len" in shown.tensors("histograms").get(".", {}), "the histogram")
            (point,) = shown.tensors("histograms")["."]["seq_len"]
            assert point.numpy[:, 2].sum() == 3
            assert shown.scalars()["."]["seq_len/max"] == [(1, 4.0)]

    def test_of_one_value_and_of_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, distributed([3.0]), distributed([math.nan]))
        assert [each.histogram_value.num for each in accumulated(tmp_path).Histograms("seq_len")] == [1]

    def test_tbparse_reads_all_of_it(self, tmp_path: Path) -> None:
        write(tmp_path, distributed([1.0, 2.0, 4.0]), commit({"x": 5.0}, step=2))
        reader = SummaryReader(str(tmp_path))
        assert dict(zip(reader.scalars["tag"], reader.scalars["value"], strict=True))["x"] == 5.0
        (counts,) = reader.histograms["counts"]
        assert sum(counts) == 3


class TestSteps:
    def test_the_pages_would_hide_what_a_late_step_follows(self, tmp_path: Path) -> None:
        """Why it matters: two values of a tag in one run, the earlier step last."""
        for step in (3, 2):
            sink = TensorBoardSink(tmp_path, "step", restarts=False)
            sink.write(commit({"x": float(step)}, step=step), [])
            sink.close()
        with pages(tmp_path) as shown:
            wait_until(lambda: shown.scalars() == {".": {"x": [(2, 2.0)]}}, "what is left of the tag")

    def test_late_values_are_a_run_of_their_own_and_counted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        for step in (1, 5, 3, 6, 4, 2):
            sink.write(commit({"x": float(step)}, step=step), [])
        sink.write(commit({"y": 1.0}, step=1), [])  # late, but not of its tag
        sink.close()
        assert sink.out_of_order == 3
        assert len([line for line in caplog.messages if "said once" in line]) == 1
        expected = {
            ".": {"x": [(1, 1.0), (5, 5.0), (6, 6.0)], "y": [(1, 1.0)]},
            "out_of_order": {"x": [(3, 3.0), (4, 4.0)]},
            "out_of_order-2": {"x": [(2, 2.0)]},
        }
        with pages(tmp_path) as shown:
            wait_until(lambda: shown.scalars() == expected, "all values")

    def test_whatever_the_order_every_value_is_in_some_run(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        for step in range(30, 0, -1):
            sink.write(commit({"x": float(step)}, step=step), [])
        sink.close()
        found = [point.step for folder in [tmp_path, *tmp_path.glob("out*")] for point in scalars(folder)["x"]]
        assert sorted(found) == list(range(1, 31))
        assert len(list(tmp_path.glob("out*"))) == 7

    def test_a_tag_on_two_axes_keeps_both(self, tmp_path: Path) -> None:
        sink = TensorBoardSink(tmp_path, "step")
        for axis, step in [("rollout", 8073), ("train", 0), ("rollout", 8074), ("train", 1)]:
            sink.write(commit({"reward": 1.0}, step=step, axis=axis), [])
        assert steps(tmp_path)["reward"] == [8073, 8074]
        assert steps(tmp_path / "out_of_order")["reward"] == [0, 1]


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "the disk is full")


class TestResume:
    def run(self, folder: Path, incarnation: int, *commits: Commit) -> None:
        sink = open_tensorboard(TelemetryConfig(), identity(folder, incarnation=incarnation), folder)
        for made in commits:
            sink.write(made, [])
        sink.close()

    def test_tensorboard_3732_a_resume_does_not_draw_back_over_old_points(self, tmp_path: Path) -> None:
        self.run(tmp_path, 1, *(commit({"x": 0.0, "gone": 0.0}, step=step) for step in range(141)))
        self.run(tmp_path, 2, *(commit({"x": 1.0}, step=step) for step in range(100, 151)))
        starts = [event.step for event in all_events(tmp_path) if event.session_log.status == SessionLog.START]
        assert starts == [0, 100]
        points = scalars(tmp_path)["x"]
        assert [point.step for point in points] == list(range(151))
        assert [point.value for point in points] == [0.0] * 100 + [1.0] * 51
        assert steps(tmp_path)["gone"] == list(range(100))
        with pages(tmp_path) as shown:
            wait_until(lambda: len(shown.scalars().get(".", {}).get("x", [])) == 151, "the run")
            assert [value for _, value in shown.scalars()["."]["x"]] == [0.0] * 100 + [1.0] * 51

    def test_tensorboard_3732_also_if_the_disk_is_full_at_its_first_step(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.run(tmp_path, 1, *(commit({"x": 0.0}, step=step) for step in range(141)))
        sink = open_tensorboard(TelemetryConfig(), identity(tmp_path, incarnation=2), tmp_path)
        with monkeypatch.context() as full:
            full.setattr(EventFile, "_append", _refuse)
            for step in (100, 101):
                with pytest.raises(OSError, match="full"):
                    sink.write(commit({"x": 1.0}, step=step), [])
        sink.write(commit({"x": 1.0}, step=102), [])
        sink.close()
        assert steps(tmp_path)["x"] == [*range(100), 102]

    def test_from_the_start_it_replaces_all(self, tmp_path: Path) -> None:
        self.run(tmp_path, 1, *(commit({"x": 0.0}, step=step) for step in range(5)))
        self.run(tmp_path, 2, commit({"x": 1.0}, step=0))
        assert [(point.step, point.value) for point in scalars(tmp_path)["x"]] == [(0, 1.0)]

    def test_on_one_axis_takes_nothing_from_another_that_got_further(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Their steps are other numbers: rollouts from 8,000 on are not void because training resumes at 100."""
        self.run(tmp_path, 1, commit({"t": 0.0}, step=140), commit({"r": 0.0}, step=8073, axis="rollout"))
        self.run(tmp_path, 2, commit({"t": 1.0}, step=100))
        assert steps(tmp_path) == {"t": [140, 100], "r": [8073]}
        assert any("later steps of other axes too (rollout)" in line for line in caplog.messages)

    def test_on_an_axis_ahead_of_all_others_replaces_what_it_had(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An evaluation's axis, as a rule, is behind the training's: that it is there costs the mark nothing."""
        for incarnation, first in ((1, 0), (2, 100)):
            evaluated = [commit({"e": 1.0}, step=n, axis="eval") for n in range(first // 10, 14)]
            self.run(tmp_path, incarnation, *(commit({"t": 1.0}, step=n) for n in range(first, 141)), *evaluated)
        found = steps(tmp_path)
        assert found["t"] == list(range(141))
        assert set(found["e"]) == set(range(14))
        assert [line for line in caplog.messages if "goes on" in line] == [
            "tensorboard: goes on at step 10 of axis eval; earlier points from there on stay, since the folder has "
            "later steps of other axes too (train)"
        ]

    def test_of_two_axes_the_one_ahead_is_replaced(self, tmp_path: Path) -> None:
        for incarnation, train, rollout in ((1, (0, 141), (8000, 8074)), (2, (100, 151), (8050, 8080))):
            made = [
                *(commit({"t": float(incarnation)}, step=n) for n in range(*train)),
                *(commit({"r": float(incarnation)}, step=n, axis="rollout") for n in range(*rollout)),
            ]
            self.run(tmp_path, incarnation, *made)
        points = scalars(tmp_path)["r"]
        assert [(point.step, point.value) for point in points] == [
            (n, 1.0 if n < 8050 else 2.0) for n in range(8000, 8080)
        ]

    def test_the_steps_of_the_axes_survive_a_kill(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, rltel\n"
            "rltel.init({'tensorboard': {'path': '{run_dir}/tb'}}, run_dir=sys.argv[1])\n"
            "for axis, step in eval(sys.argv[2]):\n    rltel.log({axis: 1.0}, step=step, axis=axis)\n"
            "assert rltel.flush(60)\nos.kill(os.getpid(), 9)\n"
        )
        for made in ([("a", 5), ("b", 99), ("b", 1000), ("a", 6)], [("a", 7), ("b", 500)], [("a", 6)]):
            ran = run_python(code, tmp_path, str(made))
            assert ran.returncode == -9, ran.stderr
        assert steps(tmp_path / "tb") == {"a": [5, 6, 7, 6], "b": [99, 500]}

    def test_the_mark_is_in_the_run_of_late_values_too(self, tmp_path: Path) -> None:
        """A tag that two axes share is in both."""
        for incarnation in (1, 2):
            made = [commit({"x": 1.0}, step=8000 + n, axis="rollout") for n in range(5)]
            late = [commit({"x": 1.0}, step=n) for n in range(5)]
            self.run(tmp_path, incarnation, *made, *late)
        assert steps(tmp_path)["x"] == [8000, 8001, 8002, 8003, 8004]
        starts = [e for e in all_events(tmp_path / "out_of_order") if e.session_log.status == SessionLog.START]
        assert [event.step for event in starts] == [8000]


class TestWriters:
    def test_tensorboard_1011_two_runs_at_one_path_have_a_folder_each(self, tmp_path: Path) -> None:
        sinks = [
            open_tensorboard(TelemetryConfig(), identity(tmp_path, run_id=run), tmp_path / "tb") for run in ("a", "b")
        ]
        for step in range(3):  # at once, taking turns
            for sink in sinks:
                sink.write(commit({"x": float(step)}, step=step), [])
        assert steps(tmp_path / "tb") == steps(tmp_path / "tb" / "b") == {"x": [0, 1, 2]}
        with pages(tmp_path / "tb") as shown:
            wait_until(lambda: {run: len(tags["x"]) for run, tags in shown.scalars().items()} == {".": 3, "b": 3}, "2")

    def test_tensorboard_1011_two_writers_of_one_run_have_a_folder_each(self, tmp_path: Path) -> None:
        first, second = (open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path / "tb") for _ in range(2))
        first.write(commit({"x": 1.0}), [])
        second.write(commit({"x": 2.0}), [])
        assert scalars(tmp_path / "tb")["x"][0].value == 1.0
        assert scalars(tmp_path / "tb" / "writer-1")["x"][0].value == 2.0

    def test_a_writer_that_was_killed_is_followed_in_its_folder(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, rltel\n"
            "rltel.init({'tensorboard': {'path': '{run_dir}/tb'}}, run_dir=sys.argv[1])\n"
            "rltel.log({'x': 1.0}, step=int(sys.argv[2]))\nassert rltel.flush(60)\nos.kill(os.getpid(), 9)\n"
        )
        for step in "12":
            assert run_python(code, tmp_path, step).returncode == -9
        assert steps(tmp_path / "tb") == {"x": [1, 2]}
        assert len(event_files(tmp_path / "tb")) == 2

    def test_a_folder_with_another_program_s_files_is_left_to_it(self, tmp_path: Path) -> None:
        (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
        sink = open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path)
        assert sink.describe() == f"tensorboard --logdir {tmp_path / 'run-1'}"

    def test_a_place_on_a_full_disk_is_named_and_free_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as full:
            full.setattr(EventFile, "_append", _refuse)
            with pytest.raises(ConfigError, match=r"tensorboard\.path: cannot write .*the disk is full"):
                open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path / "tb")
        made = open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path / "tb")
        assert made.describe() == f"tensorboard --logdir {tmp_path / 'tb'}"

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match=r"tensorboard\.path: cannot write .*file"):
            open_tensorboard(TelemetryConfig(), identity(tmp_path), tmp_path / "file" / "tb")


class TestNotes:
    CONFIG = TelemetryConfig(
        run=RunConfig(
            algo="sac",
            config={"optimizer": {"lr": 0.5, "betas": [0.9, 0.99]}, "fp16": True, "hf_token": "hf_secret", "seed": 3},
        ),
        tensorboard=TensorBoardConfig(path="tb"),
        wandb=WandbConfig(api_key="wandb-secret"),
    )

    def written(self, folder: Path, config: TelemetryConfig = CONFIG) -> None:
        sink = open_tensorboard(config, identity(folder), folder)
        sink.write(commit({"x": 1.0}, step=0), [])
        sink.close()

    def test_half_characters_in_it_cost_no_number(self, tmp_path: Path) -> None:
        """A file name from ``sys.argv`` may have some. (ray-project/ray#40586: one bad name drops the batch.)"""
        run = RunConfig(algo="sac\ud800", config={"init_from": "model\udcff.pt", "\udcff": ["\udcff"]})
        self.written(tmp_path, TelemetryConfig(run=run, tensorboard=TensorBoardConfig(path="tb")))
        assert [(point.step, point.value) for point in scalars(tmp_path)["x"]] == [(0, 1.0)]
        (found,) = accumulated(tmp_path).Tensors("config")
        assert r"model\\udcff.pt" in found.tensor_proto.string_val[0].decode()

    def test_the_config_is_a_text_without_secrets(self, tmp_path: Path) -> None:
        self.written(tmp_path)
        (found,) = accumulated(tmp_path).Tensors("config")
        text = found.tensor_proto.string_val[0].decode()
        shown = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
        assert shown["optimizer"] == {"lr": 0.5, "betas": [0.9, 0.99]}
        assert shown["hf_token"] == "[redacted]"
        for file in event_files(tmp_path):
            assert b"secret" not in file.read_bytes()

    def test_tbparse_reads_the_text_and_the_hyperparameters(self, tmp_path: Path) -> None:
        self.written(tmp_path)
        reader = SummaryReader(str(tmp_path))
        assert list(reader.text["tag"]) == ["config"]
        found = dict(zip(reader.hparams["tag"], reader.hparams["value"], strict=True))
        assert (found["optimizer.lr"], found["fp16"], found["algo"], found["seed"]) == (0.5, True, "sac", 3)
        assert found["optimizer.betas"] == "[0.9, 0.99]"

    def test_the_pages_have_both(self, tmp_path: Path) -> None:
        self.written(tmp_path)
        with pages(tmp_path) as shown:
            wait_until(lambda: "config" in shown.tensors("text").get(".", {}), "the text")
            (content,) = shown.contents("hparams")["."].values()
        info = HParamsPluginData.FromString(content).session_start_info
        assert (info.group_name, info.hparams["optimizer.lr"].number_value) == ("run-1", 0.5)

    def test_a_run_without_a_config_has_no_hyperparameters(self, tmp_path: Path) -> None:
        self.written(tmp_path, TelemetryConfig())
        assert accumulated(tmp_path).Tags()["tensors"] == ["config"]

    def test_they_survive_the_start_that_voids_what_is_later(self, tmp_path: Path) -> None:
        self.written(tmp_path)
        self.written(tmp_path)
        with pages(tmp_path) as shown:
            wait_until(lambda: "config" in shown.tensors("text").get(".", {}), "the text")
        assert [point.step for point in accumulated(tmp_path).Tensors("config")][-1] == 0


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['tensorboard.compat.proto.event_pb2'] = None\n"
        "from pathlib import Path\n"
        "from rltel.core.errors import ConfigError\n"
        "from rltel.export.tensorboard.sink import TensorBoardSink\n"
        "try:\n    TensorBoardSink(Path(sys.argv[1]), 'step')\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "/nowhere"], env=environment(), capture_output=True, text=True, check=False
    )
    assert 'tensorboard.path: needs the extra: pip install "rltel[tensorboard]"' in ran.stdout, ran.stderr
    assert issubclass(ConfigError, ValueError)
