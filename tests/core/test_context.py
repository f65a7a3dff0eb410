"""Trace context: ids that no seed and no fork repeats, and W3C headers, beside OpenTelemetry's own SDK."""

import asyncio
import email
import random
import re
import threading

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, TraceFlags, TraceState

from rltel.core.context import (
    attached,
    current,
    inject,
    new_flow,
    new_id,
    new_trace_id,
    remote_parent,
    span_context,
    with_span,
)
from rltel.core.errors import RecordError

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

SEEDED_IDS = """
import random
random.seed(42)
from rltel.core.context import new_id, new_trace_id
random.seed(42)
print(*(new_id() for _ in range(100)), *(new_trace_id() for _ in range(100)))
"""


@pytest.fixture
def users():
    """A user's own OpenTelemetry: a tracer, and where its finished spans are."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("user"), exporter
    provider.shutdown()


# --- ids ------------------------------------------------------------------------------------------------------------


def test_ids_fit_and_are_never_zero():
    assert all(0 < new_id() < 2**64 for _ in range(1000))
    assert all(0 < new_trace_id() < 2**128 for _ in range(1000))


def test_ids_are_spread_over_all_their_bits():
    ids = [new_id() for _ in range(1000)]
    for bit in (0, 1, 32, 62, 63):
        assert 300 < sum(value >> bit & 1 for value in ids) < 700


def test_ids_do_not_repeat():
    assert len({new_id() for _ in range(100_000)}) == 100_000
    assert len({new_trace_id() for _ in range(1000)}) == 1000


def test_flows_do_not_repeat_and_fit():
    flows = [new_flow() for _ in range(100_000)]
    assert len(set(flows)) == 100_000
    assert all(0 < flow < 2**64 for flow in flows)


def test_flows_of_processes_and_forks_do_not_repeat(together):
    new_flow()
    made = [*together(4, lambda _: [new_flow() for _ in range(1000)]), [new_flow() for _ in range(1000)]]
    assert len({flow for of_process in made for flow in of_process}) == 5000


def test_ids_of_threads_do_not_repeat():
    ids = []
    threads = [threading.Thread(target=lambda: ids.extend([new_id() for _ in range(5000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 20_000


def test_an_id_that_mixes_to_zero_is_replaced(monkeypatch):
    from rltel.core.context import _Ids

    monkeypatch.setattr("os.urandom", bytes)
    assert _Ids().new() == 1  # the counter starts at 0, which mixes to 0
    assert new_trace_id() == 1


def test_opentelemetry_python_4376_a_seed_does_not_repeat_ids(fresh_python):
    """Two ranks that both call random.seed(42): OpenTelemetry's generator gave both the same ids."""
    ranks = [fresh_python(SEEDED_IDS) for _ in range(2)]
    ids = [rank.communicate()[0].split() for rank in ranks]
    assert [len(of_rank) for of_rank in ids] == [200, 200]
    assert len({*ids[0], *ids[1]}) == 400


def test_opentelemetry_python_4376_a_fork_does_not_repeat_ids(together):
    """A forked child goes on from its parent's generator, unless somebody sees to it."""
    new_id()

    def ids(_):
        random.seed(42)
        return [new_id() for _ in range(100)] + [new_trace_id() for _ in range(100)]

    made = [*together(4, ids), ids(0)]
    assert len({value for of_process in made for value in of_process}) == 1000


def test_ids_do_not_disturb_the_seed_of_the_program():
    random.seed(42)
    expected = random.random()
    random.seed(42)
    new_id(), new_trace_id()
    assert random.random() == expected


# --- headers --------------------------------------------------------------------------------------------------------


def test_nothing_current_nothing_sent():
    assert current() is None
    assert inject() == {}


def test_headers_are_w3c():
    token = otel_context.attach(with_span(span_context(TRACE, SPAN)))
    try:
        assert inject() == {"traceparent": HEADER}
    finally:
        otel_context.detach(token)


def test_new_ids_make_valid_headers():
    (header,) = inject(span_context(new_trace_id(), new_id())).values()
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", header)


def test_a_given_span_travels_instead_of_the_current_one():
    given = span_context(1, 2)
    assert inject(given) == {"traceparent": f"00-{1:032x}-{2:016x}-01"}
    with attached({"traceparent": HEADER}):
        assert inject(given) == {"traceparent": f"00-{1:032x}-{2:016x}-01"}
        assert inject() == {"traceparent": HEADER}
    assert current() is None  # it was not left in place


def test_a_span_of_the_same_trace_is_sampled_alike_and_keeps_its_state():
    remote = SpanContext(TRACE, SPAN, True, TraceFlags(0), TraceState([("vendor", "x")]))
    inner, other = span_context(TRACE, 5, remote), span_context(1, 5, remote)
    assert (inner.span_id, inner.is_remote, inner.trace_flags) == (5, False, TraceFlags(0))
    assert inner.trace_state == {"vendor": "x"}
    assert (other.trace_flags.sampled, dict(other.trace_state)) == (True, {})


def test_a_remote_parent_comes_from_headers_or_the_environment():
    assert remote_parent({}) is None
    assert remote_parent({"traceparent": "garbage"}) is None
    for name in ("traceparent", "TRACEPARENT"):
        found = remote_parent({name: HEADER, "PATH": "/"})
        assert (found.trace_id, found.span_id, found.is_remote) == (TRACE, SPAN, True)
    assert current() is None


def test_a_remote_parent_is_not_the_span_that_is_current_here():
    with attached({"traceparent": HEADER}):
        assert remote_parent({}) is None


def test_round_trip():
    with attached({"traceparent": HEADER}):
        here = current()
        assert (here.trace_id, here.span_id, here.is_remote) == (TRACE, SPAN, True)
        assert here.trace_flags.sampled
        assert inject() == {"traceparent": HEADER}
    assert current() is None


