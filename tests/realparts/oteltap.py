"""Receives OTLP over HTTP with ``oteltap``, whose core is not Python, and keeps what it makes of it."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from export.making import wait_until
from realparts import requirements
from realparts.processes import HOST, accepts, free_port

Item = TypeVar("Item")


class OtelTap:
    """What has arrived, by name: it tells the spans and metrics apart from the resources that they came with.

    Attributes:
        endpoint: Base URL.
        spans: In the order of arrival.
        metrics: Likewise; each has the points of one request.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://{HOST}:{port}"
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []

    def values(self, name: str) -> list[float]:
        """Of every point of a gauge or sum of that name."""
        points = (point for metric in self.metrics if metric.name == name for point in _points(metric))
        return [point.as_int if point.HasField("as_int") else point.as_double for point in points]

    def wait_for(self, wanted: Callable[[], object], what: str) -> None:
        """Until it holds; AssertionError if it never does."""
        wait_until(wanted, what, 30.0)


def _points(metric: Metric) -> Any:
    return getattr(metric, metric.WhichOneof("data") or "gauge").data_points


@contextmanager
def oteltap() -> Iterator[OtelTap]:
    """Runs it in this process, on a thread of its own. Skips the test where the package is not."""
    requirements.require("oteltap", importlib.util.find_spec("oteltap"), "pip install oteltap")
    port = free_port()
    tap = OtelTap(port)
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_receive(tap, port, over),), daemon=True)
    thread.start()
    try:
        wait_until(lambda: accepts(port), "oteltap")
        yield tap
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


async def _receive(tap: OtelTap, port: int, over: asyncio.Event) -> None:
    from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

    receiver = OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port))
    kept = [
        asyncio.create_task(_keep(receiver.stream_traces(), tap.spans)),
        asyncio.create_task(_keep(receiver.stream_metrics(), tap.metrics)),
    ]
    await asyncio.sleep(0)  # both listen before anything can come
    async with receiver:
        await over.wait()
    await asyncio.gather(*kept)


async def _keep(stream: AsyncIterator[Item], items: list[Item]) -> None:
    async for item in stream:
        items.append(item)  # noqa: PERF401  # others look at the list while it grows
