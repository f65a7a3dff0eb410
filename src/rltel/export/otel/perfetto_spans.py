"""An ordinary OpenTelemetry span exporter that writes native Perfetto files: ``OTEL_TRACES_EXPORTER=perfetto``.

Spans arrive when they end, most children before their parents, and concurrent ones overlap: each gets a lane
(`lanes.Lanes`). One file per process, one compressed block per export: cut anywhere, it loads. Times are wall-clock
times, as the SDK takes them.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from rltel.core.clock import Clock, SystemClock
from rltel.export.otel.span_drawing import SpanDrawing

_log = logging.getLogger("rltel")
_SUFFIX = ".pftrace"


class PerfettoSpanExporter(SpanExporter):
    """Writes the spans that it is given to a file of its own, opened at the first of them.

    ``path``: the file; else ``$OTEL_EXPORTER_PERFETTO_FILE``, else a new name in ``$RLTEL_RUN_DIR/trace``, else in the
    working directory. A file that exists is never touched: another process's, or another run's. The name then gets the
    process id and the time, as it does after a fork.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, clock: Clock | None = None) -> None:
        self._wanted = None if path is None else Path(path)
        self._clock = clock or SystemClock()
        self._is_shut = False
        self._start()
        _exporters.add(self)

    @property
    def path(self) -> Path | None:
        """The file that is being written; None until the first span."""
        return self._path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append these spans as one block. Never raises: what fails is logged once, and these spans are lost."""
        if self._is_shut:
            return SpanExportResult.FAILURE
        try:
            with self._lock:
                self._append(spans)
        except Exception as error:  # a program's spans must not break it, whatever they hold
            self._failed(error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """True: what was exported is with the operating system already."""
        return True

    def shutdown(self) -> None:
        """Close the file."""
        self._is_shut = True
        with self._lock:
            self._close()

    def _start(self) -> None:
        """As new: also in a forked child, which must not write its parent's file, nor wait for its lock."""
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._descriptor = -1
        self._size = 0
        self._anchor = self._clock.anchor()  # before the spans: to SQL, time begins with a file's anchor
        self._drawing: SpanDrawing | None = None
        self._logged: set[type[BaseException]] = set()

    def after_fork(self) -> None:
        """Called in a forked child."""
        descriptor = self._descriptor
        self._start()
        if descriptor >= 0:
            os.close(descriptor)

    def _append(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans:
            return
        if self._descriptor < 0:
            self._path, self._descriptor = _open_new(self._wanted)
            self._size = 0
        if self._drawing is None:
            self._drawing = SpanDrawing(self._anchor)
        try:
            self._write(self._drawing.block(spans, is_first=self._size == 0))
        except BaseException:
            self._drawing.lost()
            raise
        if self._drawing.undrawable:
            self._failed(TypeError(f"{self._drawing.undrawable} spans hold what cannot be drawn (a time, or an event)"))

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, self._size)  # what follows a cut block would be unreadable
            raise OSError(None, f"only {written} of {len(data)} bytes written", str(self._path))
        self._size += written

    def _failed(self, error: BaseException) -> None:
        if type(error) not in self._logged:
            self._logged.add(type(error))
            _log.warning("PerfettoSpanExporter: %s: spans were lost (said once): %s", self._path or self._wanted, error)

    def _close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


_exporters: "weakref.WeakSet[PerfettoSpanExporter]" = weakref.WeakSet()


def _after_fork() -> None:
    for exporter in list(_exporters):
        exporter.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _open_new(wanted: Path | None) -> tuple[Path, int]:
    """A file that was not there before, and its descriptor."""
    own_name = f"{os.getpid()}-{time.time_ns()}"
    named = os.environ.get("OTEL_EXPORTER_PERFETTO_FILE")
    if wanted is None and named:
        wanted = Path(named)
    if wanted is not None:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            return wanted, _create(wanted)
        suffix = wanted.suffix or _SUFFIX
        return (other := wanted.with_name(f"{wanted.stem}.{own_name}{suffix}")), _create(other)
    run_dir = os.environ.get("RLTEL_RUN_DIR")
    folder = Path(run_dir, "trace") if run_dir else Path()
    folder.mkdir(parents=True, exist_ok=True)
    return (path := folder / f"spans-{own_name}{_SUFFIX}"), _create(path)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
