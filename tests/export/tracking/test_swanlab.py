"""SwanLab, with its real package and no network; its stores are read back with its own reader."""

import base64
import json
import math
import sqlite3
import struct
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from export.making import commit, identity, recorded, run_python
from realparts.swanlab_reader import StoredRun, read_run
from realparts.tracking import Misbehaving, drive, labels, offline, package, shown
from rltel.core.config import RunConfig, SwanlabConfig, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.export.tracking.labels import labels_of
from rltel.export.tracking.swanlab import SwanlabClient

__all__ = ["offline"]  # a fixture
TESTS = str(Path(__file__).parents[2])
KEY = "k3y-" + "0" * 36
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")

pytestmark = pytest.mark.usefixtures("offline")


def png() -> bytes:
    """One black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def client(run_dir: Path, config: SwanlabConfig | None = None, **run: Any) -> SwanlabClient:
    return SwanlabClient(config or SwanlabConfig(mode="offline"), labels(run_dir, **run))


def written(run_dir: Path, *things: Any, config: SwanlabConfig | None = None, **run: Any) -> StoredRun:
    destination = drive(client(run_dir, config, **run), *things)
    assert (destination.exported_total, destination.dropped_totals) == (len(things), {})
    return read_run(run_dir / "swanlab")


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


class TestNumbers:
    def test_axes_that_clash_are_both_kept_and_a_step_may_go_back(self, tmp_path: Path) -> None:
        run = written(
            tmp_path,
            commit({"rollout/reward": 1.0}, step=8073, axis="rollout"),
            commit({"loss": 2.0}, step=0),
            commit({"loss": 3.0}, step=5),
            commit({"loss": 4.0}, step=2),
        )
        assert run.series == {"rollout/reward": [(8073, 1.0)], "loss": [(0, 2.0), (5, 3.0), (2, 4.0)]}

    def test_keys_are_verbatim_and_zero_is_a_number(self, tmp_path: Path) -> None:
        keys = {"pass@1": 0.0, "eval-rollout/Reward (mean)": 2.0, "ratio_outside_1.5": 3.0}
        run = written(tmp_path, commit(recorded(lambda trackers: trackers.default.scalar(keys))))
        assert run.series == {key: [(1, value)] for key, value in keys.items()}

    def test_what_is_not_finite_is_kept(self, tmp_path: Path) -> None:
        run = written(tmp_path, commit({"a": math.nan, "b": math.inf, "c": -math.inf}))
        assert [str(run.series[key][0][1]) for key in "abc"] == ["nan", "inf", "-inf"]

    def test_environment_steps_are_the_axis_if_asked(self, tmp_path: Path) -> None:
        run = written(tmp_path, commit({"x": 1.0}, step=3, env_steps=3_000_000_000), step_axis="env_steps")
        assert run.series["x"] == [(3_000_000_000, 1.0)]


class TestRun:
    def test_named_as_the_run_is(self, tmp_path: Path) -> None:
        start = written(tmp_path / "r1", commit({"x": 1.0}), algo="sac", task="pendulum").start
        assert (start.project, start.name) == ("rltel", "sac__pendulum__r1")
        assert (start.group, start.job_type, list(start.tags)) == ("pendulum", "sac", ["sac", "pendulum"])

    def test_what_its_section_says_comes_first_and_a_project_has_only_what_it_may(self, tmp_path: Path) -> None:
        config = SwanlabConfig(mode="offline", project="my project", name="n")
        start = written(tmp_path, commit({"x": 1.0}), config=config).start
        assert (start.project, start.name) == ("my-project", "n")

    def test_in_the_folder_that_was_asked_for(self, tmp_path: Path) -> None:
        made = client(tmp_path, SwanlabConfig(mode="offline", logdir=str(tmp_path / "elsewhere")))
        drive(made, commit({"x": 1.0}))
        assert made.describe() == f"offline {tmp_path}/elsewhere"
        assert read_run(tmp_path / "elsewhere").series == {"x": [(1, 1.0)]}

    def test_the_config_goes_with_it(self, tmp_path: Path) -> None:
        config = SwanlabConfig(mode="offline", config={"seed": 7})
        written(tmp_path, commit({"x": 1.0}), config=config)
        (file,) = tmp_path.rglob("config.yaml")
        assert "seed" in file.read_text()

    @pytest.mark.parametrize("mode", ["cloud", "online"])
    def test_online_is_cloud_and_its_id_is_the_run_s(self, tmp_path: Path, mode: Any) -> None:
        with package("swanlab", Misbehaving()) as fake:
            drive(client(tmp_path, SwanlabConfig(mode=mode, api_key=KEY)), commit({"x": 1.0}))
        assert (fake.options["mode"], fake.options["id"], fake.options["resume"]) == ("online", "run-1", "allow")
        assert fake.options["settings"].api_key == KEY
        assert fake.options["settings"].interactive is False  # nobody is asked for a key

    def test_local_has_its_logs_and_with_the_dashboard_its_database(self, tmp_path: Path) -> None:
        run = written(
            tmp_path,
            commit({"a": math.nan}, step=8073, axis="rollout"),
            commit({"b": 2.0}, step=0),
            config=SwanlabConfig(mode="local"),
        )
        assert [step for key in "ab" for step, _ in run.series[key]] == [8073, 0]
        logs = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob("logs/*/*.log"))]
        assert {(line["index"], str(line["data"])) for line in logs} >= {(8073, "nan"), (0, "2.0")}
        if find_spec("swanboard") is not None:
            with sqlite3.connect(tmp_path / "swanlab" / "runs.swanlab") as database:
                assert {name for (name,) in database.execute("select name from tag")} >= {"a", "b"}

    def test_local_without_the_dashboard_says_what_to_install(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rltel.export.tracking.swanlab.find_spec", lambda _: None)
        with package("swanlab", Misbehaving()):
            drive(client(tmp_path, SwanlabConfig(mode="local")), commit({"x": 1.0}))
        assert 'pip install "swanlab[dashboard]"' in caplog.text

    def test_an_old_package_is_named_with_what_is_needed(self, tmp_path: Path) -> None:
        with package("swanlab", Misbehaving()):
            sys.modules["swanlab"].__dict__.update(Settings=SimpleNamespace, __version__="0.6.12")
            with pytest.raises(ConfigError, match=r"swanlab.mode: needs swanlab 0.10 or newer, got 0.6.12"):
                client(tmp_path).open()

    def test_prints_nothing_and_collects_neither_host_nor_packages(self, tmp_path: Path) -> None:
        code = (
            f"import sys; sys.path.insert(0, {TESTS!r})\n"
            "import socket; socket.gethostname = lambda: 'the-host-of-this-test'\n"
            "from pathlib import Path\n"
            "from export.tracking.test_swanlab import client, commit, drive\n"
            "drive(client(Path(sys.argv[1])), commit({'x': 1.0}))\n"
        )
        ran = run_python(code, tmp_path / "run", HOME=str(tmp_path / "home"))
        assert (ran.stdout, ran.stderr) == ("", "")
        assert b"the-host-of-this-test" not in everything(tmp_path)
        assert not list(tmp_path.rglob("requirements.txt"))


class TestProgram:
    PROGRAM = (
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "import atexit, time\n"
        "from pathlib import Path\n"
        "from export.tracking.test_swanlab import client, commit\n"
        "from realparts.tracking import worker_of\n"
        "worker = worker_of(client(Path(sys.argv[1])))\n"
        "atexit.register(lambda: worker.close(time.monotonic() + 30))\n"
        "worker.wait_empty(time.monotonic() + 30)\n"
        "for step in range(50):\n    worker.put(commit({'x': float(step)}, step=step), [])\n"
    )

    def test_the_last_rows_are_there_and_an_exception_is_told(self, tmp_path: Path) -> None:
        ran = run_python(self.PROGRAM + "raise ValueError('diverged')\n", tmp_path, HOME=str(tmp_path / "home"))
        assert ran.stderr.count("ValueError: diverged") == 1
        run = read_run(tmp_path / "swanlab")
        assert [step for step, _ in run.series["x"]] == list(range(50))
        assert run.finish.error == "the program failed"


def test_the_key_is_in_no_file_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    config = SwanlabConfig(mode="offline", api_key=KEY, config={"command": f"train --key {KEY}"})
    settings = TelemetryConfig(run=RunConfig(config={"api_key": KEY}), swanlab=config)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    made = SwanlabClient(config, labels_of(settings, identity(run_dir), {}))
    drive(made, commit({"x": 1.0}))
    (file,) = run_dir.rglob("config.yaml")
    assert "train --key [redacted]" in file.read_text()
    assert KEY.encode() not in everything(tmp_path)  # the home of this test, too
    assert KEY not in caplog.text + made.describe()


class TestMedia:
    def test_texts_tables_images_and_gifs_are_shown(self, tmp_path: Path) -> None:
        (tmp_path / "a.gif").write_bytes(GIF)
        (tmp_path / "a.png").write_bytes(png())
        run = written(
            tmp_path / "run",
            shown("text", "note", "hi"),
            shown("table", "samples", {"a": [1, 2.5], "b": ["x", None]}),
            shown("video", "play", tmp_path / "a.gif"),
            shown("image", "frame", tmp_path / "a.png"),
        )
        assert list(run.media) == ["note", "samples", "play", "frame"]
        (text,) = (tmp_path / "run").rglob("media/text/*.txt")
        assert text.read_text() == "hi"
        (table,) = (tmp_path / "run").rglob("media/echarts/*.json")
        assert "2.5" in table.read_text()

    @pytest.mark.parametrize("kind", ["file", "video"])
    def test_what_it_cannot_show_is_copied_as_a_file_of_the_run(self, tmp_path: Path, kind: Any) -> None:
        source = tmp_path / "play[1].mp4"  # the package would read a pattern
        source.write_bytes(b"ftyp")
        run = written(tmp_path / "run", shown(kind, "docs/../play", source, step=7))
        assert "docs-..-play/train-7/play[1].mp4" in run.saved
        source.unlink()
        copies = [path for path in (tmp_path / "run").rglob("play*.mp4") if not path.is_symlink()]
        assert [path.read_bytes() for path in copies] == [b"ftyp"]

    def test_an_old_run_without_files_counts_them_as_unsupported(self, tmp_path: Path) -> None:
        source = tmp_path / "play.mp4"
        source.write_bytes(b"ftyp")
        with package("swanlab", Misbehaving()):
            destination = drive(client(tmp_path), shown("video", "play", source), commit({"x": 1.0}))
        assert (destination.exported_total, destination.dropped_totals) == (1, {"unsupported": 1})

    def test_what_is_gone_is_counted(self, tmp_path: Path) -> None:
        destination = drive(client(tmp_path), shown("file", "x", tmp_path / "gone"), commit({"x": 1.0}))
        assert (destination.exported_total, destination.dropped_totals) == (1, {"unreadable": 1})
