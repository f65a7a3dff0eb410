"""``rltel trace``: through typer's runner, and once as a real command."""

import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from export.making import environment
from realparts.processes import free_port
from realparts.trace_making import TraceMaking
from rltel.cli import app
from rltel.cli import trace as commands
from rltel.traces.reader import read_packets
from rltel.traces.serve import HOST, TraceServer

RUNNER = CliRunner()
NOW = 1_795_987_020_000_000_000
MS = 1_000_000


def process(number: int, name: str) -> TraceMaking:
    made = TraceMaking(process=100 * number, pid=number, name=name, host="h", monotonic=0, realtime=NOW)
    made.begin(MS, "iteration", "rl.loop")
    made.slice(MS, 5 * MS, "collector_wait", "exclusive")
    made.end(11 * MS)
    return made


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of two processes."""
    for number, name in ((1, "learner 0"), (2, "collector 0")):
        process(number, name).write(tmp_path / "run" / "trace" / f"{name.replace(' ', '-')}.1.pftrace")
    return tmp_path / "run"


@pytest.fixture(params=["merge", "summary", "validate", "open"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Each command, but for its source."""
    options = {"merge": ["-o", str(tmp_path / "o.pftrace")], "open": ["--no-browser"]}
    return ["trace", request.param, *options.get(request.param, [])]


class TestAll:
    @pytest.mark.parametrize("what", ["missing", "empty"])
    def test_say_on_stderr_what_is_wrong(self, command: list[str], tmp_path: Path, what: str) -> None:
        source = tmp_path / what
        if what == "empty":
            source.mkdir()
        result = RUNNER.invoke(app, [*command, str(source)])
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1].startswith(f"rltel trace {command[1]}: ")
        assert str(source) in result.stderr
        assert "Traceback" not in result.output
        assert not (tmp_path / "o.pftrace").exists()

    def test_explain_themselves(self, command: list[str]) -> None:
        assert "Usage" in RUNNER.invoke(app, [*command[:2], "--help"]).output

    def test_without_a_source_are_an_error_of_usage(self, command: list[str]) -> None:
        assert RUNNER.invoke(app, command).exit_code == 2


