"""Instruments of OpenTelemetry's own SDK beside ours, in one program: on one scrape, and at one OTLP endpoint."""

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from export.making import PATIENT, run_python
from export.scraping import samples, value
from realparts.otlp_receiver import otlp_sink
from realparts.prometheus import promtool_check_metrics
from rltel.export.prometheus.exposition import expose
from rltel.process import Process
from rltel.record.recorder import Recorder

# Both put themselves on the registry; which comes first must not matter.
SCRAPED = """
import json, sys, urllib.request
import rltel
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY

def theirs():
    provider = MeterProvider([PrometheusMetricReader()], resource=Resource({"service.name": "simulator"}))
    provider.get_meter("simulator").create_counter("sim.resets", "1", "Resets.").add(3)

def ours():
    return rltel.init({"prometheus": {"enabled": True, "port": 0}}, run_dir=sys.argv[2], registry=REGISTRY)

if sys.argv[1] == "theirs first":
    theirs()
telemetry = ours()
if sys.argv[1] == "ours first":
    theirs()
rltel.log({"reward": 0.5}, step=1)
assert rltel.flush(30.0)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def scrape(accept):
    request = urllib.request.Request(telemetry.prometheus_url, headers={"Accept": accept})
    return opener.open(request).read().decode()
print(json.dumps([scrape("text/plain"), scrape("application/openmetrics-text; version=1.0.0")]))
"""


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_one_scrape_shows_both_and_every_family_once(order: str, tmp_path: Path) -> None:
    """Each has a ``target_info``: which process this is, and what the other says of itself."""
    ran = run_python(SCRAPED, order, tmp_path)
    assert ran.returncode == 0, ran.stderr
    text, openmetrics = json.loads(ran.stdout)
    assert value(text, "sim_resets_total") == 3.0
    assert value(text, "rl_stats_reward") == 0.5
    assert text.count("# TYPE target_info ") == 1
    assert len([each for each in samples(text) if each.name == "target_info"]) == 2
    code, said = promtool_check_metrics(text)
    assert code in (0, 3), f"lint may find something in names that are not ours, and no error: {said}"
    found = {sample.name: sample.value for each in openmetrics_families(openmetrics) for sample in each.samples}
    assert (found["sim_resets_total"], found["rl_stats_reward"]) == (3.0, 0.5)


SENT = """
import os, sys
import rltel
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from rltel.export.resource import resource_of
telemetry = rltel.init({"otlp": {"enabled": True}}, run_dir=sys.argv[1])
resource = resource_of(telemetry.identity, telemetry.config.run, os.environ)
provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
provider.get_meter("simulator").create_counter("sim.resets").add(3)
rltel.log({"reward": 0.5}, step=1)
provider.shutdown()
"""


def test_one_endpoint_gets_both_as_of_one_process(tmp_path: Path) -> None:
    """The standard variable is enough: both read it."""
    with otlp_sink() as receiver:
        ran = run_python(SENT, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, **PATIENT)
        assert ran.returncode == 0, ran.stderr
        theirs, ours = receiver.wait_for_metric("sim.resets"), receiver.wait_for_metric("rl.stats.reward")
    assert (theirs.value, ours.value) == (3, 0.5)
    assert theirs.resource == ours.resource


def test_vllm_39906_instances_of_one_process_share_a_registry(tmp_path: Path) -> None:
    """Each with a run of its own: told apart by ``rl_instance``, and gone with its end."""
    registry = CollectorRegistry()
    made = [Process(Recorder(), {"RLTEL_RUN_LOG_ROOT": str(tmp_path / str(number))}) for number in range(2)]
    for number, each in enumerate(made):
        each.init({"prometheus": {"enabled": True, "port": 0}}, registry=registry)
        each.commit({"x": float(number)}, step=1)
        assert each.telemetry is not None
        assert each.telemetry.flush(30.0)
    shown = _text(registry)
    assert sorted(each.value for each in samples(shown) if each.name == "rl_stats_x") == [0.0, 1.0]
    assert promtool_check_metrics(shown)[0] == 0
    made[0].shutdown()
    assert [each.value for each in samples(_text(registry)) if each.name == "rl_stats_x"] == [1.0]
    made[1].shutdown()
    assert _text(registry) == ""


def _text(registry: CollectorRegistry) -> str:
    return expose(registry, "").body.decode()
