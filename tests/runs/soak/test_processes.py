"""Processes, told apart by pid and start."""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.making import wait_until
from rltel.core.claims import start_of
from rltel.runs.soak.processes import Process, Row, descendants, table

EXIT = {"x86_64": 60, "aarch64": 93}.get(platform.machine(), 93)
WITHOUT_MAIN_THREAD = (
    "import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=(300,)).start()\n"
    f"ctypes.CDLL(None).syscall({EXIT}, 0)  # ends the thread that calls it, and no other\n"
)


def stat_of(pid: int) -> list[str]:
    """The kernel's line about a process, after its name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as started:
        yield started
        started.kill()


def process_of(started: subprocess.Popen[bytes]) -> Process:
    start = start_of(started.pid)
    assert start is not None
    return Process(started.pid, start)


def test_the_table_holds_this_process_and_its_child(sleeper: subprocess.Popen[bytes]) -> None:
    rows = table()
    assert rows[sleeper.pid] == Row(process_of(sleeper), os.getpid(), is_zombie=False)
    assert os.getpid() in rows


def test_a_later_process_of_the_same_pid_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    real = process_of(sleeper)
    earlier = Process(real.pid, real.start - 1)
    earlier.signal(signal.SIGKILL)
    assert (earlier.is_alive(), real.is_alive()) == (False, True)
    assert sleeper.poll() is None


def test_a_signal_reaches_it(sleeper: subprocess.Popen[bytes]) -> None:
    process_of(sleeper).signal(signal.SIGKILL)
    assert sleeper.wait(60) == -signal.SIGKILL


def test_one_that_has_ended_is_not_alive_and_takes_no_signals(sleeper: subprocess.Popen[bytes]) -> None:
    real = process_of(sleeper)
    sleeper.kill()
    wait_until(lambda: table()[real.pid].is_zombie, "the process has ended")
    assert not real.is_alive()  # UniLab counts what waits for its parent to notice as residual
    sleeper.wait(60)
    real.signal(signal.SIGTERM)


def test_a_name_with_brackets_is_read() -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) Z 1 (b'); print(flush=True); time.sleep(300)"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            started.stdout.readline()
            row = table()[started.pid]
            assert (row.parent, row.is_zombie) == (os.getpid(), False)
        finally:
            started.kill()


def test_descendants_are_all_below() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 2, 5: 1, 6: 6}
    rows = {pid: Row(Process(pid, 0), parent, is_zombie=False) for pid, parent in parents.items()}
    assert descendants(rows, {2, 77}) == {2, 3, 4}
    assert descendants(rows, {6}) == {6}


def test_one_whose_main_thread_alone_has_ended_is_alive() -> None:
    """The kernel shows it as a zombie; a monitor that takes it for ended stops nothing and waits for nothing."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", WITHOUT_MAIN_THREAD]) as started:
        try:
            wait_until(lambda: stat_of(started.pid)[0] == "Z", "the main thread has ended")
            assert start_of(started.pid) is not None
            assert not table()[started.pid].is_zombie
            process_of(started).signal(signal.SIGKILL)
            assert started.wait(60) == -signal.SIGKILL
        finally:
            started.kill()
