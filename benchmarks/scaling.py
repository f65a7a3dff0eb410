"""What telemetry costs from one process to 10,000: bytes, series and time, with real encoders and real stores.

    nice python benchmarks/scaling.py            # about a minute, under 2 GB
    nice python benchmarks/scaling.py --stores   # also 500,000 series into two real stores: 3 minutes, 4 GB

Measured: what one process of each kind makes, 1,000 processes' payloads merged, reductions over 2 and 4 ranks, and with
``--stores`` 1,000 processes' worth of series in a store. Computed from these: the table up to 10,000 (it says how).
"""

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import numpy as np
import torch
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import CollectorRegistry

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import rltel
from realparts.processes import HOST, _opener, http_get
from realparts.prometheus import prometheus
from realparts.ranks import ranks
from realparts.victoriametrics import victoria_metrics
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.otlp.metrics_wire import MetricsEncoder
from rltel.export.points import Point, Totals, points_of
from rltel.export.prometheus.collector import RunCollector, join
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.table import PrometheusSink
from rltel.names.otel import Namer
from rltel.record.recorder import Recorder
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender

PROCESSES = 1000
STEP_S, SCRAPE_S = 10.0, 15.0  # the table's assumptions: a commit each ten seconds, a scrape each fifteen
SLICES_PER_STEP = 200  # and so many slices a step: phases, rollouts, device work
RANKS = (1, 8, 64, 512, 1000, 10_000)


# --- what processes record ----------------------------------------------------------------------------------------


_random = np.random.default_rng(0)  # round numbers would compress better than real ones


def some(count: int) -> list[float]:
    """Numbers with all their digits."""
    numbers: list[float] = _random.normal(1.0, 0.3, count).tolist()
    return numbers


def named(pattern: str, count: int) -> dict[str, float]:
    """So many keys."""
    return {pattern.format(i): value for i, value in enumerate(some(count))}


def collector(trackers: Trackers) -> None:
    """A rollout worker: 30 averages, 8 timings, two distributions."""
    tracker = trackers.default
    tracker.scalar(named("rollout/value_{}", 30))
    for i in range(8):
        with tracker.record_timing(f"part_{i}"):
            pass
    tracker.distribution({f"rollout/length_{i}": _random.lognormal(5.0, 1.0, 64) for i in range(2)})


def learner(trackers: Trackers) -> None:
    """A rank of an LLM learner: 60 tensors' average, minimum and maximum, 20 averages, 40 gauges, 20 timings."""
    tracker = trackers.default
    values, mask = torch.tensor(some(256)), torch.ones(256, dtype=torch.bool)
    tracker.denominator(n_valid_tokens=mask)
    tracker.stat({f"ppo_actor/value_{i}": values * i for i in range(60)}, denominator="n_valid_tokens")
    tracker.scalar(named("ppo_actor/scalar_{}", 20))
    tracker.gauge(named("system/gauge_{}", 40))
    for i in range(20):
        with tracker.record_timing(f"part_{i}"):
            pass


def moe(trackers: Trackers) -> None:
    """The same with the balance of 48 layers of 128 experts."""
    learner(trackers)
    layers = named("moe_balance/layer_{}/max_over_ideal", 48)
    counts = iter(_random.poisson(500, 48 * 128).tolist())
    experts = {f"moe_balance/layer_{i}/expert_{j}/tokens": float(next(counts)) for i in range(48) for j in range(128)}
    trackers.default.gauge({**layers, **experts})


KINDS: dict[str, Callable[[Trackers], None]] = {"collector": collector, "learner": learner, "learner, MoE 48x128": moe}


