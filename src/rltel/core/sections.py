"""The fields of the config by section, and by the environment variable of each."""

from typing import Any

import msgspec

from rltel.core.config import Section, TelemetryConfig

Layer = dict[str, dict[str, Any]]
"""Only the fields that somebody set, by section."""

SECTIONS: dict[str, type[Section]] = {
    f.name: type(f.default) for f in msgspec.structs.fields(TelemetryConfig) if isinstance(f.default, Section)
}
TYPES: dict[str, Any] = {
    f"{section}.{field.name}": field.type
    for section, kind in SECTIONS.items()
    for field in msgspec.structs.fields(kind)
}
"""The type of every field, by its path (``trace.enabled``)."""
_BY_PATH = {"tensorboard": "{run_dir}/tensorboard", "jsonl": "record.jsonl"}


def switch_of(section: str) -> str | None:
    """How a destination is switched on, as YAML; None for a section that is no destination."""
    fields = SECTIONS[section].__struct_fields__
    if "enabled" in fields:
        return f"{section}: {{enabled: true}}"
    if "mode" in fields:
        return f"{section}: {{mode: online}}"
    return f'{section}: {{path: "{_BY_PATH[section]}"}}' if section in _BY_PATH else None
