"""The SAC demo, over OTLP through a relay that is not ours, into a store: PromQL finds every step with its own value.

The relay is ``rotel``, which PyPI has; and our own agent and gateway files, one behind the other, where an ``otelcol``
is on PATH.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import rltel
from realparts import requirements
from realparts.otlp_receiver import OtlpSink, otlp_sink
from realparts.processes import HOST, accepts, server
from realparts.requirements import REPOSITORY
from realparts.sac_demo import run, run_dir_of
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.record.phase_sets import SAC_LEARNER

pytestmark = [
    pytest.mark.xdist_group("demo"),  # two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

CONFIGS = REPOSITORY / "collector-config"
TICKS = 300


@contextmanager
def through_rotel(tmp_path: Path, metrics_url: str, traces_url: str) -> Iterator[str]:
    """The relay's OTLP/HTTP endpoint."""
    program = requirements.need_rotel()

    def command(ports: Sequence[int]) -> list[str]:
        return [
            str(program),
            "start",
            f"--otlp-grpc-endpoint={HOST}:{ports[0]}",
            f"--otlp-http-endpoint={HOST}:{ports[1]}",
            "--exporter=otlp",
            f"--otlp-exporter-metrics-endpoint={metrics_url}/v1/metrics",
            f"--otlp-exporter-traces-endpoint={traces_url}/v1/traces",
            f"--otlp-exporter-logs-endpoint={traces_url}/v1/logs",  # it wants one; nobody sends any
            "--otlp-exporter-protocol=http",
            "--batch-timeout=50ms",
        ]

    log = tmp_path / "rotel.log"
    with server(command, ports=2, ready=lambda ports: all(accepts(port) for port in ports), log=log) as ports:
        yield f"http://{HOST}:{ports[1]}"


@contextmanager
def through_our_files(tmp_path: Path, metrics_url: str, traces_url: str) -> Iterator[str]:
    """The agent's OTLP/HTTP endpoint; behind it is the gateway."""
    program = shutil.which("otelcol")
    if program is None:
        pytest.skip("no otelcol on PATH")

    def gateway(ports: Sequence[int]) -> list[str]:
        settings = {
            "COLLECTOR_GRPC_PORT": ports[0],
            "COLLECTOR_HTTP_PORT": ports[1],
            "COLLECTOR_OWN_PORT": ports[2],
            "COLLECTOR_METRICS_URL": metrics_url,
            "COLLECTOR_TRACES_URL": traces_url,
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *given, program, f"--config={CONFIGS / 'gateway.yaml'}"]

    def ready(ports: Sequence[int]) -> bool:
        return all(accepts(port) for port in ports)

    with server(gateway, ports=3, ready=ready, log=tmp_path / "gateway.log") as behind:
        # Its ports are written in the file: others take its place here.
        text = (CONFIGS / "agent.yaml").read_text()

        def agent(ports: Sequence[int]) -> list[str]:
            moved = text
            for fixed, free in zip(("4317", "4318", "8888"), ports, strict=True):
                assert fixed in moved
                moved = moved.replace(f":{fixed}", f":{free}").replace(f"port: {fixed}", f"port: {free}")
            file = tmp_path / "agent.yaml"
            file.write_text(moved)
            return ["env", f"COLLECTOR_GATEWAY=http://{HOST}:{behind[1]}", program, f"--config={file}"]

        with server(agent, ports=3, ready=ready, log=tmp_path / "agent.log") as ports:
            yield f"http://{HOST}:{ports[1]}"


class Relayed:
    """What came out at the other end, and what the run itself wrote down."""

    def __init__(self, store: VictoriaMetrics, spans: OtlpSink, run_dir: Path) -> None:
        self.store = store
        self.spans = spans
        self.run_id = json.loads((run_dir / "run.json").read_text())["id"]
        self.lines = [line for line in rltel.read_jsonl(run_dir) if line.axis == "train"]
        self.end = self.lines[-1].time_ns / 1e9 + 1  # so that a window ends after the last step, whenever it is asked

    def of(self, key: str) -> list[float]:
        return [line.values[key] for line in self.lines if key in line.values]


