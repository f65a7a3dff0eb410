"""Counting what routers route, in the forwards of training and nowhere else.

A forward counts if it enters the attached model with gradients on, in training mode. So evaluation, generation and
reference logprobs do not count. Nor does recomputation, which happens inside backward: there a router runs again
without the model being entered (or, checkpointed as a whole, entered by autograd).
"""

import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.tracker import Tracker
from rltel.rl.moe import recording
from rltel.rl.moe.contracts import CONTRACTS, Buffer, Contract, Router, looks_like_a_router
from rltel.rl.moe.loads import check

_log = logging.getLogger("rltel")
_said: set[str] = set()


class RouterCounter:
    """Counts of the routers of one model, on their devices until `record`. Made by `attach`."""

    def __init__(self, replicas: int, tracker: Tracker | None) -> None:
        self._replicas = replicas
        self._tracker = tracker
        self._lock = threading.Lock()
        self._counts: dict[int, Any] = {}
        self._experts: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._handles: list[Any] = []
        self._pauses = 0
        self._entered = threading.local()

    @property
    def layers(self) -> Mapping[int, str]:
        """The layers that are counted, by id over all pipeline stages, with the path of each one's router."""
        return MappingProxyType(self._paths)

    def record(self) -> None:
        """Record what was counted since the last call, under ``<current scope>/moe_balance``, and begin anew.

        To be called before each export, on every rank. A layer without counts is recorded too, as one of zeros. A
        device is not waited for.
        """
        with self._lock:
            counted, self._counts = self._counts, {}
        empty = {layer: [0] * experts for layer, experts in self._experts.items() if layer not in counted}
        recording.record(dict(sorted({**empty, **counted}.items())), replicas=self._replicas, tracker=self._tracker)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Forwards inside do not count: those with gradients on that train nothing."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def detach(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # --- hooks ------------------------------------------------------------------------------------------------------

    def _watch(self, model: Any, first_layer: int, contracts: Sequence[Contract]) -> None:
        buffers: dict[int, Buffer] = {}
        for path, module in model.named_modules():
            found = next((router for contract in contracts if (router := contract(path, module)) is not None), None)
            if found is None:
                continue
            layer = found.layer if found.is_global else found.layer + first_layer
            if layer in self._paths:
                raise RecordError(f"moe: layer {layer} has two routers, {self._paths[layer]} and {path}")
            self._paths[layer] = path
            if isinstance(found, Buffer):
                buffers[layer] = found
                self._experts[layer] = len(found.read())
            else:
                if found.experts is not None:
                    self._experts[layer] = found.experts
                self._handles.append(module.register_forward_hook(self._router_hook(layer, found)))
        self._watch_forwards(model, buffers)

    def _watch_forwards(self, model: Any, buffers: Mapping[int, Buffer]) -> None:
        entered = self._entered
        before: dict[int, Any] = {}

        def enter(module: Any, arguments: Any) -> None:
            stack = entered.__dict__.setdefault("stack", [])
            stack.append(stack[-1] if stack else self._trains(module))
            if stack[-1] and len(stack) == 1:
                before.update({layer: each.read().clone() for layer, each in buffers.items() if each.accumulates})

        def leave(module: Any, arguments: Any, output: Any) -> None:
            counts = entered.stack.pop()
            if counts and not entered.stack and output is not None:
                for layer, each in buffers.items():
                    self._add(layer, each.read() - before[layer] if each.accumulates else each.read())

        self._handles.append(model.register_forward_pre_hook(enter))
        self._handles.append(model.register_forward_hook(leave, always_call=True))

    def _trains(self, module: Any) -> bool:
        torch = sys.modules["torch"]
        return bool(module.training and torch.is_grad_enabled() and not self._pauses and not _in_backward())

    def _router_hook(self, layer: int, router: Router) -> Any:
        entered = self._entered

        def count(module: Any, arguments: Any, output: Any) -> None:
            stack = entered.__dict__.get("stack")
            if stack and stack[-1] and not _in_backward():
                self._add(layer, router.counts(output))

        count._torchdynamo_disable = True  # type: ignore[attr-defined]  # compiled, it would be part of recomputation too
        return count

    def _add(self, layer: int, counts: Any) -> None:
        torch = sys.modules["torch"]
        counts = counts.detach().to(torch.int64)
        with self._lock:
            before = self._counts.get(layer)
            # A sum makes a new tensor; what is not added must be a copy, since a buffer goes on changing.
            self._counts[layer] = counts.clone() if before is None else before + counts
            self._experts.setdefault(layer, len(counts))


def attach(
    model: Any,
    *,
    first_layer: int = 0,
    replicas: int = 1,
    contracts: Sequence[Contract] = CONTRACTS,
    tracker: Tracker | None = None,
) -> RouterCounter:
    """Count what a model's routers route, in each training forward that enters this model.

    Args:
        model: the module that the trainer calls (wrapped or not), or a sequence of this rank's pipeline chunks.
            Checkpointing belongs inside it: a model that is reentrantly checkpointed as a whole runs without gradients,
            and is not counted.
        first_layer: id of this stage's first layer, where modules' paths count layers from 0 in each stage. (Megatron's
            routers know theirs.)
        replicas: how many ranks of the reduction route the same tokens: tensor parallel ranks, unless they are sequence
            parallel. Ranks of data, context and expert parallelism each route their own.
        contracts: which routers are known, tried in order; see `rltel.rl.moe.contracts`.
        tracker: where `RouterCounter.record` records; None is the process's default one.

    A model without any router that is known emits nothing; that is said once if it has others. Raises `RecordError` if
    two routers would be one layer: attach to the parts then, each with a tracker or scope of its own.
    """
    check(1, replicas)
    counter = RouterCounter(replicas, tracker)
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    try:
        for chunk in chunks:
            counter._watch(chunk, first_layer, contracts)
    except BaseException:
        counter.detach()
        raise
    if not counter.layers:
        _say_what_is_unknown(chunks)
    return counter


def _say_what_is_unknown(chunks: Sequence[Any]) -> None:
    unknown = {type(module).__name__ for chunk in chunks for module in chunk.modules() if looks_like_a_router(module)}
    new = sorted(unknown - _said)
    if new:
        _said.update(new)
        _log.warning("moe: no contract knows the routers %s: no moe_balance of them (said once)", ", ".join(new))


def _in_backward() -> bool:
    """Whether autograd runs us, on whichever thread: recomputation."""
    torch = sys.modules["torch"]
    asked = getattr(torch._C, "_current_graph_task_id", None)  # as torch's own checkpointing tells
    return asked is not None and asked() != -1
