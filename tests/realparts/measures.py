"""What tests of ``rltel.rl`` share: AReaL's vectors, comparing flat dicts, the CPU as a device, a spy for copies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rltel.record import fold
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender

Flat = dict[str, float]
Record = Callable[[Tracker], object]


def areal_vector(name: str) -> dict[str, Any]:
    """One of AReaL's vectors, with its numbers (NaN and infinities are strings there)."""
    files = sorted((Path(__file__).parents[1] / "vectors").glob("areal_*vectors.json"))
    vectors = {vector["id"]: vector for file in files for vector in json.loads(file.read_text())["vectors"]}
    found = vectors[name]
    return {**found, "output": {key: float(value) for key, value in found["output"].items()}}


def numbers(values: Iterable[Any]) -> torch.Tensor:
    """A vector's numbers."""
    return torch.tensor([float(value) for value in values], dtype=torch.float32)


def bools(values: Iterable[Any]) -> torch.Tensor:
    """A vector's mask."""
    return torch.tensor([bool(value) for value in values], dtype=torch.bool)


def differences(found: Mapping[str, float], expected: Mapping[str, float], rel: float = 1e-9) -> list[str]:
    """The keys expected that are not there or not so, with both numbers."""
    return [
        f"{key}: {found.get(key)} is not {value}"
        for key, value in expected.items()
        if key not in found or not same(found[key], value, rel)
    ]


def same(found: float, expected: float, rel: float = 1e-9) -> bool:
    """Whether two numbers agree; NaN agrees with NaN."""
    return (math.isnan(found) and math.isnan(expected)) or math.isclose(found, expected, rel_tol=rel, abs_tol=rel)


def exported(*records: Record) -> Flat:
    """What one process exports that recorded all of this."""
    trackers = Trackers(Recorder())
    for record in records:
        record(trackers.default)
    return dict(trackers.export_all())


def absorbed(*records: Record) -> Flat:
    """What a process exports that absorbed a payload of one worker for each of these."""
    learner = Trackers(Recorder())
    receiver = Receiver(learner)
    for number, record in enumerate(records):
        worker = Trackers(Recorder())
        record(worker.default)
        with worker.taken() as snapshot:
            receiver.absorb(Sender(f"worker-{number}").payload(snapshot))
    return dict(learner.export_all())


def reduced_in_rank(rank: int, records: list[Record]) -> Flat:
    """For `realparts.ranks`: each rank records its part; the export over all."""
    import torch.distributed as dist

    trackers = Trackers(Recorder())
    records[rank](trackers.default)
    return dict(trackers.export_all(reduce_group=dist.group.WORLD))


@contextmanager
def cpu_as_device() -> Iterator[None]:
    """The CPU counts as a device whose numbers nobody may wait for, so that the route for devices gives numbers."""
    with mock.patch.object(fold, "_HOST", "none"):
        yield


class Copies(TorchDispatchMode):
    """Notes every operation that takes a tensor from CUDA to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        given, made = (
            [leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
            for tree in ((args, kwargs), result)
        )
        if "cuda" in given and "cpu" in made:
            self.seen.append(str(func))
        return result


@contextmanager
def fake_cuda() -> Iterator[Copies]:
    """CUDA tensors without numbers, which raise when the host reads one; with a spy for copies."""
    with FakeTensorMode(), Copies() as spy:
        yield spy
