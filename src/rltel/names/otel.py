"""From a key to its OpenTelemetry name, unit and attributes: by the catalogue, else by rule, never by guessing."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rltel.names.catalogue import Catalogue, catalogue
from rltel.names.prometheus import prometheus_name

_log = logging.getLogger("rltel")
_PREFIX = "rl.stats."
_LONGEST = 255 - len(".distribution")  # OpenTelemetry's limit, with room for the longest name made from this one
_OTHER = re.compile(r"[^a-z0-9_/]")
_RUNS = re.compile(r"_{2,}")

Instrument = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Name:
    """What a key is called in OpenTelemetry. ``canonical``: the catalogue has it."""

    name: str
    unit: str
    attributes: Mapping[str, str]
    instrument: Instrument
    about: str
    canonical: bool
    scale: float = 1.0
    """What a plain number of this key is multiplied by to be in ``unit``."""


class Namer:
    """Names of keys, remembered. Two keys that would be one series in Prometheus are kept apart by ``rl.key``."""

    def __init__(self, entries: Catalogue | None = None) -> None:
        self._catalogue = entries or catalogue()
        self._names: dict[tuple[str, str], Name] = {}
        self._owners: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
        self.collisions = 0
        """Keys that had to be told apart from an earlier key of the same Prometheus name."""

    def name(self, key: str, tracker: str = "", *, counter: bool = False) -> Name:
        """The name of a key that this tracker recorded. ``counter``: as one it is ``_total`` in Prometheus."""
        known = self._names.get((key, tracker))
        if known is None:
            known = self._names[key, tracker] = self._apart(key, self._find(key, tracker), counter)
        return known

    def _find(self, key: str, tracker: str) -> Name:
        own = key.removeprefix(f"{tracker}/") if tracker else key
        found = self._catalogue.find(key) or self._catalogue.find(own)
        if found is None:
            return _by_rule(key)
        attributes = dict(found.attributes)
        if own != key and self._catalogue.find(key) is None:
            attributes["rl.tracker"] = tracker
        entry = found.entry
        return Name(entry.name, entry.unit, attributes, entry.kind, entry.about, True, entry.scale)

    def _apart(self, key: str, name: Name, counter: bool) -> Name:
        exposed = prometheus_name(name.name, name.unit, "counter" if counter else "gauge")
        owner = self._owners.setdefault((exposed, frozenset(name.attributes.items())), key)
        if owner == key or "rl.key" in name.attributes:
            return name
        self.collisions += 1
        _log.warning('key "%s" has the same Prometheus name as "%s" (%s); it carries rl.key', key, owner, exposed)
        return replace(name, attributes={**name.attributes, "rl.key": key})


def _by_rule(key: str) -> Name:
    """``rl.stats.`` and the path. What loses anything on the way carries the key itself, always."""
    path = _OTHER.sub("_", key.lower().replace("@", "_at_").replace("%", "_percent"))
    path = _RUNS.sub("_", path)[: _LONGEST - len(_PREFIX)]
    attributes = {} if path == key else {"rl.key": key}
    about = "Recorded as a key of the user's own."
    return Name(_PREFIX + path.replace("/", "."), "", attributes, "gauge", about, False)
