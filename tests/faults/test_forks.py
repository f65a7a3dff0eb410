"""Processes made of others: children hang nowhere, write nothing of their parent's, lose nothing of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from export.making import environment
from realparts.otlp_receiver import otlp_grpc_sink, otlp_sink
from realparts.tensorboard_reader import all_events, event_files
from realparts.trainer import plain_result, started
from rltel import read_jsonl

STEPS = 40

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

FORKS = """
import signal, threading
count, forks = 0, {forks}
done = threading.Event()

def commits():
    global count
    while not done.is_set():
        rltel.log({{"x": 1.0}}, step=count, axis="busy")
        count += 1
        time.sleep(0.001 if count < 3000 else 0.1)  # on a slow machine no more than can be sent in time

def child(number):
    signal.alarm(120)  # one that hangs is killed, and its status says so
    telemetry.commit({{"x": 1.0}}, step=0, axis="stolen")  # the parent's object
    rltel.log({{"x": 1.0}}, step=0, axis="stolen")
    config = {{"tensorboard": {{"path": run_dir + f"/child-{{number}}"}}, "trace": {{"enabled": True}}}}
    config["otlp"] = {otlp!r}
    rltel.init(config, role="collector", rank=0, run_dir=run_dir)
    with rltel.slice("of the child"):
        rltel.count(children=1)
    rltel.commit(step=number)
    rltel.shutdown()

thread = threading.Thread(target=commits)
thread.start()
while count < 20:
    time.sleep(0.001)
children = []
for number in range(forks):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(number)
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
    if len(children) == 4:
        say("status", os.waitpid(children.pop(0), 0)[1])
for pid in children:
    say("status", os.waitpid(pid, 0)[1])
done.set()
thread.join()
say("busy", count)
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_fork_in_the_middle_of_commits_and_exports(tmp_path: Path, protocol: str) -> None:
    """Whatever locks the pipeline's threads hold in that moment, they hold for ever in the child."""
    forks, run_dir = 16 if protocol == "http/protobuf" else 8, tmp_path / "run"
    with otlp_sink() if protocol == "http/protobuf" else otlp_grpc_sink() as receiver:
        otlp = {"enabled": True, "endpoint": receiver.endpoint, "protocol": protocol}
        config = {
            "trace": {"enabled": True, "flush_interval_s": 0.01},
            "tensorboard": {"path": "{run_dir}/tensorboard"},
            "prometheus": {"enabled": True, "port": 0},
            "otlp": otlp,
            "pipeline": {"shutdown_timeout_s": 60.0},
        }
        forked = FORKS.format(forks=forks, otlp=otlp)
        with started(config, run_dir, steps=STEPS, at={10: forked}, after="rltel.flush(100)") as running:
            ended = running.end(250)
        assert (ended.code, ended.said("status")) == (0, [0] * forks), ended.err
        assert ended.result == plain_result(STEPS)
        children = [metric.value for metric in receiver.metrics() if metric.name == "rl.stats.children"]
        steps = [metric for metric in receiver.metrics() if metric.name == "rl.step"]
        sent = {
            axis: sorted(
                int(metric.value)
                for metric in steps
                if metric.attributes["rl.axis"] == axis and metric.resource["rl.role"] == "learner"
            )
            for axis in ("train", "busy", "stolen")
        }
    # A child that is forked in the middle of a gRPC call which does not end soon says that it cannot use gRPC.
    refused = ended.err.count("forked during a gRPC call") if protocol == "grpc" else 0
    assert len(children) <= forks <= len(children) + refused
    (busy,) = ended.said("busy")
    assert sent == {"train": list(range(STEPS)), "busy": list(range(busy)), "stolen": []}

    lines = list(read_jsonl(run_dir))
    mine = [line for line in lines if line.process["role"] == "learner"]
    assert sorted(line.step for line in mine if line.axis == "busy") == list(range(busy))
    assert [line.step for line in mine if line.axis == "train"] == list(range(STEPS))
    assert {line.axis for line in lines} == {"busy", "train"}  # nothing of "stolen"
    theirs = [line for line in lines if line.process["role"] == "collector"]
    assert sorted(line.step for line in theirs) == list(range(forks))
    assert [line.values["children"] for line in theirs] == [1.0] * forks  # and nothing of the parent's
    events = [event for event in all_events(run_dir / "tensorboard") if event.summary.value]
    assert len(event_files(run_dir / "tensorboard")) == 1
    assert sum(value.tag == "reward" for event in events for value in event.summary.value) == STEPS


CHILDREN = """
import json, multiprocessing, sys
import rltel

config = json.loads(sys.argv[3])

def work(number):
    telemetry = rltel.init(config, role="collector", rank=number)
    for step in range(10):
        rltel.count(done=1)
        rltel.commit(step=step)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    rltel.init(config, run_dir=sys.argv[1])
    rltel.scalar(reward=1.0)
    children = [context.Process(target=work, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    rltel.commit(step=9)
    print(json.dumps([child.exitcode for child in children]))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_deliver_at_their_end_though_they_skip_atexit(tmp_path: Path, method: str) -> None:
    script, run_dir = tmp_path / "train.py", tmp_path / "run"
    script.write_text(CHILDREN)
    with otlp_sink() as receiver:
        receiver.delay = 0.02  # so that much is on its way at the end
        config: dict[str, Any] = {
            "otlp": {"enabled": True, "endpoint": receiver.endpoint, "traces": False},
            "trace": {"enabled": True, "flush_interval_s": 60},
            "pipeline": {"shutdown_timeout_s": 60.0},
        }
        ran = subprocess.run(
            [sys.executable, str(script), str(run_dir), method, json.dumps(config)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert (ran.returncode, ran.stdout.strip()) == (0, "[0, 0]"), ran.stderr
        done = [
            (metric.resource["service.instance.id"], metric.value)
            for metric in receiver.metrics()
            if metric.name == "rl.stats.done"
        ]
    totals = {who: max(value for each, value in done if each == who) for who, _ in done}
    assert list(totals.values()) == [10.0, 10.0]
    assert len(done) == 20
    names = {line.process["process"]: line.step for line in read_jsonl(run_dir)}
    assert names == {"learner-0.1": 9, "collector-0.1": 9, "collector-1.1": 9}
