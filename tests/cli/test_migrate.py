"""``rltel migrate``: says what became of every tag, and exits as scripts need it."""

from pathlib import Path

from typer.testing import CliRunner

from realparts.event_runs import STAMP, write_run
from rltel.cli import app


def call(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["migrate", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_says_what_became_of_each_tag(tmp_path: Path) -> None:
    tags = ["perf/iter_ms", "perf/collector_cycle_ms", "reward/mean", "reward/mean_ep100", "Loss/value", "my/tag"]
    write_run(tmp_path / "old", {tag: [1.0, 2.0] for tag in tags})
    code, out, err = call(tmp_path / "old", "-o", tmp_path / "new")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{tmp_path / 'new'}: 2 tags renamed, 2 left out, 2 as they were"
    assert "  perf/iter_ms -> Perf/iteration_time (2 points)" in lines
    assert "  left out: reward/mean (2 points): Train/mean_reward has reward/mean_ep100" in lines
    assert "  as it was: my/tag, which is neither old nor canonical" in lines
    assert any(line.startswith("  left out: perf/collector_cycle_ms (2 points): retired") for line in lines)
    assert "Loss/value" not in out


def test_refuses_with_the_reason_on_stderr(tmp_path: Path) -> None:
    write_run(tmp_path / "old", ["perf/iter_ms"], STAMP)
    code, out, err = call(tmp_path / "old", "-o", tmp_path / "new")
    assert (code, out) == (1, "")
    assert err.startswith("rltel migrate: ")
    assert "metric_schema_version" in err


def test_asks_for_the_algorithm(tmp_path: Path) -> None:
    write_run(tmp_path / "old", ["train/actor_loss"])
    code, _, err = call(tmp_path / "old", "-o", tmp_path / "new")
    assert code == 1
    assert "--algo" in err
    code, out, _ = call(tmp_path / "old", "-o", tmp_path / "new", "--algo", "flashsac")
    assert code == 0
    assert "train/actor_loss -> Loss/actor (1 points)" in out


def test_says_what_could_not_be_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "old", {"perf/iter_ms": [1.0, 2.0]})
    path.write_bytes(path.read_bytes()[:-1])
    code, _, err = call(tmp_path / "old", "-o", tmp_path / "new")
    assert code == 0
    assert "cut short" in err
