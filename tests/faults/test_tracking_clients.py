"""A tracking service's package that raises or hangs in its calls, in a real training: everybody else gets every step.

The package is a stub of its name on the path, so that it is found, imported and driven as the real one is.
"""

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from export.making import run_python
from faults.rest import AT_REST
from realparts.otlp_receiver import OtlpSink, otlp_sink
from realparts.processes import HOST
from realparts.tensorboard_reader import steps as tensorboard_steps
from rltel.export.jsonl import read_jsonl

STEPS = 10
BOUND_S = 1.5
SLACK_S = 20.0  # for the interpreter's own start and end, on a machine that has other work

STUB = """
import json, os, time
from types import SimpleNamespace

def _call(what):
    with open(os.environ["STUB_CALLS"], "a") as calls:
        calls.write(json.dumps([__name__, what]) + "\\n")
    at, _, how = os.environ.get("STUB_" + __name__.upper(), "").partition(" ")
    if what == at and how == "raises":
        raise RuntimeError(__name__ + " said no")
    if what == at and how == "hangs":
        time.sleep(3600)
    if what == at and how:
        time.sleep(float(how))

class Settings(SimpleNamespace):
    Probe = Terminal = SimpleNamespace

class Table:
    pass

class Histogram:
    def __init__(self, **_):
        pass

class Run:
    config = {}

    def log(self, row, **_):
        _call("log")

    def finish(self, **_):
        _call("finish")
        _call("finished")

    def define_metric(self, *_, **__):
        pass

def init(**_):
    _call("init")
    return Run()
"""

TRAINING = (
    AT_REST
    + """
import json, random, sys, time, urllib.request
import rltel
config, run_dir, steps, stuck = json.loads(sys.argv[1])
random.seed(7)
weight = 0.0
telemetry = rltel.init(config, run_dir=run_dir)

def lines(name):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(telemetry.prometheus_url).read().decode()
    return [line for line in text.splitlines() if line.startswith(name + "{")]

def scraped():
    return [line.rpartition(" ")[2] for line in lines("rl_step")]

def has_all(line):  # a destination, as far as it takes anything
    return any('destination="' + name + '"' in line for name in stuck) or line.endswith(" 0.0")

for step in range(steps):
    weight += 0.1 * (random.gauss(1.0, 0.3) - weight)
    rltel.log({"weight": weight}, step=step)
    time.sleep(0.02)
deadline = time.monotonic() + 60
at_rest(telemetry)
while not all(map(has_all, lines("rltel_queue_items"))) and time.monotonic() < deadline:
    time.sleep(0.02)
modules = sorted({name.partition(".")[0] for name in sys.modules} & {"wandb", "swanlab", "trackio"})
print(json.dumps([weight, scraped(), modules, time.time()]), flush=True)
"""
)


class Ended(NamedTuple):
    """What a training said, and what is known of its end."""

    weight: float
    scraped: list[str]
    """The last step, as the Prometheus endpoint showed it."""
    modules: list[str]
    """Which of the packages were imported."""
    exit_s: float
    """From the end of the training to the end of the process."""
    lost: dict[str, dict[str, int]]
    """By destination and reason, as it said at its end."""
    calls: list[list[str]]
    """Of the stubs."""
    said: str


@pytest.fixture
def receiver() -> Iterator[OtlpSink]:
    with otlp_sink() as sink:
        yield sink


def trained(folder: Path, config: dict[str, Any], *, silent: str = "", **stubs: str) -> Ended:
    """A training with stubs in the place of the packages; each is told where and how it misbehaves.

    It ends once all destinations have everything but those that never open or hang, and the ``silent`` one.
    """
    for name in ("wandb", "swanlab", "trackio"):
        package = folder / "packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(STUB)
        (package / "utils.py").touch()
    calls = folder / "calls"
    calls.touch()
    stuck = [silent, *(name for name, how in stubs.items() if how.startswith("init") or how == "log hangs")]
    arguments = json.dumps([config, str(folder / "run"), STEPS, stuck])
    environ = {f"STUB_{name.upper()}": how for name, how in stubs.items()}
    path = os.pathsep.join(filter(None, [str(folder / "packages"), os.environ.get("PYTHONPATH")]))
    paths = {"PYTHONPATH": path, "STUB_CALLS": str(calls), "TRACKIO_DIR": ""}
    ran = run_python(TRAINING, arguments, timeout=250, **paths, **environ)
    at = time.time()
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    weight, scraped, modules, trained_at = json.loads(ran.stdout.splitlines()[-1])
    found = re.findall(r"(\w+): lost \d+ in all \((\{.*?\})\)", ran.stderr)
    lost = {name: json.loads(reasons.replace("'", '"')) for name, reasons in found}
    made = [json.loads(line) for line in calls.read_text().splitlines()]
    return Ended(weight, scraped, modules, at - trained_at, lost, made, ran.stderr)


