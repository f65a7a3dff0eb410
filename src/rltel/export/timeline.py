"""Brings what was recorded to whoever wants it: the trace file, and spans."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from rltel.export.perfetto.sieve import items
from rltel.export.sink import Destination
from rltel.record.device.device_timeline import DeviceTimeline
from rltel.record.lane import Lane
from rltel.record.recorder import Recorder
from rltel.record.records import Record

_PIECE = 1 << 16  # records that are handed on at once: some 50 ms of work
_LAST_WAIT_S = 0.5
_Taken = tuple[Lane, list[Record]]


class TimelineConsumer(Protocol):
    """Takes the records of all lanes, in rounds. All its methods are called from one thread at a time."""

    name: str

    def begin_round(self) -> None:
        """Records come next."""

    def take(self, lane: Lane, records: list[Record]) -> None:
        """What was recorded on a lane since the last round, in order."""

    def end_round(self) -> None:
        """That was all for now."""

    def forget(self, lane: Lane) -> bool:
        """The lane's thread has ended. False if something on it is still open."""

    def close(self, now_ns: int) -> None:
        """The end of the recording: end what is open, marked as such."""


class TimelineDrain:
    """Empties a recorder into its consumers."""

    def __init__(
        self,
        recorder: Recorder,
        consumers: Sequence[tuple[TimelineConsumer, Destination]],
        device: DeviceTimeline | None = None,
    ) -> None:
        """``device``: draws its work on the recorder before each round."""
        self._recorder = recorder
        self._device = device
        self._device_drops: dict[str, int] = {}
        self._consumers = consumers
        self._dropped_seen = 0
        self._closed = False
        self._draining = threading.Lock()
        self._left: deque[_Taken] = deque()  # taken from their lanes, and handed on to nobody yet
        self._is_late = False  # whether the time for the end is over
        self._is_counted = False

    def drain(self) -> None:
        """Take what all threads and tasks have recorded since the last time."""
        with self._draining:
            if not self._closed:
                self._drain(self._recorder.now())

    def _drain(self, until_ns: int | None) -> None:
        """Hand on what happened until then.

        Lanes are read one after the other, and go on meanwhile: without a moment that is the same for all, an effect on
        the last could come in a round before its cause on the first.
        """
        if self._device is not None:
            self._device.draw()
            self._count_device_drops(self._device.drops)
        self._count_dropped()
        self._each(lambda consumer: consumer.begin_round())
        taken = [(lane, lane.take(until_ns)) for lane in self._recorder.lanes()]
        self._left.extend(_in_pieces(taken))
        while self._left and not self._is_late:
            lane, records = self._left.popleft()
            if records:
                self._each(partial(_take, lane, records))
            elif lane.is_over():
                forgotten = [consumer.forget(lane) for consumer, _ in self._consumers]
                if all(forgotten):
                    self._recorder.forget(lane)
        self._each(lambda consumer: consumer.end_round())

    def _each(self, call: Callable[[TimelineConsumer], None]) -> None:
        for consumer, destination in self._consumers:
            try:
                call(consumer)
            except Exception as error:  # what one cannot take must not cost the other
                destination.failed(error)

    def _count_dropped(self) -> None:
        dropped = self._recorder.dropped
        if dropped > self._dropped_seen:
            for _, destination in self._consumers:
                destination.dropped("buffer_full", dropped - self._dropped_seen)
            self._dropped_seen = dropped

    def _count_device_drops(self, drops: Mapping[str, int]) -> None:
        for reason, count in drops.items():
            new = count - self._device_drops.get(reason, 0)
            if new > 0:
                for _, destination in self._consumers:
                    destination.dropped(reason, new)
        self._device_drops = dict(drops)

    def close(self) -> None:
        """Stop the recording, take the rest, and end.

        Waits for no drain that hangs, and hardly for one that goes on: whoever drains has had its time then. What it
        has not handed on is dropped and counted, and what is open stays open, as after a kill. A second call does
        nothing.
        """
        self._recorder.stop()
        if not self._draining.acquire(blocking=False):
            self._is_late = True
            if not self._draining.acquire(timeout=_LAST_WAIT_S):
                self._count_left()  # it is in a write that does not return
                return
        try:
            self._end()
        finally:
            self._draining.release()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._is_late:
            self._drain(until_ns=None)
        if self._is_late:
            self._count_left()
            return
        now_ns = self._recorder.now()
        self._each(lambda consumer: consumer.close(now_ns))

    def _count_left(self) -> None:
        if self._is_counted:
            return
        self._is_counted = True
        lost = sum(items(records) for _, records in [*self._left])
        lost += sum(items([*lane.records]) for lane in self._recorder.lanes())
        self._count_dropped()
        if lost:
            for _, destination in self._consumers:
                destination.dropped("shutdown", lost)


def _in_pieces(taken: Iterable[_Taken]) -> Iterator[_Taken]:
    for lane, records in taken:
        if len(records) <= _PIECE:
            yield lane, records
            continue
        for start in range(0, len(records), _PIECE):
            yield lane, records[start : start + _PIECE]


def _take(lane: Lane, records: list[Record], consumer: TimelineConsumer) -> None:
    consumer.take(lane, records)
