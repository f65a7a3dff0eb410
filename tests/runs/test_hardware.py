"""What a run runs on, from made-up machines and from this one."""

import os
from pathlib import Path

import pytest

from rltel.runs.hardware import hardware


def put(root: Path, place: str, text: str) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    root = tmp_path / "root"
    put(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz: 2\n\nprocessor\t: 1\n")
    put(root, "proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n")
    return root


def test_a_machine(machine: Path) -> None:
    found = hardware(machine)
    assert found["cpu"] == "Fast CPU @ 3 GHz: 2"
    assert found["memory_bytes"] == 2048 * 1024
    assert found["gpus"] == []


@pytest.mark.parametrize(("limit", "memory"), [("max\n", 2 << 20), ("1048576\n", 1 << 20), ("9" * 18, 2 << 20)])
def test_a_container_s_limit_counts_if_it_is_lower(machine: Path, limit: str, memory: int) -> None:
    put(machine, "sys/fs/cgroup/memory.max", limit)
    assert hardware(machine)["memory_bytes"] == memory


def test_cards_by_the_driver_s_files(machine: Path) -> None:
    for number in range(2):
        put(machine, f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information", f"Model: \t\t H{number}\nIRQ: 1\n")
    assert hardware(machine)["gpus"] == [{"name": f"H{number}", "memory_bytes": None} for number in range(2)]


def smi(machine: Path, script: str) -> None:
    put(machine.parent, "bin/nvidia-smi", f"#!/bin/sh\n{script}\n")
    (machine.parent / "bin" / "nvidia-smi").chmod(0o755)


def test_cards_by_nvidia_smi(machine: Path) -> None:
    smi(machine, "echo 'NVIDIA H200, 143771'\necho 'NVIDIA, odd name, [N/A]'")
    assert hardware(machine, timeout_s=60.0)["gpus"] == [
        {"name": "NVIDIA H200", "memory_bytes": 143771 << 20},
        {"name": "NVIDIA, odd name", "memory_bytes": None},
    ]


@pytest.mark.parametrize("script", ["exec /bin/sleep 60", "echo 'Failed to initialize, 1'; exit 9"])
def test_an_nvidia_smi_that_hangs_or_fails_knows_no_cards(machine: Path, script: str) -> None:
    smi(machine, script)
    assert hardware(machine, timeout_s=0.3)["gpus"] == []


def test_what_cannot_be_told_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware(tmp_path)["memory_bytes"] is None


def test_this_machine_and_no_host_s_name() -> None:
    found = hardware()
    assert found["cores"] == os.cpu_count()
    assert 1 <= found["usable_cores"] <= os.cpu_count()
    assert found["cpu"]
    assert found.keys() == {"cpu", "cores", "usable_cores", "memory_bytes", "gpus"}
