"""W&B, with its real package offline; its files are read back with its own protobuf classes."""

import json
import math
import re
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.making import TIME_NS, commit, identity, recorded, run_python
from realparts.tracking import ENOUGH_S, Misbehaving, drive, labels, offline, package, shown
from realparts.wandb_reader import OfflineRun, read_offline
from rltel.core.config import RunConfig, TelemetryConfig, WandbConfig
from rltel.core.errors import ConfigError
from rltel.export.tracking.labels import labels_of
from rltel.export.tracking.wandb import WandbClient
from rltel.reduce.trackers import Trackers

__all__ = ["offline"]  # a fixture
TESTS = str(Path(__file__).parents[2])
KEY = "k3y" + "0" * 37
MP4 = b"\x00\x00\x00\x18ftypmp42"

pytestmark = pytest.mark.usefixtures("offline")


_numbers = count()


def client(run_dir: Path, config: WandbConfig | None = None, **run: Any) -> WandbClient:
    """Of a run with an id of its own: W&B's process needs a moment to let go of an id. Its end may take a minute."""
    made = replace(labels(run_dir, **run), run_id=f"own-{next(_numbers)}", timeout_s=ENOUGH_S)
    return WandbClient(config or WandbConfig(mode="offline"), made)


def written(run_dir: Path, *things: Any, config: WandbConfig | None = None, **run: Any) -> OfflineRun:
    destination = drive(client(run_dir, config, **run), *things)
    assert (destination.exported_total, destination.dropped_totals) == (len(things), {})
    return read_offline(run_dir)


def everything(folder: Path) -> bytes:
    """What its files hold; W&B's own process may take some away meanwhile."""
    found = b""
    for path in filter(Path.is_file, folder.rglob("*")):
        with suppress(FileNotFoundError):
            found += path.read_bytes()
    return found


def test_an_offline_run_is_not_asked_where_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """W&B prints a warning each time, and the run's summary is written every ten seconds."""
    made = client(tmp_path)
    made.open()
    try:
        assert made.url is None
    finally:
        made.finish("finished")
    said = capfd.readouterr()
    assert "URL not available" not in said.out + said.err


