"""Counting what routers route, in the forwards of training and nowhere else.

A forward counts if it enters the attached model with gradients on, in training mode. So evaluation, generation and
reference logprobs do not count. Nor does recomputation, which happens inside backward: there a router runs again
without the model being entered (or, checkpointed as a whole, entered by autograd).
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.inputs import summary
from rltel.record.tracker import Tracker
from rltel.rl.moe import recording
from rltel.rl.moe.contracts import CONTRACTS, Buffer, Contract, Router, looks_like_a_router
from rltel.rl.moe.hooks import Staying
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
                now = found.read()
                if now is not None:  # some modules make theirs in their first forward
                    self._experts[layer] = len(now)
            else:
                if found.experts is not None:
                    self._experts[layer] = found.experts
                self._handles.append(module.register_forward_hook(Staying(self._router_hook(layer, found))))
        self._watch_forwards(model, buffers)

    def _watch_forwards(self, model: Any, buffers: Mapping[int, Buffer]) -> None:
        entered = self._entered
        before: dict[int, Any] = {}

        def enter(module: Any, arguments: Any) -> None:
            stack = entered.__dict__.setdefault("stack", [])
            stack.append(stack[-1] if stack else self._trains(module))
            if stack[-1] and len(stack) == 1:
                for layer, each in buffers.items():
                    if each.accumulates:
                        before[layer] = self._tried(layer, partial(_copied, each))

        def leave(module: Any, arguments: Any, output: Any) -> None:
            stack = entered.__dict__.get("stack") or [False]  # it was not entered if a hook before ours raised
            if stack.pop() and not stack and output is not None:
                for layer, each in buffers.items():
                    self._count(layer, partial(_counted, each, before.get(layer)))

        # The first to be called, so that a hook of somebody else's that raises does not come between.
        self._handles.append(model.register_forward_pre_hook(Staying(enter), prepend=True))
        self._handles.append(model.register_forward_hook(Staying(leave), always_call=True))

    def _trains(self, module: Any) -> bool:
        torch = sys.modules["torch"]
        return bool(module.training and torch.is_grad_enabled() and not self._pauses and not _in_backward())

    def _router_hook(self, layer: int, router: Router) -> Any:
        entered = self._entered

        def count(module: Any, arguments: Any, output: Any) -> None:
            stack = entered.__dict__.get("stack")
            if stack and stack[-1] and not _in_backward() and not _is_traced():
                self._count(layer, lambda: router.counts(output))
            elif not stack and self._trains(module):
                _say_once(
                    "moe: routers run in training, but outside of forwards of the attached model: not counted; "
                    "attach to the module that the trainer calls (said once)"
                )

        count._torchdynamo_disable = True  # type: ignore[attr-defined]  # compiled, it would be part of recomputation too
        return count

    def _count(self, layer: int, read: Callable[[], Any]) -> None:
        self._tried(layer, lambda: self._add(layer, read()))

    def _tried(self, layer: int, read: Callable[[], Any]) -> Any:
        """Whatever a router of another version does, training goes on: a layer that cannot be read is left out."""
        if layer not in self._paths:
            return None
        try:
            return read()
        except Exception as error:
            self._leave_out(layer, error)
            return None

    def _leave_out(self, layer: int, error: Exception) -> None:
        with self._lock:
            path = self._paths.pop(layer, "")
            self._counts.pop(layer, None)
            self._experts.pop(layer, None)
        _say_once(
            f"moe: layer {layer} ({path}) is left out from now on, its router does not keep to its contract: "
            f"{type(error).__name__}: {error} (said once)"
        )

    def _add(self, layer: int, counts: Any) -> None:
        if counts is None or counts.device.type == "meta":  # nothing yet, or nothing but shapes
            return
        torch = sys.modules["torch"]
        counts = counts.detach().to(torch.int64)
        with self._lock:
            before = self._counts.get(layer)
            # A sum makes a new tensor; what is not added must be a copy, since a buffer goes on changing. The model may
            # have been moved meanwhile.
            self._counts[layer] = counts.clone() if before is None else before.to(counts.device) + counts
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

    A model without any router that is known emits nothing; that is said once if it has others. A router that does not
    keep to its contract stops no training: its layer is left out, said once. Raises `RecordError` for what is no
    module, and if two routers would be one layer: attach to the parts then, each with a tracker or scope of its own.
    """
    check(1, replicas)
    if isinstance(first_layer, bool) or not isinstance(first_layer, int) or first_layer < 0:
        raise RecordError(f"moe: first_layer: expected a whole number >= 0, got {summary(first_layer)}")
    counter = RouterCounter(replicas, tracker)
    chunks = _chunks(model)
    try:
        for chunk in chunks:
            counter._watch(chunk, first_layer, contracts)
    except BaseException:
        counter.detach()
        raise
    if not counter.layers:
        _say_what_is_unknown(chunks)
    return counter


def _chunks(model: Any) -> list[Any]:
    """The modules that are called: the model, or the elements of a list (a ModuleList, too, is never called itself)."""
    import torch  # where there is a module, it is loaded already

    module = torch.nn.Module
    is_called = isinstance(model, module) and type(model).forward is not module.forward
    chunks = [model] if is_called or not isinstance(model, Iterable) else list(model)
    if not chunks or not all(isinstance(each, module) for each in chunks):
        raise RecordError(f"moe: attach: expected a torch module, or a list of them, got {summary(model)}")
    return chunks


def _say_what_is_unknown(chunks: Sequence[Any]) -> None:
    unknown = {type(module).__name__ for chunk in chunks for module in chunk.modules() if looks_like_a_router(module)}
    new = sorted(unknown - _said)
    if new:
        _said.update(new)
        _log.warning("moe: no contract knows the routers %s: no moe_balance of them (said once)", ", ".join(new))


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning("%s", message)


def _copied(buffer: Buffer) -> Any:
    now = buffer.read()
    return None if now is None else now.clone()


def _counted(buffer: Buffer, before: Any) -> Any:
    """What a forward added to a buffer."""
    now = buffer.read()
    return now if before is None or now is None else now - before


def _is_traced() -> bool:
    """Whether a program is being made of what runs (exported, traced), instead of training."""
    torch = sys.modules["torch"]
    exports = getattr(torch.compiler, "is_exporting", None)  # newer than our oldest torch
    return bool(torch.jit.is_tracing() or (exports is not None and exports()))


def _in_backward() -> bool:
    """Whether autograd runs us, on whichever thread: recomputation."""
    torch = sys.modules["torch"]
    asked = getattr(torch._C, "_current_graph_task_id", None)  # as torch's own checkpointing tells
    return asked is not None and asked() != -1
