"""Ordinary OpenTelemetry metric exporters that write files: ``OTEL_METRICS_EXPORTER=tensorboard`` or ``jsonl``.

Each process writes a file of its own, in ``$RLTEL_RUN_DIR`` or else the working directory. OpenTelemetry knows no step:
it is the number of the export.
"""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import Counter, Histogram, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
)

from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile
from rltel.export.otel.points import Distribution, Keys, bins_of_point
from rltel.export.otel.states import States
from rltel.export.sink import Destination
from rltel.export.tensorboard.event_file import EventFile, protos

_log = logging.getLogger("rltel")
_DELTA = AggregationTemporality.DELTA
_ROLE, _AXIS = "otel", "export"


class _FileExporter(MetricExporter):
    """Opens its file at the first export, and anew in a forked child. Never raises into the program."""

    def __init__(self, path: str | os.PathLike[str] | None, temporality: Mapping[type, AggregationTemporality]) -> None:
        super().__init__(preferred_temporality=dict(temporality))
        self._wanted = None if path is None else Path(path)
        self._pid = -1
        self._exports = 0
        self._is_shut = False
        self._logged: set[type[BaseException]] = set()

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Append these metrics. What fails is logged once."""
        if self._is_shut:
            return MetricExportResult.FAILURE
        try:
            if self._pid != os.getpid():
                self._open_anew()
            self._write(metrics_data, _time_of(metrics_data), self._exports)
            self._exports += 1
        except Exception as error:  # a program's metrics must not break it
            if type(error) not in self._logged:
                self._logged.add(type(error))
                _log.warning("%s: metrics were lost (said once): %s", type(self).__name__, error)
            return MetricExportResult.FAILURE
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """True: what was exported is with the operating system already."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the file."""
        self._is_shut = True
        self._close()

    def _open_anew(self) -> None:
        self._close()
        self._exports = 0
        self._open(Identity(_run_id(), None, _ROLE, 0, 1, os.getpid(), time.time_ns(), False))
        self._pid = os.getpid()

    def _open(self, identity: Identity) -> None:
        raise NotImplementedError

    def _write(self, data: MetricsData, time_ns: int, number: int) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class TensorBoardMetricExporter(_FileExporter):
    """Event files: a folder per process, ``tensorboard/otel-<pid>.<time>``, or ``path``.

    Sums are shown as they stand, histograms as what came since the export before, with ``/avg``, ``/min`` and ``/max``.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path, {Histogram: _DELTA})
        self._keys = Keys()
        self._protos = protos()
        self._file: EventFile | None = None

    @property
    def path(self) -> Path | None:
        """The folder that is being written; None until the first export."""
        return self._file.path.parent if self._file else None

    def _open(self, identity: Identity) -> None:
        wanted = self._wanted
        if wanted is not None and self._pid >= 0:  # in a forked child: two writers never share a folder
            wanted /= identity.name
        self._file = EventFile(wanted or _folder() / "tensorboard" / identity.name, identity.name)

    def _write(self, data: MetricsData, time_ns: int, number: int) -> None:
        assert self._file is not None
        values: list[Any] = []
        for each in self._keys.series(data):
            if isinstance(each.point, NumberDataPoint):
                values.append(self._scalar(each.key, each.point.value))
            elif each.point.count:
                values.extend(self._distribution(each.key, each.point))
        if values:
            self._file.write(time_ns, number, values)

    def _scalar(self, tag: str, value: float) -> Any:
        return self._protos.Summary.Value(tag=tag, simple_value=value)

    def _distribution(self, key: str, point: Distribution) -> list[Any]:
        bins = bins_of_point(point)
        total = float(point.sum or 0.0)
        values = [self._scalar(f"{key}/avg", total / point.count)]
        if bins:
            low, high = bins[0].low, bins[-1].high
            values += [self._scalar(f"{key}/min", low), self._scalar(f"{key}/max", high)]
            limits, counts = [each.high for each in bins], [each.held for each in bins]
            squares = sum(each.held * ((each.low + each.high) / 2) ** 2 for each in bins)
            made = self._protos.Histogram(
                min=low, max=high, num=point.count, sum=total, sum_squares=squares, bucket_limit=limits, bucket=counts
            )
            values.append(self._protos.Summary.Value(tag=key, histo=made))
        return values

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


class JsonlMetricExporter(_FileExporter):
    """Lines of the run's record (`docs/jsonl.md`): ``metrics/otel-<pid>.<time>.jsonl``, or ``path``.

    A line holds what came since the export before, as states that merge, so that the record can be replayed.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path, dict.fromkeys((Counter, ObservableCounter, Histogram), _DELTA))
        self._account = Destination("jsonl")
        self._states = States()
        self._identity: Identity | None = None
        self._file: JsonlFile | None = None

    @property
    def path(self) -> Path | None:
        """The file that is being written; None until the first export."""
        return self._file.path if self._file else None

    def _open(self, identity: Identity) -> None:
        self._identity = identity
        self._file = JsonlFile(
            self._wanted or _folder() / "metrics" / f"{identity.name}.jsonl", identity, self._account
        )

    def _write(self, data: MetricsData, time_ns: int, number: int) -> None:
        assert self._file is not None
        assert self._identity is not None
        snapshot = self._states.snapshot(data)
        if not snapshot:
            return
        before = self._account.exported_total
        self._file.write(Commit(self._identity, number, time_ns, number, _AXIS, snapshot))
        if self._account.exported_total == before:
            raise OSError(None, "the line could not be written", str(self._file.path))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


def _folder() -> Path:
    return Path(os.environ.get("RLTEL_RUN_DIR") or ".")


def _run_id() -> str:
    return os.environ.get("RLTEL_RUN_ID") or f"{_ROLE}-{os.getpid()}-{time.time_ns()}"


def _time_of(data: MetricsData) -> int:
    """When the points were collected: the latest of their times."""
    times = (
        point.time_unix_nano
        for of_resource in data.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    )
    return max(times, default=0) or time.time_ns()
