"""What devices can do at most, for the share of it that training uses (MFU). The figures are in ``peaks.toml``."""

import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


def peak_flops(device_name: str) -> float | None:
    """Peak dense bfloat16 FLOPs a second of a device by its name (``NVIDIA H100 80GB HBM3``); None if not known."""
    fitting = [known for known in _peaks() if _has(device_name, known)]
    return _peaks()[max(fitting, key=len)] if fitting else None


def device_peak_flops() -> float | None:
    """`peak_flops` of this process's current CUDA device; None without one. Starts no device that is not in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return peak_flops(cuda.get_device_name())


def _has(device_name: str, known: str) -> bool:
    """Whether the name contains it as whole words: an A1000 is no A100."""
    return re.search(rf"(?<![a-z0-9]){re.escape(known.lower())}(?![a-z0-9])", device_name.lower()) is not None


@cache
def _peaks() -> Mapping[str, float]:
    loaded = tomllib.loads(files("rltel.rl.flops").joinpath("peaks.toml").read_text(encoding="utf-8"))
    return {entry["device"]: float(entry["peak"]) for entry in loaded["device"]}
