"""Payloads: one process's recorded states as plain data, for any RPC, queue or object store.

A payload names its sender and is numbered, so that one that is delivered twice counts once. It is another process's
word: it is checked whole before anything of it is merged.
"""

import math
import threading
from collections.abc import Mapping
from itertools import count
from typing import Any

from rltel.core.context import new_id
from rltel.core.errors import PayloadError, RecordError
from rltel.record.buckets import LAYOUT, OVERFLOW
from rltel.record.kinds import KINDS, Moment, State
from rltel.reduce.snapshot import Metric, Snapshot
from rltel.reduce.trackers import Trackers

VERSION = 1
Payload = dict[str, Any]


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
        self._seen: dict[str, _Numbers] = {}

    def absorb(self, payload: Payload) -> bool:
        """Make a worker's numbers part of this process's next export. False if this payload was absorbed before.

        Raises `PayloadError`, and changes nothing, if the payload is broken or a key of it is of another kind here.
        """
        snapshot = read_payload(payload)
        sender = f"{payload['worker']}/{payload['incarnation']}"
        with self._lock:
            seen = self._seen.setdefault(sender, _Numbers())
            if payload["number"] in seen:
                return False
            self._merge(snapshot, sender)
            seen.add(payload["number"])
        return True

    def _merge(self, snapshot: Snapshot, sender: str) -> None:
        by_tracker: dict[str, dict[str, State]] = {}
        for key, metric in snapshot.items():
            by_tracker.setdefault(metric.tracker, {})[key] = metric.state
        try:
            for tracker, states in by_tracker.items():
                self._trackers.get(tracker).absorb(states, sender)
        except RecordError as error:
            raise PayloadError(f"payload of worker {sender}: {error}") from error


class _Numbers:
    """Which numbers have been seen: all below ``_next``, and a few above it that came early."""

    def __init__(self) -> None:
        self._next = 0
        self._early: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._next or number in self._early

    def add(self, number: int) -> None:
        self._early.add(number)
        while self._next in self._early:
            self._early.remove(self._next)
            self._next += 1


def plain_metric(metric: Metric) -> dict[str, Any]:
    """One metric as plain data: its kind, the moments that it keeps (null for an extreme of nothing), its buckets."""
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
    if payload.get("rltel") != VERSION or isinstance(payload.get("rltel"), bool):
        raise PayloadError(f"payload: expected version {VERSION}, got {payload.get('rltel')!r}")
    for name in ("worker", "incarnation"):
        if not isinstance(payload.get(name), str):
            raise PayloadError(f"payload: {name}: expected a string, got {payload.get(name)!r}")
    number = payload.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise PayloadError(f"payload: number: expected a whole number >= 0, got {number!r}")
    if payload.get("buckets") != LAYOUT:
        raise PayloadError(f'payload: buckets: expected the layout "{LAYOUT}", got {payload.get("buckets")!r}')
    metrics = payload.get("metrics")
    if not isinstance(metrics, Mapping):
        raise PayloadError(f"payload: metrics: expected a mapping, got {type(metrics).__name__}")
    return Snapshot({_checked_key(key): read_metric(key, plain) for key, plain in metrics.items()})


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip("/"):
        raise PayloadError(f"payload: key: expected a non-empty string, got {key!r}")
    return key


def read_metric(key: str, plain: Any) -> Metric:
    """One metric from plain data, checked. Raises `PayloadError`."""
    kind = KINDS.get(plain.get("kind", "")) if isinstance(plain, Mapping) else None
    if kind is None:
        raise PayloadError(f"payload: {key}: expected a metric of a known kind, got {str(plain)[:60]}")
    given = plain.get("state")
    if not isinstance(given, (list, tuple)) or len(given) != len(kind.keeps):
        raise PayloadError(f"payload: {key}: state: expected {len(kind.keeps)} numbers, got {str(given)[:60]}")
    state = State(kind)
    for moment, value in zip(kind.keeps, given, strict=True):
        state.moments[moment.position] = moment.identity if value is None else _moment(key, moment, value)
    state.buckets = _read_buckets(key, plain.get("buckets", ()))
    return Metric(state, str(plain.get("tracker", "")), bool(plain.get("reduced", False)))


def _moment(key: str, moment: Moment, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise PayloadError(f"payload: {key}: {moment.name.lower()}: expected a finite number or null, got {value!r}")
    counts = moment not in (Moment.SUM, Moment.MIN, Moment.MAX)
    if counts and value < 0:
        raise PayloadError(f"payload: {key}: {moment.name.lower()}: expected a count >= 0, got {value!r}")
    return float(value)


def _read_buckets(key: str, pairs: Any) -> dict[int, float]:
    buckets: dict[int, float] = {}
    try:
        for index, number in pairs:
            good = isinstance(index, int) and abs(index) <= OVERFLOW and math.isfinite(number) and number >= 0
            if not good:
                raise ValueError
            buckets[index] = float(number)
    except (TypeError, ValueError):
        raise PayloadError(
            f"payload: {key}: buckets: expected pairs of an index within {OVERFLOW} and a count"
        ) from None
    return buckets
