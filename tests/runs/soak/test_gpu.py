"""GPUs, from a stand-in for ``nvidia-smi`` that prints what the real one prints."""

from pathlib import Path

import pytest

from rltel.runs.soak import gpu
from rltel.runs.soak.gpu import Gpus


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell on a busy machine may take longer than a soak waits for the driver."""
    monkeypatch.setattr(gpu, "_TIMEOUT_S", 60.0)


def smi(tmp_path: Path, body: str) -> Gpus:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return Gpus(str(program))


def test_counts_the_memory_of_the_tree_s_processes(tmp_path: Path) -> None:
    rows = "printf '11, python3, 100 MiB, GPU-a\\n12, \"a, b\", 28 MiB, GPU-a\\n99, other, 1000 MiB, GPU-a\\n'"
    found = smi(tmp_path, rows).sample({11, 12})
    assert (found["process_count"], found["used_memory_mib_total"], found["unmatched_process_count"]) == (2, 128, 1)
    assert found["processes"][1]["process_name"] == "a, b"


def test_rows_without_numbers_break_nothing(tmp_path: Path) -> None:
    """UniLab's monitor fails on a pid that is no number, as drivers show it in containers."""
    found = smi(tmp_path, "printf '[N/A], python3, [N/A], GPU-a\\n11, python3, [N/A], GPU-a\\n'").sample({11})
    assert (found["process_count"], found["used_memory_mib_total"]) == (1, None)


def test_no_processes_are_none(tmp_path: Path) -> None:
    assert smi(tmp_path, "true").sample({11})["used_memory_mib_total"] == 0


def test_a_driver_that_does_not_answer_is_unknown_and_not_zero(tmp_path: Path) -> None:
    for gpus in (smi(tmp_path, "exit 9"), Gpus("no-such-program")):
        assert gpus.sample({11}) == {"process_count": None, "used_memory_mib_total": None, "processes": []}
        assert gpus.devices() == []


def test_names_the_devices(tmp_path: Path) -> None:
    (found,) = smi(tmp_path, "echo '0, GPU-a, NVIDIA H200, 570.1'").devices()
    assert found == {"index": "0", "uuid": "GPU-a", "name": "NVIDIA H200", "driver_version": "570.1"}
