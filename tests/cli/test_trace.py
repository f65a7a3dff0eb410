"""``rltel trace``: through typer's runner, and once as a real command."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from export.making import FakeClock, environment, identity
from rltel.cli import app
from rltel.export.perfetto import PerfettoWriter
from rltel.export.sink import Destination
from rltel.record.recorder import Recorder
from rltel.traces.reader import read_packets

RUNNER = CliRunner()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of two processes."""
    for index in (0, 1):
        clock = FakeClock()
        recorder = Recorder(now=clock.monotonic_ns)
        account, who = Destination("trace"), identity(index=index)
        writer = PerfettoWriter(tmp_path / "run" / "trace", who, recorder, clock, account, 10**9, 10**9)
        recorder.start()
        recorder.instant("i")
        writer.close()
    return tmp_path / "run"


class TestMerge:
    def test_says_what_it_did(self, run_dir: Path, tmp_path: Path) -> None:
        output = tmp_path / "merged.pftrace"
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(output)])
        assert result.exit_code == 0, result.output
        packets = len(list(read_packets(output))) - 1
        assert result.stdout.splitlines() == [
            f"  {run_dir}/trace/learner-0.1.pftrace",
            f"  {run_dir}/trace/learner-1.1.pftrace",
            f"{output}: {packets} packets of 2 files; one host: all processes read the same clock",
            "open it at https://ui.perfetto.dev (the file stays on your machine)",
        ]

    @pytest.mark.parametrize("what", ["missing", "empty", "damaged"])
    def test_says_on_stderr_what_is_wrong(self, run_dir: Path, tmp_path: Path, what: str) -> None:
        source, output = run_dir, tmp_path / "merged.pftrace"
        if what == "damaged":
            (run_dir / "trace" / "x.pftrace").write_bytes(b"no trace")
        else:
            source = tmp_path / what
            if what == "empty":
                source.mkdir()
        result = RUNNER.invoke(app, ["trace", "merge", str(source), "--output", str(output)])
        assert result.exit_code == 1
        assert result.stderr.startswith("rltel trace merge: ")
        assert str(source) in result.stderr
        assert not output.exists()

    def test_an_output_that_cannot_be_written_is_named(self, run_dir: Path, tmp_path: Path) -> None:
        output = tmp_path / "no" / "such" / "folder" / "merged.pftrace"
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(output)])
        assert result.exit_code == 1
        assert "rltel trace merge: " in result.stderr
        assert "Traceback" not in result.output

    @pytest.mark.parametrize("arguments", [["trace", "merge"], ["trace", "merge", "x"], ["trace", "nonsense"]])
    def test_a_wrong_call_is_an_error_of_usage(self, arguments: list[str]) -> None:
        assert RUNNER.invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [[], ["trace"], ["--help"], ["trace", "--help"], ["trace", "merge", "--help"]])
def test_help(arguments: list[str]) -> None:
    assert "Usage" in RUNNER.invoke(app, arguments).output


def test_the_real_command(run_dir: Path, tmp_path: Path) -> None:
    command = shutil.which("rltel", path=str(Path(sys.executable).parent))
    assert command is not None, "the package's console script is not installed beside this Python"
    output = tmp_path / "merged.pftrace"
    ran = subprocess.run(
        [command, "trace", "merge", run_dir, "-o", output],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "packets of 2 files" in ran.stdout
    assert len(list(read_packets(output))) > 2
