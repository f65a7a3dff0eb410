"""Payloads: one process's recorded states as plain data, for any RPC, queue or object store.

A payload names its sender and is numbered, so that one that is delivered twice counts once. It is another process's
word: it is checked whole before anything of it is merged.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import count
from reprlib import repr as short
from typing import Any

from rltel.core.context import new_id
from rltel.core.errors import PayloadError, RecordError
from rltel.record.buckets import LAYOUT, OVERFLOW
from rltel.record.entries import Sent
from rltel.record.kinds import COUNTER, SCALAR, Kind, Moment, Moments, State, find_kind
from rltel.reduce.snapshot import Metric, Snapshot
from rltel.reduce.stats import Stats, numbers_of
from rltel.reduce.trackers import Trackers

VERSION = 1
LARGEST_COUNT = 2.0**53  # above it, adding one changes nothing
COUNT = "__count"  # ends the key of how often a mean was recorded, in AReaL's flat dicts
Payload = dict[str, Any]
_TIMES = "timeperf/"


class Sender:
    """Numbers this process's payloads."""

    def __init__(self, worker: str | None = None) -> None:
        self.worker = worker or f"{new_id():016x}"
        self.incarnation = f"{new_id():016x}"
        self._numbers = count()

    def payload(self, snapshot: Snapshot) -> Payload:
        """A snapshot as plain data (dicts, lists, strings, numbers), fit for JSON, msgpack and pickle."""
        return {
            "rltel": VERSION,
            "worker": self.worker,
            "incarnation": self.incarnation,
            "number": next(self._numbers),
            "buckets": LAYOUT,
            "metrics": {key: plain_metric(metric) for key, metric in snapshot.items()},
        }


class Receiver:
    """Takes payloads in, each once."""

    def __init__(self, trackers: Trackers) -> None:
        self._trackers = trackers
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], _Numbers] = {}

    def absorb(self, payload: Payload) -> bool:
        """Make a worker's numbers part of this process's next export. False if this payload was absorbed before.

        Raises `PayloadError`, and changes nothing, if the payload is broken or a key of it is of another kind here.
        """
        snapshot = read_payload(payload)
        sent = Sent(payload["worker"], payload["incarnation"], payload["number"])
        with self._lock:
            seen = self._seen.get((sent.worker, sent.incarnation)) or _Numbers()
            if sent.number in seen:
                return False
            if sent.number < seen.end:  # overtaken: a gauge's later value stays, also after an export
                snapshot = Snapshot({key: m for key, m in snapshot.items() if not m.state.kind.replaces})
            self._merge(snapshot, sent)
            seen.add(sent.number)
            self._seen[sent.worker, sent.incarnation] = seen
        return True

    def _apart(self, snapshot: Snapshot) -> Snapshot:
        """Roles time phases of one name (a learner's "publish", a collector's): a worker's then carries its role."""
        apart: dict[str, Metric] = {}
        for key, metric in snapshot.items():
            mine, theirs = self._trackers.kind_of(key), metric.state.kind
            if mine is not None and mine.phase and theirs.phase and mine.phase.role != theirs.phase.role:
                key = key.replace(_TIMES, f"{_TIMES}{theirs.phase.role}/", 1)  # noqa: PLW2901  # the same, told apart
            apart[key] = metric
        return Snapshot(apart)

    def _merge(self, snapshot: Snapshot, sent: Sent) -> None:
        snapshot = self._apart(snapshot)
        by_tracker: dict[str, dict[str, State]] = {}
        for key, metric in snapshot.items():
            by_tracker.setdefault(metric.tracker, {})[key] = metric.state
        try:  # whatever can go wrong does so here, before anything is merged
            self._trackers.claim({key: metric.state.kind for key, metric in snapshot.items()})
        except RecordError as error:
            raise PayloadError(f"payload of worker {sent.worker}: {error}") from error
        for tracker, states in by_tracker.items():
            self._trackers.get(tracker).absorb(states, sent)


def merge_payloads(payloads: Iterable[Mapping[str, Any]]) -> Stats:
    """Workers' numbers as one, each weighted by what it really counted. Nothing is recorded in this process.

    Args:
        payloads: all made by `rltel.export_payload`, or all flat dicts of numbers as AReaL's workers return them.

    Of payloads, one that is given twice counts once; of a worker's gauges the last value stays, and different workers'
    merge by the gauge's ``ranks`` rule. Of flat dicts, ``k`` is averaged with the weights ``k__count``, and both are in
    the result. As in AReaL's ``RolloutController.export_stats``, a key without a ``__count`` partner vanishes: nobody
    knows how it merges (the values of ``stat``, ``sum``s, ``/min``, ``/max``). Payloads keep all of that.

    Raises `PayloadError` if one is broken, or if there are some of both sorts.
    """
    each = list(payloads)
    made_here = [isinstance(payload, Mapping) and "rltel" in payload for payload in each]
    if any(made_here) and not all(made_here):
        raise PayloadError(
            f"merge_payloads: expected payloads of export_payload or flat dicts, got both "
            f"({sum(made_here)} and {len(each) - sum(made_here)})"
        )
    return Stats(_merged_payloads(each) if any(made_here) else _merged_flat(each))


