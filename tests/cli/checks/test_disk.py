"""Folders that can be written, and those that cannot."""

import os
import re
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from rltel.cli.checks import disk
from rltel.cli.checks.disk import check_disk
from rltel.cli.checks.finding import Finding
from rltel.core.config import (
    JsonlConfig,
    RunConfig,
    SwanlabConfig,
    TelemetryConfig,
    TensorBoardConfig,
    TraceConfig,
)

Usage = namedtuple("Usage", "total used free")


def of(config: TelemetryConfig) -> dict[str, Finding]:
    return {finding.area: finding for finding in check_disk(config)}


def test_folders_that_are_not_there_yet_are_asked_where_they_will_be_and_not_made(tmp_path: Path) -> None:
    config = TelemetryConfig(
        run=RunConfig(dir=str(tmp_path / "a" / "run")),
        trace=TraceConfig(enabled=True, output_dir=str(tmp_path / "b" / "traces"), max_total_mb=1.0, max_file_mb=1.0),
        tensorboard=TensorBoardConfig(path=str(tmp_path / "tb")),
        jsonl=JsonlConfig(path=str(tmp_path / "records" / "r.jsonl")),
        swanlab=SwanlabConfig(mode="local", logdir=str(tmp_path / "swan")),
    )
    found = of(config)
    assert set(found) == {"run.dir", "trace.output_dir", "tensorboard.path", "jsonl.path", "swanlab.logdir"}
    assert {finding.status for finding in found.values()} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_what_is_off_or_in_the_run_directory_is_not_asked_apart(tmp_path: Path) -> None:
    config = TelemetryConfig(
        run=RunConfig(log_root=str(tmp_path)),
        trace=TraceConfig(output_dir="/nowhere"),
        tensorboard=TensorBoardConfig(path="{run_dir}/tb"),
        swanlab=SwanlabConfig(logdir="/nowhere"),
    )
    assert set(of(config)) == {"run.log_root"}


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = of(TelemetryConfig(run=RunConfig(dir=str(tmp_path / "file" / "run"))))["run.dir"]
    assert (finding.status, finding.what) == ("problem", f"{tmp_path / 'file'} is no folder")
    assert finding.do


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    finding = of(TelemetryConfig(run=RunConfig(dir=str(tmp_path))))["run.dir"]
    assert (finding.status, finding.what) == ("problem", f"{tmp_path} is not writable")


def test_a_file_system_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk.tempfile, "TemporaryFile", refuse)
    finding = of(TelemetryConfig(run=RunConfig(dir=str(tmp_path))))["run.dir"]
    assert (finding.status, finding.what) == ("problem", f"{tmp_path}: Read-only file system")


@pytest.mark.parametrize(("free", "status"), [(50e6, "problem"), (1e9, "warning"), (5e9, "ok")])
def test_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, status: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free))
    config = TelemetryConfig(run=RunConfig(dir=str(tmp_path)), trace=TraceConfig(enabled=True))
    finding = of(config)["run.dir"]
    assert (finding.status, f"{free / 1e6:,.0f} MB free" in finding.what) == (status, True)
    assert bool(finding.do) == (status != "ok")


def test_a_file_server_s_clock_that_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = disk.time.time()
    monkeypatch.setattr(disk.time, "time", lambda: now - 60)
    finding = of(TelemetryConfig(run=RunConfig(dir=str(tmp_path))))["run.dir"]
    assert finding.status == "warning"
    assert re.search(r"its clock is \+[67]\d s from ours", finding.what), "and as long as the look at it took"


def test_a_file_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> object:
        raise TimeoutError

    monkeypatch.setattr(disk, "within", hang)
    finding = of(TelemetryConfig(run=RunConfig(dir=str(tmp_path))))["run.dir"]
    assert (finding.status, finding.what) == ("problem", f"{tmp_path}: no answer within 2 s")
