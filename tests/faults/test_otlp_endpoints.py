"""A training whose OTLP endpoint is dead, silent, slow, full or choosy: the training does not notice, the end of the
program is bounded, what was lost is counted, and a replay brings it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from export.making import environment, run_python, wait_until
from export.scraping import samples
from faults.rest import AT_REST
from realparts.gate import Gate
from realparts.otlp_receiver import OtlpSink, otlp_grpc_sink, otlp_sink
from realparts.processes import http_get
from rltel.export.jsonl import read_jsonl

STEPS = 12
FIRST = 3
"""Steps of a training in two parts: it goes on when it is told to."""
BOUND_S = 0.5
SLACK_S = 20.0  # for the interpreter's own start and end, on a machine that has other work
PROTOCOLS = ["http/protobuf", "grpc"]

# Everything that a trainer draws comes from `random`; what it computes must not depend on telemetry.
TRAINING = f"""
import json, random, sys, time
import rltel
{AT_REST}
config, run_dir, steps, pause, end = json.loads(sys.argv[1])
random.seed(7)
weight = 0.0
telemetry = rltel.init(config, run_dir=run_dir)
print(telemetry.prometheus_url, flush=True)
for step in range(steps):
    if end == "in two parts" and step == {FIRST}:
        sys.stdin.readline()
    with rltel.slice("update"):
        weight += 0.1 * (random.gauss(1.0, 0.3) - weight)
    rltel.count(episodes=1)
    rltel.scalar(weight=weight)
    rltel.commit(step=step)
    time.sleep(pause)
if end == "told":
    sys.stdin.readline()
at_rest(telemetry)
flushed = rltel.flush(100.0) if end in ("flush", "in two parts") else None
print(json.dumps([weight, time.time(), flushed]), flush=True)
"""


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def receiver(protocol: str) -> Iterator[OtlpSink]:
    with otlp_grpc_sink() if protocol == "grpc" else otlp_sink() as sink:
        yield sink


@pytest.fixture
def gate(receiver: OtlpSink) -> Iterator[Gate]:
    with Gate(receiver.endpoint) as made:
        yield made


class Ended(NamedTuple):
    """What a training said, and what is known of its end."""

    weight: float
    exit_s: float
    """From the end of the training to the end of the process."""
    flushed: bool | None
    lost: dict[str, dict[str, int]]
    """By destination and reason, as it said at its end."""
    said: str


@contextmanager
def training(
    run_dir: Path,
    endpoint: str,
    protocol: str,
    *,
    pause_s: float = 0.01,
    end: str = "",
    bound_s: float = BOUND_S,
    **otlp: Any,
) -> Iterator[subprocess.Popen[str]]:
    """A process that trains and sends; with `end` "told", it trains on until `ended` is called.

    With "flush" it waits for its destinations; "in two parts" as well, and for `goes_on` between them.
    """
    config = {
        "otlp": {"enabled": True, "endpoint": endpoint, "protocol": protocol, "timeout_s": 60.0, **otlp},
        "prometheus": {"enabled": True, "port": 0},
        "pipeline": {"shutdown_timeout_s": bound_s},
    }
    arguments = json.dumps([config, str(run_dir), STEPS, pause_s, end])
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def goes_on(process: subprocess.Popen[str]) -> None:
    """With its second part."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for its end."""
    out, said = process.communicate(timeout=250)
    at = time.time()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    weight, trained_at, flushed = json.loads(out.splitlines()[-1])
    found = re.findall(r"(\w+): lost \d+ in all \((\{.*?\})\)", said)
    lost = {name: json.loads(reasons.replace("'", '"')) for name, reasons in found}
    return Ended(weight, at - trained_at, flushed, lost, said)


def trained(run_dir: Path, endpoint: str, protocol: str, **how: Any) -> Ended:
    with training(run_dir, endpoint, protocol, **how) as process:
        return ended(process)


@pytest.fixture(scope="module")
def right_weight() -> float:
    """What the training comes to without telemetry."""
    arguments = json.dumps([{}, None, STEPS, 0.0, ""])
    ran = run_python(TRAINING, arguments)
    return float(json.loads(ran.stdout.splitlines()[-1])[0])


def replay(run_dir: Path, endpoint: str, protocol: str) -> dict[str, Any]:
    """By the command."""
    code = "from rltel.cli import app; app()"
    arguments = ("replay", run_dir, "--to", "otlp", "--endpoint", endpoint, "--json")
    ran = run_python(code, *arguments, timeout=120, RLTEL_OTLP_PROTOCOL=protocol)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def steps(receiver: OtlpSink) -> list[int]:
    """Those that arrived, in their order."""
    return [int(each.value) for each in receiver.metrics() if each.name == "rl.step"]


