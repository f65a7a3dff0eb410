"""Memory and descriptors, of a real process that holds known ones."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rltel.core.claims import start_of
from rltel.runs.scrub import Scrub
from rltel.runs.soak.processes import Process
from rltel.runs.soak.readings import descriptor_class, read_process, read_tree

HOLDER = """
import os, select, socket, sys, time
held = [os.pipe(), os.pipe(), socket.socket(), os.memfd_create("x"), os.eventfd(0), select.epoll()]
memory = b"x" * (64 << 20)
print(flush=True)
time.sleep(300)
"""


@pytest.fixture
def holder() -> Iterator[Process]:
    command = [sys.executable, "-I", "-S", "-c", HOLDER, "--api-key", "hunter2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        start = start_of(started.pid)
        assert start is not None
        yield Process(started.pid, start)
        started.kill()


def test_reads_memory_and_descriptors_by_class(holder: Process) -> None:
    read = read_process(holder, Scrub([]).command)
    assert read is not None
    expected = {"pipe": 5, "socket": 1, "memfd": 1, "eventfd": 1, "eventpoll": 1}  # stdout is a pipe, too
    assert {name: read["fd_classes"][name] for name in expected} == expected
    assert read["fd_count"] == sum(read["fd_classes"].values())
    assert 64 * 1024 < read["rss_kib"] < 128 * 1024
    assert (read["pid"], read["start_ticks"]) == (holder.pid, [holder.start])


def test_command_lines_hold_no_secrets(holder: Process) -> None:
    read = read_process(holder, Scrub([]).command)
    assert read is not None
    assert "hunter2" not in read["command"]
    assert read["command"].endswith("--api-key [redacted]")


def test_totals_are_sums(holder: Process) -> None:
    gone = Process(holder.pid, holder.start - 1)
    one, two = read_tree([holder, gone], Scrub([]).command), read_tree([holder, holder], Scrub([]).command)
    assert (one["process_count"], two["process_count"]) == (1, 2)
    assert two["fd_classes_total"]["pipe"] == 2 * one["fd_classes_total"]["pipe"]
    assert two["fd_count_total"] == 2 * one["fd_count_total"]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("pipe:[1]", "pipe"),
        ("/memfd:buffer (deleted)", "memfd"),  # as Linux shows it; UniLab looks for "memfd:" and counts these as other
        ("/dev/nvidiactl", "nvidia"),
        ("/dev/nvidia-uvm", "nvidia"),
        ("/dev/shm/psm_1", "shared_memory"),
        ("anon_inode:[timerfd]", "other"),
        ("/var/log/x", "other"),
    ],
)
def test_classes_of_descriptors(target: str, name: str) -> None:
    assert descriptor_class(target) == name
