"""The scrape config, and the script that tells it which processes there are, with a real Prometheus."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from export.making import commit
from export.scraping import endpoint
from realparts.processes import http_get
from realparts.prometheus import prometheus
from realparts.requirements import REPOSITORY, need_promtool

CONFIGS = REPOSITORY / "collector-config"
GATHER = CONFIGS / "gather_targets.sh"
COMPOSE = CONFIGS / "compose" / "prometheus.yaml"


def config(file: Path = CONFIGS / "prometheus.yaml") -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text()))


def advertised(runs: Path, run: str, role: str, target: str) -> Path:
    """What a process of a run writes (`Endpoint.advertise`)."""
    file = runs / "sac" / run / "prometheus_sd" / f"{role}-0.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    labels = {"rl_run_id": run, "rl_role": role, "rl_rank": "0"}
    file.write_text(json.dumps([{"targets": [target], "labels": labels}], indent=1) + "\n")
    return file


def gathered(runs: Path, file: Path) -> list[dict[str, Any]]:
    subprocess.run([GATHER, runs, file], check=True, timeout=30)
    return list(json.loads(file.read_text()))


def test_promtool_takes_it() -> None:
    done = subprocess.run(
        [need_promtool(), "check", "config", CONFIGS / "prometheus.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_refuses_a_pattern_over_all_runs() -> None:
    """Why there is a script: a * may stand in the last part of a path alone."""
    wrong = 'scrape_configs: [{job_name: x, file_sd_configs: [{files: ["/runs/*/prometheus_sd/*.json"]}]}]'
    done = subprocess.run(
        [need_promtool(), "check", "config", "/dev/stdin"], input=wrong, capture_output=True, text=True, check=False
    )
    assert "is not valid for file discovery" in done.stdout + done.stderr


def test_the_one_of_the_compose_file_differs_only_in_what_otlp_needs() -> None:
    plain, compose = config(), config(COMPOSE)
    assert compose.pop("otlp") == {"promote_resource_attributes": ["rl.run.id", "rl.role", "rl.rank"]}
    assert compose.pop("storage") == {"tsdb": {"out_of_order_time_window": "30m"}}
    assert compose == plain


def test_every_run_s_processes_are_gathered(tmp_path: Path) -> None:
    runs, file = tmp_path / "runs", tmp_path / "targets" / "rltel.json"
    runs.mkdir()
    assert gathered(runs, file) == []
    advertised(runs, "a", "learner", "127.0.0.1:9464")
    gone = advertised(runs, "a", "collector", "127.0.0.1:9465")
    advertised(runs, "b 'x' & $y", "learner", "[::1]:9464")
    assert [(group["labels"]["rl_run_id"], group["targets"]) for group in gathered(runs, file)] == [
        ("a", ["127.0.0.1:9465"]),
        ("a", ["127.0.0.1:9464"]),
        ("b 'x' & $y", ["[::1]:9464"]),
    ]
    gone.unlink()
    assert len(gathered(runs, file)) == 2


def test_half_a_file_does_no_harm(tmp_path: Path) -> None:
    advertised(tmp_path, "a", "learner", "127.0.0.1:9464")
    advertised(tmp_path, "b", "learner", "127.0.0.1:9465").write_text('[{"targets": ["127.0')
    assert [group["targets"] for group in gathered(tmp_path, tmp_path / "t.json")] == [["127.0.0.1:9464"]]


def test_the_file_is_left_alone_when_nothing_changed(tmp_path: Path) -> None:
    advertised(tmp_path, "a", "learner", "127.0.0.1:9464")
    file = tmp_path / "t.json"
    gathered(tmp_path, file)
    before = file.stat().st_ino, file.stat().st_mtime_ns
    gathered(tmp_path, file)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == before
    assert list(tmp_path.glob("*.new")) == []


@pytest.mark.parametrize("arguments", [[], ["no-such-folder", "t.json"]])
def test_wrong_arguments_are_said(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run([GATHER, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr or "not a directory" in done.stderr


def test_prometheus_scrapes_two_runs_and_tells_them_apart(tmp_path: Path) -> None:
    """The file's own scrape config; and a learner's series of its collectors keep their role."""
    (scrape,) = (job for job in config()["scrape_configs"] if job["job_name"] == "rltel")
    options = {name: scrape[name] for name in ("honor_labels", "sample_limit")}
    runs, targets = tmp_path / "runs", tmp_path / "targets" / "rltel.json"
    step = commit({"Perf/collector_env_step_ms": 3.0, "Train/mean_reward": -5.0}, time_ns=time.time_ns())
    with endpoint(step) as served:
        for run in ("run-1", "run-2"):
            advertised(
                runs,
                run,
                "learner",
                served.target if run == "run-1" else served.target.replace("127.0.0.1", "localhost"),
            )
        gathered(runs, targets)
        with prometheus(tmp_path=tmp_path, file_sd=targets.parent / "*.json", **options) as server:
            rewards = server.wait_for("rl_environment_reward_mean", lambda found: len(found) == 2)
            assert {labels["rl_run_id"] for labels, _ in rewards} == {"run-1", "run-2"}
            assert {(labels["rl_role"], labels["rl_rank"]) for labels, _ in rewards} == {("learner", "0")}
            phases = server.query("rl_phase_duration_seconds_count")
            assert {labels["rl_role"] for labels, _ in phases} == {"collector"}
            assert not any("exported_rl_role" in labels for labels, _ in phases)
            assert http_get(f"{server.url}/-/ready")