class TestRows:
    def test_a_key_of_the_rows_own_is_kept_beside_it(self, tmp_path: Path) -> None:
        taken = ("_step", "_timestamp", "_runtime", "rltel/step/train", "rltel/step/eval", "rltel/env_steps")
        run = written(tmp_path, commit(dict.fromkeys(taken, 77.0), step=5, env_steps=40))
        (row,) = run.rows
        assert {key: row[f"user/{key}"] for key in taken} == dict.fromkeys(taken, 77.0)
        assert (row["rltel/step/train"], row["rltel/env_steps"], row["_step"]) == (5, 40, 0)

    def test_wandb_10628_axes_that_clash_are_both_kept_each_on_its_own_step(self, tmp_path: Path) -> None:
        run = written(
            tmp_path,
            commit({"rollout/reward": 1.0}, step=8073, axis="rollout"),
            commit({"loss": 2.0}, step=0, axis="train"),
            commit({"loss": 3.0}, step=1, axis="train"),
        )
        assert run.series("rollout/reward", "rltel/step/rollout") == [(8073, 1.0)]
        assert run.series("loss", "rltel/step/train") == [(0, 2.0), (1, 3.0)]
        assert run.metrics["rollout/reward"].step_metric == "rltel/step/rollout"
        assert run.metrics["loss"].step_metric == "rltel/step/train"

    def test_a_step_that_goes_back_is_kept(self, tmp_path: Path) -> None:
        run = written(tmp_path, *(commit({"x": float(step)}, step=step) for step in (5, 3, 3, 4)))
        assert [step for step, _ in run.series("x", "rltel/step/train")] == [5, 3, 3, 4]

    def test_one_key_on_two_axes_loses_no_value(self, tmp_path: Path) -> None:
        run = written(tmp_path, commit({"x": 1.0}, step=7, axis="train"), commit({"x": 2.0}, step=9, axis="eval"))
        assert [row["x"] for row in run.rows] == [1.0, 2.0]
        assert run.series("x", "rltel/step/eval")[1] == (9, 2.0)

    def test_keys_are_verbatim_and_partners_that_only_weight_are_left_out(self, tmp_path: Path) -> None:
        keys = {"pass@1": 1.0, "eval-rollout/Reward (mean)": 2.0, "ratio_outside_1.5": 3.0, "a*b": 4.0}
        made = commit(recorded(lambda trackers: trackers.default.scalar(keys)))
        run = written(tmp_path, made)
        assert {key: run.rows[0][key] for key in keys} == keys
        assert not [key for key in run.rows[0] if key.endswith("__count")]

    def test_a_key_with_a_dot_has_its_axis_under_both_spellings(self, tmp_path: Path) -> None:
        run = written(tmp_path, commit({"ratio_1.5": 3.0}))
        assert {name for name in run.metrics if name.startswith("ratio")} == {"ratio_1.5", "ratio_1\\.5"}

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_kept(self, tmp_path: Path, number: float) -> None:
        run = written(tmp_path, commit({"x": number}))
        assert str(float(run.rows[0]["x"])) == str(number)

    def test_at_the_commit_s_own_time(self, tmp_path: Path) -> None:
        run = written(tmp_path, commit({"x": 1.0}))
        assert run.rows[0]["_timestamp"] == pytest.approx(TIME_NS / 1e9, abs=1e-6)

    def test_environment_steps_are_the_axis_if_asked(self, tmp_path: Path) -> None:
        made = commit({"x": 1.0}, step=3, env_steps=3_000_000_000), commit({"y": 1.0}, step=4)
        run = written(tmp_path, *made, step_axis="env_steps")
        assert run.metrics["x"].step_metric == "rltel/env_steps"
        assert run.series("x", "rltel/env_steps") == [(3_000_000_000, 1.0)]
        assert run.series("x", "rltel/step/train") == [(3, 1.0)]
        assert run.metrics["y"].step_metric == "rltel/step/train"  # it has no environment steps

    def test_a_distribution_is_a_histogram(self, tmp_path: Path) -> None:
        def record(trackers: Trackers) -> None:
            trackers.default.distribution(seq_len=np.array([1, 2, 3, 100]))

        (row,) = written(tmp_path, commit(recorded(record))).rows
        assert row["seq_len._type"] == "histogram"
        assert sum(row["seq_len.values"]) == 4
        assert row["seq_len.bins"][-1] == 100
        assert row["seq_len/max"] == 100

    def test_loads_of_experts_are_one_table(self, tmp_path: Path) -> None:
        values = {f"moe_balance/layer_0/expert_{n}/tokens": float(n) for n in range(3)}
        run = written(tmp_path, commit({**values, "moe_balance/layer_0/max_over_ideal": 1.5}))
        assert run.rows[0]["moe_balance/expert_loads._type"] == "table-file"
        assert run.rows[0]["moe_balance/layer_0/max_over_ideal"] == 1.5
        assert not [key for key in run.rows[0] if "expert_0" in key]


class TestRun:
    def test_named_as_unilab_names_it(self, tmp_path: Path) -> None:
        run = written(tmp_path / "r1", algo="sac", task="pendulum").run
        assert (run.project, run.display_name) == ("rltel", "sac__pendulum__r1")
        assert (run.run_group, run.job_type) == ("pendulum", "sac")
        assert list(run.tags) == ["sac", "pendulum"]

    def test_what_its_section_says_comes_first(self, tmp_path: Path) -> None:
        config = WandbConfig(
            mode="offline",
            project="p",
            entity="team",
            name="n",
            group="g",
            job_type="j",
            tags=["a"],
            notes="hi",
            config={"seed": 1},
        )
        found = written(tmp_path, config=config, algo="sac")
        run = found.run
        assert (run.project, run.entity, run.display_name, run.run_group) == ("p", "team", "n", "g")
        assert (run.job_type, list(run.tags), run.notes) == ("j", ["a", "sac"], "hi")
        assert found.config["seed"] == 1

    def test_the_id_is_the_run_s_so_that_a_restart_goes_on_in_it(self, tmp_path: Path) -> None:
        made = WandbClient(WandbConfig(mode="offline"), replace(labels(tmp_path), timeout_s=ENOUGH_S))
        drive(made)
        run = read_offline(tmp_path).run
        assert (run.run_id, run.resume) == ("run-1_train", True)

    def test_a_suffix_timestamp_is_the_time_as_in_areal(self, tmp_path: Path) -> None:
        then = time.strptime("2026-11-30 01:02:03", "%Y-%m-%d %H:%M:%S")
        config = WandbConfig(mode="offline", id_suffix="timestamp")
        made = WandbClient(config, labels(tmp_path), now=lambda: then)
        assert made.run_id == "run-1_2026_11_30_01_02_03"

    def test_is_in_the_run_directory(self, tmp_path: Path) -> None:
        made = client(tmp_path)
        assert made.describe() == f"offline {tmp_path}/wandb"

    def test_says_where_it_is_online_without_secrets(self, tmp_path: Path) -> None:
        config = WandbConfig(mode="online", project="p", base_url="https://me:secret@wandb.example")
        made = WandbClient(config, labels(tmp_path))
        assert made.describe() == "online p/run-1_train at https://wandb.example"

    def test_collects_neither_host_nor_program_unless_told(self, tmp_path: Path) -> None:
        code = (
            f"import sys; sys.path.insert(0, {TESTS!r})\n"
            "import socket; socket.gethostname = lambda: 'the-host-of-this-test'\n"
            "import getpass; getpass.getuser = lambda: 'the-user-of-this-test'\n"
            "from pathlib import Path\n"
            "from export.tracking.test_wandb import client, commit, drive\n"
            "drive(client(Path(sys.argv[1]), include_host=sys.argv[2] == 'yes'), commit({'x': 1.0}))\n"
        )
        for told in ("no", "yes"):
            ran = run_python(code, tmp_path / told, told, HOME=str(tmp_path / "home"))
            assert ran.stdout == "", ran.stderr
            assert (b"the-host-of-this-test" in everything(tmp_path / told)) is (told == "yes")
        assert not list((tmp_path / "no").rglob("requirements.txt"))

    def test_a_run_of_the_trainer_s_own_stays_as_it_is(self, tmp_path: Path) -> None:
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        mine = wandb.init(mode="offline", dir=str(tmp_path), project="mine", settings=settings)
        written(tmp_path / "ours", commit({"x": 1.0}))
        assert wandb.run is mine
        mine.log({"y": 2.0})
        mine.finish()
        assert [row["y"] for row in read_offline(tmp_path).rows] == [2.0]


