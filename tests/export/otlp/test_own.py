"""What goes along with commits: the same as the scrape endpoint shows, at the commits' times, and not too often."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from export.making import TIME_NS, Points, commit, identity, wait_until
from export.scraping import Labels, samples
from realparts.otlp_receiver import OtlpSink as Receiver
from realparts.otlp_receiver import otlp_sink
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.core.config import OtlpConfig, RunConfig
from rltel.export.otlp.metrics import OtlpSink, open_otlp_metrics
from rltel.export.otlp.own import EVERY_NS, FIRST_NS, OwnMetrics
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.resource import resource_of
from rltel.export.sink import DURATION_BOUNDS, Destination, Waiting
from rltel.names.otel import Namer

STARTED_NS = TIME_NS - 60 * 10**9
OF_THE_ENDPOINT = {"rltel_series", "rltel_series_expired_total", "target_info"}


def account() -> Destination:
    """One with something of everything; two attempts took right as long as a bound."""
    made = Destination("otlp", now=lambda: 1_795_987_020.5)
    made.exported(3)
    made.dropped("queue_full", 2)
    made.dropped("error")
    made.waiting(ConnectionError("away"))
    made.queue = lambda: Waiting(4, 1600)
    for seconds in (0.0005, 0.2, 0.5, 1.0, 30.0, 100.0):
        made.took(seconds)
    return made


def namer() -> Namer:
    made = Namer(max_series=1)
    for key in ("reward/a", "reward/b", "reward/c", "one/two_three", "one_two/three"):
        made.name(key)
    return made


def shown_by_the_endpoint(accounts: list[Destination]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    registry = CollectorRegistry()
    registry.register(RunCollector(PrometheusSink(), lambda: accounts, identity(), namer(), STARTED_NS / 1e9))
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(plain(sample.labels).items())): sample.value
        for sample in samples(text)
        if sample.name not in OF_THE_ENDPOINT
    }


def plain(labels: Labels) -> Labels:
    """Bounds as numbers: stores write them in their own way."""
    return {name: str(float(value)) if name == "le" else value for name, value in labels.items()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    with victoria_metrics(tmp_path_factory.mktemp("victoria")) as server:
        yield server


def test_a_store_has_what_the_endpoint_shows(store: VictoriaMetrics) -> None:
    """Names, labels and values, buckets too: one set of queries serves both routes."""
    accounts = [account(), Destination("jsonl")]
    resource = resource_of(identity(), RunConfig(), {})
    config = OtlpConfig(endpoint=store.otlp_endpoint)
    sink = open_otlp_metrics(config, resource, STARTED_NS, {}, lambda: accounts, namer())
    made = commit({"x": 1.0})
    sink.write(made, Points().of(made))
    sink.close()
    of_resource = {name.replace(".", "_") for name in resource.attributes}
    found = store.query('{__name__=~"rltel_.+|rl_process_start_time_seconds"}', made.time_ns / 1e9 + 1)
    sent = {
        (
            labels["__name__"],
            frozenset(plain({n: v for n, v in labels.items() if n != "__name__" and n not in of_resource}).items()),
        ): value
        for labels, value in found
    }
    wanted = shown_by_the_endpoint(accounts)
    assert sent.keys() == wanted.keys()
    for key, value in wanted.items():
        assert sent[key] == pytest.approx(value, rel=1e-12), key


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_sink() as sink:
        yield sink


def sink_to(receiver: Receiver, accounts: list[Destination], **config: bool) -> OtlpSink:
    settings = OtlpConfig(endpoint=receiver.endpoint, **config)  # type: ignore[arg-type]  # only flags are given
    return open_otlp_metrics(settings, resource_of(identity(), RunConfig(), {}), STARTED_NS, {}, lambda: accounts)


def write(sink: OtlpSink, *seconds: float) -> None:
    """Commits at these seconds."""
    points = Points()
    for number, second in enumerate(seconds):
        made = commit({"x": 1.0}, number=number, time_ns=TIME_NS + int(second * 1e9))
        sink.write(made, points.of(made))


def test_not_every_commit_takes_them_along(receiver: Receiver) -> None:
    """A trainer may commit a hundred times a second."""
    commits = [number / 10 for number in range(250)]
    write(sink_to(receiver, [account()]), *commits)
    found = [m.point.time_unix_nano - TIME_NS for m in receiver.metrics() if m.name == "rltel.exported"]
    assert [at / FIRST_NS for at in found] == [0, 1, 3, 7, 12, 17, 22], "sooner while the process is young"
    assert found[-1] - found[-2] == EVERY_NS
    assert len([m for m in receiver.metrics() if m.name == "rl.process.start_time"]) == len(commits)


def test_a_clock_that_is_set_back_keeps_nothing_back(receiver: Receiver) -> None:
    write(sink_to(receiver, [account()]), 0.0, -3600.0)
    assert len([m for m in receiver.metrics() if m.name == "rltel.exported"]) == 2


def test_what_is_sent_again_says_the_same(receiver: Receiver) -> None:
    """A receiver may have taken it: two points of one time must not differ."""
    lossy = account()
    sink, points = sink_to(receiver, [lossy]), Points()
    made = commit({"x": 1.0})
    receiver.status = 503
    with pytest.raises(ConnectionError):
        sink.write(made, points.of(made))
    lossy.waiting(ConnectionError("away"))
    receiver.status = 200
    sink.write(made, points.of(made))
    later = commit({"x": 1.0}, number=1, time_ns=TIME_NS + 2 * EVERY_NS)
    sink.write(later, points.of(later))
    assert [m.value for m in receiver.metrics() if m.name == "rltel.retries"] == [1.0, 2.0]


def test_each_incarnation_is_a_series(receiver: Receiver) -> None:
    for incarnation in (1, 2):
        made = commit({"x": 1.0}, identity=identity(incarnation=incarnation))
        sink_to(receiver, []).write(made, Points().of(made))
    found = [(m.attributes, m.value) for m in receiver.metrics() if m.name == "rl.process.start_time"]
    assert found == [({"rl.incarnation": str(each)}, STARTED_NS / 1e9) for each in (1, 2)]


def test_durations_as_exponential_histograms_are_off_by_no_more_than_their_bounds(receiver: Receiver) -> None:
    write(sink_to(receiver, [account()], exponential_histograms=True), 0.0)
    found = receiver.wait_for_metric("rltel.export")
    assert found.kind == "exponential_histogram"
    assert found.point.count == 6


def test_series_keep_their_labels_so_that_the_encoder_s_memory_does_not_grow() -> None:
    """It remembers every dict of labels that it has seen."""
    own = OwnMetrics(STARTED_NS, lambda: [account()], namer())
    first, second = (own.of(commit(number=n, time_ns=TIME_NS + n * 60 * 10**9)) for n in (0, 1))
    assert len(first) == len(second) > 10
    assert all(before.attributes is after.attributes for before, after in zip(first, second, strict=True))


@pytest.mark.parametrize("bound", DURATION_BOUNDS)
def test_a_duration_is_counted_below_its_bound_and_above_the_one_before(bound: float) -> None:
    destination = Destination("x")
    destination.took(bound)
    destination.took(math.nextafter(bound, math.inf))
    (histogram,) = [p.value for p in OwnMetrics(0, lambda: [destination]).of(commit()) if p.name == "rltel.export"]
    counts = dict(zip(histogram.bounds, histogram.counts, strict=True))  # type: ignore[union-attr]  # it is one
    before = [each for each in DURATION_BOUNDS if each < bound]
    assert counts[bound] == 1
    assert all(counts[each] == 0 for each in before)
    assert histogram.count == 2  # type: ignore[union-attr]  # it is one


def test_what_a_real_process_loses_is_told_over_otlp(tmp_path: Path, receiver: Receiver) -> None:
    """From `init` on: the accounts of all destinations go along."""
    from rltel.core.resolve import resolve
    from rltel.record.recorder import Recorder
    from rltel.reduce.trackers import Trackers
    from rltel.telemetry import Telemetry

    config = resolve({"otlp": {"enabled": True, "endpoint": receiver.endpoint, "traces": False}}, {})
    telemetry = Telemetry(config, identity(tmp_path), trackers=Trackers(Recorder()), recorder=Recorder(), environ={})
    try:
        telemetry.commit({"x": 1.0}, step=1)
        telemetry.flush(30)
        wait_until(lambda: any(m.name == "rltel.exported" for m in receiver.metrics()), "accounts")
        of = {m.attributes["destination"] for m in receiver.metrics() if m.name == "rltel.exported"}
        assert {"otlp", "jsonl", "pipeline"} <= of
        assert any(m.name == "rltel.names_collided" for m in receiver.metrics())
    finally:
        telemetry.shutdown()
