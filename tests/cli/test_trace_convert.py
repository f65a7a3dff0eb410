"""``rltel trace convert``, through typer's runner."""

import gzip
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rltel.cli.trace_convert import convert_command
from rltel.traces.reader import read_packets

RUNNER = CliRunner()
app = typer.Typer()
app.command("convert")(convert_command)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json.gz"
    events = [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}, {"ph": "X", "name": "no time"}]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_says_what_it_did_and_what_it_could_not(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.pftrace"
    result = RUNNER.invoke(app, [str(source), "-o", str(output)])
    assert result.exit_code == 0, result.output
    first, *rest, last = result.stdout.splitlines()
    assert first == f"  {source}"
    assert f"{output}: 1 event; times as given" in result.stdout
    assert "  skipped 1: no 'ts'" in rest
    assert last.startswith("open it at https://ui.perfetto.dev")
    assert len(list(read_packets(output))) > 2


@pytest.mark.parametrize("content", [b"", b"hello", b'{"a": 1}', b"\x0a\x02\x08\x01"])
def test_says_on_stderr_what_is_wrong(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    result = RUNNER.invoke(app, [str(tmp_path / "x.json"), "-o", str(tmp_path / "out.pftrace")])
    assert result.exit_code == 1
    assert result.stderr.startswith("rltel trace convert: ")
    assert "x.json" in result.stderr
    assert "expected OTLP JSON" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_an_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, [str(tmp_path / "none.json"), "-o", str(tmp_path / "out.pftrace")])
    assert result.exit_code == 1
    assert "none.json" in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_call_is_an_error_of_usage(source: Path) -> None:
    assert RUNNER.invoke(app, [str(source)]).exit_code == 2
