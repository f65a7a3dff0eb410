"""From a key to its OpenTelemetry name, unit and attributes: by the catalogue, else by rule, never by guessing."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rltel.core.wording import printable
from rltel.names.catalogue import Catalogue, Match, catalogue
from rltel.names.phases import LOOP, PhaseLabel, part_series, phase_series
from rltel.names.prometheus import prometheus_name

_log = logging.getLogger("rltel")
_PREFIX = "rl.stats."
_LONGEST = 255 - len(".distribution")  # OpenTelemetry's limit, with room for the longest name made from this one
_OTHER = re.compile(r"[^a-z0-9_/]")
_RUNS = re.compile(r"_{2,}")
_NO_LIMIT = 1 << 62
_OVERFLOW = {"otel.metric.overflow": "true"}  # OpenTelemetry's own word for it

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
    also: "Name | None" = None
    """A second name of the same histogram: the part of the ``rl.*`` proposal that a phase is."""
    overflow: bool = False
    """Whether its metric had no room for another label set: it shares one series with all others that came too late."""


class Namer:
    """Names of keys, remembered. Two keys that would be one series in Prometheus are kept apart by ``rl.key``.

    No metric gets more than ``max_series`` label sets: keys that come later share one more, the overflow series.
    """

    def __init__(self, entries: Catalogue | None = None, *, max_series: int = _NO_LIMIT) -> None:
        self._catalogue = entries or catalogue()
        self._max_series = max_series
        self._names: dict[tuple[str, str, PhaseLabel | None], Name] = {}
        self._nonfinite: dict[str, Name] = {}
        self._owners: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
        self._held: dict[str, int] = {}  # of each Prometheus name: how many label sets
        self.collisions = 0
        """Keys that had to be told apart from an earlier key of the same Prometheus name."""
        self.overflowed: dict[str, int] = {}
        """Keys that share the overflow series, by Prometheus name."""

    def name(
        self,
        key: str,
        tracker: str = "",
        *,
        counter: bool = False,
        phase: PhaseLabel | None = None,
        series: int = 1,
    ) -> Name:
        """The name of a key that this tracker recorded.

        Args:
            key: as it is in the snapshot, with the tracker's name.
            tracker: its name; empty for the default one.
            counter: whether it is one, which is ``_total`` in Prometheus.
            phase: what it times, if it is a phase's time: its name then follows from that, whatever the key.
            series: how many label sets it is at most (an average and its extremes are three).
        """
        known = self._names.get((key, tracker, phase))
        if known is None:
            found = self._find(key, tracker) if phase is None else _of_phase(phase, tracker)
            also = found.also and self._placed(key, found.also, counter, 1)
            known = self._names[key, tracker, phase] = replace(self._placed(key, found, counter, series), also=also)
        return known

    def nonfinite(self, key: str) -> Name:
        """The counter of this key's values that were NaN or infinite."""
        known = self._nonfinite.get(key)
        if known is None:
            about = "Values that were NaN or infinite."
            name = Name("rl.stats.nonfinite", "", {"rl.key": key}, "counter", about, True)
            known = self._nonfinite[key] = self._limited(key, name, "rl_stats_nonfinite_total", 1)
        return known

    def _placed(self, key: str, name: Name, counter: bool, series: int) -> Name:
        exposed = prometheus_name(name.name, name.unit, "counter" if counter else "gauge")
        return self._limited(key, self._apart(key, name, exposed), exposed, series)

    def _find(self, key: str, tracker: str) -> Name:
        own = key.removeprefix(f"{tracker}/") if tracker else key
        found = self._catalogue.find_as_written(key)
        if found is not None:
            return _of_entry(found, {})
        # The whole key again: a tracker "critic" says as much as a scope of that name whose update it is.
        found = self._catalogue.find_as_written(own) or self._catalogue.find_in_any_scope(key, tracker)
        return _by_rule(key) if found is None else _of_entry(found, _of_tracker(tracker))

    def _apart(self, key: str, name: Name, exposed: str) -> Name:
        owner = self._owners.setdefault((exposed, frozenset(name.attributes.items())), key)
        if owner == key or "rl.key" in name.attributes:
            return name
        self.collisions += 1
        _log.warning(
            'key "%s" has the same Prometheus name as "%s" (%s); it carries rl.key',
            *map(printable, (key, owner, exposed)),
        )
        return replace(name, attributes={**name.attributes, "rl.key": key})

    def _limited(self, key: str, name: Name, exposed: str, series: int) -> Name:
        held = self._held.get(exposed, 0) + series
        if held <= self._max_series:
            self._held[exposed] = held
            return name
        if exposed not in self.overflowed:
            _log.warning(
                '%s has %d label sets, as many as names.max_series_per_metric allows: key "%s" and those that come '
                'later share one series, otel_metric_overflow="true" (counted in rltel_overflowed_keys; said once)',
                *(exposed, self._held.get(exposed, 0), printable(key)),
            )
        self.overflowed[exposed] = self.overflowed.get(exposed, 0) + 1
        return replace(name, attributes=_OVERFLOW, overflow=True)


def _of_entry(match: Match, more: Mapping[str, str]) -> Name:
    entry, attributes = match.entry, {**match.attributes, **more}
    name = Name(entry.name, entry.unit, attributes, entry.kind, entry.about, True, entry.scale)
    if entry.rl is None:
        return name
    part, of_role = part_series(entry.rl, attributes["rl.role"])
    return replace(name, also=replace(name, name=part, attributes={**of_role, **more}))


def _of_phase(label: PhaseLabel, tracker: str) -> Name:
    more = _of_tracker(tracker)
    about = f"Wall time of {'one round of a loop' if label.kind == LOOP else 'a phase in one iteration'}."
    names = [
        Name(name, "s", {**attributes, **more}, "histogram", about, True) for name, attributes in phase_series(label)
    ]
    return replace(names[0], also=names[1]) if len(names) > 1 else names[0]


def _of_tracker(tracker: str) -> dict[str, str]:
    return {"rl.tracker": tracker} if tracker else {}


def _by_rule(key: str) -> Name:
    """``rl.stats.`` and the path. What loses anything on the way carries the key itself, always."""
    path = _OTHER.sub("_", key.lower().replace("@", "_at_").replace("%", "_percent"))
    path = _RUNS.sub("_", path)[: _LONGEST - len(_PREFIX)]
    attributes = {} if path == key else {"rl.key": key}
    about = "Recorded as a key of the user's own."
    return Name(_PREFIX + path.replace("/", "."), "", attributes, "gauge", about, False)
