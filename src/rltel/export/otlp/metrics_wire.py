"""OTLP metrics, encoded directly: from points to the body of an ExportMetricsServiceRequest.

OpenTelemetry's data classes and encoder cost several times as much. Tests prove that the official classes read the
same. What never changes of a series (its attributes) is encoded once.
"""

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

from opentelemetry.sdk.resources import Resource

from rltel.export.otlp.exponential import SCALE, Dense, exponential, whole
from rltel.export.points import HistogramValue, Point
from rltel.export.protobuf import tagged, varint
from rltel.export.spans.wire import request, resource_bytes
from rltel.record.buckets import MIN_EXPONENT

SeriesKey = tuple[str, frozenset[tuple[str, str]]]
BEFORE_NS = 1_000_000  # a millisecond: the least that receivers tell apart

_MAX_CACHED = 100_000
_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL = b"\x2a", b"\x3a", b"\x4a", b"\x52"
_CUMULATIVE, _MONOTONIC = b"\x10\x02", b"\x18\x01"
_AT = b"\x3a"  # attributes of a number
_OF_HISTOGRAM, _OF_EXPONENTIAL = b"\x4a", b"\x0a"  # and of histograms

_gauge_point = struct.Struct("<BQBd").pack  # time 3, as_double 4
_sum_point = struct.Struct("<BQBQBd").pack  # start 2, time 3, as_double 4
_histogram_point = struct.Struct("<BQBQBQBd").pack  # start 2, time 3, count 4, sum 5
_zero_count = struct.Struct("<BQ").pack
_ZERO_THRESHOLD = struct.pack("<Bd", 0x71, 2.0**MIN_EXPONENT)


def series_key(point: Point) -> SeriesKey:
    """What tells one series from another."""
    return point.name, frozenset(point.attributes.items())


def scope_name(tracker: str) -> str:
    """A tracker is a Meter."""
    return f"rltel.{tracker}" if tracker else "rltel"


class MetricsEncoder:
    """Encodes commits of one process.

    Args:
        resource: who we are.
        started_ns: since when sums are cumulative.
        exponential_histograms: instead of those with explicit bounds.
    """

    def __init__(self, resource: Resource, started_ns: int, *, exponential_histograms: bool = False) -> None:
        self._resource = resource_bytes(resource)
        self._started_ns = started_ns
        self._exponential = exponential_histograms
        # By identity: the points of a series share their attributes. Held here, no other dict gets the same id.
        self._attributes: dict[tuple[int, bytes], tuple[Mapping[str, str], bytes]] = {}

    def encode(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey] = ()) -> bytes:
        """One request. Sums that are ``new`` are also sent as they were a moment before, 0: a backend that sees a sum
        for the first time cannot know whether it grew just now, and `delta` would leave out the first step.
        """
        scopes: dict[str, dict[tuple[str, str], list[Point]]] = {}
        for point in points:  # two keys of one name may be of two kinds: a counter's points are not a gauge's
            scopes.setdefault(point.tracker, {}).setdefault((point.name, point.kind), []).append(point)
        return request(
            self._resource,
            {
                scope_name(tracker): [self._metric(of_name, time_ns, new) for of_name in names.values()]
                for tracker, names in scopes.items()
            },
        )

    def _metric(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey]) -> bytes:
        first = points[0]
        if first.kind == "gauge":
            data = tagged(_GAUGE, b"".join([self._gauge(point, time_ns) for point in points]))
        elif first.kind != "histogram":
            numbers = b"".join(self._sums(points, time_ns, new))
            data = tagged(_SUM, numbers + _CUMULATIVE + (_MONOTONIC if first.kind == "counter" else b""))
        elif self._exponential:
            data = tagged(_EXPONENTIAL, b"".join([self._of_scale(point, time_ns) for point in points]) + _CUMULATIVE)
        else:
            data = tagged(_HISTOGRAM, b"".join([self._explicit(point, time_ns) for point in points]) + _CUMULATIVE)
        texts = ((b"\x0a", first.name), (b"\x12", first.about), (b"\x1a", first.unit))
        head = b"".join([tagged(tag, text.encode()) for tag, text in texts if text])
        return tagged(b"\x12", head + data)

    def _gauge(self, point: Point, time_ns: int) -> bytes:
        number = _gauge_point(0x19, time_ns, 0x21, _number(point))
        return tagged(b"\x0a", number + self._encoded(point.attributes, _AT))

    def _sums(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey]) -> Iterator[bytes]:
        for point in points:
            attributes = self._encoded(point.attributes, _AT)
            if new and series_key(point) in new:
                yield tagged(
                    b"\x0a", _sum_point(0x11, self._started_ns, 0x19, time_ns - BEFORE_NS, 0x21, 0.0) + attributes
                )
            yield tagged(b"\x0a", _sum_point(0x11, self._started_ns, 0x19, time_ns, 0x21, _number(point)) + attributes)

    def _explicit(self, point: Point, time_ns: int) -> bytes:
        value = _histogram(point)
        counts = whole([*value.counts, value.count])
        head = _histogram_point(0x11, self._started_ns, 0x19, time_ns, 0x21, sum(counts), 0x29, value.total)
        packed = struct.pack(f"<{len(counts)}Q", *counts), struct.pack(f"<{len(value.bounds)}d", *value.bounds)
        lists = tagged(b"\x32", packed[0]) + tagged(b"\x3a", packed[1])
        return tagged(b"\x0a", head + lists + self._encoded(point.attributes, _OF_HISTOGRAM))

    def _of_scale(self, point: Point, time_ns: int) -> bytes:
        value = _histogram(point)
        counts = exponential(value.buckets)
        head = _histogram_point(0x11, self._started_ns, 0x19, time_ns, 0x21, counts.count, 0x29, value.total)
        zeros = b"\x30" + _zigzag(SCALE) + _zero_count(0x39, counts.zero)
        filled = _dense(b"\x42", counts.positive) + _dense(b"\x4a", counts.negative)
        attributes = self._encoded(point.attributes, _OF_EXPONENTIAL)
        return tagged(b"\x0a", attributes + head + zeros + filled + _ZERO_THRESHOLD)

    def _encoded(self, attributes: Mapping[str, str], tag: bytes) -> bytes:
        known = self._attributes.get((id(attributes), tag))
        if known is not None:
            return known[1]
        made = b"".join(
            tagged(tag, tagged(b"\x0a", name.encode()) + tagged(b"\x12", tagged(b"\x0a", value.encode())))
            for name, value in attributes.items()
        )
        if len(self._attributes) >= _MAX_CACHED:
            self._attributes.clear()
        self._attributes[id(attributes), tag] = (attributes, made)
        return made


def _number(point: Point) -> float:
    assert not isinstance(point.value, HistogramValue)
    return point.value


def _histogram(point: Point) -> HistogramValue:
    assert isinstance(point.value, HistogramValue)
    return point.value


def _dense(tag: bytes, dense: Dense) -> bytes:
    if not dense.counts:
        return b""
    packed = b"".join([varint(count) for count in dense.counts])
    return tagged(tag, b"\x08" + _zigzag(dense.offset) + tagged(b"\x12", packed))


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)
