"""Old tags of robot RL and what became of them. The data is in ``legacy.toml``."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rltel.core.errors import RltelError
from rltel.names.schema import algorithm_named, removed

_PART = re.compile(r"<\w+>")
_SCALES = {"renamed": 1.0, "milliseconds_to_seconds": 1e-3, "seconds_to_milliseconds": 1e3}


class AmbiguousTagError(RltelError, ValueError):
    """One old name had several meanings, and nothing says which algorithm wrote it.

    ``meanings``: what it became, by algorithm.
    """

    def __init__(self, message: str, meanings: Mapping[str, str]) -> None:
        super().__init__(message)
        self.meanings = meanings


@dataclass(frozen=True, slots=True)
class Renamed:
    """The canonical tag. ``scale``: times the old value it is the new one. Of several the lowest ``place`` wins."""

    tag: str
    scale: float
    place: int


@dataclass(frozen=True, slots=True)
class Retired:
    """It has no successor. ``instead``: what a reader can take, in words."""

    instead: str


def successor(old: str, algo: str | None = None) -> Renamed | Retired | None:
    """What became of an old tag; None if it is none.

    Args:
        old: a tag, as an event file has it.
        algo: who wrote it (``sac``, ``flashsac``, ``appo``, or as the log folder is called). Two names need it.

    Raises `AmbiguousTagError` if the name alone does not say, or this algorithm never wrote it.
    """
    return _table().find(old, algo)


class _Table:
    def __init__(self, data: Mapping[str, Mapping[str, str]], ambiguous: Mapping[str, Mapping[str, str]]) -> None:
        exact = [(old, new, scale) for part, scale in _SCALES.items() for old, new in data[part].items()]
        self._exact = {old: Renamed(new, scale, place) for place, (old, new, scale) in enumerate(exact)}
        self._ambiguous = ambiguous
        self._families = [(_pattern(old), new) for old, new in data["families"].items()]
        self._retired = [(_pattern(old), Retired(instead)) for old, instead in data["retired"].items()]

    def find(self, old: str, algo: str | None) -> Renamed | Retired | None:
        found = self._exact.get(old)
        if found is not None:
            return found
        if old in self._ambiguous:
            return Renamed(_chosen(old, self._ambiguous[old], algo), 1.0, len(self._exact))
        for pattern, retired in self._retired:
            if pattern.fullmatch(old):
                return retired
        for pattern, new in self._families:
            match = pattern.fullmatch(old)
            if match:
                return Renamed(_PART.sub(match[1], new), 1.0, len(self._exact) + 1)
        gone = removed(old)
        return None if gone is None else Retired(gone.instead)


@cache
def _table() -> _Table:
    loaded = tomllib.loads(files("rltel.names").joinpath("legacy.toml").read_text())
    return _Table(loaded, loaded.pop("by_algorithm"))


def _pattern(old: str) -> re.Pattern[str]:
    return re.compile("(.+)".join(map(re.escape, _PART.split(old))))


def _chosen(old: str, by_algo: Mapping[str, str], algo: str | None) -> str:
    found = by_algo.get(algorithm_named(algo or "") or "")
    if found is None:
        meanings = "; ".join(f"{name}: {new}" for name, new in by_algo.items())
        who = "nothing says which algorithm wrote it" if algo is None else f'got algorithm "{algo}"'
        asked = f"{old} had several meanings ({meanings}), and {who}; give one of these with --algo"
        raise AmbiguousTagError(asked, by_algo)
    return found
