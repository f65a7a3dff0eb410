"""The end of a program is bounded, whatever hangs: from its last statement to its end, on its own clock."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.rest import AT_REST
from realparts.processes import HOST
from realparts.trainer import STEPS, plain_result, trained
from rltel import read_jsonl

SLACK_S = 30.0  # for the end of the interpreter, on a machine that has other things to do
NEVER_S = 600.0  # what a destination would take if it were waited for

HANGS = """
from realparts.trainer import Hanging
injected = {{"sinks": [Hanging({at!r}, {seconds})]}}
"""
HANGING_DISK = """
from rltel.export.tensorboard.event_file import EventFile
EventFile.write = lambda *_: time.sleep(600)
"""
HANGING_TRACE = """
from rltel.export.perfetto.files import PerfettoWriter
PerfettoWriter._write = lambda *_: time.sleep(600)
"""


@contextmanager
def silent() -> Iterator[str]:
    """An endpoint that takes every connection and never says a word."""
    with socket.create_server((HOST, 0), backlog=100) as server:
        yield f"http://{HOST}:{server.getsockname()[1]}"


def otlp(endpoint: str, **changed: Any) -> dict[str, Any]:
    return {"enabled": True, "endpoint": endpoint, "timeout_s": NEVER_S, **changed}


@pytest.mark.parametrize("bound_s", [0.2, 2.0])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_with_a_silent_endpoint_for_metrics_and_spans(tmp_path: Path, protocol: str, bound_s: float) -> None:
    with silent() as endpoint:
        config = {"otlp": otlp(endpoint, protocol=protocol), "pipeline": {"shutdown_timeout_s": bound_s}}
        ended = trained(config, tmp_path / "run", after=f"{AT_REST}at_rest(telemetry)\n")
    within(ended, bound_s)
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(STEPS))
    assert re.findall(r"otlp: lost (\d+) in all", ended.err) == [str(STEPS)]


@pytest.mark.parametrize("at", ["write", "flush", "close"])
def test_with_a_local_destination_that_hangs(tmp_path: Path, at: str) -> None:
    config = {"prometheus": {"enabled": True, "port": 0}, "pipeline": {"shutdown_timeout_s": 1.0}}
    ended = trained(config, tmp_path / "run", before=HANGS.format(at=at, seconds=NEVER_S))
    within(ended, 1.0)
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(STEPS))
    assert at != "write" or f"pipeline: lost {STEPS} in all" in ended.err


@pytest.mark.parametrize("before", [HANGING_DISK, HANGING_TRACE], ids=["tensorboard", "trace"])
def test_with_a_disk_that_hangs(tmp_path: Path, before: str) -> None:
    config = {
        "tensorboard": {"path": "{run_dir}/tb"},
        "trace": {"enabled": True, "flush_interval_s": 0.01},
        "pipeline": {"shutdown_timeout_s": 1.0},
    }
    ended = trained(config, tmp_path / "run", before=before if before == HANGING_DISK else "", at={5: before})
    within(ended, 1.0)
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(STEPS))


def test_with_everything_hanging_at_once_the_bound_is_for_all_together(tmp_path: Path) -> None:
    with silent() as endpoint:
        config = {
            "otlp": otlp(endpoint),
            "trace": {"enabled": True},
            "tensorboard": {"path": "{run_dir}/tb"},
            "prometheus": {"enabled": True, "port": 0, "push_url": endpoint},
            "pipeline": {"shutdown_timeout_s": 2.0},
        }
        ended = trained(config, tmp_path / "run", before=HANGS.format(at="close", seconds=NEVER_S) + HANGING_DISK)
    within(ended, 2.0)
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(STEPS))


def within(ended: Any, bound_s: float) -> None:
    """It trained as it does without telemetry, and its end took no longer than it may."""
    assert (ended.code, ended.result) == (0, plain_result()), ended.err
    assert "Traceback" not in ended.err
    assert ended.exit_s < bound_s + SLACK_S


ENDS: dict[str, tuple[int, str]] = {
    "an exception": (1, "say('last', time.monotonic()); raise SystemError('diverged')"),
    "sys.exit": (3, "say('last', time.monotonic()); sys.exit(3)"),
    "SIGTERM, if asked": (143, "say('last', time.monotonic()); os.kill(os.getpid(), 15)"),
}


@pytest.mark.parametrize("how", ENDS)
def test_however_the_program_ends(tmp_path: Path, how: str) -> None:
    code, ends = ENDS[how]
    with silent() as endpoint:
        config = {
            "otlp": otlp(endpoint),
            "prometheus": {"enabled": True, "port": 0},
            "pipeline": {"shutdown_timeout_s": 1.0, "sigterm": True},
        }
        ended = trained(config, tmp_path / "run", at={20: ends})
    assert ended.code == code, ended.err
    assert ended.exit_s < 1.0 + SLACK_S
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(20))


def test_a_second_interrupt_while_it_ends_is_not_swallowed(tmp_path: Path) -> None:
    """Who presses Ctrl-C again wants it to end now, or at the latest at the bound."""
    again = (
        "import signal, threading\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def press():\n    time.sleep(0.5)\n    os.kill(os.getpid(), 2)\n"
        "threading.Thread(target=press, daemon=True).start()\n"
        "say('last', time.monotonic())\nos.kill(os.getpid(), 2)\n"
    )
    with silent() as endpoint:
        config = {"otlp": otlp(endpoint), "pipeline": {"shutdown_timeout_s": 2.0}}
        ended = trained(config, tmp_path / "run", at={20: again})
    assert ended.code != 0
    assert ended.exit_s < 2.0 + SLACK_S
    assert [line.step for line in read_jsonl(tmp_path / "run")] == list(range(20))
