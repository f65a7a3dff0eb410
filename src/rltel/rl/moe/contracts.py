"""What routers of other frameworks promise about their output: contracts, each a function of a module.

Megatron's and the buffers' are written from what those frameworks document, and tested against modules that keep to it:
the frameworks themselves need GPUs. Hugging Face's are tested with the real ones.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.inputs import summary

Contract = Callable[[str, Any], "Router | Buffer | None"]
"""Called with a module's path and the module; None if it is no router that this contract knows."""

# Of one output: logits, scores of the chosen, and which were chosen, [tokens, k].
_HUGGING_FACE = frozenset(
    {"Qwen3MoeTopKRouter", "Qwen3_5MoeTopKRouter", "Qwen2MoeTopKRouter", "Qwen3NextTopKRouter"}
    | {"Qwen3VLMoeTextTopKRouter", "OlmoeTopKRouter", "MixtralTopKRouter"}
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")
_AUXILIARY = re.compile(r"(?:^|\.)(?:mtp|nextn)\w*(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Router:
    """A router whose output tells what it routed.

    ``layer``: zero-based. ``is_global``: over all pipeline stages already; else the stage's first layer is added.
    ``counts``: assignments ``[experts]`` from one output, whole numbers, on its device, without waiting for it.
    ``experts``: how many there are, if the module says so before its first forward.
    """

    layer: int
    counts: Callable[[Any], Any]
    experts: int | None = None
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """A module that counts for itself, into a tensor ``[experts]``.

    ``read``: returns that tensor. ``accumulates``: whether forwards add to it; else each overwrites it.
    """

    layer: int
    read: Callable[[], Any]
    accumulates: bool
    is_global: bool = False


def hugging_face(path: str, module: Any) -> Router | None:
    """``Qwen3MoeTopKRouter``, ``Qwen3_5MoeTopKRouter`` and those like them (transformers 5): chosen experts come third.

    Shared experts have a gate of another class, and are not routed to.
    """
    layer = layer_in(path)
    if layer is None or is_auxiliary(path, module) or not _is_any(module, _HUGGING_FACE):
        return None
    experts = int(module.num_experts)
    return Router(layer, lambda output: chosen(output[2], experts), experts)


def megatron(path: str, module: Any) -> Router | None:
    """Megatron Core's ``TopKRouter``: probabilities, and the routing map ``[tokens, experts]`` after capacity drops.

    ``layer_number`` is one-based and over all pipeline stages. Routers of multi-token prediction are skipped.
    """
    number = getattr(module, "layer_number", None)
    if number is None or is_auxiliary(path, module) or not _is_any(module, {"TopKRouter"}):
        return None
    experts = getattr(getattr(module, "config", None), "num_moe_experts", None)
    return Router(int(number) - 1, lambda output: mapped(output[1]), experts, is_global=True)


def counter_buffer(name: str = "routing_counts", *, accumulates: bool = False, is_global: bool = True) -> Contract:
    """A contract of modules that have a buffer of this name with the counts of their last forward (AReaL's Archon).

    ``accumulates``: forwards add to it instead (torchtitan's ``tokens_per_expert``). ``is_global``: whether the layers
    in the modules' paths count over all pipeline stages, as where stages keep the whole model's names.
    """

    def contract(path: str, module: Any) -> Buffer | None:
        layer = layer_in(path)
        if layer is None or is_auxiliary(path, module) or name not in getattr(module, "_buffers", {}):
            return None
        return Buffer(layer, lambda: getattr(module, name), accumulates, is_global)

    return contract


CONTRACTS: tuple[Contract, ...] = (hugging_face, megatron, counter_buffer())


def chosen(indices: Any, experts: int) -> Any:
    """Assignments ``[experts]`` from the chosen experts' numbers (any shape). The device is not waited for."""
    torch = sys.modules["torch"]
    flat = indices.detach().reshape(-1)
    # Not bincount: it waits for the device, to find the largest.
    return torch.zeros(experts, dtype=torch.int64, device=flat.device).index_add_(
        0, flat.to(torch.int64), torch.ones_like(flat, dtype=torch.int64)
    )


def mapped(routing_map: Any) -> Any:
    """Assignments ``[experts]`` from a map ``[tokens, experts]`` that is true where a token goes."""
    if routing_map.ndim != 2:  # tokens and experts
        raise RecordError(f"moe: routing map: expected [tokens, experts], got {summary(routing_map)}")
    torch = sys.modules["torch"]
    return routing_map.detach().to(torch.bool).sum(dim=0)


def layer_in(path: str) -> int | None:
    """The decoder layer in a module's path: 3 in ``model.layers.3.mlp.gate``."""
    found = _LAYER.search(path)
    return None if found is None else int(found[1])


def is_auxiliary(path: str, module: Any) -> bool:
    """Whether it belongs to multi-token prediction."""
    return bool(getattr(module, "is_mtp_layer", False)) or _AUXILIARY.search(path) is not None


def looks_like_a_router(module: Any) -> bool:
    """Whether its class is called one."""
    return type(module).__name__.lower().endswith("router")


def _is_any(module: Any, names: "frozenset[str] | set[str]") -> bool:
    """FSDP gives a module a class of its own, under the one that it had."""
    return any(each.__name__ in names for each in type(module).__mro__)
