"""Training throughput, ``train_perf/*``: tokens and estimated FLOPs of all training batches over the time they took.

What is timed is what happens inside `Throughput.batch`: preparing, forward, backward and the optimizer, as the trainer
puts it there. Rollouts, evaluation, loading, checkpoints and exports stay outside, and so count as nothing.

Rates are ratios of what was merged: the sum of the tokens of all ranks over the time of the rank that took longest.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, Self

from rltel.core.errors import RecordError
from rltel.record.device.cuda_events import CudaEventSource
from rltel.record.device.event_source import EventSource
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl.batch_timing import BatchTimer, Timed
from rltel.rl.duplicates import counts_here
from rltel.rl.flops.head import Head
from rltel.rl.flops.peaks import device_peak_flops
from rltel.rl.flops.registry import checked_flops, flops_estimator
from rltel.rl.flops.work import FlopsEstimator
from rltel.rl.inputs import process_trackers
from rltel.rl.lengths import Lengths, lengths_of

_log = logging.getLogger("rltel")
_said: set[str] = set()
PREFIX = "train_perf"
_PAUSE_S = 0.0005


class Throughput:
    """Measures training batches of one engine. Totals begin with it, and end with it.

    Args:
        model: what `flops_estimator` takes (a Hugging Face config or model, a mapping, a checkpoint's directory), or an
            estimator: a function of one sequence's length. None, or an architecture that is not known: no FLOPs.
        head: as in `flops_estimator`: of a config alone, 1 is a critic's value, and None is no head at all.
        duplicated_over, data_parallel_group, group: which ranks hold the same sequences, as `counts_here` says. Without
            them every rank of the export's group counts what it is given.
        peak_flops: FLOPs a second that this rank's device can do at most, for ``mfu``. None: by the device's name.
        prefix: of all keys, whatever the caller's scope is.
        trackers: None is the process's own.
        source, now, synchronize: as in `BatchTimer`. None of a source: CUDA's events, once CUDA is in use.

    Every training rank must open the same batches, one without sequences of its own too; an export over all of them
    then has the totals of all. Raises `RecordError` if a config or group cannot be right.
    """

    def __init__(
        self,
        model: Any = None,
        *,
        head: Head = "auto",
        duplicated_over: Any = None,
        data_parallel_group: Any = None,
        group: Any = None,
        peak_flops: float | None = None,
        prefix: str = PREFIX,
        trackers: Trackers | None = None,
        source: EventSource | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
        synchronize: Callable[[], object] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._counts = counts_here(duplicated_over, data_parallel_group, group)
        self._estimator = _estimator(model, head)
        self._given_peak = _checked_peak(peak_flops)
        trackers = process_trackers() if trackers is None else trackers
        derive(prefix, trackers=trackers)
        self._keys = _Keys.under(prefix)
        self._tracker: Tracker = trackers.default
        self._timer = BatchTimer(CudaEventSource() if source is None else source, now, synchronize)
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()  # held to record what is done, never while a batch runs
        self._waiting: deque[_Measured] = deque()
        self._is_open = False
        self._carried = _Work()
        self._totals = _Work()
        self.lost = 0
        """Batches that could not be measured, as the device refused."""

    def batch(self, attention_mask: Any = None, *, lengths: Any = None) -> "Batch":
        """A context manager around one batch of training, with all its micro-batches.

        Args:
            attention_mask: ``[sequences, length]``, of the original sequences, before anything is sliced over
                context-parallel ranks. Prompts and responses count, padding does not.
            lengths: or the sequences' lengths in tokens, ``[sequences]``, as packed batches have them.

        If it ends with an exception, neither its tokens nor its time count. Nothing waits for a device. Raises
        `RecordError` if the mask or lengths do not fit, or while another batch is open.
        """
        return Batch(self, attention_mask, lengths)

    def settle(self, timeout_s: float = 60.0) -> bool:
        """Wait until the device is done with all batches, so that the next export has them. Call it before each.

        What is not done after ``timeout_s``, or without this, counts in the interval in which it is seen to be done,
        its tokens with its time. Whether all is done.
        """
        until_ns = self._now() + round(timeout_s * 1e9)
        while not self.poll():
            if self._now() >= until_ns:
                return False
            self._sleep(_PAUSE_S)
        return True

    def poll(self) -> bool:
        """Record what is done, without waiting; whether that is all. Every batch does so at its end."""
        with self._lock:
            while self._waiting:
                batch = self._waiting[0]
                try:
                    seconds = batch.timed.seconds()
                    if seconds is None:
                        return False
                    lengths = batch.lengths()
                except Exception as error:  # the device's, mostly: the program will hear of it from the device
                    self._waiting.popleft()
                    self._lose(error)
                    continue
                self._waiting.popleft()
                self._record(lengths, seconds)
            return True

    # --- batches ----------------------------------------------------------------------------------------------------

    def _begin(self, attention_mask: Any, lengths: Any) -> "_Measured | None":
        if self._is_open:
            raise RecordError(
                "throughput: batch: expected one at a time (micro-batches go inside), one is open already"
            )
        if self._timer.is_capturing():
            return None  # what is captured does not run: its replays do
        found = lengths_of(attention_mask, lengths)
        try:
            begun = _Measured(found, self._timer.begin())
        except Exception as error:
            self._lose(error)
            return None
        self._is_open = True
        return begun

    def _end(self, begun: "_Measured", *, is_done: bool) -> None:
        self._is_open = False
        if not is_done:
            return
        try:
            begun.timed.end()
        except Exception as error:
            self._lose(error)
            return
        self._waiting.append(begun)
        self.poll()

    def _lose(self, error: Exception) -> None:
        self.lost += 1
        _say_once(f"throughput: a batch was not measured: {type(error).__name__}: {error} (counted; said once)")

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _record(self, lengths: list[int], seconds: float) -> None:
        work = self._carried.plus(self._work(lengths, seconds))
        if work.seconds <= 0:  # nothing can be divided by it: it counts with the next
            self._carried = work
            return
        self._carried = _Work()
        total = self._totals = self._totals.plus(work)
        keys, tracker = self._keys, self._tracker
        with tracker.disable_scope():
            tracker.count({keys.tokens: work.tokens})
            tracker.elapsed({keys.seconds: work.seconds})
            tracker.gauge({keys.total_tokens: total.tokens}, ranks="sum")
            tracker.gauge({keys.total_seconds: total.seconds}, ranks="max")
            if self._estimator is not None:
                tracker.count({keys.flops: work.flops})
                tracker.gauge({keys.total_flops: total.flops}, ranks="sum")
                self._record_peak()

    def _record_peak(self) -> None:
        if self._given_peak is None:
            self._given_peak = device_peak_flops() or 0.0
        if self._given_peak:
            self._tracker.gauge({self._keys.peak: self._given_peak}, ranks="mean")
            self._tracker.gauge({self._keys.devices: 1.0}, ranks="sum")

    def _work(self, lengths: list[int], seconds: float) -> "_Work":
        """What a batch adds on this rank: its time, and its work if this rank is the one that counts it."""
        if not self._counts:
            return _Work(seconds=seconds)
        return _Work(sum(lengths), self._flops(lengths), seconds)

    def _flops(self, lengths: list[int]) -> float:
        if self._estimator is None:
            return 0.0
        try:
            return math.fsum(checked_flops(self._estimator, length) for length in lengths)
        except Exception as error:  # the user's own code, after the batch: training goes on
            self._estimator = None
            _say_once(f"throughput: FLOPs are left out from now on: {type(error).__name__}: {error} (said once)")
            return 0.0


class Batch:
    """One batch, from ``with`` to its end; for one use."""

    def __init__(self, throughput: Throughput, attention_mask: Any, lengths: Any) -> None:
        self._throughput = throughput
        self._given = attention_mask, lengths
        self._begun: _Measured | None = None

    def __enter__(self) -> Self:
        self._begun = self._throughput._begin(*self._given)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._throughput._end(begun, is_done=kind is None)


def derive(prefix: str = PREFIX, *, trackers: Trackers | None = None) -> None:
    """Have every export compute the rates from what was merged.

    `Throughput` does so for its own trackers. A process that only merges what others measured calls this itself.
    """
    trackers = process_trackers() if trackers is None else trackers
    keys = _Keys.under(prefix)
    interval = {"seconds": keys.seconds}
    total = {"seconds": keys.total_seconds}
    rates = {
        "tokens_per_second": {"work": keys.tokens, **interval},
        "cumulative_tokens_per_second": {"work": keys.total_tokens, **total},
        "estimated_flops_per_second": {"work": keys.flops, **interval},
        "cumulative_estimated_flops_per_second": {"work": keys.total_flops, **total},
    }
    for name, arguments in rates.items():
        trackers.derive(f"{prefix}/{name}", _rate, **arguments)
    trackers.derive(
        f"{prefix}/mfu", _utilisation, work=keys.flops, seconds=keys.seconds, peak=keys.peak, devices=keys.devices
    )


def _rate(work: float, seconds: float) -> float | None:
    return work / seconds if seconds > 0 else None


def _utilisation(work: float, seconds: float, peak: float, devices: float) -> float | None:
    """Of all devices' peak, how much the model's own arithmetic used: from 0 to 1."""
    return _rate(work, seconds * peak * devices)


def _estimator(model: Any, head: Head) -> FlopsEstimator | None:
    if model is None:
        return None
    # Models and some configs can be called, too.
    if callable(model) and not any(hasattr(model, name) for name in ("model_type", "config", "forward")):
        if head != "auto":
            raise RecordError(f"throughput: head: expected none, as an estimator says what it counts, got {head!r}")
        checked_flops(model, 1)
        estimator: FlopsEstimator = model
        return estimator
    return flops_estimator(model, head=head)


def _checked_peak(peak: float | None) -> float | None:
    if peak is None:
        return None
    if not (isinstance(peak, Real) and 0 < peak < math.inf):
        raise RecordError(f"throughput: peak_flops: expected a finite number > 0 (FLOPs a second), got {peak!r}")
    return float(peak)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning("%s", message)


class _Measured(NamedTuple):
    """A batch that is being measured, or is submitted and maybe not done."""

    lengths: Lengths
    timed: Timed


class _Work(NamedTuple):
    """What was done in how long."""

    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "_Work") -> "_Work":
        return _Work(self.tokens + other.tokens, self.flops + other.flops, self.seconds + other.seconds)


class _Keys(NamedTuple):
    """What is recorded; the rest is derived."""

    tokens: str
    seconds: str
    flops: str
    total_tokens: str
    total_seconds: str
    total_flops: str
    peak: str
    devices: str

    @classmethod
    def under(cls, prefix: str) -> "_Keys":
        names = ("tokens", "seconds", "estimated_flops", "total_tokens", "total_seconds", "total_estimated_flops")
        return cls(*(f"{prefix}/{name}" for name in (*names, "device_peak_flops_per_second", "devices")))
