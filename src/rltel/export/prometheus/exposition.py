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

from rltel.export.prometheus.openmetrics import Claims, Written, allowed, head

_written: Callable[[float], str] = floatToGoString
_END = b"# EOF\n"
_TEXT_TYPES = {"info": "gauge", "unknown": "untyped"}
_TEXT_SUFFIXES = {"info": "_info", "counter": "_total"}


class Family(Metric):
    """A family whose samples hold nothing but labels, a value and perhaps a time."""

    def join(self, kind: str) -> None:
        """Another series comes in. Of two types, the family is of neither."""
        wanted = _kind(kind)
        if self.type not in (wanted, "unknown"):
            self.name, self.type = _exposed(self), "unknown"


def family_named(exposed: str, kind: str, about: str) -> Family:
    """An empty family of the name that its series have. (The library appends a counter's ``_total`` itself.)"""
    wanted = _kind(kind)
    return Family(exposed.removesuffix("_total") if wanted == "counter" else exposed, about, wanted)


def _kind(kind: str) -> str:
    """A sum that may fall is no Prometheus counter."""
    return "gauge" if kind == "sum" else kind


def _exposed(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


class Labels(dict[str, str]):
    """Labels that know how they are written."""

    __slots__ = ("text",)

    def __init__(self, labels: Mapping[str, str], text: str | None = None) -> None:
        super().__init__(labels)
        self.text = _text_of(self) if text is None else text

    def with_bound(self, bound: str) -> "Labels":
        """These and ``le``, which comes before the names of all metrics, if not of our own accounts."""
        if any(name < "le" for name in self):
            return Labels({**self, "le": bound})
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
    """Everything on a registry, in the format that an ``Accept`` header asks for.

    Families are put into words one by one as they come: thousands of them at once would be so many objects that the
    interpreter collects its garbage, on a trainer's large heap, for every scrape.
    """
    encode, content_type = choose_encoder(accept)
    write = _openmetrics if content_type.startswith("application/openmetrics-text") else _text
    return Exposition(content_type, write(registry, lambda others: encode(_Others(others))))


def _text(registry: CollectorRegistry, encode: Callable[[list[Metric]], bytes]) -> bytes:
    ours: dict[str, list[str]] = {}
    others: list[Metric] = []
    for family in registry.collect():
        if isinstance(family, Family):
            name = text_name(family)
            kind = _TEXT_TYPES.get(family.type, family.type)
            about = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
            lines = ours.setdefault(name, [head(name, kind, about)])
            lines.extend([_line(sample, strict=False) for sample in family.samples])
        else:
            others.append(family)
    clear = []
    for family in others:
        if (mine := ours.get(text_name(family))) is None:
            clear.append(family)
        else:  # a family must not come twice: OpenTelemetry's own reader, say, has a ``target_info`` too
            mine.extend([_line(sample, strict=False) for sample in family.samples])
    return encode(clear) + "".join([line for lines in ours.values() for line in lines]).encode()


def text_name(family: Metric) -> str:
    """What a family is called in the text format, where no name may come twice."""
    return family.name + _TEXT_SUFFIXES.get(family.type, "")


def _openmetrics(registry: CollectorRegistry, encode: Callable[[list[Metric]], bytes]) -> bytes:
    ours: list[Written] = []
    others: list[Metric] = []
    claims = Claims()
    for family in registry.collect():
        if isinstance(family, Family):
            written = _written_out(family)
            ours.append(written)
            claims.add(written.name, written.kind, written.lines.keys())
        else:
            others.append(family)
            claims.add(family.name, family.type, _sample_names(family))
    clear = []
    for family in others:
        if claims.clash(family.name, family.type, _sample_names(family)):
            ours.append(_written_out(family))
        else:
            clear.append(family)
    return encode(clear).removesuffix(_END) + "".join(allowed(ours, claims)).encode() + _END


def _sample_names(family: Metric) -> set[str]:
    return {sample.name for sample in family.samples}


def _written_out(family: Metric) -> Written:
    about = _escaped(family.documentation)
    if len(family.samples) == 1:
        (sample,) = family.samples
        return Written(family.name, family.type, about, {sample.name: _line(sample, strict=True)})
    of_name: dict[str, list[str]] = {}
    lines = []
    for sample in family.samples:
        lines.append(_line(sample, strict=True))
        of_name.setdefault(sample.name, []).append(lines[-1])
    together = "".join(lines) if len(of_name) > 1 else ""
    return Written(family.name, family.type, about, {name: "".join(of) for name, of in of_name.items()}, together)


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
