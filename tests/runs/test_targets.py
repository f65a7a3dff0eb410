"""Replays to tracking services: their real packages offline, each in a process of its own, read back."""

import json
from pathlib import Path

import pytest

from export.making import TIME_NS, commit, environment, identity, run_python
from realparts.ledgered import keep_record
from realparts.swanlab_reader import read_run
from realparts.trackio_reader import read_store
from realparts.wandb_reader import read_offline
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.export.ledger import Ledger
from rltel.runs.targets import replay_config, target_of

CODE = """
import os, sys, json, socket
def stay(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise SystemError(f"left this machine: {address}")
    return connect(self, address)
connect, socket.socket.connect = socket.socket.connect, stay
from pathlib import Path
from rltel.runs.replay import replay
report = replay(Path(sys.argv[1]), sys.argv[2], environ=os.environ).run()
print(json.dumps([report.sent, report.missing, report.error, report.note]))
"""


def run_of_five(run_dir: Path) -> Identity:
    """With an axis that is far from the other, and the first two commits delivered."""
    who = identity(run_dir)
    axes = [("train", 0), ("rollout", 8073), ("train", 1), ("rollout", 8074), ("train", 2)]
    keep_record(
        run_dir,
        [
            commit({f"{axis}/x": float(n)}, identity=who, number=n, axis=axis, step=step, time_ns=TIME_NS + n * 10**9)
            for n, (axis, step) in enumerate(axes)
        ],
    )
    return who


def had(run_dir: Path, name: str, **environ: str) -> None:
    """Say that the first two were delivered to where the replay will send."""
    who = identity(run_dir)
    config = replay_config(name, None, environment(**environ))
    place = target_of(name, config, run_dir, who, environment(**environ)).place
    Ledger(run_dir, who.name, name, place).sent(0, 1)


def replayed(run_dir: Path, name: str, **environ: str) -> list[object]:
    ran = run_python(CODE, run_dir, name, HOME=str(run_dir / "home"), **environ)
    assert ran.returncode == 0, ran.stderr
    found: list[object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_wandb_gets_what_it_missed_with_its_own_steps_and_times(tmp_path: Path) -> None:
    run_of_five(tmp_path)
    had(tmp_path, "wandb", RLTEL_WANDB_MODE="offline")
    assert replayed(tmp_path, "wandb", RLTEL_WANDB_MODE="offline") == [3, 0, None, ""]
    run = read_offline(tmp_path)
    assert run.series("train/x", "rltel/step/train") == [(1, 2.0), (2, 4.0)]
    assert run.series("rollout/x", "rltel/step/rollout") == [(8074, 3.0)]
    assert [row["_timestamp"] for row in run.rows] == pytest.approx([TIME_NS / 1e9 + n for n in (2, 3, 4)])
    assert replayed(tmp_path, "wandb", RLTEL_WANDB_MODE="offline")[:2] == [0, 0]


def test_swanlab_gets_what_it_missed_with_its_own_steps(tmp_path: Path) -> None:
    run_of_five(tmp_path)
    had(tmp_path, "swanlab", RLTEL_SWANLAB_MODE="offline")
    *counts, note = replayed(tmp_path, "swanlab", RLTEL_SWANLAB_MODE="offline")
    assert counts == [3, 0, None]
    assert "takes no old times" in str(note)
    assert read_run(tmp_path / "swanlab").series == {"train/x": [(1, 2.0), (2, 4.0)], "rollout/x": [(8074, 3.0)]}


def test_trackio_gets_what_it_missed_with_its_own_steps(tmp_path: Path) -> None:
    run_of_five(tmp_path)
    had(tmp_path, "trackio")
    *counts, note = replayed(tmp_path, "trackio")
    assert counts == [3, 0, None]
    assert "takes no old times" in str(note)
    store = read_store(tmp_path / "trackio", "rltel", "run-1")
    assert store.series("train/x") == [(1, 2.0), (2, 4.0)]
    assert store.series("rollout/x") == [(8074, 3.0)]


def test_a_service_that_cannot_be_reached_is_the_reason(tmp_path: Path) -> None:
    """Online without a key: W&B itself refuses."""
    run_of_five(tmp_path)
    sent, missing, error, _ = replayed(tmp_path, "wandb")
    assert (sent, missing) == (0, 5)
    assert "wandb" in str(error)


def test_wandb_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    run_of_five(tmp_path)
    code = (
        "import importlib.util, sys\nfrom pathlib import Path\nfrom rltel.runs.replay import replay\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'wandb' else find(name, *rest)\n"
        "try:\n    replay(Path(sys.argv[1]), 'wandb', environ={})\nexcept ValueError as error:\n    print(error)\n"
    )
    assert 'pip install "rltel[wandb]"' in run_python(code, tmp_path).stdout


class TestConfig:
    def test_switches_on_what_is_off(self) -> None:
        assert replay_config("otlp", None, {}).otlp.enabled
        assert replay_config("wandb", None, {}).wandb.mode == "online"
        assert replay_config("trackio", None, {}).trackio.mode == "local"

    def test_leaves_what_the_config_says(self) -> None:
        given = {"wandb": {"mode": "offline", "project": "p"}}
        assert (replay_config("wandb", given, {}).wandb.mode, replay_config("wandb", given, {}).wandb.project) == (
            "offline",
            "p",
        )

    def test_the_argument_is_stronger_than_the_variable(self) -> None:
        environ = {"RLTEL_OTLP_ENDPOINT": "http://variable:1"}
        assert replay_config("otlp", None, environ, "http://argument:1").otlp.endpoint == "http://argument:1"

    def test_of_a_wrong_config_the_error_names_the_field(self) -> None:
        with pytest.raises(ConfigError, match=r"wandb\.mode"):
            replay_config("wandb", {"wandb": {"mode": "sideways"}}, {})


def test_importing_replay_imports_no_destination() -> None:
    heavy = ("wandb", "tensorboard", "swanlab", "trackio", "grpc")
    code = f"import sys, rltel.runs.replay\nprint([name for name in {heavy} if name in sys.modules])"
    assert run_python(code).stdout == "[]\n"