def check_a_harmless_fault(made: Ended, right_weight: float, run_dir: Path) -> None:
    """What holds whatever the endpoint does."""
    assert made.weight == right_weight
    assert made.exit_s < BOUND_S + SLACK_S
    assert len(list(read_jsonl(run_dir))) == STEPS


class TestAbsent:
    """Nothing arrives. All is counted, and a replay brings it, once, when the endpoint is there."""

    @pytest.mark.parametrize("fault", ["dead", "silent", "dripping"])
    def test_is_lost_by_count_and_replayed(
        self, gate: Gate, receiver: OtlpSink, protocol: str, fault: Any, tmp_path: Path, right_weight: float
    ) -> None:
        if fault != "dead":
            gate.open(fault)
        made = trained(tmp_path, gate.url, protocol)
        check_a_harmless_fault(made, right_weight, tmp_path)
        assert sum(made.lost["otlp"].values()) == STEPS
        assert set(made.lost["otlp"]) <= {"error", "shutdown"}
        assert sum(made.lost["spans"].values()) >= STEPS
        assert steps(receiver) == []
        gate.open()
        assert replay(tmp_path, gate.url, protocol)["sent"] == STEPS
        assert steps(receiver) == list(range(STEPS))
        assert replay(tmp_path, gate.url, protocol)["sent"] == 0

    def test_a_request_to_one_that_drips_ends_with_its_own_time(
        self, gate: Gate, protocol: str, tmp_path: Path
    ) -> None:
        """The destination is not held by it: it is said to be away while the training goes on."""
        gate.open("dripping")
        made = trained(tmp_path, gate.url, protocol, timeout_s=0.2, pause_s=0.1, bound_s=5.0)
        expected = "DEADLINE_EXCEEDED" if protocol == "grpc" else "no answer within 0.2 s"
        assert re.search(rf"otlp: {re.escape(gate.url)}.*{expected}.*will be tried again", made.said)


def full(seconds: int) -> tuple[tuple[str, bytes], ...]:
    status = Status(code=8, message="full")
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=seconds)))
    return (("grpc-status-details-bin", status.SerializeToString()),)


class Refusal(NamedTuple):
    """One answer, as both protocols say it."""

    status: int
    headers: dict[str, str]
    grpc: tuple[str, str, tuple[tuple[str, str | bytes], ...]]
    is_final: bool

    def given_by(self, receiver: OtlpSink) -> None:
        receiver.status, receiver.answer_headers, receiver.grpc_status = self.status, self.headers, self.grpc


REFUSALS = [
    Refusal(400, {}, ("INVALID_ARGUMENT", "no", ()), True),
    Refusal(401, {}, ("UNAUTHENTICATED", "who are you", ()), True),
    Refusal(413, {}, ("RESOURCE_EXHAUSTED", "too large", ()), True),
    Refusal(429, {"Retry-After": "30"}, ("RESOURCE_EXHAUSTED", "full", full(30)), False),
    Refusal(503, {}, ("UNAVAILABLE", "later", ()), False),
]