class TestProgram:
    PROGRAM = (
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "import atexit, threading, time\n"
        "from pathlib import Path\n"
        "from export.tracking.test_wandb import client, commit\n"
        "from realparts.tracking import worker_of\n"
        "worker = worker_of(client(Path(sys.argv[1])))\n"
        "atexit.register(lambda: worker.close(time.monotonic() + 30))\n"
        "worker.wait_empty(time.monotonic() + 30)\n"
        "for step in range(50):\n    worker.put(commit({'x': float(step)}, step=step), [])\n"
    )

    def test_verl_191_the_last_rows_are_there_though_nobody_called_finish(self, tmp_path: Path) -> None:
        ran = run_python(self.PROGRAM, tmp_path, HOME=str(tmp_path / "home"))
        assert (ran.stdout, ran.stderr) == ("", "")
        run = read_offline(tmp_path)
        assert [step for step, _ in run.series("x", "rltel/step/train")] == list(range(50))
        assert run.exit_code == 0

    def test_an_exception_marks_the_run_as_failed(self, tmp_path: Path) -> None:
        ran = run_python(self.PROGRAM + "raise ValueError('diverged')\n", tmp_path, HOME=str(tmp_path / "home"))
        assert ran.stderr.count("ValueError: diverged") == 1
        run = read_offline(tmp_path)
        assert (len(run.rows), run.exit_code) == (50, 1)

    def test_nothing_of_the_package_s_own_telemetry_runs(self, tmp_path: Path) -> None:
        code = self.PROGRAM + (
            "worker.wait_empty(time.monotonic() + 30)\n"
            "from opentelemetry import metrics, trace\n"
            "print(sorted(t.name for t in threading.enumerate() if 'Otel' in t.name or 'otel' in t.name.lower()))\n"
            "print(type(trace.get_tracer_provider()).__name__, type(metrics.get_meter_provider()).__name__)\n"
        )
        ran = run_python(code, tmp_path, HOME=str(tmp_path / "home"))
        assert ran.stdout.splitlines() == ["[]", "ProxyTracerProvider _ProxyMeterProvider"], ran.stderr


class TestAway:
    PROGRAM = (
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "import json, logging, socket, time\n"
        "from pathlib import Path\n"
        "from export.tracking.test_wandb import KEY, WandbConfig, client, commit\n"
        "from realparts.tracking import worker_of\n"
        "from rltel.export.tracking.hooks import at_end\n"
        "logging.basicConfig(level=logging.DEBUG)\n"
        "server = socket.socket(); server.bind(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "server.listen(50) if sys.argv[2] == 'silent' else server.close()\n"
        "config = WandbConfig(mode='online', project='p', api_key=KEY, base_url=f'http://127.0.0.1:{port}')\n"
        "worker = worker_of(client(Path(sys.argv[1]), config))\n"
        "def end():\n"
        "    worker.close(time.monotonic() + 2)\n"
        "    print(json.dumps([worker.destination.exported_total, sum(worker.destination.dropped_totals.values())]))\n"
        "at_end(end)\n"
        "for step in range(5):\n    worker.put(commit({'x': 1.0}, step=step), [])\n"
        "print('trained')\n"
    )

    @pytest.mark.parametrize("kind", ["dead", "silent"])
    def test_the_program_ends_and_what_was_lost_is_counted(self, tmp_path: Path, kind: str) -> None:
        ran = run_python(self.PROGRAM, tmp_path / "run", kind, HOME=str(tmp_path / "home"))
        assert (ran.returncode, ran.stdout.splitlines()) == (0, ["trained", "[0, 5]"]), ran.stderr
        assert KEY not in ran.stderr
        assert KEY.encode() not in everything(tmp_path)


