"""Packages that are missing, too old, or broken."""

import importlib
from importlib.metadata import PackageNotFoundError

import pytest

from rltel.cli.checks import packages
from rltel.cli.checks.packages import check_packages, requirements
from rltel.core.config import SwanlabConfig, TelemetryConfig, TensorBoardConfig, WandbConfig

TENSORBOARD = TelemetryConfig(tensorboard=TensorBoardConfig(path="tb"))


def of(config):
    return {finding.area.removeprefix("package "): finding for finding in check_packages(config)}


def test_the_requirements_are_those_of_the_package():
    found = {(package, extra) for package, _, extra in requirements()}
    assert {("msgspec", ""), ("opentelemetry-sdk", ""), ("tensorboard", "tensorboard"), ("wandb", "wandb")} <= found
    assert not {"test", "demo", "all", "docs"} & {extra for _, extra in found}
    assert "rotel" not in {package for package, _ in found}, "what only tests need"


def test_here_everything_fits():
    found = of(TENSORBOARD)
    assert {finding.status for finding in found.values()} == {"ok"}
    assert {"msgspec", "tensorboard"} <= found.keys()


def test_what_is_off_is_not_needed():
    assert not {"tensorboard", "wandb", "swanlab", "trackio", "torch"} & of(TelemetryConfig()).keys()


def test_one_that_is_missing(monkeypatch):
    def version(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(packages, "version", version)
    finding = of(TENSORBOARD)["tensorboard"]
    assert (finding.status, finding.what, finding.do) == (
        "problem", "is not installed", 'pip install "rltel[tensorboard]"'
    )  # fmt: skip


@pytest.mark.parametrize(("there", "status"), [("2.9.1", "problem"), ("2.16", "ok"), ("2.100.0rc1", "ok"), ("3", "ok")])
def test_versions_are_compared_as_numbers(monkeypatch, there, status):
    monkeypatch.setattr(packages, "version", lambda _: there)
    assert of(TENSORBOARD)["tensorboard"].status == status


def test_one_that_does_not_import(monkeypatch):
    real = importlib.import_module

    def broken(name):
        if name == "wandb":
            raise RuntimeError("protobuf is of another version")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    problems = [f for f in check_packages(TelemetryConfig(wandb=WandbConfig(mode="offline"))) if f.status == "problem"]
    assert "does not import: RuntimeError: protobuf is of another version" in [finding.what for finding in problems]


def test_swanlab_s_local_mode_needs_its_dashboard(monkeypatch):
    def absent(name):
        if name == "swanboard":
            raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    finding = of(TelemetryConfig(swanlab=SwanlabConfig(mode="local")))["swanboard"]
    assert (finding.status, finding.do) == ("problem", 'pip install "swanlab[dashboard]"')


def test_without_metadata_nothing_is_claimed(monkeypatch):
    def requires(_):
        raise PackageNotFoundError("rltel")

    monkeypatch.setattr(packages, "requires", requires)
    assert of(TelemetryConfig()) == {}