class TestRefusing:
    @pytest.mark.parametrize("refusal", REFUSALS, ids=[str(each.status) for each in REFUSALS])
    def test_is_counted_said_and_replayed(
        self, receiver: OtlpSink, protocol: str, refusal: Refusal, tmp_path: Path, right_weight: float
    ) -> None:
        refusal.given_by(receiver)
        # One that is final comes to every request, however short the time for the end; the others at least once.
        end = "flush" if refusal.is_final else "told"
        with training(tmp_path, receiver.endpoint, protocol, end=end, traces=False) as process:
            wait_until(lambda: receiver.refused, "a request", 120)
            made = ended(process)
        check_a_harmless_fault(made, right_weight, tmp_path)
        assert sum(made.lost["otlp"].values()) == STEPS
        assert (
            set(made.lost["otlp"]) == {"error"} if refusal.is_final else set(made.lost["otlp"]) <= {"error", "shutdown"}
        )
        word = refusal.grpc[0] if protocol == "grpc" else f"HTTP {refusal.status}"
        assert len(re.findall(rf"otlp: {receiver.endpoint}.*: {word}", made.said)) <= 2, "said once, not each time"
        assert re.search(rf"otlp: {receiver.endpoint}.*: {word}", made.said)
        if refusal.is_final:
            assert receiver.refused == STEPS, "what may not be sent again is not"
        receiver.status, receiver.grpc_status, receiver.answer_headers = 200, None, {}
        assert replay(tmp_path, receiver.endpoint, protocol)["sent"] == STEPS
        assert steps(receiver) == list(range(STEPS))

    def test_one_that_asks_for_patience_gets_it(self, receiver: OtlpSink, protocol: str, tmp_path: Path) -> None:
        """Retry-After, and RetryInfo over gRPC: no second request while the training goes on."""
        REFUSALS[3].given_by(receiver)
        with training(tmp_path, receiver.endpoint, protocol, end="told", bound_s=60.0, traces=False) as process:
            wait_until(lambda: receiver.refused, "a request", 120)
            receiver.status, receiver.grpc_status, receiver.answer_headers = 200, None, {}
            time.sleep(0.7)  # longer than our own pause would be
            assert receiver.requests() == []
            made = ended(process)
        assert made.lost == {}
        assert steps(receiver) == list(range(STEPS)), "at the end there is no time for it"

    def test_a_part_that_was_not_taken_is_counted_and_never_sent_again(
        self, receiver: OtlpSink, protocol: str, tmp_path: Path, right_weight: float
    ) -> None:
        """The protocol forbids it, also to a replay."""
        partial = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
        receiver.answer = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
        made = trained(tmp_path, receiver.endpoint, protocol, end="flush", traces=False)
        check_a_harmless_fault(made, right_weight, tmp_path)
        assert made.lost["otlp"] == {"rejected": STEPS}
        assert "rejected 2 data points: too old" in made.said
        assert replay(tmp_path, receiver.endpoint, protocol)["sent"] == 0
        assert steps(receiver) == list(range(STEPS))


class TestDiesAndReturns:
    def test_all_steps_arrive_and_the_queue_is_seen_meanwhile(
        self, gate: Gate, receiver: OtlpSink, protocol: str, tmp_path: Path, right_weight: float
    ) -> None:
        gate.open()
        with training(tmp_path, gate.url, protocol, pause_s=0.15, end="in two parts", traces=False) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            wait_until(lambda: len(steps(receiver)) == FIRST, "some steps", 120)
            gate.shut()
            goes_on(process)
            wait_until(lambda: health(url, "rltel_queue_items") >= 2, "a queue", 120)
            wait_until(lambda: health(url, "rltel_retries_total") >= 1, "a retry", 120)
            gate.open()
            made = ended(process)
        check_a_harmless_fault(made, right_weight, tmp_path)
        assert made.flushed
        assert made.lost == {}
        assert sorted(set(steps(receiver))) == list(range(STEPS))
        assert only_repeats(receiver), "a request whose answer was cut off may come twice, point by point the same"
        assert replay(tmp_path, gate.url, protocol)["sent"] == 0

    def test_what_was_taken_without_a_word_comes_again_the_same(
        self, gate: Gate, receiver: OtlpSink, protocol: str, tmp_path: Path
    ) -> None:
        """Whoever stores it keeps one point: time, series and value are those of the first."""
        gate.open()
        with training(tmp_path, gate.url, protocol, timeout_s=1.0, end="in two parts", traces=False) as process:
            wait_until(lambda: len(set(steps(receiver))) == FIRST, "some steps", 120)
            gate.mute()
            goes_on(process)
            wait_until(lambda: len(set(steps(receiver))) < len(steps(receiver)), "a step that comes again", 120)
            gate.open()
            made = ended(process)
        assert made.lost == {}
        assert len(steps(receiver)) > STEPS
        assert sorted(set(steps(receiver))) == list(range(STEPS))
        assert only_repeats(receiver)


def health(url: str, name: str) -> float:
    """Of the destination ``otlp``."""
    (found,) = [
        each.value
        for each in samples(http_get(url).decode())
        if each.name == name and each.labels.get("destination") == "otlp"
    ]
    return found


def only_repeats(receiver: OtlpSink) -> bool:
    """Whether what stands at one time in one series is the same, however often it came."""
    seen: dict[Any, bytes] = {}
    for each in receiver.metrics():
        key = each.scope.name, each.name, tuple(sorted(each.attributes.items())), each.point.time_unix_nano
        if seen.setdefault(key, each.point.SerializeToString()) != each.point.SerializeToString():
            return False
    return True
