"""Forked and started children: they begin empty, with ids of their own, and never write what their parent recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORKED = """
import json, os, random
from rltel.core.context import new_id, new_trace_id
from rltel.record.recorder import timeline
from rltel.record.tracker import Tracker
from tests.realparts.lane_reading import read

def numbers():
    with timeline.slice("generator"):
        yield 1

random.seed(7)
timeline.start()
tracker = Tracker(recorder=timeline)
free, generator = timeline.begin("free"), numbers()
next(generator)
fork_in_child = None
with timeline.slice("bare"), timeline.slice("rich", flow=1), tracker.record_timing("timing"), tracker.scope("scope"):
    timeline.instant("before")
    pid = os.fork()
    random.seed(7)
if pid == 0:
    free.end()
    generator.close()
    found = {"on": timeline.on, "left": sum(len(lane.records) for lane in timeline.lanes())}
    timeline.start()
    with timeline.slice("child"):
        timeline.begin("free of child").end()
    found["thread is its own"] = timeline.here().thread_id == os.getpid()
else:
    os.waitpid(pid, 0)
    free.end()
    generator.close()
    found = {}
reading = read(timeline)
found["names"], found["open"] = sorted(reading.names), len(reading.left_open)
found["instants"] = [name for name, _, _ in reading.instants]
found["ids"] = [new_id(), new_trace_id(), timeline.here().seed, *(each.ids.span_id for each in reading.slices)]
print(json.dumps(found), flush=True)
if pid == 0:
    os._exit(0)
"""

CHILDREN = """
import json, multiprocessing, random, sys
import rltel
from rltel.core.context import new_id
from rltel.record.recorder import timeline

def child(queue):
    random.seed(7)
    found = {"on": timeline.on, "left": sum(len(lane.records) for lane in timeline.lanes())}
    timeline.start()
    with timeline.slice("child"):
        pass
    found["records"] = len(timeline.here().records)
    found["ids"] = [new_id(), timeline.here().seed]
    queue.put(found)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    timeline.start()
    random.seed(7)
    queue = context.Queue()
    with timeline.slice("parent"):
        children = [context.Process(target=child, args=(queue,)) for _ in range(2)]
        for each in children:
            each.start()
        found = [queue.get(timeout=200) for _ in children]
        for each in children:
            each.join()
    print(json.dumps({"children": found, "records": len(timeline.here().records), "ids": [new_id()]}))
"""

FORKED_IN_A_LOOP = """
import asyncio, json, os
from rltel.record.recorder import timeline
from tests.realparts.lane_reading import read

timeline.start()

async def work(name):
    with timeline.slice(name):
        await asyncio.sleep(0)

async def main():
    with timeline.slice("parent"):
        pid = os.fork()
        if pid == 0:
            timeline.start()
            with timeline.slice("sync"):
                pass
            print(json.dumps({name: parent for name, parent in read(timeline).parents.items()}), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        await work("goes on")

asyncio.run(main())
print(json.dumps(read(timeline).parents), flush=True)
"""

AT_ONCE = """
import os, sys, threading
from rltel.record.recorder import timeline

timeline.start()
done = threading.Event()
def draws():
    while not done.is_set():
        with timeline.slice("a"), timeline.slice("b", flow=1):
            pass
threads = [threading.Thread(target=draws) for _ in range(3)]
for thread in threads:
    thread.start()
sys.setswitchinterval(1e-5)
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        timeline.start()
        with timeline.slice("child"):
            pass
        os._exit(len(timeline.here().records) != 3 or len(timeline.lanes()) != 2)
    if os.waitpid(pid, 0)[1]:
        done.set()
        sys.exit("a child found what is not its own")
done.set()
"""


def run(code: str, *arguments: str) -> list[dict[str, Any]]:
    """What a program of its own prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@forks
def test_a_forked_child_starts_empty_and_off_and_what_was_open_ends_harmlessly() -> None:
    child, parent = run(FORKED)
    assert (child["on"], child["left"], child["thread is its own"]) == (False, 0, True)
    assert (child["names"], child["open"], child["instants"]) == (["child", "free of child"], 0, [])
    assert parent["names"] == ["bare", "free", "generator", "rich", "scope", "timing"]
    assert (parent["open"], parent["instants"]) == (0, ["before"])
    assert not set(child["ids"]) & set(parent["ids"])


@pytest.mark.parametrize(
    "method", [pytest.param("fork", marks=forks), pytest.param("forkserver", marks=forks), "spawn"]
)
def test_children_start_empty_with_ids_of_their_own(method: str, tmp_path: Any) -> None:
    """Also where parent and children seed `random` alike (open-telemetry/opentelemetry-python#4376)."""
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    done = subprocess.run(
        [sys.executable, str(program), method], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(child["on"], child["left"], child["records"]) for child in found["children"]] == [(False, 0, 3)] * 2
    assert found["records"] == 3
    ids = [each for of in (found, *found["children"]) for each in of["ids"]]
    assert len(set(ids)) == len(ids)


@forks
def test_a_fork_inside_a_running_loop_leaves_it_to_the_parent() -> None:
    child, parent = run(FORKED_IN_A_LOOP)
    assert list(child) == ["sync"]
    assert child["sync"] != "parent"
    assert parent == {"parent": None, "goes on": "parent"}


@forks
def test_a_fork_at_any_moment_leaves_the_child_usable() -> None:
    assert run(AT_ONCE) == []
