"""Estimated FLOPs of training a text model on one sequence, by architecture; and what devices can do at most."""

from rltel.rl.flops.head import Head
from rltel.rl.flops.peaks import device_peak_flops, peak_flops
from rltel.rl.flops.registry import FlopsFactory, flops_estimator, register_flops_estimator
from rltel.rl.flops.work import FlopsEstimator

__all__ = [
    "FlopsEstimator", "FlopsFactory", "Head", "device_peak_flops", "flops_estimator", "peak_flops",
    "register_flops_estimator",
]  # fmt: skip
