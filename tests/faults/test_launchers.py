"""torchrun, as people start it: no rank argument anywhere, one set of logs, reduced numbers once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from export.making import environment
from realparts.otlp_receiver import otlp_sink
from realparts.processes import free_port
from realparts.tensorboard_reader import event_files, scalars
from realparts.wandb_reader import read_offline
from rltel import read_jsonl

STEPS = 10

PROGRAM = """
import json, os, sys
import torch, torch.distributed as dist
import rltel

init_first, config = json.loads(sys.argv[1])
torch.set_num_threads(1)
if init_first:
    rltel.init(config)
dist.init_process_group("gloo")
if not init_first:
    rltel.init(config)
rank = dist.get_rank()
for step in range(10):
    rltel.scalar(reward=float(rank), weight=1.0)
    rltel.stat(loss=torch.full((rank + 1,), float(rank)))
    rltel.count(episodes=rank + 1)
    stats = rltel.export_all(reduce_group=dist.group.WORLD)
    rltel.commit(stats, step=step)
    rltel.log({"own": float(rank)}, step=step, axis="own")
dist.barrier()
dist.destroy_process_group()
"""


def torchrun(folder: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Two ranks, started in a folder. They end with this call, whatever happens.

    Another process may take the port before torchrun, which has much to import, comes to it: then it is tried again.
    """
    for _ in range(3):
        ran = torchrun_once(folder, script, *arguments)
        if "EADDRINUSE" not in ran.stderr:
            break
    return ran


def torchrun_once(folder: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With some port that is free."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    process = subprocess.Popen(
        [*command, str(free_port()), str(script), *arguments],
        env=environment(HOME=str(folder), OMP_NUM_THREADS="1"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its workers then, which a SIGKILL would not
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.parametrize("init_first", [True, False], ids=["init before the group", "init after it"])
def test_torchrun_with_two_ranks_has_one_set_of_logs_and_reduced_numbers_once(tmp_path: Path, init_first: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    with otlp_sink() as receiver:
        config = {
            "run": {"log_root": "logs"},
            "tensorboard": {"path": "{run_dir}/tb"},
            "wandb": {"mode": "offline", "project": "p"},
            "console": {"enabled": True, "interval_s": 0.01},
            "otlp": {"enabled": True, "endpoint": receiver.endpoint, "traces": False},
            "pipeline": {"shutdown_timeout_s": 60},
        }
        ran = torchrun(tmp_path, script, json.dumps([init_first, config]))
        assert ran.returncode == 0, ran.stderr
        points = receiver.metrics()
    (run_dir,) = (tmp_path / "logs").iterdir()
    files = sorted(path.name for path in (run_dir / "metrics").iterdir())
    assert files == ["learner-0.1.jsonl", "learner-1.1.jsonl"]
    lines = list(read_jsonl(run_dir))
    reduced = [line for line in lines if line.axis == "train"]
    assert {line.process["rank"] for line in reduced} == {0}
    assert [line.step for line in reduced] == list(range(STEPS))
    for line in reduced:
        assert line.values["reward"] == 0.5
        assert line.values["loss/avg"] == pytest.approx(2 / 3)  # of three elements: 0, 1, 1
        assert line.values["episodes"] == 3
    own = [(line.process["rank"], line.step, line.values["own"]) for line in lines if line.axis == "own"]
    assert sorted(own) == [(rank, step, float(rank)) for rank in (0, 1) for step in range(STEPS)]

    folders = {path.parent for path in run_dir.rglob("*tfevents*")}
    assert folders == {run_dir / "tb"}
    assert len(event_files(run_dir / "tb")) == 1
    assert [point.step for point in scalars(run_dir / "tb")["reward"]] == list(range(STEPS))
    rows = read_offline(run_dir).series("reward", "rltel/step/train")  # there is exactly one run
    assert rows == [(step, 0.5) for step in range(STEPS)]

    rewards = [point for point in points if point.name == "rl.stats.reward"]
    assert len(rewards) == STEPS
    assert {point.value for point in rewards} == {0.5}
    assert [point.value for point in points if point.name == "rl.stats.episodes"] == [
        3.0 * n for n in range(1, STEPS + 1)
    ]
    assert len({point.resource["service.instance.id"] for point in points}) == 2  # each rank's own numbers
    assert len([point for point in points if point.name == "rl.stats.own"]) == 2 * STEPS
    assert [line for line in ran.stderr.splitlines() if "Traceback" in line] == []


def test_a_rank_that_is_killed_leaves_whole_records(tmp_path: Path) -> None:
    """torchrun then ends the other one, with SIGTERM."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\nimport rltel\nrltel.init({'tensorboard': {'path': '{run_dir}/tb'}}, run_dir='run')\n"
        "rank = int(os.environ['RANK'])\n"
        "for step in range(10):\n    rltel.log({'x': float(rank)}, step=step)\n"
        "open(f'ready-{rank}', 'w').close()\n"
        "while not os.path.exists('ready-0') or not os.path.exists('ready-1'):\n    time.sleep(0.01)\n"
        "if rank == 1:\n    os.kill(os.getpid(), 9)\n"
        "time.sleep(120)\n"
    )
    ran = torchrun(tmp_path, script)
    assert ran.returncode != 0
    for rank in (0, 1):
        steps = [line.step for line in read_jsonl(tmp_path / "run" / "metrics" / f"learner-{rank}.1.jsonl")]
        assert steps == list(range(10))
