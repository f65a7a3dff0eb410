"""Any OpenTelemetry program's metrics in event files and in our record, read back with the official readers."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from export.making import environment, run_python
from realparts.otlp_receiver import otlp_sink
from realparts.tensorboard_reader import accumulated, scalars
from rltel.export.jsonl import Line, read_jsonl
from rltel.export.otel.metrics import JsonlMetricExporter, TensorBoardMetricExporter
from rltel.export.otel.states import States
from rltel.record.kinds import COUNTER, HISTOGRAM
from rltel.reduce.snapshot import merged
from rltel.runs.replay import replay

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
ENTRY_POINTS = """[opentelemetry_metrics_exporter]
tensorboard = rltel.export.otel.metrics:TensorBoardMetricExporter
jsonl = rltel.export.otel.metrics:JsonlMetricExporter
"""


class Program:
    """An OpenTelemetry program with one exporter, which exports when it is told."""

    def __init__(self, exporter: Any, *views: View) -> None:
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        self.provider = MeterProvider([reader], views=views, shutdown_on_exit=False)
        self.meter = self.provider.get_meter("program")
        self.exporter = exporter

    def export(self) -> None:
        assert self.provider.force_flush()

    def close(self) -> None:
        self.provider.shutdown()


def lines(folder: Path) -> list[Line]:
    (path,) = folder.rglob("otel-*.jsonl")
    return list(read_jsonl(path))


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLTEL_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("RLTEL_RUN_ID", raising=False)
    return tmp_path / "run"


def tensorboard_folder(run_dir: Path) -> Path:
    (folder,) = (run_dir / "tensorboard").iterdir()
    return folder


def record_everything(program: Program, *, twice: bool = False) -> None:
    counter = program.meter.create_counter("tokens")
    level = program.meter.create_up_down_counter("queue")
    gauge = program.meter.create_gauge("temperature")
    histogram = program.meter.create_histogram("latency")
    for number in range(2 if twice else 1):
        counter.add(5 - 2 * number, {"kind": "prompt"})
        level.add(3 - 4 * number)
        gauge.set(0.5 + number)
        for value in (1.0, 2.0, 40.0):
            histogram.record(value + number)
        program.export()
    program.close()


class TestTensorBoard:
    def test_sums_stand_and_distributions_are_of_the_interval(self, run_dir: Path) -> None:
        record_everything(Program(TensorBoardMetricExporter()), twice=True)
        found = {
            tag: [(point.step, point.value) for point in points]
            for tag, points in scalars(tensorboard_folder(run_dir)).items()
        }
        first, second = found["latency/avg"]
        assert (first[0], second[0]) == (0, 1)
        assert (first[1], second[1]) == pytest.approx((43 / 3, 46 / 3))
        assert found["latency/max"] == [(0, 40.0), (1, 41.0)]
        assert found["tokens{kind=prompt}"] == [(0, 5.0), (1, 8.0)]
        assert found["queue"] == [(0, 3.0), (1, 2.0)]
        assert found["temperature"] == [(0, 0.5), (1, 1.5)]

    @pytest.mark.parametrize(
        "aggregation",
        [
            ExplicitBucketHistogramAggregation([0.0, 1.0, 10.0, 1000.0]),
            ExponentialBucketHistogramAggregation(),
        ],
        ids=["explicit", "exponential"],
    )
    def test_histograms_have_the_program_s_own_bins(self, run_dir: Path, aggregation: Any) -> None:
        numbers = np.concatenate([np.random.default_rng(1).lognormal(1, 2, 500), [0.0]])
        program = Program(TensorBoardMetricExporter(), View(instrument_name="h", aggregation=aggregation))
        histogram = program.meter.create_histogram("h")
        for number in numbers:
            histogram.record(float(number))
        program.export()
        program.close()
        (found,) = accumulated(tensorboard_folder(run_dir)).Histograms("h")
        made = found.histogram_value
        assert (made.num, made.min, made.max) == (len(numbers), numbers.min(), numbers.max())
        limits = made.bucket_limit
        assert limits == sorted(limits)
        if isinstance(aggregation, ExplicitBucketHistogramAggregation):
            assert limits[:-1] == [0.0, 1.0, 10.0, 1000.0]
            for limit, counted in zip(limits, np.cumsum(made.bucket), strict=True):
                assert counted == (numbers <= limit).sum()
        else:
            assert sum(made.bucket) == len(numbers)

    def test_each_process_has_a_folder_of_its_own(self, run_dir: Path) -> None:
        first, second = (Program(TensorBoardMetricExporter()) for _ in range(2))
        for program in (first, second):
            record_everything(program)
        assert len(list((run_dir / "tensorboard").iterdir())) == 2


class TestJsonl:
    def test_holds_what_came_since_the_export_before(self, run_dir: Path) -> None:
        record_everything(Program(JsonlMetricExporter()), twice=True)
        first, second = lines(run_dir)
        assert [line.values["tokens{kind=prompt}"] for line in (first, second)] == [5.0, 3.0]
        assert [line.values["queue"] for line in (first, second)] == [3.0, 2.0]
        assert [line.values["temperature"] for line in (first, second)] == [0.5, 1.5]
        assert [line.values["latency/max"] for line in (first, second)] == [40.0, 41.0]
        assert [line.snapshot["latency"].state.moments[:2] for line in (first, second)] == [[43.0, 3.0], [46.0, 3.0]]
        assert [(line.step, line.axis) for line in (first, second)] == [(0, "export"), (1, "export")]

    def test_intervals_merge_to_the_whole(self, run_dir: Path) -> None:
        record_everything(Program(JsonlMetricExporter()), twice=True)
        whole = merged(line.snapshot for line in lines(run_dir)).flat()
        assert whole["tokens{kind=prompt}"] == 8.0
        assert (whole["latency/avg"], whole["latency/min"], whole["latency/max"]) == (89 / 6, 1.0, 41.0)

    def test_quantiles_of_exponential_histograms_are_as_ours(self, run_dir: Path) -> None:
        numbers = np.random.default_rng(2).lognormal(0, 2, 4000)
        view = View(instrument_name="h", aggregation=ExponentialBucketHistogramAggregation(max_size=320))
        program = Program(JsonlMetricExporter(), view)
        histogram = program.meter.create_histogram("h")
        for number in numbers:
            histogram.record(float(number))
        program.export()
        program.close()
        (line,) = lines(run_dir)
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert line.values[f"h/{name}"] == pytest.approx(np.quantile(numbers, q), rel=0.045)
        assert line.values["h/avg"] == pytest.approx(numbers.mean())

    def test_can_be_replayed_like_any_record(self, run_dir: Path) -> None:
        record_everything(Program(JsonlMetricExporter()), twice=True)
        with otlp_sink() as receiver:
            assert replay(run_dir, "otlp", environ=environment(), endpoint=receiver.endpoint).run().error is None
            totals = [
                each.value for each in receiver.metrics() if each.attributes.get("rl.key", "").startswith("tokens")
            ]
            assert totals[:2] == [5.0, 8.0]

    def test_a_path_is_taken_as_it_is(self, tmp_path: Path) -> None:
        exporter = JsonlMetricExporter(tmp_path / "mine.jsonl")
        record_everything(Program(exporter))
        assert exporter.path == tmp_path / "mine.jsonl"
        assert next(read_jsonl(exporter.path)).values["temperature"] == 0.5

    def test_without_a_run_directory_it_is_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("RLTEL_RUN_DIR")
        record_everything(Program(JsonlMetricExporter()))
        assert len(list((tmp_path / "metrics").glob("otel-*.jsonl"))) == 1


# --- data that other programs make ----------------------------------------------------------------------------------


def data(of: Any, name: str = "m", scope: str = "s") -> MetricsData:
    metric = Metric(name, "", "", of)
    scopes = [ScopeMetrics(InstrumentationScope(scope), [metric], "")]
    return MetricsData([ResourceMetrics(Resource({}), scopes, "")])


def number(value: float, start: int = 1, time: int = 2, **attributes: str) -> NumberDataPoint:
    return NumberDataPoint(attributes, start, time, value)


def distribution(counts: list[int], total: float, start: int = 1, **extremes: Any) -> HistogramDataPoint:
    low, high = extremes.get("low", 0.5), extremes.get("high", 8.0)
    return HistogramDataPoint({}, start, 2, sum(counts), total, counts, [1.0, 4.0], low, high)


class TestStates:
    def test_counters_of_all_time_are_told_apart(self) -> None:
        states = States()
        values = [
            states.snapshot(data(Sum([number(value, start)], CUMULATIVE, True))).flat()["m"]
            for value, start in [(5.0, 1), (8.0, 1), (2.0, 9), (1.0, 9)]
        ]
        assert values == [5.0, 3.0, 2.0, 1.0]  # the third and the fourth began anew

    def test_distributions_of_all_time_are_told_apart(self) -> None:
        states = States()
        first, second = (
            states.snapshot(data(Histogram([point], CUMULATIVE)))["m"].state
            for point in (distribution([1, 2, 0], 5.0), distribution([1, 4, 1], 16.0))
        )
        assert (first.kind, first.moments[:2], sum(first.buckets.values())) == (HISTOGRAM, [5.0, 3.0], 3)
        assert (second.moments[:2], sum(second.buckets.values())) == ([11.0, 3.0], 3)

    def test_exponential_distributions_of_all_time_are_told_apart_though_their_bins_grew(self) -> None:
        states = States()
        points = [
            ExponentialHistogramDataPoint({}, 1, 2, 3, 5.0, 1, 1, Buckets(0, [1, 1]), Buckets(0, []), 0, 0.0, 2.0),
            ExponentialHistogramDataPoint({}, 1, 3, 6, 30.0, 0, 1, Buckets(0, [2, 1, 2]), Buckets(0, []), 0, 0.0, 8.0),
            ExponentialHistogramDataPoint({}, 1, 4, 1, 1.0, 0, 0, Buckets(0, [1]), Buckets(0, []), 0, 2.0, 2.0),
        ]
        first, second, anew = (
            states.snapshot(data(ExponentialHistogram([point], CUMULATIVE)))["m"].state for point in points
        )
        assert [state.moments[:2] for state in (first, second, anew)] == [[5.0, 3.0], [25.0, 3.0], [1.0, 1.0]]
        assert sum(second.buckets.values()) == 3
        assert min(second.buckets) > max(first.buckets)

    def test_a_level_told_by_its_changes_stands(self) -> None:
        states = States()
        values = [states.snapshot(data(Sum([number(value)], DELTA, False))).flat()["m"] for value in (3.0, -1.0, 2.0)]
        assert values == [3.0, 2.0, 4.0]

    def test_a_counter_is_a_counter(self) -> None:
        assert States().snapshot(data(Sum([number(5.0)], DELTA, True)))["m"].state.kind is COUNTER

    def test_a_distribution_of_nothing_is_left_out(self) -> None:
        assert not States().snapshot(data(Histogram([distribution([0, 0, 0], 0.0)], DELTA)))

    def test_extremes_that_are_not_told_come_from_the_bins(self) -> None:
        point = distribution([1, 2, 1], 14.0, low=None, high=None)
        assert States().snapshot(data(Histogram([point], DELTA))).flat()["m/max"] == 4.0
        untold = distribution([0, 2, 0], 5.0, low=math.inf, high=-math.inf)
        flat = States().snapshot(data(Histogram([untold], DELTA))).flat()
        assert (flat["m/min"], flat["m/max"]) == (1.0, 4.0)

    def test_nan_and_infinity_of_a_gauge_are_kept(self) -> None:
        states = States()
        values = [states.snapshot(data(Gauge([number(value)]))).flat()["m"] for value in (math.nan, math.inf)]
        assert str(values) == "[nan, inf]"

    def test_attributes_tell_series_apart_in_one_order(self) -> None:
        points = [number(1.0, b="2", a="1"), number(2.0, a="1", b="3")]
        assert States().snapshot(data(Gauge(points))).flat() == {"m{a=1,b=2}": 1.0, "m{a=1,b=3}": 2.0}

    def test_two_scopes_of_one_name_are_kept_apart(self) -> None:
        states = States()
        flats = [states.snapshot(data(Gauge([number(1.0)]), scope=scope)).flat() for scope in ("s", "t", "s")]
        assert [list(flat) for flat in flats] == [["m"], ["t/m"], ["m"]]

    @pytest.mark.parametrize("scale", [-10, -1, 0, 4, 20])
    def test_exponential_bins_of_every_scale_hold_all_values(self, scale: int) -> None:
        point = ExponentialHistogramDataPoint(
            {}, 1, 2, 7, 1.0, scale, 1, Buckets(-2, [1, 2]), Buckets(-1, [3]), 0, -4.0, 4.0
        )
        snapshot = States().snapshot(data(ExponentialHistogram([point], DELTA)))
        assert sum(snapshot["m"].state.buckets.values()) == 7


class TestProcesses:
    @pytest.mark.parametrize("name", ["tensorboard", "jsonl"])
    def test_by_name_in_a_program_that_knows_nothing_of_us(self, tmp_path: Path, name: str) -> None:
        info = tmp_path / "site" / "named-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 0\n")
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        code = (
            "from opentelemetry.sdk._configuration import _OTelSDKConfigurator\n"
            "_OTelSDKConfigurator()._configure()\n"
            "from opentelemetry import metrics\n"
            "metrics.get_meter('m').create_counter('tokens').add(3)\n"
        )
        environ = {
            "OTEL_METRICS_EXPORTER": name,
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "RLTEL_RUN_DIR": str(tmp_path / "run"),
            "PYTHONPATH": str(tmp_path / "site"),
        }
        ran = run_python(code, **environ)
        assert (ran.returncode, ran.stderr) == (0, "")
        if name == "jsonl":
            assert lines(tmp_path / "run")[0].values["tokens"] == 3.0
        else:
            assert scalars(tensorboard_folder(tmp_path / "run"))["tokens"][0].value == 3.0

    @pytest.mark.parametrize("kind", ["TensorBoard", "Jsonl"])
    def test_a_forked_child_writes_a_file_of_its_own(self, tmp_path: Path, kind: str) -> None:
        code = (
            "import os, sys\nfrom opentelemetry.sdk.metrics import MeterProvider\n"
            "from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader\n"
            f"from rltel.export.otel.metrics import {kind}MetricExporter as Exporter\n"
            "provider = MeterProvider([PeriodicExportingMetricReader(Exporter(), 1e9)])\n"
            "gauge = provider.get_meter('m').create_gauge('x')\n"
            "gauge.set(1.0)\nprovider.force_flush()\n"
            "pid = os.fork()\n"
            "gauge.set(2.0 if pid else 3.0)\nprovider.force_flush()\n"
            "if not pid: os._exit(0)\n"
            "os.waitpid(pid, 0)\nprovider.shutdown()\n"
        )
        ran = run_python(code, RLTEL_RUN_DIR=str(tmp_path))
        assert ran.returncode == 0, ran.stderr
        if kind == "Jsonl":
            found = [[line.values["x"] for line in read_jsonl(path)] for path in (tmp_path / "metrics").iterdir()]
        else:
            folders = (tmp_path / "tensorboard").iterdir()
            found = [[point.value for point in scalars(folder)["x"]] for folder in folders]
        assert sorted(values[:2] for values in found) in ([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 3.0]])

    def test_what_was_exported_before_a_kill_is_there(self, tmp_path: Path) -> None:
        code = (
            "import os\nfrom opentelemetry.sdk.metrics import MeterProvider\n"
            "from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader\n"
            "from rltel.export.otel.metrics import JsonlMetricExporter\n"
            "provider = MeterProvider([PeriodicExportingMetricReader(JsonlMetricExporter(), 1e9)])\n"
            "provider.get_meter('m').create_gauge('x').set(1.0)\nprovider.force_flush()\nos.kill(os.getpid(), 9)\n"
        )
        assert run_python(code, RLTEL_RUN_DIR=str(tmp_path)).returncode == -9
        assert [line.values for line in lines(tmp_path)] == [{"x": 1.0}]


class TestTrouble:
    @pytest.mark.parametrize("kind", [TensorBoardMetricExporter, JsonlMetricExporter])
    def test_a_place_that_cannot_be_written_is_a_failure_said_once(
        self, tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        exporter = kind(tmp_path / "file" / "below")
        results = {exporter.export(data(Gauge([number(1.0)]))) for _ in range(3)}
        assert results == {MetricExportResult.FAILURE}
        assert len(caplog.records) == 1

    def test_a_full_disk_is_a_failure_and_the_next_line_is_whole(self, run_dir: Path) -> None:
        exporter = JsonlMetricExporter()
        assert exporter.export(data(Gauge([number(1.0)]))) is MetricExportResult.SUCCESS
        write, os.write = os.write, lambda *rest: (_ for _ in ()).throw(OSError(28, "no space"))
        try:
            assert exporter.export(data(Gauge([number(2.0)]))) is MetricExportResult.FAILURE
        finally:
            os.write = write
        assert exporter.export(data(Gauge([number(3.0)]))) is MetricExportResult.SUCCESS
        assert [line.values["m"] for line in lines(run_dir)] == [1.0, 3.0]

    @pytest.mark.parametrize("kind", [TensorBoardMetricExporter, JsonlMetricExporter])
    def test_after_shutdown_nothing_is_taken(self, kind: Any) -> None:
        exporter = kind()
        exporter.shutdown()
        exporter.shutdown()
        assert exporter.export(data(Gauge([number(1.0)]))) is MetricExportResult.FAILURE

    def test_the_header_says_whose_file_it_is(self, run_dir: Path) -> None:
        record_everything(Program(JsonlMetricExporter()))
        (path,) = run_dir.rglob("*.jsonl")
        header = json.loads(path.read_text().splitlines()[0])
        assert (header["role"], header["process"]) == ("otel", path.stem)