def _merged_payloads(payloads: Iterable[Any]) -> Snapshot:
    """What a process that absorbed them would export."""
    trackers = Trackers()
    receiver = Receiver(trackers)
    for payload in payloads:
        receiver.absorb(payload)
    return trackers.export_all().snapshot


def _merged_flat(dicts: Iterable[Any]) -> Snapshot:
    states: dict[str, State] = {}
    for position, flat in enumerate(dicts):
        for key, (mean, calls) in _counted(position, flat).items():
            states.setdefault(key, State(SCALAR)).add(_moments_of_mean(mean, calls))
    return Snapshot.of_states(states)


def _counted(position: int, flat: Any) -> dict[str, tuple[float, float]]:
    """The means of one flat dict, each with its count. Those that count nothing are left out."""
    where = f"merge_payloads: flat dict {position}"
    if not isinstance(flat, Mapping):
        raise PayloadError(f"{where}: expected a mapping of keys to numbers, got {type(flat).__name__}")
    try:
        numbers = numbers_of(flat)
    except RecordError as error:
        raise PayloadError(f"{where}: {error}") from error
    for key, value in numbers.items():
        if key.endswith(COUNT) and not 0 <= value <= LARGEST_COUNT:
            raise PayloadError(f"{where}: {key}: expected a count >= 0, got {value}")
    means = {key: value for key, value in numbers.items() if not key.endswith(COUNT)}
    return {key: (mean, calls) for key, mean in means.items() if (calls := numbers.get(f"{key}{COUNT}", 0.0))}


def _moments_of_mean(mean: float, calls: float) -> Moments:
    """As if this mean had been recorded so many times."""
    if math.isfinite(mean):
        return Moments(mean * calls, calls)
    if math.isnan(mean):
        return Moments(nan=calls)
    return Moments(positive_infinity=calls) if mean > 0 else Moments(negative_infinity=calls)


