"""Trackio, with its real package and a local store, which is read back with its own storage class."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from export.making import commit, run_python
from realparts.tracking import Misbehaving, drive, labels, package
from realparts.trackio_reader import StoredRun, read_store
from rltel.core.config import TrackioConfig
from rltel.core.errors import ConfigError
from rltel.export.tracking.trackio import TrackioClient

TESTS = str(Path(__file__).parents[2])
KEY = "k3y-" + "0" * 36

DRIVE = f"""
import logging, sys
sys.path.insert(0, {TESTS!r})
import json, socket
def stay(*address, **more):
    raise SystemError(print("left this machine:", address, file=sys.stderr))
socket.socket.connect = socket.getaddrinfo = stay
import numpy as np
from pathlib import Path
from export.making import commit, identity, recorded
from realparts.tracking import drive, labels, shown
from rltel.core.config import TrackioConfig
from rltel.export.tracking.trackio import TrackioClient
folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])
client = TrackioClient(TrackioConfig(mode="local", **options.pop("trackio", {{}})), labels(folder / "run", **options))
"""
REPORT = "print(json.dumps([destination.exported_total, destination.dropped_totals]))\n"


def written(folder: Path, things: str, environ: Mapping[str, str] | None = None, **options: Any) -> StoredRun:
    """What the store holds after a process sent these things."""
    ran = run_python(
        f"{DRIVE}destination = drive(client, {things})\n{REPORT}",
        folder,
        json.dumps(options),
        HOME=str(folder / "home"),
        **(environ or {}),
    )
    assert ran.stderr == ""
    (report,) = ran.stdout.splitlines()  # and nothing else is printed
    exported, dropped = json.loads(report)
    assert exported > 0
    assert dropped == {}
    section = options.get("trackio", {})
    return read_store(folder / "run" / "trackio", section.get("project", "rltel"), section.get("name", "run-1"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return written(
        tmp_path_factory.mktemp("numbers"),
        "commit({'rollout/reward': 1.0}, step=8073, axis='rollout'),"
        "commit({'loss': 2.0, 'pass@1': 0.0}, step=0), commit({'loss': 3.0}, step=5), commit({'loss': 4.0}, step=2),"
        "commit({'a': float('nan'), 'b': float('inf'), 'c': -float('inf')}, step=6),"
        "commit(recorded(lambda t: t.default.distribution(seq_len=np.array([1, 2, 3, 100]))), step=7)",
        config={"seed": 7, "api_key": KEY, "_mine": 1},
    )


class TestNumbers:
    def test_axes_that_clash_are_both_kept_and_a_step_may_go_back(self, numbers: StoredRun) -> None:
        assert numbers.series("rollout/reward") == [(8073, 1.0)]
        assert numbers.series("loss") == [(0, 2.0), (5, 3.0), (2, 4.0)]

    def test_keys_are_verbatim_and_zero_is_a_number(self, numbers: StoredRun) -> None:
        assert numbers.series("pass@1") == [(0, 0.0)]

    def test_what_is_not_finite_is_kept(self, numbers: StoredRun) -> None:
        assert math.isnan(numbers.series("a")[0][1])
        assert [numbers.series(key)[0][1] for key in "bc"] == [math.inf, -math.inf]

    def test_a_distribution_is_a_histogram(self, numbers: StoredRun) -> None:
        ((step, histogram),) = numbers.series("seq_len")
        assert (step, histogram["_type"], sum(histogram["values"])) == (7, "trackio.histogram", 4)

    def test_the_config_goes_with_it_redacted_and_without_the_user(self, numbers: StoredRun) -> None:
        assert (numbers.config["seed"], numbers.config["mine"], numbers.config["api_key"]) == (7, 1, "[redacted]")
        assert "_Username" not in numbers.config


class TestRun:
    def test_a_restart_goes_on_in_the_same_run(self, tmp_path: Path) -> None:
        written(tmp_path, "commit({'x': 1.0}, step=1)")
        run = written(tmp_path, "commit({'x': 2.0}, step=2)")
        assert (run.runs, run.series("x")) == (["run-1"], [(1, 1.0), (2, 2.0)])

    def test_what_its_section_says_comes_first(self, tmp_path: Path) -> None:
        run = written(tmp_path, "commit({'x': 1.0})", trackio={"project": "p", "name": "n"}, name="other")
        assert run.runs == ["n"]

    def test_environment_steps_are_the_axis_if_asked(self, tmp_path: Path) -> None:
        run = written(tmp_path, "commit({'x': 1.0}, step=3, env_steps=3_000_000_000)", step_axis="env_steps")
        assert run.series("x") == [(3_000_000_000, 1.0)]

    def test_a_key_is_in_no_file_and_nobody_is_asked_whose_it_is(self, tmp_path: Path) -> None:
        written(tmp_path, "commit({'x': 1.0})", {"HF_TOKEN": KEY}, config={"command": f"train --token-of-mine {KEY}"})
        stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert b"train --token-of-mine" in stored
        assert KEY.encode() not in stored

    def test_the_last_rows_are_there_though_nobody_called_finish(self, tmp_path: Path) -> None:
        code = DRIVE + (
            "import atexit, time\nfrom realparts.tracking import worker_of\n"
            "worker = worker_of(client)\n"
            "atexit.register(lambda: worker.close(time.monotonic() + 30))\n"
            "worker.wait_empty(time.monotonic() + 30)\n"
            "for step in range(50):\n    worker.put(commit({'x': float(step)}, step=step), [])\n"
        )
        ran = run_python(code, tmp_path, "{}", HOME=str(tmp_path / "home"))
        assert (ran.stdout, ran.stderr) == ("", "")
        run = read_store(tmp_path / "run" / "trackio", "rltel", "run-1")
        assert [step for step, _ in run.series("x")] == list(range(50))


class TestPlace:
    @pytest.fixture(autouse=True)
    def no_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            monkeypatch.delenv(name, raising=False)

    def client(self, run_dir: Path, **config: Any) -> TrackioClient:
        return TrackioClient(TrackioConfig(**config), labels(run_dir))

    def test_says_how_to_look_at_it(self, tmp_path: Path) -> None:
        expected = f"TRACKIO_DIR={tmp_path}/trackio trackio show --project rltel"
        assert self.client(tmp_path, mode="local").describe() == expected

    def test_a_folder_that_the_environment_names_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACKIO_DIR", "/elsewhere")
        assert self.client(tmp_path, mode="local").describe().startswith("TRACKIO_DIR=/elsewhere ")

    def test_a_package_that_was_used_before_keeps_its_place_and_that_is_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRACKIO_DIR", "")
        with package("trackio", Misbehaving()):
            sys.modules["trackio.utils"].__dict__["TRACKIO_DIR"] = "/used/before"
            drive(self.client(tmp_path, mode="local"), commit({"x": 1.0}))
        assert "keeps its store in /used/before" in caplog.text

    def test_online_goes_to_its_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACKIO_DIR", "")
        made = self.client(tmp_path, mode="online", space_id="me/space")
        with package("trackio", Misbehaving()) as fake:
            drive(made, commit({"x": 1.0}))
        assert fake.options["space_id"] == "me/space"
        assert made.describe() == "me/space rltel"

    def test_online_without_a_space_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"trackio.space_id: online needs a space"):
            self.client(tmp_path, mode="online")

    def test_local_while_the_environment_says_otherwise_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
        with pytest.raises(ConfigError, match=r"trackio.mode: local, but TRACKIO_SPACE_ID is set"):
            self.client(tmp_path, mode="local")

    def test_prints_of_other_threads_stay(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRACKIO_DIR", "")
        fake = Misbehaving("init", lambda: sys.modules["trackio"].__dict__["print"]("ours"))
        with package("trackio", fake):
            drive(self.client(tmp_path, mode="local"), commit({"x": 1.0}))
            sys.modules["trackio"].__dict__["print"]("theirs")
        assert capsys.readouterr().out == "theirs\n"


class TestMedia:
    def test_all_that_it_can_hold(self, tmp_path: Path) -> None:
        (tmp_path / "play.mp4").write_bytes(b"ftyp")
        (tmp_path / "notes.txt").write_text("hi")
        run = written(
            tmp_path,
            "shown('text', 'note', 'a *b*', step=3), shown('table', 'samples', {'a': [1, 2.5], 'b': ['x', None]}),"
            "shown('video', 'play', folder / 'play.mp4', step=4), shown('file', 'notes', folder / 'notes.txt')",
        )
        assert run.series("note") == [(3, {"_type": "trackio.markdown", "_value": "```\na *b*\n```"})]
        assert run.series("samples")[0][1]["_value"] == [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}]
        ((step, video),) = run.series("play")
        stored = tmp_path / "run" / "trackio" / "media" / video["file_path"]
        assert (step, stored.read_bytes()) == (4, b"ftyp")
        blobs = [
            path.read_bytes() for path in (tmp_path / "run" / "trackio" / "artifacts").rglob("*") if path.is_file()
        ]
        assert blobs == [b"hi"]

    def test_what_it_cannot_hold_or_read_is_counted_and_said_once(self, tmp_path: Path) -> None:
        (tmp_path / "clip.avi").write_bytes(b"RIFF")
        things = (
            "shown('video', 'a', folder / 'clip.avi'), shown('video', 'b', folder / 'clip.avi'),"
            "shown('video', 'c', folder / 'gone.mp4'), commit({'x': 1.0})"
        )
        code = f"{DRIVE}destination = drive(client, {things})\n{REPORT}"
        ran = run_python(code, tmp_path, "{}", HOME=str(tmp_path / "home"))
        assert json.loads(ran.stdout) == [1, {"unsupported": 2, "unreadable": 1}]
        assert ran.stderr.count("trackio cannot hold a video (.avi)") == 1


def test_a_user_s_config_of_the_run_is_left_if_hosts_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", "")
    for told in (False, True):
        config = {"_Username": "me"}
        fake = Misbehaving()
        fake.init = lambda of=config, **_: SimpleNamespace(config=of, finish=lambda: None)  # type: ignore[method-assign]
        with package("trackio", fake):
            drive(TrackioClient(TrackioConfig(mode="local"), labels(tmp_path, include_host=told)))
        assert ("_Username" in config) is told