class Process:
    """One process, from what it records to what leaves it."""

    def __init__(self, record: Callable[[Trackers], None], index: int = 0, role: str = "learner") -> None:
        self.record = record
        self.identity = Identity("run-1", None, role, index, PROCESSES, index, 1, index == 0)
        self.trackers = Trackers(Recorder())
        namer = Namer()
        self.totals, self.sink, self.registry = Totals(namer), PrometheusSink(), CollectorRegistry()
        join(self.registry, RunCollector(self.sink, list, self.identity, namer))
        who = {"rl.run.id": "run-1", "rl.role": role, "rl.rank": str(index), "service.name": "rl-training"}
        self.resource = Resource(who | {"service.instance.id": self.identity.instance_id})
        self.encoder = MetricsEncoder(self.resource, 0)
        self.number = 0

    def snapshot(self) -> Snapshot:
        """One step's."""
        self.record(self.trackers)
        with self.trackers.taken() as snapshot:
            return snapshot

    def step(self) -> tuple[Commit, list[Point]]:
        """One commit and its points, which are in the scrape table too."""
        self.number += 1
        commit = Commit(self.identity, self.number, time.time_ns(), self.number, "train", self.snapshot())
        self.totals.add(commit)
        points = points_of(commit, self.totals)
        self.sink.write(commit, points)
        return commit, points


@dataclass(frozen=True)
class Costs:
    """Of one process."""

    series: int
    scrape: int
    scrape_gzip: int
    scrape_ms: float
    otlp: int
    otlp_gzip: int
    otlp_ms: float
    payload: int


def costs(record: Callable[[Trackers], None]) -> Costs:
    """After three steps, so that sums have begun."""
    process = Process(record)
    for _ in range(3):
        commit, points = process.step()
    exposed = expose(process.registry, "").body
    body = process.encoder.encode(points, commit.time_ns)
    payload = json.dumps(Sender("w").payload(commit.snapshot)).encode()
    return Costs(
        sum(1 for line in exposed.splitlines() if not line.startswith(b"#")),
        len(exposed),
        len(gzip.compress(exposed, 6)),
        timed(lambda: expose(process.registry, "")),
        len(body),
        len(gzip.compress(body, 6)),
        timed(lambda: process.encoder.encode(points, 1)),
        len(payload),
    )


