"""A trainer's own config, taken as it stands: what of it is for us, under the names of our own fields.

A mapping is a trainer's config if it has AReaL's ``stats_logger`` or UniLab's ``training``. Our own sections may stand
beside these and win; all other sections are the trainer's, and are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from rltel.core import areal_config, unilab_config
from rltel.core.foreign_fields import Fields
from rltel.core.given import FOREIGN, is_foreign
from rltel.core.redact import redact
from rltel.core.sections import SECTIONS, Layer

_LOOKS_MISSPELT = 0.85


@dataclass
class Parted:
    """A given config, parted into what is ours and what the trainer's own sections say."""

    own: Layer
    foreign: Fields = field(default_factory=Fields)
    notes: list[str] = field(default_factory=list)
    """What was not taken over, and may have been meant for us."""


def part(plain: Mapping[str, Any], environ: Mapping[str, str], *, is_object: bool = False) -> Parted:
    """Part a config. `is_object`: it is the trainer's own dataclass, whose unknown fields are no typing errors."""
    if not is_foreign(plain):
        return Parted(dict(plain))
    parted = Parted({name: fields for name, fields in plain.items() if name in SECTIONS})
    trainer = {name: fields for name, fields in plain.items() if name not in SECTIONS}
    if unilab_config.is_meant(plain):
        unilab_config.take(plain, environ, parted.foreign)
    if areal_config.is_meant(plain):
        areal_config.take(plain, parted.foreign, is_object=is_object)
    parted.foreign.put("run.config", redact(_writable(trainer)), "the trainer's config")
    parted.notes += _misspelt(trainer)
    return parted


def _misspelt(trainer: Mapping[str, Any]) -> list[str]:
    found = []
    for name in trainer:
        close = get_close_matches(str(name), SECTIONS, n=1, cutoff=_LOOKS_MISSPELT)
        if close and name not in FOREIGN:
            found.append(f'{name}: taken for the trainer\'s own section; if "{close[0]}" was meant, correct it')
    return found


def _writable(value: Any) -> Any:
    """The same as data that JSON can hold: what is neither a number nor a text is spelled out."""
    if isinstance(value, Mapping):
        return {str(key): _writable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_writable(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
