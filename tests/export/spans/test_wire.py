"""Spans encoded by hand, read by the official classes, and held against OpenTelemetry's own encoder."""

import math
from collections.abc import Iterator, Mapping
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as PbStatus
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from rltel.export.spans.wire import SpanData, SpanEncoder, bare, request, resource_bytes
from rltel.version import VERSION

TRACE_ID, SPAN_ID, PARENT_ID = (0xFEDC << 112) | 5, (0xAB << 56) | 7, 11
START_NS, END_NS = 1_795_987_000_000_000_000, 1_795_987_000_000_123_456
PLAIN = SpanData(TRACE_ID, SPAN_ID, PARENT_ID, "update", START_NS, END_NS)
RESOURCE = Resource({"service.name": "rl", "process.pid": 7}, "https://schema/1")

ids_64, ids_128 = st.integers(1, 2**64 - 1), st.integers(1, 2**128 - 1)
times = st.integers(0, 2**64 - 1)
scalars = (
    st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=True) | st.binary() | st.none()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
attribute_maps = st.dictionaries(st.text(), values, max_size=5)


def read(*spans: bytes, scope: str = "rltel") -> list[Span]:
    message = ExportTraceServiceRequest.FromString(request(b"", {scope: spans}))
    return list(message.resource_spans[0].scope_spans[0].spans)


def attributes_of(given_attributes: Mapping[Any, Any], encoder: SpanEncoder | None = None) -> dict[str, AnyValue]:
    (span,) = read((encoder or SpanEncoder()).span(PLAIN._replace(attributes=given_attributes)))
    return {pair.key: pair.value for pair in span.attributes}


def one_value(value: Any) -> AnyValue:
    return attributes_of({"key": value})["key"]


def by_sdk(data: SpanData) -> ExportTraceServiceRequest:
    """The same span through OpenTelemetry's own encoder."""

    def context(trace_id: int, span_id: int) -> SpanContext:
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    span = ReadableSpan(
        data.name,
        context(data.trace_id, data.span_id),
        context(data.trace_id, data.parent_id) if data.parent_id else None,
        RESOURCE,
        data.attributes,
        [Event(name, attributes, time_ns) for time_ns, name, attributes in data.events],
        [Link(context(*link)) for link in data.links],
        status=Status() if data.error is None else Status(StatusCode.ERROR, data.error),
        start_time=data.start_ns,
        end_time=data.end_ns,
        instrumentation_scope=InstrumentationScope("rltel", VERSION),
    )
    return encode_spans([span])


def without_empty_status(message: ExportTraceServiceRequest) -> bytes:
    """OpenTelemetry's encoder writes a status that says nothing; we leave it out.

    As bytes: a message that holds NaN equals no other, and fields that the classes do not know are in them, too.
    """
    for span in message.resource_spans[0].scope_spans[0].spans:
        if span.status == PbStatus():
            span.ClearField("status")
    return message.SerializeToString(deterministic=True)


class TestAgainstOpenTelemetry:
    def same(self, data: SpanData) -> None:
        ours = request(resource_bytes(RESOURCE), {"rltel": [SpanEncoder().span(data)]})
        parsed = ExportTraceServiceRequest.FromString(ours)
        assert without_empty_status(parsed) == without_empty_status(by_sdk(data))

    @given(ids_128, ids_64, st.just(0) | ids_64, st.text(), times, times)
    def test_a_bare_span_is_the_same(
        self, trace_id: int, span_id: int, parent_id: int, name: str, start_ns: int, end_ns: int
    ) -> None:
        self.same(SpanData(trace_id, span_id, parent_id, name, start_ns, end_ns))
        template = SpanEncoder().template(name)
        fast = bare(trace_id.to_bytes(16, "big"), span_id, parent_id, template, start_ns, end_ns)
        assert fast == SpanEncoder().span(SpanData(trace_id, span_id, parent_id, name, start_ns, end_ns))

    @given(
        attribute_maps,
        st.none() | st.text(min_size=1),
        st.lists(st.tuples(times, st.text(), st.none() | attribute_maps), max_size=3),
        st.lists(st.tuples(ids_128, ids_64), max_size=3),
    )
    def test_a_full_span_is_the_same(self, attributes: Any, error: Any, events: Any, links: Any) -> None:
        self.same(PLAIN._replace(attributes=attributes, error=error, events=events, links=links))