def timed(call: Callable[[], object], rounds: int = 5) -> float:
    """The median, in milliseconds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


# --- timelines ----------------------------------------------------------------------------------------------------


class _Counted(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Counts what comes."""
        self.server.taken += len(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def slice_bytes(count: int = 20_000) -> tuple[float, float]:
    """Bytes a slice in a trace file, and as a span over OTLP with gzip."""
    with tempfile.TemporaryDirectory() as folder, ThreadingHTTPServer((HOST, 0), _Counted) as server:
        server.taken = 0  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://{HOST}:{server.server_port}"
        otlp = {"enabled": True, "metrics": False, "endpoint": endpoint, "compression": "gzip"}
        pipeline = {"shutdown_timeout_s": 60.0}
        telemetry = rltel.init({"trace": {"enabled": True}, "otlp": otlp, "pipeline": pipeline}, run_dir=folder)
        clock = rltel.learner(phases="sac")
        for step in range(count // 4):
            with clock.iteration(step=step):
                for phase in ("collector_wait", "replay_sample", "learning"):
                    with clock.phase(phase):
                        pass
            if step % 500 == 499:
                time.sleep(1.1)  # as if it took its time: a file is flushed each second
        rltel.shutdown()
        assert telemetry.run_dir is not None
        files = sum(file.stat().st_size for file in Path(telemetry.run_dir).glob("trace/*"))
        server.shutdown()
        return files / count, server.taken / count  # type: ignore[attr-defined]


# --- many processes -----------------------------------------------------------------------------------------------


def payloads() -> None:
    """What 1,000 workers recorded, merged in one learner."""
    worker = Trackers(Recorder())
    made = []
    for i in range(PROCESSES):
        collector(worker)
        with worker.taken() as snapshot:
            made.append(json.dumps(Sender(f"worker-{i}").payload(snapshot)))
    trackers = Trackers(Recorder())
    receiver = Receiver(trackers)
    begin = time.perf_counter()
    for payload in made:
        receiver.absorb(json.loads(payload))
    absorbed = time.perf_counter() - begin
    begin = time.perf_counter()
    stats = trackers.export_all()
    size = sum(map(len, made)) / 1e6
    exported = time.perf_counter() - begin
    print(
        f"{PROCESSES} payloads of {len(made[0])} bytes ({size:.1f} MB as JSON): decoded, checked and merged in "
        f"{absorbed:.2f} s ({absorbed / PROCESSES * 1e3:.2f} ms each); exported in {exported * 1e3:.1f} ms "
        f"as {len(stats)} keys"
    )


def reduce_in_rank(rank: int, kind: str, rounds: int) -> tuple[float, int, int]:
    """For `realparts.ranks`: milliseconds an export over all, and what one hands to the collectives."""
    import torch.distributed as dist

    trackers, record = Trackers(Recorder()), KINDS[kind]
    handed: list[int] = []
    plain = dist.all_reduce

    def counted(tensor: Any, *args: Any, **options: Any) -> Any:
        handed.append(tensor.numel() * tensor.element_size())
        return plain(tensor, *args, **options)

    times = []
    for turn in range(rounds):
        record(trackers)
        dist.barrier()
        if turn == rounds - 1:
            dist.all_reduce = counted
        begin = time.perf_counter()
        trackers.export_all(reduce_group=dist.group.WORLD)
        times.append((time.perf_counter() - begin) * 1e3)
    dist.all_reduce = plain
    return statistics.median(times[1:]), sum(handed), len(handed)


def reductions() -> None:
    """An export over ranks (gloo, two cores): the second one, when the keys are known."""
    for kind in KINDS:
        for world in (2, 4):
            with ranks(world, Path(tempfile.mkdtemp())) as group:
                results = group.run(reduce_in_rank, kind, 6, timeout=300)
            slowest, (_, size, collectives) = max(result[0] for result in results), results[0]
            print(f"reduction, {kind:22} {world} ranks: {slowest:8.1f} ms", end="\n" if world == 2 else "; ")
        print(
            f"{collectives} all-reduces of {size:,} bytes together (two ranks gather instead); "
            f"a ring sends {ring(size, 8) / 1e3:.0f} kB a rank of 8, {ring(size, 10_000) / 1e3:.0f} kB of 10,000"
        )


def ring(size: int, world: int) -> float:
    """Bytes that one rank sends in a ring all-reduce."""
    return 2 * size * (world - 1) / world


# --- the table ----------------------------------------------------------------------------------------------------


def table(known: dict[str, Costs], file_slice: float, span: float) -> None:
    """Everything from every process, and the recommended way: reduced over ranks, one process in 64 drawn."""
    of = known["learner"]
    hour = 3600 / STEP_S * SLICES_PER_STEP
    print(f"\nA learner's figures times N: a commit each {STEP_S:.0f} s, a scrape each {SCRAPE_S:.0f} s, ", end="")
    print(f"{SLICES_PER_STEP} slices a commit. OTLP with gzip.")
    print("ranks    series     scrape MB/s  OTLP kB/s  trace files MB/h  spans MB/h | reduced: series  OTLP kB/s")
    for n in RANKS:
        print(
            f"{n:6} {n * of.series:10,} {n * of.scrape / SCRAPE_S / 1e6:12.3f} {n * of.otlp_gzip / STEP_S / 1e3:10.1f}"
            f" {n * hour * file_slice / 1e6:16.1f} {n * hour * span / 1e6:11.1f} |"
            f" {of.series:15,} {of.otlp_gzip / STEP_S / 1e3:10.1f}"
        )


# --- stores -------------------------------------------------------------------------------------------------------


def sized(trackers: Trackers) -> None:
    """About 500 series: 1,000 of these are 500,000."""
    trackers.default.scalar(named("module/value_{}", 90))
    trackers.default.gauge(named("system/gauge_{}", 66))


def into_victoria_metrics() -> None:
    """1,000 resources over OTLP, as many commits."""
    with tempfile.TemporaryDirectory() as folder, victoria_metrics(Path(folder)) as store:
        size, begin = 0, time.perf_counter()
        for index in range(PROCESSES):
            other = Process(sized, index)
            commit, points = other.step()
            body = gzip.compress(other.encoder.encode(points, commit.time_ns), 1)
            size += len(body)
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
            _opener.open(Request(f"{store.otlp_endpoint}/v1/metrics", body, headers), timeout=60).close()
        took = time.perf_counter() - begin
        ((_, series),) = store.query('count({__name__=~"rl_.+"})')
        memory = metric(store.url, "process_resident_memory_bytes")
        disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        print(
            f"VictoriaMetrics, {PROCESSES} processes by OTLP: {series:,.0f} series, {size / 1e6:.1f} MB sent (gzip 1), "
            f"made and taken in {took:.1f} s; it has {memory / 1e6:.0f} MB of memory, {disk / 1e6:.0f} MB on disk"
        )


@contextmanager
def thousand_endpoints() -> Iterator[tuple[str, int]]:
    """Serves what 1,000 processes would, each under a path of its own; yields host:port and the bytes of all."""
    bodies = {}
    for index in range(PROCESSES):
        process = Process(sized, index)
        process.step()
        bodies[f"/{index}"] = expose(process.registry, "").body

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """One process's scrape."""
            body = bodies[urlsplit(self.path).path]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{HOST}:{server.server_port}", sum(map(len, bodies.values()))
        server.shutdown()


def into_prometheus() -> None:
    """1,000 targets, each scraped every 15 s as in collector-config/prometheus.yaml."""
    with tempfile.TemporaryDirectory() as folder, thousand_endpoints() as (target, size):
        groups = [
            {"targets": [target], "labels": {"__metrics_path__": f"/{i}", "instance": str(i), "rl_rank": str(i)}}
            for i in range(PROCESSES)
        ]
        file = Path(folder) / "targets.json"
        file.write_text(json.dumps(groups))
        with prometheus(tmp_path=Path(folder), file_sd=file, scrape_interval="15s", honor_labels=True) as store:
            store.wait_for("count(up == 1)", lambda found: found and found[0][1] == PROCESSES, timeout=120)
            before, begin = metric(store.url, "process_cpu_seconds_total"), time.perf_counter()
            time.sleep(45)  # three scrapes of each
            busy = (metric(store.url, "process_cpu_seconds_total") - before) / (time.perf_counter() - begin)
            series = metric(store.url, "prometheus_tsdb_head_series")
            memory = metric(store.url, "process_resident_memory_bytes")
            print(
                f"Prometheus, {PROCESSES} targets: {series:,.0f} series, {size / 1e6:.1f} MB a round of scrapes; "
                f"{memory / 1e6:.0f} MB of memory, {busy:.2f} of a core at a scrape each 15 s"
            )


def metric(url: str, name: str) -> float:
    """One number that a store says of itself."""
    lines = http_get(f"{url}/metrics").decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def main() -> None:
    """Everything, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", action="store_true", help="500,000 series into real stores")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("one process             series  scrape B     gzip       ms    OTLP B     gzip       ms  payload B")
    known = {name: costs(record) for name, record in KINDS.items()}
    for name, of in known.items():
        print(
            f"{name:22} {of.series:7,} {of.scrape:9,} {of.scrape_gzip:8,} {of.scrape_ms:8.2f} {of.otlp:9,} "
            f"{of.otlp_gzip:8,} {of.otlp_ms:8.2f} {of.payload:10,}"
        )
    file_slice, span = slice_bytes()
    print(f"\na slice: {file_slice:.1f} bytes in a trace file, {span:.1f} bytes as a span over OTLP with gzip")
    payloads()
    reductions()
    table(known, file_slice, span)
    if arguments.stores:
        into_victoria_metrics()
        into_prometheus()


if __name__ == "__main__":
    main()
