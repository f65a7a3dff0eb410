"""Measures device work that is done, and holds it until it can be placed: between two anchors of its device."""

from collections.abc import Callable, Iterable
from typing import Any

from rltel.record.device.clock import OVERDUE_NS, DeviceClock
from rltel.record.device.event_source import EventSource
from rltel.record.device.losses import Losses
from rltel.record.device.pending import Pending
from rltel.record.device.work import LONG_MS, Measured, Stream, Submitted

MAX_HELD = 20_000  # of a device; beyond that they do without the next anchor


class Measuring:
    """The clocks and events of a source's devices. Used by one thread at a time, but for `new_event`."""

    def __init__(self, source: EventSource, now: Callable[[], int], losses: Losses, max_held: int = MAX_HELD) -> None:
        self._source = source
        self._now = now
        self._losses = losses
        self._max_held = max_held
        self._clocks: dict[str, DeviceClock] = {}
        self._held: dict[str, list[Measured]] = {}
        self._free: dict[str, list[Any]] = {}
        self._ready: list[Measured] = []

    def new_event(self, device: str) -> Any:
        """An event, maybe used before. From any thread."""
        free = self._free.get(device)
        try:
            return free.pop() if free else self._source.new_event(device)
        except IndexError:  # another thread took the last one
            return self._source.new_event(device)

    def use_again(self, work: Submitted) -> None:
        """Its events may be recorded anew. From any thread."""
        self._free.setdefault(work.stream.ref.device, []).extend((work.begin, work.end))

    @property
    def is_holding(self) -> bool:
        """Whether something waits for an anchor."""
        return any(self._held.values())

    def wants_anchor(self, device: str) -> bool:
        """Whether the device has no anchor, or none of late. From any thread."""
        clock = self._clocks.get(device)
        return clock is None or clock.age_ns(self._now()) >= OVERDUE_NS

    def anchor(self, device: str, *, at_once: bool = False) -> None:
        """Take a new anchor if it is time for one; what lies before it is ready."""
        if self._clock(device).renew(at_once=at_once):
            self._release(device)

    def poll(self, lists: Iterable[Pending]) -> None:
        """Measure what of these is done."""
        for pending in lists:
            pending.since_poll = 0
            for stream in list(pending.by_stream):
                self._collect(stream, pending)
        for device, held in self._held.items():
            if held:
                self.anchor(device)
            if len(held) > self._max_held:
                self._ready.extend(held)
                held.clear()

    def finish(self) -> None:
        """Nothing more will come: a last anchor for what is held; all of it is ready then."""
        for device, held in self._held.items():
            if held:
                self.anchor(device, at_once=True)

    def release_all(self) -> None:
        """All that is held is ready, with or without another anchor."""
        for held in self._held.values():
            self._ready.extend(held)
            held.clear()

    def take_ready(self) -> list[Measured]:
        """What can be placed. From any one thread: a counted prefix, as others go on appending."""
        count = len(self._ready)
        taken = self._ready[:count]
        del self._ready[:count]
        return taken

    def _clock(self, device: str) -> DeviceClock:
        clock = self._clocks.get(device)
        if clock is None:
            clock = self._clocks[device] = DeviceClock(device, self._source, self._now)
        return clock

    def _collect(self, stream: Stream, pending: Pending) -> None:
        """What a stream has done, up to the first thing that it has not."""
        waiting = pending.by_stream[stream]
        clock = self._clock(stream.ref.device)
        if waiting and not clock.is_anchored:
            clock.renew()
        while waiting and clock.is_anchored and not self._losses.is_device_lost:
            work = waiting[0]
            try:
                if not self._source.query(work.end):
                    return
                measured = self._measured(work, self._now(), clock)
            except Exception as error:  # the device's; its events are not used again
                waiting.popleft()
                self._losses.failed(error, lost=1)
                continue
            waiting.popleft()
            self.use_again(work)
            self._losses.succeeded()
            if measured.is_between():
                self._ready.append(measured)
            else:
                self._held.setdefault(stream.ref.device, []).append(measured)

    def _measured(self, work: Submitted, seen_ns: int, clock: DeviceClock) -> Measured:
        begin = clock.position(work.begin)
        length_ms = max(self._source.elapsed_ms(work.begin, work.end), 0.0)
        return Measured(work, seen_ns, begin, length_ms, clock.position(work.end) if length_ms >= LONG_MS else begin)

    def _release(self, device: str) -> None:
        held = self._held.get(device, [])
        self._ready.extend(each for each in held if each.is_between())
        held[:] = [each for each in held if not each.is_between()]