class TestMerge:
    def test_says_what_it_did(self, run_dir: Path, tmp_path: Path) -> None:
        output = tmp_path / "merged.pftrace"
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(output)])
        assert result.exit_code == 0, result.output
        packets = len(list(read_packets(output))) - 1
        assert result.stdout.splitlines() == [
            f"{output}: {packets} packets of 2 files; one host: all processes read the same clock",
            f"look at it: rltel trace open {output} (it stays on your machine)",
        ]
        assert result.stderr.splitlines() == [
            f"  {run_dir}/trace/collector-0.1.pftrace",
            f"  {run_dir}/trace/learner-0.1.pftrace",
        ]

    def test_takes_profiles_and_says_what_it_could_not(self, run_dir: Path, tmp_path: Path) -> None:
        events = [{"ph": "X", "name": "mm", "pid": 1, "tid": 1, "ts": 2_000, "dur": 5}, {"ph": "X", "name": "no time"}]
        (tmp_path / "k.json").write_text(json.dumps({"baseTimeNanoseconds": NOW, "traceEvents": events}))
        output = tmp_path / "merged.pftrace"
        result = RUNNER.invoke(
            app, ["trace", "merge", str(run_dir), "-o", str(output), "--kineto", str(tmp_path / "k.json")]
        )
        assert result.exit_code == 0, result.output
        assert "packets of 3 files" in result.stdout
        assert "  skipped 1: k.json: " in result.stdout
        assert any(made.timestamp == NOW + 2 * MS for made in read_packets(output))

    def test_a_damaged_file_is_named(self, run_dir: Path, tmp_path: Path) -> None:
        (run_dir / "trace" / "x.pftrace").write_bytes(b"no trace")
        output = tmp_path / "merged.pftrace"
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(output)])
        assert result.exit_code == 1
        assert f"rltel trace merge: {run_dir}/trace/x.pftrace" in result.stderr
        assert not output.exists()

    def test_an_output_that_cannot_be_written_is_named(self, run_dir: Path, tmp_path: Path) -> None:
        output = tmp_path / "no" / "such" / "folder" / "merged.pftrace"
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(output)])
        assert result.exit_code == 1
        folder = output.parent
        assert f"rltel trace merge: {output}: cannot be written: there is no folder {folder}\n" in result.stderr

    def test_one_file_is_one_and_merged_ones_are_named(self, run_dir: Path, tmp_path: Path) -> None:
        trace = run_dir / "trace"
        (trace / "collector-0.1.pftrace").unlink()
        for name in ("a", "b"):
            result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(trace / f"{name}.pftrace")])
            assert " packets of 1 file; one host" in result.stdout
        assert f"  left out {trace / 'a.pftrace'}: a merged trace already" in result.stdout.splitlines()

    def test_several_runs_are_said(self, run_dir: Path, tmp_path: Path) -> None:
        process(3, "learner 0").write(tmp_path / "other" / "trace" / "learner-0.1.pftrace")
        for name in ("run", "other"):
            (tmp_path / name / "run.json").write_text(json.dumps({"id": name}))
        result = RUNNER.invoke(app, ["trace", "merge", str(tmp_path), "-o", str(tmp_path / "m.pftrace")])
        assert " packets of 3 files of 2 runs; " in result.stdout

    def test_a_file_that_may_not_be_read_is_said_without_a_number(
        self, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "x.pftrace")

        monkeypatch.setattr(commands, "merge", refused)
        result = RUNNER.invoke(app, ["trace", "merge", str(run_dir), "-o", str(tmp_path / "m.pftrace")])
        assert result.stderr.splitlines() == ["rltel trace merge: x.pftrace: Permission denied"]


class TestSummary:
    def test_is_text(self, run_dir: Path) -> None:
        result = RUNNER.invoke(app, ["trace", "summary", str(run_dir)])
        assert result.exit_code == 0, result.output
        assert "learner 0" in result.stdout.splitlines()
        assert "40.0%" in result.stdout

    def test_or_json_and_nothing_else_on_stdout(self, run_dir: Path) -> None:
        result = RUNNER.invoke(app, ["trace", "summary", str(run_dir), "--json"])
        assert result.exit_code == 0, result.output
        made = json.loads(result.stdout)
        assert {row["name"]: row["count"] for row in made["rows"] if row["process"] == "learner 0"} == {
            "iteration": 1,
            "collector_wait": 1,
        }
        assert made["overlaps"][0]["both_ns"] == 4 * MS


class TestValidate:
    def test_no_problems(self, run_dir: Path) -> None:
        result = RUNNER.invoke(app, ["trace", "validate", str(run_dir)])
        assert (result.exit_code, result.stdout) == (0, f"{run_dir}: no problems\n")

    def test_notes_are_none(self, run_dir: Path) -> None:
        path = run_dir / "trace" / "learner-0.1.pftrace"
        path.write_bytes(path.read_bytes()[:-3])
        result = RUNNER.invoke(app, ["trace", "validate", str(path)])
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert lines[0].startswith(f"note: {path}, packet ")
        assert lines[-1] == f"{path}: no problems"

    def test_a_problem_is_told_and_exits_with_1(self, tmp_path: Path) -> None:
        made = process(1, "learner 0")
        made.end(20 * MS)
        path = made.write(tmp_path / "t.pftrace")
        result = RUNNER.invoke(app, ["trace", "validate", str(path)])
        assert result.exit_code == 1
        assert result.stdout.splitlines() == [
            f"problem: {path}, packet {len(made.packets)} (at byte 0): a slice ends on track 101 that never began",
            f"{path}: 1 problem",
        ]


