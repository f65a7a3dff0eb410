"""A whole run, as a program makes it: what its directory says afterwards."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rltel
from export.making import PATIENT, environment, run_python, wait_until
from realparts.requirements import need_package
from rltel.process import Process
from rltel.record.recorder import Recorder
from rltel.runs.run_summary import read_run_summary

ON = "{'jsonl': {'path': '{run_dir}/metrics/r.jsonl'}, 'run': {'config': {'seed': 7}}}"
TRAIN = (
    "import os, signal, sys, time, rltel\n"
    f"rltel.init({ON}, run_dir=sys.argv[1])\n"
    "for step in range(3):\n"
    "    with rltel.step(step, env_steps=100 * step):\n"
    "        rltel.gauge({'Train/mean_reward': float(step)})\n"
)


def summary(run_dir: Path) -> dict[str, Any]:
    return read_run_summary(run_dir) or {}


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        ("", "completed", None),
        ("rltel.shutdown()", "completed", None),
        ("raise ValueError('no loss')", "failed", "no loss"),
        ("with rltel.step(3):\n    raise ValueError('no loss')", "failed", "no loss"),
        ("try:\n    raise ValueError('no loss')\nfinally:\n    rltel.shutdown()", "failed", "no loss"),
        ("try:\n    raise ValueError('no loss')\nexcept ValueError:\n    sys.exit(1)", "failed", "no loss"),
        ("os.kill(os.getpid(), signal.SIGINT)", "interrupted", ""),
        (
            "try:\n    with rltel.step(3):\n        raise KeyboardInterrupt\nexcept KeyboardInterrupt: pass",
            "interrupted",
            "",
        ),
        ("os.kill(os.getpid(), signal.SIGTERM)", "interrupted", None),
        ("os.kill(os.getpid(), signal.SIGKILL)", "interrupted", None),
        ("os._exit(0)", "interrupted", None),
        ("rltel.summary(status='collector_died', error='it is gone')", "collector_died", "it is gone"),
    ],
)
def test_however_it_ends(tmp_path: Path, end: str, status: str, error: str | None) -> None:
    ran = run_python(TRAIN + end, tmp_path, RLTEL_PIPELINE_SIGTERM="1")
    found = summary(tmp_path)
    assert (found["status"], found["error"]) == (status, error), ran.stderr
    if "_exit" not in end and "KILL" not in end:
        assert (found["completed_iterations"], found["total_env_steps"]) == (2, 200)
        assert found["best_mean_reward"] == 2.0
        config = json.loads((tmp_path / "run_config.json").read_text())
        assert (config["config"], config["run"]["seeds"]["config.seed"]) == ({"seed": 7}, 7)


def test_a_writer_that_is_a_child_process_sees_its_own_end(tmp_path: Path) -> None:
    code = (
        "import multiprocessing, sys, rltel\n"
        "def train(run_dir):\n"
        f"    rltel.init({ON}, run_dir=run_dir)\n    rltel.log({{'x': 1.0}}, step=1)\n"
        "    raise ValueError('no loss')\n"
        "child = multiprocessing.get_context('fork').Process(target=train, args=(sys.argv[1],))\n"
        "child.start()\nchild.join()\n"
    )
    run_python(code, tmp_path)
    assert (summary(tmp_path)["status"], summary(tmp_path)["error"]) == ("failed", "no loss")


def test_motphys_unilab_441_a_resumed_run_s_time_goes_on(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_python(TRAIN, tmp_path).returncode == 0
    found = summary(tmp_path)
    assert found["incarnations"] == 2
    assert found["training_wall_time_sec"] == pytest.approx(sum(each["wall_time_sec"] for each in found["starts"]))


def test_only_the_writer_has_them(tmp_path: Path) -> None:
    code = (
        "import sys, rltel\nrltel.init({'jsonl': {'path': '{run_dir}/metrics/c.jsonl'}}, run_dir=sys.argv[1], "
        "role='collector')\nrltel.log({'x': 1.0}, step=1)\nrltel.summary(mine=1)\n"
    )
    assert run_python(code, tmp_path).returncode == 0
    assert not (tmp_path / "run_summary.json").exists()


def test_a_running_one_is_seen_running(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN + "time.sleep(60)", str(tmp_path)], env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: summary(tmp_path).get("status") == "running", "the summary", timeout=60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert summary(tmp_path)["status"] == "interrupted"


def test_a_kill_while_a_destination_hangs_at_the_end_finds_the_status_final(tmp_path: Path) -> None:
    code = (
        "import os, sys, time, rltel\nfrom rltel.process import process\nfrom export.making import ListSink\n"
        "class Hanging(ListSink):\n    def close(self):\n        os.kill(os.getpid(), 9)\n"
        f"process.init({ON}, run_dir=sys.argv[1], sinks=[Hanging()])\nrltel.log({{'x': 1.0}}, step=4)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    ran = run_python(code, tmp_path, PYTHONPATH=path, **PATIENT)
    assert ran.returncode == -signal.SIGKILL
    assert (summary(tmp_path)["status"], summary(tmp_path)["completed_iterations"]) == ("completed", 4)


def test_play_video_goes_where_videos_are_held(tmp_path: Path) -> None:
    need_package("wandb")
    code = TRAIN + (
        "from pathlib import Path\ntime.sleep(0.05)\nPath(sys.argv[1], 'play_video.mp4').write_bytes(b'\\0' * 4096)\n"
    )
    settings = {"RLTEL_WANDB_MODE": "offline", "RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S": "50"}
    ran = run_python(code, tmp_path, HOME=str(tmp_path / "home"), **settings)
    assert ran.returncode == 0, ran.stderr
    (video,) = (tmp_path / "wandb").glob("offline-run-*/files/media/videos/*.mp4")
    assert video.name.startswith("play_video_")
    assert summary(tmp_path)["dropped"] == {}


def test_what_was_lost_is_in_the_summary(tmp_path: Path) -> None:
    settings = {"RLTEL_OTLP_ENABLED": "1", "RLTEL_OTLP_ENDPOINT": "http://127.0.0.1:1", "RLTEL_OTLP_TRACES": "0"}
    run_python(TRAIN, tmp_path, **settings, **PATIENT)
    assert sum(summary(tmp_path)["dropped"]["otlp"].values()) == 3


def test_a_field_of_ours_is_refused_on_every_rank() -> None:
    with pytest.raises(rltel.RecordError, match="metric_schema_version"):
        rltel.summary(metric_schema_version=2)


def test_a_restart_in_one_program_is_a_start_of_its_own(tmp_path: Path) -> None:
    before = sys.exit
    for number in (1, 2):
        process = Process(Recorder(), {"RLTEL_RUN_DIR": str(tmp_path)})
        process.init({"jsonl": {"path": "{run_dir}/metrics/r.jsonl"}})
        process.shutdown()
        assert summary(tmp_path)["incarnations"] == number
        assert sys.exit is before


def test_a_tracking_service_takes_nothing_away_from_it(tmp_path: Path) -> None:
    """W&B puts its own ``sys.exit`` in place while it opens, and what was there before is there again afterwards."""
    need_package("wandb")
    code = TRAIN + "rltel.flush(30)\nsys.exit('no GPU')"
    settings = {"RLTEL_WANDB_MODE": "offline", "RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S": "50"}
    run_python(code, tmp_path, HOME=str(tmp_path / "home"), **settings)
    assert (summary(tmp_path)["status"], summary(tmp_path)["error"]) == ("failed", "no GPU")


def test_a_start_that_fails_leaves_no_summary_and_no_hook(tmp_path: Path) -> None:
    before = sys.exit
    process = Process(Recorder(), {"RLTEL_RUN_DIR": str(tmp_path)})
    (tmp_path / "file").write_text("")
    with pytest.raises(rltel.ConfigError, match="cannot write"):
        process.init({"tensorboard": {"path": "{run_dir}/file/events"}})
    assert sys.exit is before
    assert not (tmp_path / "run_summary.json").exists()
