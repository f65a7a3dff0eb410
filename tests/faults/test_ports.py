"""The Prometheus endpoint cannot have its port, or its host: what is said, and that the training goes on."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import SystemRandom

import pytest

from export.making import environment, run_python
from export.scraping import value
from realparts.processes import HOST
from rltel.export.jsonl import read_jsonl

TRIED = 100  # ports, from the configured one on
WITHOUT_LOW_PORTS = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")

TRAINING = """
import json, random, sys, urllib.request
import rltel
options, run_dir = json.loads(sys.argv[1])
random.seed(7)
weight = 0.0
telemetry = rltel.init({"prometheus": {"enabled": True, **options}}, run_dir=run_dir)
for step in range(5):
    weight += 0.1 * (random.gauss(1.0, 0.3) - weight)
    rltel.log({"weight": weight}, step=step)
rltel.flush(30.0)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
found = opener.open(telemetry.prometheus_url).read().decode()
(advertised,) = telemetry.run_dir.glob("prometheus_sd/*.json")
print(json.dumps([weight, telemetry.prometheus_url, found, json.loads(advertised.read_text())[0]["targets"]]))
"""


def run(prefix: Sequence[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program with others before it on its command line."""
    command = [*prefix, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200, check=False)


class Trained:
    """A training that went to its end, and was scraped."""

    def __init__(self, run_dir: Path, prefix: Sequence[str] = (), **options: object) -> None:
        ran = run(prefix, TRAINING, json.dumps([options, str(run_dir)]))
        assert ran.returncode == 0, ran.stderr
        self.weight, self.url, scraped, self.advertised = json.loads(ran.stdout)
        self.said = ran.stderr
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        assert value(scraped, "rl_stats_weight") == self.weight
        assert self.advertised == [f"{HOST}:{self.port}"]
        assert self.url in self.said, "the line at the start says where it really is"
        assert [line.step for line in read_jsonl(run_dir)] == list(range(5))


def test_one_that_is_taken_gives_the_next_free_one(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        made = Trained(tmp_path / "run", port=port)
    assert port < made.port < port + TRIED
    assert made.weight == Trained(tmp_path / "other", port=0).weight


def test_where_all_are_taken_any_does_and_the_training_goes_on(tmp_path: Path) -> None:
    with all_taken() as first:
        made = Trained(tmp_path, port=first)
    assert made.port not in range(first, first + TRIED)
    last = first + TRIED - 1
    assert f"prometheus.port: none of {first} to {last} on {HOST} may be used: took {made.port}" in made.said


@contextmanager
def all_taken() -> Iterator[int]:
    """The first of as many as are tried. All are ours: one that is somebody else's may be free a moment later."""
    while True:
        first = SystemRandom().randrange(10_000, 19_000)  # below those that other tests look for
        with ExitStack() as taken:
            try:
                for port in range(first, first + TRIED):
                    taken.enter_context(socket.create_server((HOST, port)))
            except OSError:
                continue
            yield first
            return


def test_one_that_this_user_may_not_have_gives_another(tmp_path: Path) -> None:
    """Ports below 1024."""
    prefix = WITHOUT_LOW_PORTS if os.geteuid() == 0 else ()
    if prefix and shutil.which(prefix[0]) is None:
        pytest.skip("root may have every port, and there is no setpriv")
    if "PermissionError" not in run(prefix, f"import socket; socket.create_server(('{HOST}', 80))").stderr:
        pytest.skip("everybody may have every port here")
    made = Trained(tmp_path, prefix, port=80)
    assert made.port >= 1024
    assert f"prometheus.port: none of 80 to 179 on {HOST} may be used: took {made.port}" in made.said


@pytest.mark.parametrize("host", ["203.0.113.1", "nobody.invalid"])
def test_a_host_that_is_not_this_one_is_a_mistake_and_leaves_the_program_as_it_was(tmp_path: Path, host: str) -> None:
    """It raises at `init`, before any training; who catches it trains without telemetry."""
    code = """
import os, sys
import rltel
before = dict(os.environ)
try:
    rltel.init({"prometheus": {"enabled": True, "host": sys.argv[1]}}, run_dir=sys.argv[2])
except rltel.ConfigError as error:
    print(error)
rltel.log({"x": 1.0}, step=0)
rltel.scalar(loss=0.5)
assert rltel.export_all() == {"loss": 0.5, "loss__count": 1}
assert dict(os.environ) == before
"""
    ran = run_python(code, host, tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    assert f'prometheus.host: cannot listen on "{host}"' in ran.stdout
