"""The loads of MoE experts as one table a step, where a service would drown in a series for each expert."""

import re
from collections.abc import Mapping

from rltel.export.media import Cell, Table

_EXPERT = re.compile(r"(?P<prefix>(?:.*/)?)moe_balance/layer_(?P<layer>\d+)/expert_(?P<expert>\d+)/(?P<what>.+)")
_COLUMNS = ("layer", "expert", "tokens", "load_percent")


def expert_loads(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, Table]]:
    """The numbers without those of single experts, and these as tables by key (``moe_balance/expert_loads``)."""
    rest: dict[str, float] = {}
    loads: dict[str, dict[tuple[int, int], dict[str, float]]] = {}
    for key, value in values.items():
        found = _EXPERT.fullmatch(key) if "moe_balance/" in key else None
        if found is None or found["what"] not in _COLUMNS:
            rest[key] = value
            continue
        place = int(found["layer"]), int(found["expert"])
        loads.setdefault(found["prefix"], {}).setdefault(place, {})[found["what"]] = value
    tables = {f"{prefix}moe_balance/expert_loads": _table(of_prefix) for prefix, of_prefix in loads.items()}
    return rest, tables


def _table(loads: Mapping[tuple[int, int], Mapping[str, float]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (layer, expert, cells.get("tokens"), cells.get("load_percent"))
        for (layer, expert), cells in sorted(loads.items())
    ]
    return Table(_COLUMNS, tuple(rows))