class TestRequest:
    def test_a_scope_for_each_name_with_our_version(self) -> None:
        one, two = (SpanEncoder().span(PLAIN._replace(name=name)) for name in ("one", "two"))
        body = request(resource_bytes(RESOURCE), {"rltel": [one], "rltel.rollout": [two, one], "empty": []})
        (of_resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
        found = {(of.scope.name, of.scope.version): [span.name for span in of.spans] for of in of_resource.scope_spans}
        assert found == {("rltel", VERSION): ["one"], ("rltel.rollout", VERSION): ["two", "one"]}
        assert of_resource.schema_url == "https://schema/1"
        assert {pair.key for pair in of_resource.resource.attributes} == {"service.name", "process.pid"}

    @pytest.mark.parametrize("length", [0, 1, 50, 100, 127, 128, 129, 16_384, 300_000])
    def test_names_of_any_length(self, length: int) -> None:
        """Around the lengths whose own length takes another byte."""
        name = "n" * length
        spans = read(
            bare(bytes(15) + b"\x01", SPAN_ID, 0, SpanEncoder().template(name), START_NS, END_NS),
            SpanEncoder().span(PLAIN._replace(name=name, error=name)),
        )
        assert [len(span.name) for span in spans] == [length, length]
        assert len(spans[1].status.message) == length


class TestBare:
    def test_has_the_attributes_of_its_template(self) -> None:
        template = SpanEncoder().template("update", {"thread.name": "main", "n": 1})
        (span,) = read(bare(TRACE_ID.to_bytes(16, "big"), SPAN_ID, PARENT_ID, template, START_NS, END_NS))
        shared = SpanEncoder().attributes({"thread.name": "main", "n": 1})
        assert span == read(SpanEncoder().span(PLAIN, shared))[0]
        assert [pair.key for pair in span.attributes] == ["thread.name", "n"]

    def test_ids_are_as_in_a_traceparent(self) -> None:
        (span,) = read(SpanEncoder().span(PLAIN))
        assert span.trace_id.hex() == f"{TRACE_ID:032x}"
        assert (span.span_id.hex(), span.parent_span_id.hex()) == (f"{SPAN_ID:016x}", f"{PARENT_ID:016x}")

    def test_a_root_has_no_parent(self) -> None:
        assert read(SpanEncoder().span(PLAIN._replace(parent_id=0)))[0].parent_span_id == b""

    @pytest.mark.parametrize(
        "wrong",
        [
            {"trace_id": b"short"},
            {"span_id": 1 << 64},
            {"span_id": -1},
            {"parent_id": 1 << 64},
            {"start_ns": -1},
            {"end_ns": 1 << 64},
            {"start_ns": 0.5},
        ],
    )
    def test_what_does_not_fit_is_refused(self, wrong: dict[str, Any]) -> None:
        """A span that is broken costs every span of its request."""
        arguments = {
            "trace_id": bytes(16),
            "span_id": 1,
            "parent_id": 0,
            "template": SpanEncoder().template("x"),
            "start_ns": 1,
            "end_ns": 2,
        }
        with pytest.raises(ValueError, match=r"16 bytes, got 5|64 bits, got"):
            bare(**(arguments | wrong))

    @pytest.mark.parametrize("trace_id", [-1, 1 << 128])
    def test_a_trace_id_that_is_none_is_refused(self, trace_id: int) -> None:
        with pytest.raises(ValueError, match=r"128 bits, got -?\d+"):
            SpanEncoder().span(PLAIN._replace(trace_id=trace_id))


class Colour(str, Enum):  # noqa: UP042  # whose str() is not its value, as users have them
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class TestValues:
    @pytest.mark.parametrize(
        ("value", "field", "wanted"),
        [
            ("text", "string_value", "text"),
            ("", "string_value", ""),
            (Colour.RED, "string_value", "red"),
            ("half \udcff pair", "string_value", "half ? pair"),
            (True, "bool_value", True),
            (False, "bool_value", False),
            (np.True_, "bool_value", True),
            (0, "int_value", 0),
            (-1, "int_value", -1),
            (2**63 - 1, "int_value", 2**63 - 1),
            (-(2**63), "int_value", -(2**63)),
            (np.int32(-5), "int_value", -5),
            (np.uint64(2**63 - 1), "int_value", 2**63 - 1),
            (Level.HIGH, "int_value", 3),
            (2**63, "string_value", "9223372036854775808"),
            (-(2**63) - 1, "string_value", "-9223372036854775809"),
            (np.uint64(2**64 - 1), "string_value", "18446744073709551615"),
            (0.5, "double_value", 0.5),
            (math.inf, "double_value", math.inf),
            (-math.inf, "double_value", -math.inf),
            (np.float32(0.5), "double_value", 0.5),
            (Fraction(1, 4), "double_value", 0.25),
            (b"\xff", "bytes_value", b"\xff"),
            (bytearray(b"\x00"), "bytes_value", b"\x00"),
            (memoryview(b"m"), "bytes_value", b"m"),
            (np.array([1, 2]), "string_value", "[1 2]"),
            ({1}, "string_value", "{1}"),
            (1j, "string_value", "1j"),
        ],
    )
    def test_have_their_kinds(self, value: Any, field: str, wanted: Any) -> None:
        found = one_value(value)
        assert (found.WhichOneof("value"), getattr(found, field)) == (field, wanted)

    def test_nan_stays_nan(self) -> None:
        assert math.isnan(one_value(math.nan).double_value)

    def test_none_is_an_empty_value_as_in_open_telemetry(self) -> None:
        assert one_value(None).WhichOneof("value") is None

    def test_sequences_and_mappings_keep_their_parts(self) -> None:
        found = one_value([1, (0.5, "x"), {"a": {2: True}}])
        first, second, third = found.array_value.values
        assert (first.int_value, [v.WhichOneof("value") for v in second.array_value.values]) == (
            1,
            ["double_value", "string_value"],
        )
        (pair,) = third.kvlist_value.values
        (inner,) = pair.value.kvlist_value.values
        assert (pair.key, inner.key, inner.value.bool_value) == ("a", "2", True)

    def test_names_that_are_no_text_become_it(self) -> None:
        assert list(attributes_of({1: "a", None: "b", "half \udcff": "c"})) == ["1", "None", "half ?"]

    def test_depth_is_bounded(self) -> None:
        """A reader refuses a request with more than 100 messages in each other: one deep value would cost them all."""
        deep: Any = "bottom"
        for _ in range(60):
            deep = {"in": [deep]}
        assert one_value(deep).WhichOneof("value") == "kvlist_value"
        in_event = PLAIN._replace(events=[(START_NS, "e", {"deep": deep})])
        assert read(SpanEncoder().span(in_event))[0].events[0].attributes[0].key == "deep"

    def test_a_value_that_holds_itself(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        assert one_value(circle).WhichOneof("value") == "array_value"

    def test_names_without_end_take_no_memory_without_end(self) -> None:
        encoder = SpanEncoder()
        for number in range(10_000):
            encoder.span(PLAIN._replace(name=f"n{number}", attributes={f"a{number}": 1}))
        assert len(encoder._keys) < 5000
        assert len(encoder._named) < 5000
        assert attributes_of({"a9999": 2}, encoder)["a9999"].int_value == 2


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Changing(dict[str, int]):
    """As if another thread wrote to it meanwhile."""

    def items(self) -> Any:
        def changed() -> Iterator[tuple[str, int]]:
            yield "first", 1
            raise RuntimeError("dictionary changed size during iteration")

        return changed()


class TestUnreadable:
    """What a program hangs on a span must not cost the span, nor go unnoticed."""

    def test_a_value_that_raises_costs_only_itself(self) -> None:
        encoder = SpanEncoder()
        found = attributes_of({"a": 1, "bad": Raises(), "list": [1, Raises()], "b": 2}, encoder)
        assert list(found) == ["a", "b"]
        assert encoder.unreadable == 2

    def test_a_name_that_raises(self) -> None:
        encoder = SpanEncoder()
        assert list(attributes_of({Raises(): 1, "b": 2}, encoder)) == ["b"]
        (span,) = read(encoder.span(PLAIN._replace(name=Raises())))  # type: ignore[arg-type]  # the fault under test
        assert (span.name, encoder.unreadable) == ("?", 2)

    @pytest.mark.parametrize(("name", "wanted"), [(7, "7"), (["x"], "['x']"), ("half \udcff", "half ?")])
    def test_a_span_s_name_that_is_no_text_becomes_it(self, name: Any, wanted: str) -> None:
        assert read(SpanEncoder().span(PLAIN._replace(name=name)))[0].name == wanted

    def test_attributes_that_change_meanwhile(self) -> None:
        encoder = SpanEncoder()
        assert list(attributes_of(Changing({"first": 1}), encoder)) == ["first"]
        assert encoder.unreadable == 1

    def test_attributes_that_are_no_mapping(self) -> None:
        encoder = SpanEncoder()
        assert attributes_of([1, 2], encoder) == {}  # type: ignore[arg-type]  # the fault under test
        assert encoder.unreadable == 1

    def test_an_event_and_a_link_that_do_not_fit(self) -> None:
        encoder = SpanEncoder()
        data = PLAIN._replace(
            events=[(-1, "before all time", None), (START_NS, "good", {"bad": Raises(), "k": 1})],
            links=[(1 << 128, 1), (TRACE_ID, 1 << 64), (TRACE_ID, PARENT_ID)],
        )
        (span,) = read(encoder.span(data))
        assert [(event.name, [pair.key for pair in event.attributes]) for event in span.events] == [("good", ["k"])]
        assert [link.span_id[-1] for link in span.links] == [PARENT_ID]
        assert encoder.unreadable == 4

    def test_an_error_without_words_is_an_error(self) -> None:
        (span,) = read(SpanEncoder().span(PLAIN._replace(error="")))
        assert span.status.code == PbStatus.STATUS_CODE_ERROR