class _Numbers:
    """Which numbers have been seen, as ranges: as many as there are gaps, where payloads were lost."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # each exclusive

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def end(self) -> int:
        """One more than the highest."""
        return self._ends[-1] if self._ends else 0

    def add(self, number: int) -> None:
        """Note a number that was not seen yet."""
        at = bisect_right(self._starts, number)
        joins_before = at > 0 and self._ends[at - 1] == number
        joins_after = at < len(self._starts) and self._starts[at] == number + 1
        if joins_before and joins_after:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_before:
            self._ends[at - 1] = number + 1
        elif joins_after:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number + 1)


def plain_metric(metric: Metric) -> dict[str, Any]:
    """One metric as plain data: its kind, the moments that it keeps, its buckets.

    Null stands for an extreme of nothing, and for a sum that float64 could not hold.
    """
    state = metric.state
    plain: dict[str, Any] = {
        "kind": state.kind.name,
        "state": [
            value if math.isfinite(value) else None for value in (state.moments[p] for p in state.kind.positions)
        ],
    }
    if state.buckets:
        plain["buckets"] = [[index, count] for index, count in sorted(state.buckets.items())]
    if metric.tracker:
        plain["tracker"] = metric.tracker
    if metric.reduced:
        plain["reduced"] = True
    return plain


def read_payload(payload: Any) -> Snapshot:
    """Check a payload and read its snapshot.

    Raises `PayloadError` that says what is wrong with it.
    """
    if not isinstance(payload, Mapping):
        raise PayloadError(f"payload: expected a mapping made by export_payload, got {type(payload).__name__}")
    if not _is_whole(payload.get("rltel")) or payload["rltel"] != VERSION:
        raise PayloadError(f"payload: expected version {VERSION}, got {short(payload.get('rltel'))}")
    for name in ("worker", "incarnation"):
        if not isinstance(payload.get(name), str):
            raise PayloadError(f"payload: {name}: expected a string, got {short(payload.get(name))}")
    number = payload.get("number")
    if number is None or not _is_whole(number) or not 0 <= number < LARGEST_COUNT:
        raise PayloadError(f"payload: number: expected a whole number >= 0, got {short(number)}")
    if payload.get("buckets") != LAYOUT:
        raise PayloadError(f'payload: buckets: expected the layout "{LAYOUT}", got {short(payload.get("buckets"))}')
    metrics = payload.get("metrics")
    if not isinstance(metrics, Mapping):
        raise PayloadError(f"payload: metrics: expected a mapping, got {type(metrics).__name__}")
    return Snapshot({_checked_key(key): read_metric(key, plain) for key, plain in metrics.items()})


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip("/"):
        raise PayloadError(f"payload: key: expected a non-empty string, got {short(key)}")
    return key


def read_metric(key: str, plain: Any) -> Metric:
    """One metric from plain data, checked. Raises `PayloadError`."""
    name = plain.get("kind") if isinstance(plain, Mapping) else None
    kind = find_kind(name) if isinstance(name, str) else None
    if kind is None:
        raise PayloadError(f"payload: {key}: expected a metric of a known kind, got {short(plain)}")
    state = State(kind, _read_moments(key, kind, plain.get("state")), _read_buckets(key, plain.get("buckets", ())))
    _check_agreement(key, state)
    tracker, reduced = plain.get("tracker", ""), plain.get("reduced", False)
    if not isinstance(tracker, str) or (tracker and not key.startswith(f"{tracker}/")):
        raise PayloadError(f"payload: {key}: tracker: expected a name that leads the key, got {short(tracker)}")
    if not isinstance(reduced, bool):
        raise PayloadError(f"payload: {key}: reduced: expected true or false, got {short(reduced)}")
    return Metric(state, tracker, reduced)


def _read_moments(key: str, kind: Kind, given: Any) -> list[float]:
    if not isinstance(given, (list, tuple)) or len(given) != len(kind.keeps):
        raise PayloadError(f"payload: {key}: state: expected {len(kind.keeps)} numbers, got {short(given)}")
    moments = State(kind).moments
    for moment, value in zip(kind.keeps, given, strict=True):
        moments[moment.position] = _moment(key, moment, value)
    return moments


def _moment(key: str, moment: Moment, value: Any) -> float:
    if value is None and moment in (Moment.MIN, Moment.MAX):
        return moment.identity
    if value is None and moment is Moment.SUM:
        return math.nan  # it was too large: that stays visible
    number = _finite(value)
    if number is None:
        raise PayloadError(f"payload: {key}: {moment.name.lower()}: expected a finite number, got {short(value)}")
    counts = moment not in (Moment.SUM, Moment.MIN, Moment.MAX)
    if counts and not number >= 0:  # a weight may be larger than any count
        raise PayloadError(f"payload: {key}: {moment.name.lower()}: expected a count >= 0, got {short(value)}")
    return number


def _finite(value: Any) -> float | None:
    """A finite number as a float, else None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _read_buckets(key: str, pairs: Any) -> dict[int, float]:
    buckets: dict[int, float] = {}
    try:
        for index, given in pairs:
            number = _finite(given)
            if not _is_whole(index) or abs(index) > OVERFLOW or index in buckets:
                raise ValueError
            if number is None or not 0 <= number <= LARGEST_COUNT:
                raise ValueError
            buckets[index] = number
    except (TypeError, ValueError):
        raise PayloadError(
            f"payload: {key}: buckets: expected pairs of an index within {OVERFLOW}, each once, and a count"
        ) from None
    return buckets


def _check_agreement(key: str, state: State) -> None:
    """What the parts of one state say about each other."""
    kind, (total, count, low, high, *_) = state.kind, state.moments
    some = count > 0
    wrong = None
    if state.buckets and not kind.bucketed:
        wrong = f"buckets: expected none for a {kind.name}"
    elif kind.bucketed and sum(state.buckets.values()) != count:
        wrong = f"buckets: expected as many values as count says, {count}"
    elif Moment.COUNT in kind.keeps and not some and total:
        wrong = f"sum: expected 0 where nothing was counted, got {total}"
    elif Moment.COUNT in kind.keeps and Moment.MIN in kind.keeps and some is math.isinf(low):
        wrong = "min: expected a number exactly where something was counted"
    elif Moment.COUNT in kind.keeps and Moment.MAX in kind.keeps and some is math.isinf(high):
        wrong = "max: expected a number exactly where something was counted"
    elif Moment.MIN in kind.keeps and Moment.MAX in kind.keeps and some and low > high:
        wrong = f"min: expected at most max, {high}, got {low}"
    elif kind is COUNTER and total < 0:
        wrong = f"sum: a counter only grows, got {total}"
    if wrong:
        raise PayloadError(f"payload: {key}: {wrong}")
