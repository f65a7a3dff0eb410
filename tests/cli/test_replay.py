"""``rltel replay``: says what it will do and did, and exits as scripts need it."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from export.making import commit, identity
from realparts.ledgered import keep_record
from realparts.otlp_receiver import otlp_sink
from rltel.cli.replay import replay_command
from rltel.export.ledger import Ledger
from rltel.runs.atomic import write_json
from rltel.runs.layout import RUN_CONFIG

app = typer.Typer()
app.command()(replay_command)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """With a record of three commits."""
    who = identity(tmp_path)
    keep_record(tmp_path, [commit({"x": float(n)}, identity=who, number=n, step=n) for n in range(3)])
    return tmp_path


def call(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_sends_and_says_so(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        code, out, err = call(run_dir, "--to", "otlp", "--endpoint", receiver.endpoint)
        assert (code, len(receiver.requests())) == (0, 3)
    assert "learner-0.1: 3 commits, 0 there already, 3 sent, 0 left" in out
    assert "learner-0.1: 0 of 3 sent" in err  # progress, in plain lines


def test_dry_run_sends_nothing_and_changes_nothing(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        before = sorted(run_dir.rglob("*"))
        code, out, _ = call(run_dir, "--to", "otlp", "--endpoint", receiver.endpoint, "--dry-run")
        assert (code, receiver.requests(), sorted(run_dir.rglob("*"))) == (0, [], before)
    assert "3 to send" in out


@pytest.mark.parametrize("to", ["tensorboard", "wandb", "swanlab", "trackio"])
def test_dry_run_changes_nothing_wherever_it_would_go(run_dir: Path, to: str) -> None:
    before = sorted(run_dir.rglob("*"))
    code, out, err = call(run_dir, "--to", to, "--dry-run")
    assert (code, sorted(run_dir.rglob("*"))) == (0, before), err
    assert "3 to send" in out


def test_json_is_nothing_but_json(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        code, out, _ = call(run_dir, "--to", "otlp", "--endpoint", receiver.endpoint, "--json")
    found = json.loads(out)
    assert (code, found["destination"], found["sent"], found["missing"], found["error"]) == (0, "otlp", 3, 0, None)
    assert found["processes"][0]["process"] == "learner-0.1"


def test_exits_with_the_reason_if_it_is_refused(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        receiver.status = 400
        code, out, err = call(run_dir, "--to", "otlp", "--endpoint", receiver.endpoint)
    assert code == 1
    assert "rltel replay: otlp: learner-0.1, step 0 of train: " in err
    assert "0 sent, 3 left" in out


def test_a_pushgateway_is_said_to_take_no_old_times(run_dir: Path) -> None:
    _, out, _ = call(run_dir, "--to", "prometheus-push", "--endpoint", "http://127.0.0.1:1", "--dry-run")
    assert "takes no old times" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--to", "nowhere"],
            'expected one of otlp, tensorboard, wandb, swanlab, trackio, prometheus-push, got "nowhere"',
        ),
        (["--to", "otlp", "--record", "missing.jsonl"], "missing.jsonl"),
        (["--to", "otlp", "--config", "missing.yaml"], "cannot read missing.yaml"),
        (["--to", "prometheus-push"], "prometheus.push_url: expected the address of a Pushgateway"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(run_dir: Path, arguments: list[str], said: str) -> None:
    code, out, err = call(run_dir, *arguments)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err


def test_says_where_the_run_itself_sent_to_if_that_is_elsewhere(run_dir: Path) -> None:
    Ledger(run_dir, "learner-0.1", "otlp", "http://collector:4318/v1/metrics").sent(0, 2)
    _, out, _ = call(run_dir, "--to", "otlp", "--endpoint", "http://127.0.0.1:1", "--dry-run")
    assert "the run itself sent to http://collector:4318/v1/metrics" in out
    _, out, _ = call(run_dir, "--to", "otlp", "--endpoint", "http://collector:4318", "--dry-run")
    assert "itself" not in out
    assert "3 there already, 0 to send" in out


def test_a_record_elsewhere(run_dir: Path) -> None:
    record = (run_dir / "metrics" / "learner-0.1.jsonl").rename(run_dir / "elsewhere.jsonl")
    with otlp_sink() as receiver:
        code, _, _ = call(run_dir, "--to", "otlp", "--endpoint", receiver.endpoint, "--record", record)
        assert (code, len(receiver.requests())) == (0, 3)


def test_without_a_config_file_the_run_s_own_says_where_to(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        otlp = {"enabled": True, "endpoint": receiver.endpoint}
        write_json(run_dir / RUN_CONFIG, {"telemetry": {"otlp": otlp}})
        code, out, _ = call(run_dir, "--to", "otlp")
        assert (code, len(receiver.requests())) == (0, 3)
    assert receiver.endpoint in out


def test_a_config_file_is_stronger_than_the_run_s_own(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        write_json(run_dir / RUN_CONFIG, {"telemetry": {"otlp": {"enabled": True, "endpoint": "http://127.0.0.1:1"}}})
        (run_dir / "config.yaml").write_text(f"otlp: {{enabled: true, endpoint: '{receiver.endpoint}'}}\n")
        code, _, _ = call(run_dir, "--to", "otlp", "--config", run_dir / "config.yaml")
        assert (code, len(receiver.requests())) == (0, 3)


def test_a_secret_that_the_run_had_is_asked_for(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_json(run_dir / RUN_CONFIG, {"telemetry": {"wandb": {"mode": "offline", "api_key": "[redacted]"}}})
    code, out, _ = call(run_dir, "--to", "wandb", "--dry-run")
    assert (code, "3 to send" in out) == (0, True)
    assert "wandb.api_key: the run had one" in caplog.text
    assert "set RLTEL_WANDB_API_KEY" in caplog.text


def test_a_config_file_says_where_to(run_dir: Path) -> None:
    with otlp_sink() as receiver:
        (run_dir / "config.yaml").write_text(f"otlp: {{enabled: true, endpoint: '{receiver.endpoint}'}}\n")
        code, _, _ = call(run_dir, "--to", "otlp", "--config", run_dir / "config.yaml")
        assert (code, len(receiver.requests())) == (0, 3)
