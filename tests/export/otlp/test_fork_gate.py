"""A fork waits a moment for gRPC calls; a child that is forked in the middle of one is told not to use gRPC."""

import os
import threading
from pathlib import Path

import pytest

from export.making import PATIENT, run_python
from rltel.export.otlp.fork_gate import ForkGate


def test_a_fork_between_calls_leaves_it_usable_on_both_sides() -> None:
    gate = ForkGate()
    with gate.call():
        pass
    gate.before_fork()
    gate.after_fork_in_parent()
    with gate.call():
        pass
    gate.before_fork()
    gate.after_fork_in_child()
    assert gate.is_usable
    with gate.call():
        pass


def test_a_call_that_ends_soon_is_waited_for() -> None:
    gate, began = ForkGate(), threading.Event()

    def call() -> None:
        with gate.call():
            began.set()

    caller = threading.Thread(target=call)
    caller.start()
    began.wait(10)
    caller.join()
    gate.before_fork()
    gate.after_fork_in_child()
    assert gate.is_usable


def test_in_the_middle_of_a_call_the_child_may_not_and_its_children_neither() -> None:
    gate = ForkGate()
    with gate.call():
        gate.before_fork()  # comes back, though the call goes on
        gate.after_fork_in_parent()
        assert gate.is_usable
    child = ForkGate()
    with child.call():
        child.before_fork()
        child.after_fork_in_child()
    assert not child.is_usable
    child.before_fork()
    child.after_fork_in_child()
    assert not child.is_usable


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_such_a_child_says_so_and_lives(tmp_path: Path) -> None:
    ran = run_python(
        "import os, sys\nimport rltel\n"
        "from rltel.export.otlp.fork_gate import gate\n"
        "with gate.call():\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        otlp = {'enabled': True, 'endpoint': 'http://127.0.0.1:1', 'protocol': 'grpc', 'traces': False}\n"
        "        rltel.init({'otlp': otlp, 'run': {'dir': sys.argv[1]}})\n"
        "        rltel.log({'x': 1.0}, step=1)\n"
        "        rltel.shutdown()\n"
        "        os._exit(0)\n"
        "    print(os.waitpid(pid, 0)[1])\n",
        tmp_path,
        **PATIENT,
    )
    assert ran.stdout.strip() == "0", ran.stderr
    assert "this process was forked during a gRPC call" in ran.stderr
    assert "otlp: lost 1 in all" in ran.stderr
