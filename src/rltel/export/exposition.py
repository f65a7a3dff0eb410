"""Prometheus's two text formats, written faster than the library does: what never changes is put into words once.

Only for our own families (`Family`). Those of others on the same registry may hold what only the library writes
(exemplars, native histograms), and go through it. Tests compare both, byte for byte.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from rltel.export.openmetrics import openmetrics

_written: Callable[[float], str] = floatToGoString
_END = b"# EOF\n"
_TEXT_TYPES = {"info": "gauge", "unknown": "untyped"}
_TEXT_SUFFIXES = {"info": "_info", "counter": "_total"}


class Family(Metric):
    """A family whose samples hold nothing but labels, a value and perhaps a time."""


class Labels(dict[str, str]):
    """Labels that know how they are written."""

    __slots__ = ("text",)

    def __init__(self, labels: Mapping[str, str], text: str | None = None) -> None:
        super().__init__(labels)
        self.text = _text_of(self) if text is None else text

    def with_bound(self, bound: str) -> "Labels":
        """These and ``le``, which comes before any name of ours."""
        text = f'{{le="{bound}",{self.text[1:]}' if self.text else f'{{le="{bound}"}}'
        return Labels({"le": bound, **self}, text)


class Exposition(NamedTuple):
    """What a scrape gets."""

    content_type: str
    body: bytes


class _Others:
    """The families that the library writes, as a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def expose(registry: CollectorRegistry, accept: str) -> Exposition:
    """Everything on a registry, in the format that an ``Accept`` header asks for."""
    encode, content_type = choose_encoder(accept)
    strict = content_type.startswith("application/openmetrics-text")
    families = openmetrics(registry.collect()) if strict else list(registry.collect())
    others = _Others([family for family in families if not isinstance(family, Family)])
    body = encode(others)
    ours = [line for family in families if isinstance(family, Family) for line in _lines(family, strict)]
    return Exposition(content_type, body.removesuffix(_END) + "".join(ours).encode() + (_END if strict else b""))


def _lines(family: Family, strict: bool) -> Iterable[str]:
    if strict:
        name, kind, about = family.name, family.type, _escaped(family.documentation)
    else:
        name = family.name + _TEXT_SUFFIXES.get(family.type, "")
        kind = _TEXT_TYPES.get(family.type, family.type)
        about = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
    for sample in family.samples:
        yield _line(sample, strict)


def _line(sample: Sample, strict: bool) -> str:
    name, labels, value, time_s = sample[:4]
    text = labels.text if type(labels) is Labels else _text_of(labels)
    if time_s is None:
        return f"{name}{text} {_written(value)}\n"
    return f"{name}{text} {_written(value)} {_time(time_s, strict)}\n"


def _time(time_s: Any, strict: bool) -> str:
    """OpenMetrics has seconds, the text format whole milliseconds."""
    return str(time_s) if strict else str(int(float(time_s) * 1000))


def _text_of(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())) + "}"


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
