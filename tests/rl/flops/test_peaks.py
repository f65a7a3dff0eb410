"""Devices by the names that torch gives them."""

import tomllib
from importlib.resources import files

import pytest

from rltel.rl.flops import device_peak_flops, peak_flops

ENTRIES = tomllib.loads(files("rltel.rl.flops").joinpath("peaks.toml").read_text())["device"]


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA B200", 2.25e15),
        ("NVIDIA GB200", 2.5e15),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA A10", 125e12),
        ("nvidia geforce rtx 4090", 165.2e12),
        ("AMD Instinct MI300X", 1307.4e12),
    ],
)
def test_known_devices(name: str, peak: float) -> None:
    assert peak_flops(name) == peak


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000", "NVIDIA A10G", "NVIDIA L400", "Tesla T4", "cpu", ""])
def test_a_device_whose_name_only_resembles_one_is_not_known(name: str) -> None:
    assert peak_flops(name) is None


def test_without_a_device_there_is_none() -> None:
    assert device_peak_flops() is None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["device"])
def test_every_figure_names_its_source_and_is_one_of_a_device(entry: dict[str, object]) -> None:
    assert entry.keys() == {"device", "peak", "source"}
    assert str(entry["source"]).startswith(("NVIDIA", "AMD"))
    peak = entry["peak"]
    assert isinstance(peak, float)
    assert 1e13 < peak < 1e16
    assert peak_flops(f"Some {entry['device']} 80GB") == peak
