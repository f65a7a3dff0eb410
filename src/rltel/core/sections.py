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
