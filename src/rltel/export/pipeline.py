"""Threads and queues between ``commit`` and the destinations.

One thread serves the local, durable sinks (trace, TensorBoard, the scrape endpoint's table, the console), and one
thread with its own bounded queue each remote sink, so that a client that hangs delays nobody else. Queues drop the
oldest and count. Nothing here ever raises into the training loop.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence

from rltel.export.commit import Commit
from rltel.export.media import Media, MediaLostError, MediaSink
from rltel.export.points import Point, Totals, points_of
from rltel.export.sink import Destination, PartlyTakenError, Sink
from rltel.export.worker import Parcel, Worker
from rltel.names.otel import Namer
from rltel.record.many_keys import ManyKeys

_POINT_BYTES = 400  # about what one point holds in memory; the bound need not be exact
_METRIC_BYTES = 1000  # and a metric of a commit that waits to become points
_MAX_MEDIA = 100  # that wait for the local destinations
_MOMENT_S = 0.03  # how long a commit may wait before anything is done with it
_SAME_STEP = 100  # commits of one step that are kept in case it is the last


class RemoteWorker(Worker):
    """One remote sink with its queue and its thread."""

    def __init__(self, sink: Sink, destination: Destination, queue_bytes: int) -> None:
        super().__init__(sink.name, sink.close, destination, queue_bytes)
        self.sink = sink

    def put(self, commit: Commit, points: Sequence[Point]) -> None:
        """Queue one commit."""
        size = _POINT_BYTES * len(points) or _METRIC_BYTES * len(commit.snapshot)
        self.put_parcel(Parcel(lambda: self._send(commit, points), size, 1))

    def _send(self, commit: Commit, points: Sequence[Point]) -> int:
        """How many were not taken."""
        refused = 0
        try:
            self.sink.write(commit, points)
        except PartlyTakenError as partly:
            self.destination.failed(partly, "rejected")
            refused = 1
        self.destination.has_had(commit)
        return refused


class Pipeline:
    """Takes commits from the training thread and brings them everywhere."""

    def __init__(
        self,
        local: Sequence[tuple[Sink, Destination]],
        remote: Sequence[RemoteWorker],
        namer: Namer,
        *,
        drain: Callable[[], None],
        finish: Callable[[], None] | None = None,
        others: Sequence[Worker] = (),
        flush_interval_s: float = 1.0,
        log_interval: int = 1,
        queue_bytes: int = 64_000_000,
    ) -> None:
        self._local = [each for each in local if not _takes_all(each[0])]
        self._unthinned = [each for each in local if _takes_all(each[0])]
        self._remote = remote
        self.account = Destination("pipeline")
        self._needs_points = any(
            _takes_points(sink) for sink in (*(sink for sink, _ in local), *(w.sink for w in remote))
        )
        self._totals = Totals(namer)
        self._totals_lock = threading.Lock()
        self._keys: set[str] = set()
        self._many_keys = ManyKeys()
        self._drain = drain
        self._finish = finish
        self._workers = (*remote, *others)  # all who have a thread of their own
        self._flush_interval_s = flush_interval_s
        self._log_interval = log_interval
        self._queue_bytes = queue_bytes
        self._inbox: deque[Commit] = deque()
        self._inbox_bytes = 0
        self._inbox_lock = threading.Lock()  # held for a few instructions only
        self._last_sent = -1  # the number of the latest commit that went to the destinations
        self._skipped: dict[str, deque[Commit]] = {}
        self._places: dict[str, tuple[int, int | None]] = {}  # of each axis: the last step, and the last one sent
        self._media: deque[Media] = deque(maxlen=_MAX_MEDIA)
        self._wake = threading.Event()
        self._asleep = False  # whether the thread sleeps until somebody wakes it, and not only for a moment
        self._idle = threading.Condition()
        self._handled = 0
        self._submitted = 0
        self._flushes_begun = 0
        self._flushes = 0  # that are through
        self._flushed = 0  # commits that were handled before the last of them
        self._awaited: tuple[int, int] | None = None  # the flush, and commits in it, that somebody waits for
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="rltel-pipeline", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Hand over a commit. Never waits for a destination; the oldest go if a local one hangs."""
        with self._inbox_lock:
            self._submitted += 1
            self._inbox.append(commit)
            self._inbox_bytes += _METRIC_BYTES * len(commit.snapshot)
        while self._inbox_bytes > self._queue_bytes and len(self._inbox) > 1:
            self._drop_oldest()
        if self._asleep:  # a trainer that commits often does not pay for it each time
            self._wake.set()

    @property
    def is_alive(self) -> bool:
        """Whether it still takes anything."""
        return self._thread.is_alive()

    @property
    def shows(self) -> bool:
        """Whether a local destination takes more than numbers."""
        return any(isinstance(sink, MediaSink) for sink, _ in self._local)

    def show(self, media: Media) -> None:
        """Hand over a text, table, file, video or image for the local destinations. Never waits; the oldest go."""
        if len(self._media) == _MAX_MEDIA:
            self.account.dropped("queue_full")
        self._media.append(media)
        self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was recorded and submitted so far has reached every destination.

        False if the time (seconds) runs out, or the end has begun after which nothing is drained any more.
        """
        deadline = time.monotonic() + timeout_s
        if not self._thread.is_alive():
            return self._handled >= self._submitted
        with self._idle:
            # One that is under way may have passed what was recorded since it began: the next it must be.
            self._awaited = awaited = self._flushes_begun + 1, self._submitted
            self._wake.set()
            self._idle.wait_for(
                lambda: self._ended or self._has_flushed(*awaited), max(0.0, deadline - time.monotonic())
            )
            arrived = self._has_flushed(*awaited)
        return all([arrived, *(worker.wait_empty(deadline) for worker in self._workers)])

    def _has_flushed(self, flush: int, commits: int) -> bool:
        return self._flushes >= flush and self._flushed >= commits

    def close(self, timeout_s: float) -> None:
        """Bring what is left to where it goes, within the time for all destinations together."""
        deadline = time.monotonic() + timeout_s
        self._closing = True
        self._wake.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._handled < self._submitted:
            self.account.dropped("shutdown", self._submitted - self._handled)
        if self._media:  # a local destination hangs
            self.account.dropped("shutdown", len(self._media))
        for worker in self._workers:  # all at a time: one that hangs must not cost the others their end
            worker.begin_close(deadline)
        for worker in self._workers:
            worker.close(deadline)

    def _run(self) -> None:
        next_flush = time.monotonic() + self._flush_interval_s
        while True:
            self._sleep(next_flush)
            closing = self._closing
            self._handle_inbox(None if closing else next_flush)
            self._show_media()
            if closing:
                self._release_skipped()
            if closing or self._awaited or time.monotonic() >= next_flush:
                self._flush_local()
                next_flush = time.monotonic() + self._flush_interval_s
            if closing:
                break
        with self._idle:
            self._ended = True
            self._idle.notify_all()
        if self._finish is not None:
            _guarded(self._finish, self.account)
        for sink, destination in (*self._local, *self._unthinned):
            _guarded(sink.close, destination)

    def _sleep(self, until: float) -> None:
        """Until somebody wakes us, or for a moment: more may have come meanwhile."""
        if not self._wake.wait(max(0.0, min(_MOMENT_S, until - time.monotonic()))) and not self._inbox:
            self._asleep = True  # whoever adds to the inbox from here on wakes us
            if not self._inbox:
                self._wake.wait(max(0.0, until - time.monotonic()))
            self._asleep = False
        self._wake.clear()

    def _next(self) -> Commit | None:
        with self._inbox_lock:
            if not self._inbox:
                return None
            commit = self._inbox.popleft()
            self._inbox_bytes -= _METRIC_BYTES * len(commit.snapshot)
            return commit

    def _handle_inbox(self, until: float | None) -> None:
        """Handle what waits, but not past the next flush: the trace must not wait for a trainer that never rests."""
        while until is None or time.monotonic() < until:
            commit = self._next()
            if commit is None:
                return
            self._attempt(self._handle, commit)
            with self._idle:
                self._handled += 1
        self._wake.set()

    def _show_media(self) -> None:
        while self._media:
            media = self._media.popleft()
            for sink, destination in self._local:
                if not isinstance(sink, MediaSink):
                    continue
                try:
                    sink.write_media(media)
                except MediaLostError as lost:
                    destination.failed(lost, lost.reason)
                except Exception as error:  # as with commits
                    destination.failed(error)

    def _drop_oldest(self) -> None:
        """A commit that nobody had time for: its numbers are still in the sums."""
        commit = self._next()
        if commit is not None:
            self._attempt(self._add, commit)
            local = (of for _, of in (*self._local, *self._unthinned))
            for destination in (*local, *(worker.destination for worker in self._remote)):
                destination.dropped("queue_full")
            with self._idle:
                self._handled += 1

    def _attempt(self, step: Callable[[Commit], None], commit: Commit) -> None:
        try:
            step(commit)
        except Exception as error:  # a commit that cannot be translated must not end the pipeline
            self.account.failed(error)

    def _add(self, commit: Commit) -> None:
        numbers = commit.snapshot.numbers
        if numbers is not None:  # keys that no tracker has seen
            self._keys.update(numbers)
            self._many_keys.look(self._keys)
        if self._needs_points:
            with self._totals_lock:
                self._totals.add(commit)

    def _handle(self, commit: Commit) -> None:
        self._add(commit)
        for sink, destination in self._unthinned:
            _deliver(sink, destination, commit, ())
        held = self._skipped.setdefault(commit.axis, deque())
        if self._is_due(commit):
            self._thin(held)
            self._send(commit)
            return
        if held and held[0].step != commit.step:
            self._thin(held)
        elif len(held) == _SAME_STEP:
            self._thin([held.popleft()])
        held.append(commit)

    def _thin(self, held: MutableSequence[Commit]) -> None:
        """These are not for the destinations."""
        for commit in held:
            for _, destination in self._local:
                destination.has_had(commit)
            for worker in self._remote:
                worker.destination.has_had(commit)
        held.clear()

    def _is_due(self, commit: Commit) -> bool:
        """Whether a multiple of the interval was reached since the axis's last commit, or this is more of a step sent.

        (A trainer may commit steps 9, 19, 29: none of them need be a multiple itself.)
        """
        interval = self._log_interval
        before, sent = self._places.get(commit.axis, (None, None))
        reached = commit.step % interval == 0 if before is None else before // interval != commit.step // interval
        due = reached or commit.step == sent
        self._places[commit.axis] = commit.step, commit.step if due else sent
        return due

    def _release_skipped(self) -> None:
        """The last step of each axis always goes through, in the order of their commits."""
        held = [commit for of_axis in self._skipped.values() for commit in of_axis]
        for commit in sorted(held, key=lambda each: each.number):
            self._attempt(self._send, commit)
        self._skipped.clear()

    def _send(self, commit: Commit) -> None:
        points: list[Point] = []
        if self._needs_points:
            with self._totals_lock:
                points = points_of(commit, self._totals)
        if commit.number < self._last_sent:  # what adds up has gone out already, at a later time: it must not go back
            points = [point for point in points if point.kind == "gauge"]
        self._last_sent = max(self._last_sent, commit.number)
        for worker in self._remote:  # first, since a local sink may hang
            worker.put(commit, points)
        for sink, destination in self._local:
            _deliver(sink, destination, commit, points)

    def _flush_local(self) -> None:
        with self._idle:
            self._flushes_begun += 1
            handled = self._handled
        _guarded(self._drain, self.account)
        for sink, destination in (*self._local, *self._unthinned):
            _guarded(sink.flush, destination)
        with self._idle:
            self._flushed = handled
            self._flushes = self._flushes_begun
            if self._awaited and self._has_flushed(*self._awaited):
                self._awaited = None
            self._idle.notify_all()


def _takes_points(sink: Sink) -> bool:
    """Whether it wants a commit's points. Names and sums are kept of every key for them: without, that is saved."""
    return bool(getattr(sink, "takes_points", not _takes_all(sink)))


def _takes_all(sink: Sink) -> bool:
    return bool(getattr(sink, "takes_every_commit", False))


def _deliver(sink: Sink, destination: Destination, commit: Commit, points: Sequence[Point]) -> None:
    try:
        with destination.timed():
            sink.write(commit, points)
    except Exception as error:  # whatever a destination does, it must not end the pipeline
        destination.failed(error)
    else:
        destination.exported()
        destination.has_had(commit)


def _guarded(call: Callable[[], None], destination: Destination) -> None:
    try:
        call()
    except Exception as error:  # as above
        destination.failed(error, count=0)
