"""What the tests of Prometheus share: commits of everything, and how a scrape of them is read."""

import math
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from export.making import Points, identity
from rltel.core.config import PrometheusConfig
from rltel.export.commit import Commit
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.endpoint import Endpoint
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination
from rltel.reduce.trackers import Trackers

Labels = dict[str, str]


def everything(trackers: Trackers) -> None:
    """One metric of each kind, and names of each sort."""
    tracker = trackers.default
    with tracker.scope("ppo_actor"):
        tracker.denominator(n_valid_tokens=np.array([True, True, False]))
        tracker.stat(loss=np.array([1.0, 2.5, math.nan]), denominator="n_valid_tokens")
    tracker.scalar({"pass@1": 0.25, 'eval/ü"\\\n': 1.0})
    tracker.gauge({"Loss/actor": -0.5, "queue": 3.0, "Perf/total_fps": 1e5})
    tracker.gauge({"Perf/learner_inference_ms": 250.0})
    tracker.count(episodes=2)
    tracker.distribution(seq_len=np.array([-1.5, 0.0, 3.0, 1000.0]))
    with tracker.record_timing("rollout"):
        pass
    trackers.get("rollout").scalar(reward=0.5)


def exposed(*commits: Commit, timestamps: bool = False) -> str:
    """What a scrape shows after these commits."""
    return generate_latest(registry_after(*commits, timestamps=timestamps)).decode()


def registry_after(*commits: Commit, timestamps: bool = False) -> CollectorRegistry:
    sink, points = PrometheusSink(timestamps), Points()
    for made in commits:
        sink.write(made, points.of(made))
    registry = CollectorRegistry()
    destination = Destination("otlp")
    destination.exported(3)
    destination.dropped("queue_full", 2)
    registry.register(RunCollector(sink, lambda: [destination], identity()))
    return registry


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float:
    (found,) = [
        sample.value for sample in samples(text) if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


@contextmanager
def endpoint(
    *commits: Commit, config: PrometheusConfig | None = None, port: int = 0, timestamps: bool = False
) -> Iterator[Endpoint]:
    served = Endpoint(config or PrometheusConfig(), registry_after(*commits, timestamps=timestamps), port)
    try:
        yield served
    finally:
        served.close()


def status(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code
