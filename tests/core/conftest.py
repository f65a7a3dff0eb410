"""What the tests of core share: an environment of their own, and real processes that start together."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

_OTHERS = ("RLTEL_", "OTEL_", "SLURM_", "TORCHELASTIC_", "MASTER_")
_RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"}
_fork = multiprocessing.get_context("fork")
_LONG = 120.0  # seconds: a machine that stalls is no fault


def _is_ours(variable: str) -> bool:
    return variable.startswith(_OTHERS) or variable in _RANKS


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in filter(_is_ours, list(os.environ)):
        monkeypatch.delenv(variable)


def _child(task: Callable[[int], Any], number: int, start: Any, done: Any, results: Any) -> None:
    start.wait(_LONG)
    try:
        answer = task(number)
    except Exception as error:  # the parent raises it
        answer = error
    results.put((number, answer))
    done.wait(_LONG)  # nobody ends before all have answered: a holder that ended is another case


@pytest.fixture
def together() -> Callable[[int, Callable[[int], Any]], list[Any]]:
    """Run a task in N processes that start it at the same moment and live until all are done; their answers."""

    def run(processes: int, task: Callable[[int], Any]) -> list[Any]:
        start, done, results = _fork.Barrier(processes), _fork.Event(), _fork.Queue()
        children = [
            _fork.Process(target=_child, args=(task, number, start, done, results)) for number in range(processes)
        ]
        for child in children:
            child.start()
        try:
            answers = dict(results.get(timeout=_LONG) for _ in children)
        finally:
            done.set()
            for child in children:
                child.join(_LONG)
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        return [answers[number] for number in range(processes)]

    return run


@pytest.fixture
def fresh_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a new interpreter with code of its own; nothing of this process is in it but the environment."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if not _is_ours(name)}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=inherited | dict(environ or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
