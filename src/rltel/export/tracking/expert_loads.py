"""The loads of MoE experts as one table a step, where a service would drown in a series for each expert."""

import re
from collections.abc import Mapping
from functools import lru_cache

from rltel.export.media import Cell, Table

Places = Mapping[tuple[int, int], Mapping[str, float]]
"""By layer and expert: its ``tokens`` and ``load_percent``."""

_EXPERT = re.compile(r"(?P<prefix>(?:.*/)?)moe_balance/layer_(?P<layer>\d+)/expert_(?P<expert>\d+)/(?P<what>.+)")
_COLUMNS = ("layer", "expert", "tokens", "load_percent")
TABLE = "moe_balance/expert_loads"


def expert_loads(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, Table]]:
    """The numbers without those of single experts, and these as tables by key (``moe_balance/expert_loads``)."""
    rest, loads = split(values)
    return rest, {key: _table(of_key) for key, of_key in loads.items()}


def without_experts(values: Mapping[str, float]) -> Mapping[str, float]:
    """The numbers without those of single experts: layers' own are there."""
    return split(values)[0] if any("moe_balance/" in key for key in values) else values


def split(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, Places]]:
    """The numbers without those of single experts, and these by the key that all of them are shown under."""
    rest: dict[str, float] = {}
    loads: dict[str, dict[tuple[int, int], dict[str, float]]] = {}
    for key, value in values.items():
        found = _found(key) if "moe_balance/" in key else None
        if found is None:
            rest[key] = value
        else:
            table, place, what = found
            loads.setdefault(table, {}).setdefault(place, {})[what] = value
    return rest, dict(loads)


@lru_cache(maxsize=1 << 16)  # the same thousands of keys come with every step
def _found(key: str) -> tuple[str, tuple[int, int], str] | None:
    """The table that a key belongs to, where in it, and which number it is."""
    found = _EXPERT.fullmatch(key)
    if found is None or found["what"] not in _COLUMNS:
        return None
    return found["prefix"] + TABLE, (int(found["layer"]), int(found["expert"])), found["what"]


def _table(loads: Places) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (layer, expert, cells.get("tokens"), cells.get("load_percent"))
        for (layer, expert), cells in sorted(loads.items())
    ]
    return Table(_COLUMNS, tuple(rows))