def everything(endpoint: str, **services: str) -> dict[str, Any]:
    """All other destinations, and these services."""
    return {
        "tensorboard": {"path": "{run_dir}/tb"},
        "prometheus": {"enabled": True, "port": 0},
        "otlp": {"enabled": True, "endpoint": endpoint, "traces": False},
        "pipeline": {"shutdown_timeout_s": BOUND_S},
        **{name: {"mode": mode} for name, mode in services.items()},
    }


def check_the_others(made: Ended, run_dir: Path, receiver: OtlpSink) -> None:
    """They have every step."""
    every = list(range(STEPS))
    assert [line.step for line in read_jsonl(run_dir)] == every
    assert tensorboard_steps(run_dir / "tb")["weight"] == every
    assert made.scraped == [f"{STEPS - 1}.0"]
    assert [int(each.value) for each in receiver.metrics() if each.name == "rl.step"] == every
    assert made.exit_s < BOUND_S + SLACK_S


@pytest.fixture(scope="module")
def right_weight() -> float:
    """What the training comes to without telemetry."""
    code = TRAINING.partition("deadline =")[0] + "print(weight)"
    return float(run_python(code, json.dumps([{}, None, STEPS, []])).stdout)


class TestMisbehaving:
    @pytest.mark.parametrize(
        ("at", "how", "lost"),
        [
            ("init", "raises", {"error": STEPS}),
            ("init", "hangs", {"shutdown": STEPS}),
            ("log", "raises", {"error": STEPS}),
            ("log", "hangs", {"shutdown": STEPS}),
            ("finish", "raises", None),
            ("finish", "hangs", {"unfinished": 1}),
        ],
    )
    def test_wandb(
        self,
        receiver: OtlpSink,
        at: str,
        how: str,
        lost: dict[str, int] | None,
        tmp_path: Path,
        right_weight: float,
    ) -> None:
        made = trained(tmp_path, everything(receiver.endpoint, wandb="offline"), wandb=f"{at} {how}")
        check_the_others(made, tmp_path / "run", receiver)
        assert made.weight == right_weight
        assert made.lost == ({} if lost is None else {"wandb": lost})
        assert ["wandb", at] in made.calls
        if how == "raises":
            assert 1 <= made.said.count("wandb said no") <= 2, "said, and not each time"

    @pytest.mark.parametrize("at", ["init", "log"])
    @pytest.mark.parametrize(("service", "mode"), [("swanlab", "offline"), ("trackio", "local")])
    def test_others(
        self, receiver: OtlpSink, service: str, mode: str, at: str, tmp_path: Path, right_weight: float
    ) -> None:
        made = trained(tmp_path, everything(receiver.endpoint, **{service: mode}), **{service: f"{at} raises"})
        check_the_others(made, tmp_path / "run", receiver)
        assert made.weight == right_weight
        assert made.lost == {service: {"error": STEPS}}
        assert 1 <= made.said.count(f"{service} said no") <= 2

    def test_all_at_once(self, receiver: OtlpSink, tmp_path: Path) -> None:
        services = {"wandb": "offline", "swanlab": "offline", "trackio": "local"}
        hangs = {"wandb": "init hangs", "swanlab": "log hangs", "trackio": "finish hangs"}
        made = trained(tmp_path, everything(receiver.endpoint, **services), **hangs)
        check_the_others(made, tmp_path / "run", receiver)
        assert made.lost == {"wandb": {"shutdown": STEPS}, "swanlab": {"shutdown": STEPS}, "trackio": {"unfinished": 1}}


def test_one_that_is_disabled_is_never_imported(receiver: OtlpSink, tmp_path: Path) -> None:
    services = {"wandb": "disabled", "swanlab": "offline", "trackio": "disabled"}
    made = trained(tmp_path, everything(receiver.endpoint, **services))
    assert made.modules == ["swanlab"]
    assert {name for name, _ in made.calls} == {"swanlab"}


def test_a_program_shorter_than_its_client_s_start_loses_nothing_within_the_bound(tmp_path: Path) -> None:
    """W&B's own takes about two seconds."""
    config = {"wandb": {"mode": "offline"}, "prometheus": {"enabled": True, "port": 0}}
    made = trained(tmp_path, {**config, "pipeline": {"shutdown_timeout_s": 30.0}}, wandb="init 1.5")
    assert made.lost == {}
    assert [what for _, what in made.calls] == ["init", *["log"] * STEPS, "finish", "finished"]


class TestTogether:
    """The end: one that hangs leaves the others their time."""

    @pytest.mark.parametrize("hanging", ["otlp", "wandb"])
    def test_a_healthy_run_is_finished_beside_one_that_hangs(self, hanging: str, tmp_path: Path) -> None:
        with socket.create_server((HOST, 0)) as silent:
            config = everything(f"http://{HOST}:{silent.getsockname()[1]}", trackio="local")
            if hanging == "wandb":
                config |= {"wandb": {"mode": "offline"}, "otlp": {}}
            else:
                config["otlp"]["timeout_s"] = 60.0
            config["pipeline"] = {"shutdown_timeout_s": 6.0}
            made = trained(tmp_path, config, silent=hanging, wandb="log hangs", trackio="finish 0.3")
        assert made.lost == {hanging: {"shutdown": STEPS}}
        assert ["trackio", "finished"] in made.calls
