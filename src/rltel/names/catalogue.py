"""The catalogue: which keys have a canonical name. The data is in ``catalogue.toml``."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

SCOPE = "rl.scope"
"""The attribute that says under which scope a key stands, where it is not the usual one; ``/`` for none."""

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
    any_scope: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that fits a key, with the attributes that the key gives it."""

    entry: Entry
    attributes: Mapping[str, str]
    headline: str | None


class Catalogue:
    """Entries to look keys up in. Exact keys first, then patterns in the order of the file, then other scopes."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._exact = {entry.key: entry for entry in entries if "{" not in entry.key}
        self._patterns = [(_pattern(entry), entry) for entry in entries if "{" in entry.key]
        self._scoped = [(_scoped_pattern(entry), entry) for entry in entries if entry.any_scope is not None]

    def find(self, key: str) -> Match | None:
        """The entry for this key, or None. Under a scope that is not the usual one it has the attribute `SCOPE`."""
        return self.find_as_written(key) or self.find_in_any_scope(key)

    def find_as_written(self, key: str) -> Match | None:
        """The entry for this key, whole, or None."""
        entry = self._exact.get(key)
        if entry is not None:
            return _match(entry, {})
        for pattern, candidate in self._patterns:
            found = pattern.fullmatch(key)
            if found and not any(part in candidate.never for part in found.groupdict().values()):
                return _match(candidate, found.groupdict())
        return None

    def find_in_any_scope(self, key: str, tracker: str = "") -> Match | None:
        """The entry that this key's last parts are of, or None.

        Args:
            key: whole.
            tracker: the name that leads the key, which is no scope.
        """
        for pattern, entry in self._scoped:
            found = pattern.fullmatch(key)
            if found:
                parts = found.groupdict()
                scope = parts.pop("scope") or ""
                if scope != entry.any_scope and _fits(scope, parts.values(), entry):
                    return _in_scope(_match(entry, parts), f"{scope}/".removeprefix(f"{tracker}/").rstrip("/"))
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


def _scoped_pattern(entry: Entry) -> re.Pattern[str]:
    """The key without its usual scope, after any other one or none. Parts are narrower: more keys are in question."""
    before = f"{entry.any_scope}/" if entry.any_scope else ""
    if not entry.key.startswith(before):
        raise ValueError(f'catalogue: key "{entry.key}" does not begin with its any_scope "{entry.any_scope}"')
    pieces = _PART.split(entry.key.removeprefix(before))
    own = (f"(?P<{p}>{entry.parts[p]})" if i % 2 else re.escape(p) for i, p in enumerate(pieces))
    return re.compile("(?:(?P<scope>(?s:.+))/)?" + "".join(own))


def _fits(scope: str, parts: Iterable[str], entry: Entry) -> bool:
    wanted = entry.parts.get("scope")
    named = wanted is None or re.fullmatch(wanted, scope) is not None
    return named and not any(part in entry.never for part in parts)


def _match(entry: Entry, parts: Mapping[str, str]) -> Match:
    attributes = {name: _filled(text, parts) for name, text in entry.attributes.items()}
    if any(part in entry.nested for part in parts.values()):
        attributes["rl.phase.kind"] = "nested"
    return Match(entry, attributes, entry.headline and _filled(entry.headline, parts))


def _in_scope(match: Match, scope: str) -> Match:
    headline = f"{scope}/{match.headline}" if scope and match.headline else match.headline
    return Match(match.entry, {**match.attributes, SCOPE: scope or "/"}, headline)


def _filled(text: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda found: parts[found.group(1)], text)