class TestOpen:
    @pytest.fixture
    def port(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """Another than the real one, which may be in use here."""
        port = free_port()
        monkeypatch.setattr(commands, "TraceServer", lambda path: TraceServer(path, port, grace_s=0.05))
        return port

    def fetch(self, link: str) -> bytes:
        """As the UI would."""
        url = link.partition("?url=")[2]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=20) as response:
            return response.read()

    def test_opens_the_link_and_ends_when_the_file_was_fetched(
        self, port: int, run_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = run_dir / "trace" / "learner-0.1.pftrace"
        got: list[bytes] = []
        browsers: list[threading.Thread] = []

        def browse(link: str) -> bool:
            browsers.append(threading.Thread(target=lambda: got.append(self.fetch(link))))
            browsers[0].start()
            return True

        monkeypatch.setattr(commands.webbrowser, "open", browse)
        result = RUNNER.invoke(app, ["trace", "open", str(path)])
        browsers[0].join(20)
        assert result.exit_code == 0, result.output
        assert got == [path.read_bytes()]
        assert f"https://ui.perfetto.dev/#!/?url=http://{HOST}:{port}/{path.name}" in result.stdout

    def test_merges_a_folder_first(self, port: int, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        got: list[bytes] = []
        browsers: list[threading.Thread] = []

        def browse(link: str) -> bool:
            browsers.append(threading.Thread(target=lambda: got.append(self.fetch(link))))
            browsers[0].start()
            return True

        monkeypatch.setattr(commands.webbrowser, "open", browse)
        before = sorted(run_dir.rglob("*"))
        result = RUNNER.invoke(app, ["trace", "open", str(run_dir)])
        browsers[0].join(20)
        assert result.exit_code == 0, result.output
        assert "one host: all processes read the same clock" in result.stdout
        (run_dir / "fetched.pftrace").write_bytes(got[0])
        names = {made.track_descriptor.process.process_name for made in read_packets(run_dir / "fetched.pftrace")}
        assert names >= {"learner 0", "collector 0"}
        assert sorted(run_dir.rglob("*")) == sorted([*before, run_dir / "fetched.pftrace"])

    def test_ends_with_ctrl_c(self, port: int, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(self: TraceServer) -> None:
            self.close()
            raise KeyboardInterrupt

        monkeypatch.setattr(TraceServer, "run", interrupted)
        monkeypatch.setattr(
            commands.webbrowser, "open", lambda link: pytest.fail(f"--no-browser, and it opened {link}")
        )
        result = RUNNER.invoke(app, ["trace", "open", str(run_dir), "--no-browser"])
        assert result.exit_code == 0, result.output
        assert f"http://{HOST}:{port}/merged.pftrace" in result.stdout

    def test_a_port_that_is_taken_is_said(self, port: int, run_dir: Path) -> None:
        other = TraceServer(run_dir / "trace" / "learner-0.1.pftrace", port)
        result = RUNNER.invoke(app, ["trace", "open", str(run_dir), "--no-browser"])
        other.close()
        assert result.exit_code == 1
        assert f"rltel trace open: port {port} on {HOST} cannot be had" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["trace"], ["--help"], ["trace", "--help"], ["trace", "convert", "--help"]])
def test_help(arguments: list[str]) -> None:
    assert "Usage" in RUNNER.invoke(app, arguments).output


def test_what_there_is_not_is_an_error_of_usage() -> None:
    assert RUNNER.invoke(app, ["trace", "nonsense"]).exit_code == 2


def test_the_real_command(run_dir: Path, tmp_path: Path) -> None:
    command = shutil.which("rltel", path=str(Path(sys.executable).parent))
    assert command is not None, "the package's console script is not installed beside this Python"
    output = tmp_path / "merged.pftrace"
    ran = subprocess.run(
        [command, "trace", "merge", run_dir, "-o", output],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "packets of 2 files" in ran.stdout
    assert len(list(read_packets(output))) > 2