def test_round_trip_to_another_process(together):
    sent = inject(span_context(TRACE, SPAN))

    def received(_):
        with attached(sent):
            return current().trace_id, current().span_id

    assert together(2, received) == [(TRACE, SPAN)] * 2


def test_not_sampled_stays_so():
    with attached({"traceparent": HEADER[:-2] + "00"}):
        assert not current().trace_flags.sampled
        assert inject() == {"traceparent": HEADER[:-2] + "00"}


def test_state_and_baggage_travel():
    sender = with_span(SpanContext(TRACE, SPAN, False, TraceFlags(1), TraceState([("vendor", "x")])))
    token = otel_context.attach(baggage.set_baggage("run", "7", context=sender))
    try:
        sent = inject()
    finally:
        otel_context.detach(token)
    assert sent == {"traceparent": HEADER, "tracestate": "vendor=x", "baggage": "run=7"}
    with attached(sent):
        assert current().trace_state["vendor"] == "x"
        assert baggage.get_baggage("run") == "7"
    assert baggage.get_baggage("run") is None


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT", "TraceParent"])
def test_header_names_come_in_any_case(name):
    with attached({name: HEADER, "Content-Type": "x"}):
        assert current().trace_id == TRACE


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "x"},
        {"traceparent": ""},
        {"traceparent": "garbage"},
        {"traceparent": HEADER.replace("00-", "ff-", 1)},
        {"traceparent": f"00-{0:032x}-{SPAN:016x}-01"},
        {"traceparent": f"00-{TRACE:032x}-{0:016x}-01"},
        {"traceparent": HEADER[:-1]},
    ],
)
def test_headers_without_a_trace_change_nothing(headers):
    with attached(headers):
        assert current() is None
    with attached({"traceparent": HEADER}), attached(headers):
        assert current().span_id == SPAN


@pytest.mark.parametrize(
    ("headers", "given"),
    [
        (None, "got None"),
        (HEADER, f"got '{HEADER}'"),
        ([("traceparent", HEADER)], "got list"),
        ({b"traceparent": HEADER.encode()}, "got b'traceparent' as a name"),
        ({"traceparent": 5, "authorization": "secret"}, "got a value that is no string"),
    ],
)
def test_what_are_no_headers_is_said(headers, given):
    """Names as bytes (as ASGI has them) would have been overlooked; values are not shown, they may be secret."""
    with pytest.raises(RecordError) as raised, attached(headers):
        pass
    assert str(raised.value).startswith("headers: expected a mapping of names to strings")
    assert str(raised.value).endswith(given)
    assert current() is None


def test_an_http_server_s_own_headers_are_taken():
    message = email.message_from_string(f"Traceparent: {HEADER}\n\n")
    with attached(message):
        assert current().span_id == SPAN


def test_other_values_of_the_context_stay():
    key = otel_context.create_key("suppress")
    token = otel_context.attach(otel_context.set_value(key, True))
    try:
        with attached({"traceparent": HEADER}):
            assert otel_context.get_value(key) is True
    finally:
        otel_context.detach(token)


def test_an_exception_leaves_the_context_as_it_was():
    with attached({"traceparent": HEADER}):
        with pytest.raises(KeyError), attached({"traceparent": f"00-{1:032x}-{2:016x}-01"}):
            raise KeyError
        assert current().trace_id == TRACE
    assert current() is None


def test_an_invalid_span_is_no_span():
    token = otel_context.attach(trace.set_span_in_context(NonRecordingSpan(INVALID_SPAN_CONTEXT)))
    try:
        assert current() is None
        assert inject(span_context(TRACE, SPAN)) == {"traceparent": HEADER}
    finally:
        otel_context.detach(token)


def test_tasks_do_not_disturb_each_other():
    async def request(number):
        with attached({"traceparent": f"00-{number:032x}-{SPAN:016x}-01"}):
            await asyncio.sleep(0)
            return current().trace_id

    async def server():
        return await asyncio.gather(*(request(number) for number in range(1, 20)))

    assert asyncio.run(server()) == list(range(1, 20))
    assert current() is None


# --- with OpenTelemetry's SDK ---------------------------------------------------------------------------------------


def test_we_nest_under_a_users_span(users):
    tracer, _ = users
    with tracer.start_as_current_span("theirs") as span:
        assert current() == span.get_span_context()
        sent = inject()
        with attached({}):
            assert inject() == sent
        theirs = trace.format_trace_id(current().trace_id), trace.format_span_id(current().span_id)
        assert tuple(sent["traceparent"].split("-")[1:3]) == theirs


def test_a_users_span_nests_under_the_senders(users):
    tracer, exporter = users
    with attached({"traceparent": HEADER}), tracer.start_as_current_span("theirs"):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.context.trace_id == TRACE
    assert (span.parent.span_id, span.parent.is_remote) == (SPAN, True)


def test_a_users_span_nests_under_ours(users):
    tracer, exporter = users
    token = otel_context.attach(with_span(span_context(TRACE, SPAN)))
    try:
        with tracer.start_as_current_span("theirs"):
            pass
    finally:
        otel_context.detach(token)
    (span,) = exporter.get_finished_spans()
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, SPAN)


def test_inside_a_users_span_the_senders_headers_come_first(users):
    tracer, exporter = users
    with tracer.start_as_current_span("outer"):
        with attached({"traceparent": HEADER}), tracer.start_as_current_span("inner"):
            pass
        with attached({}), tracer.start_as_current_span("local"):
            pass
    inner, local, outer = exporter.get_finished_spans()
    assert (inner.context.trace_id, inner.parent.span_id) == (TRACE, SPAN)
    assert local.parent.span_id == outer.context.span_id