class TestSecrets:
    def test_the_key_is_in_no_file_and_no_log(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        config = WandbConfig(mode="offline", api_key=KEY, config={"command": f"train --key {KEY}"})
        settings = TelemetryConfig(run=RunConfig(config={"wandb_api_key": KEY}), wandb=config)
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        known = labels_of(settings, identity(run_dir, run_id="secret-run"), {})
        made = WandbClient(config, replace(known, timeout_s=ENOUGH_S))
        drive(made, commit({"x": 1.0}))
        assert read_offline(run_dir).config["command"] == "train --key [redacted]"
        assert KEY.encode() not in everything(tmp_path)  # the home of this test, too
        assert KEY not in caplog.text
        assert KEY not in made.describe()

    def test_without_a_key_a_terminal_is_not_asked_for_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda _: True})())
        fake = Misbehaving()
        fake.settings.api_key = None
        with package("wandb", fake):
            sys.modules["wandb"].__dict__["setup"] = lambda: fake
            with pytest.raises(ConfigError, match=re.escape("wandb.mode: no API key; set wandb.api_key")):
                client(tmp_path, WandbConfig(mode="online")).open()
        assert fake.calls == []


class TestMedia:
    def test_a_text_is_html_and_escaped(self, tmp_path: Path) -> None:
        run = written(tmp_path, shown("text", "note", "a <b>", step=3))
        assert run.series("note._type", "rltel/step/train") == [(3, "html-file")]
        (file,) = tmp_path.rglob("note_*.html")
        assert "a &lt;b&gt;" in file.read_text()

    def test_a_table_is_whole_beyond_w_and_b_s_limit(self, tmp_path: Path) -> None:
        rows = 10_050
        written(tmp_path, shown("table", "samples", {"n": list(range(rows)), "text": ["x"] * rows}))
        (file,) = tmp_path.rglob("*.table.json")
        stored = json.loads(file.read_text())
        assert (len(stored["data"]), stored["columns"]) == (rows, ["n", "text"])

    def test_a_table_may_have_mixed_cells(self, tmp_path: Path) -> None:
        written(tmp_path, shown("table", "t", {"a": [1, "x", None, 2.5, True]}))
        (file,) = tmp_path.rglob("*.table.json")
        assert [row[0] for row in json.loads(file.read_text())["data"]] == [1, "x", None, 2.5, True]

    def test_a_video_is_copied_as_it_is(self, tmp_path: Path) -> None:
        source = tmp_path / "play_video.mp4"
        source.write_bytes(MP4)
        run = written(tmp_path / "run", shown("video", "play", source))
        assert run.rows[0]["play._type"] == "video-file"
        (file,) = (tmp_path / "run").rglob("*.mp4")
        assert file.read_bytes() == MP4
        assert not file.is_symlink()
        assert source.exists()

    def test_a_file_is_copied_into_the_run(self, tmp_path: Path) -> None:
        source = tmp_path / "notes[1].txt"  # W&B would read a pattern
        source.write_text("hi")
        run = written(tmp_path / "run", shown("file", "docs/../notes", source, step=7))
        assert run.files == ["docs/_/notes/train-7/notes[1].txt"]
        (file,) = (tmp_path / "run").rglob("notes*.txt")
        source.unlink()
        assert file.read_text() == "hi"

    def test_a_video_that_w_and_b_does_not_play_is_a_file(self, tmp_path: Path) -> None:
        source = tmp_path / "clip.avi"
        source.write_bytes(b"RIFF")
        assert written(tmp_path / "run", shown("video", "clip", source)).files == ["clip/train-1/clip.avi"]

    def test_what_is_gone_is_counted_and_costs_nothing_else(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        gone = [shown("video", "clip", tmp_path / f"{n}.mp4") for n in range(2)]
        destination = drive(client(tmp_path), *gone, commit({"x": 1.0}))
        assert (destination.exported_total, destination.dropped_totals) == (1, {"unreadable": 2})
        assert caplog.text.count("cannot read") == 1