@pytest.fixture(scope="module", params=[through_rotel, through_our_files], ids=["rotel", "otelcol"])
def relayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    folder = tmp_path_factory.mktemp("wire")
    with (
        victoria_metrics(folder) as store,
        otlp_sink() as spans,
        request.param(folder, store.otlp_endpoint, spans.endpoint) as endpoint,
    ):
        run(
            folder,
            "--ticks",
            str(TICKS),
            PROMETHEUS_ENABLED=0,
            OTLP_ENABLED=1,
            OTLP_ENDPOINT=endpoint,
            OTLP_PROTOCOL="http/protobuf",
            PIPELINE_SHUTDOWN_TIMEOUT_S=30,  # so that nothing is dropped, however busy the machine
        )
        found = Relayed(store, spans, run_dir_of(folder))
        # A relay answers before it has passed anything on; the last step has no loss.
        for series, wanted in (
            ('rl_train_loss{rl_loss_type="critic"}', len(found.of("Loss/critic"))),
            ('rl_step{rl_axis="train"}', len(found.lines)),
        ):
            store.wait_for(
                f"sum(count_over_time({series}[1h]))",
                lambda vector, wanted=wanted: vector and vector[0][1] == wanted,
                timeout=200,
            )
        yield found


def test_every_step_is_there_once(relayed: Relayed) -> None:
    ((labels, count),) = relayed.store.query('count_over_time(rl_step{rl_axis="train"}[1h])', relayed.end)
    assert count == len(relayed.lines) > 20
    assert labels["rl_role"] == "learner"
    ((_, last),) = relayed.store.query('last_over_time(rl_step{rl_axis="train"}[1h])', relayed.end)
    assert last == relayed.lines[-1].step


@pytest.mark.parametrize(
    ("key", "query"),
    [
        ("Loss/critic", 'rl_train_loss{rl_loss_type="critic"}'),
        ("Train/mean_reward", "rl_environment_reward_mean"),
        ("Perf/total_fps", "rl_samples_rate_per_second"),
    ],
)
def test_promql_agrees_with_the_record(relayed: Relayed, key: str, query: str) -> None:
    recorded = relayed.of(key)
    assert recorded
    for function, value in (
        ("last_over_time", recorded[-1]),
        ("avg_over_time", sum(recorded) / len(recorded)),
        ("min_over_time", min(recorded)),
    ):
        ((_, found),) = relayed.store.query(f"{function}({query}[1h])", relayed.end)
        assert found == pytest.approx(value, rel=1e-9), function


def test_a_histogram_s_sum_is_all_the_time_that_was_recorded(relayed: Relayed) -> None:
    query = 'last_over_time(rl_phase_duration_seconds_sum{rl_role="learner",rl_phase="learning"}[1h])'
    ((_, found),) = relayed.store.query(query, relayed.end)
    (key,) = (phase.key for phase in SAC_LEARNER.phases if phase.name == "learning")
    totals = [line.snapshot[key].state.moments[0] for line in relayed.lines if key in line.snapshot]
    assert found == pytest.approx(sum(totals), rel=1e-9)


def test_the_resource_says_which_process_of_which_run(relayed: Relayed) -> None:
    ((labels, _),) = relayed.store.query("last_over_time(rl_environment_reward_mean[1h])", relayed.end)
    run_id = relayed.run_id
    assert (labels["rl_run_id"], labels["rl_role"], labels["rl_rank"]) == (run_id, "learner", "0")


def test_the_collector_s_part_keeps_its_role(relayed: Relayed) -> None:
    query = 'last_over_time(rl_phase_duration_seconds_count{rl_role="collector",rl_phase="env_step"}[1h])'
    ((_, count),) = relayed.store.query(query, relayed.end)
    assert count >= TICKS * 0.9


def test_iterations_come_through_as_spans(relayed: Relayed) -> None:
    named = "rl.loop"
    relayed.spans.wait_for_span(named, timeout=200)
    span = next(span for span in relayed.spans.spans() if span.name == named)
    assert span.resource["rl.role"] == "learner"
