"""The catalogue: which keys have a canonical name. The data is in ``catalogue.toml``."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

_PART = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the catalogue."""

    key: str
    name: str
    unit: str
    kind: Literal["gauge", "counter", "histogram"]
    about: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    headline: str | None = None
    scale: float = 1.0
    deep: bool = False
    rl: str | None = None
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that fits a key, with the attributes that the key gives it."""

    entry: Entry
    attributes: Mapping[str, str]
    headline: str | None


class Catalogue:
    """Entries to look keys up in. Exact keys first, then patterns in the order of the file."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._exact = {entry.key: entry for entry in entries if "{" not in entry.key}
        self._patterns = [(_pattern(entry), entry) for entry in entries if "{" in entry.key]

    def find(self, key: str) -> Match | None:
        """The entry for this key, or None."""
        entry = self._exact.get(key)
        if entry is not None:
            return _match(entry, {})
        for pattern, candidate in self._patterns:
            found = pattern.fullmatch(key)
            if found and not any(part in candidate.never for part in found.groupdict().values()):
                return _match(candidate, found.groupdict())
        return None


@cache
def catalogue() -> Catalogue:
    """The catalogue that ships with the package."""
    loaded = tomllib.loads(files("rltel.names").joinpath("catalogue.toml").read_text())
    return Catalogue(tuple(_entry(line) for line in loaded["metric"]))


def _entry(line: Mapping[str, Any]) -> Entry:
    return Entry(**{**line, "nested": tuple(line.get("nested", ())), "never": tuple(line.get("never", ()))})


def _pattern(entry: Entry) -> re.Pattern[str]:
    """``a/{x}_ms`` as a regular expression; a part spans slashes only where the entry is deep."""
    part = "(?s:.+)" if entry.deep else "[^/]+"
    pieces = _PART.split(entry.key)
    return re.compile("".join(f"(?P<{p}>{part})" if i % 2 else re.escape(p) for i, p in enumerate(pieces)))


def _match(entry: Entry, parts: Mapping[str, str]) -> Match:
    attributes = {name: _filled(text, parts) for name, text in entry.attributes.items()}
    if any(part in entry.nested for part in parts.values()):
        attributes["rl.phase.kind"] = "nested"
    return Match(entry, attributes, entry.headline and _filled(entry.headline, parts))


def _filled(text: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda found: parts[found.group(1)], text)
