"""Trackers: named sets of metrics with scopes and masks, recorded into mergeable states.

Scalars and timings are appended to small lists and folded in bulk, off the hot path. Tensors are folded into their
state at once and not kept. Scopes live in ContextVars: asyncio tasks inherit theirs and do not disturb each other.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, Token
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.buckets import bucket_of, count_buckets
from rltel.record.kinds import (
    AVG_MIN_MAX,
    COUNTER,
    GAUGES,
    HISTOGRAM,
    KINDS,
    SCALAR,
    SUM,
    TIMING,
    WEIGHTED_AVG,
    Kind,
    Moments,
    State,
)
from rltel.record.recorder import Recorder, timeline

FOLD_AT = 4096  # pending numbers of one key that are folded even if nobody exports
_NANOSECOND = 1e-9
_TENSOR_KINDS = ("avg_min_max", "avg", "sum", "min", "max")


class Tracker:
    """A named set of metrics. The name leads every key; the default tracker's name is empty."""

    def __init__(self, name: str = "", recorder: Recorder = timeline) -> None:
        self.name = name.strip("/")
        self._recorder = recorder
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._scopes: dict[str, _Scope] = {}
        self._masks: dict[str, _Mask] = {}
        root = self._scope_at(self.name)
        self._scope: ContextVar[_Scope] = ContextVar(f"rltel.scope.{self.name}", default=root)
        self._own_masks: ContextVar[Mapping[str, _Mask]] = ContextVar(f"rltel.masks.{self.name}", default=_NO_MASKS)
        self._timings: dict[str, list[float]] = {}

    # --- scopes ---------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> "_Scoped":
        """Record under ``<current scope>/name`` inside the ``with``; drawn as a slice when the timeline is on."""
        path = name.strip("/")
        current = self._scope.get()
        try:
            child = current.children[path]
        except KeyError:
            child = self._child_scope(current, path)
        return _Scoped(self, child, path)

    def _child_scope(self, parent: "_Scope", path: str) -> "_Scope":
        if not path:
            raise RecordError(f"scope: expected a name, got only slashes under {parent.path or 'the root'!r}")
        child = self._scope_at(f"{parent.path}/{path}" if parent.path else path)
        parent.children[path] = child
        return child

    def _scope_at(self, path: str) -> "_Scope":
        return self._scopes.setdefault(path, _Scope(path))

    # --- numbers ----------------------------------------------------------------------------------------------------

    def scalar(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Record numbers; each key leaves as the mean over all calls (``k``) and their number (``k__count``).

        Every keyword is a metric: ``scalar(weight=0.1)`` records "weight". With a mapping, keywords are options:
        ``scalar({"pass@1": 0.5}, weight=8)`` counts as 8 observations.

        Raises `RecordError` if a value is not a number or a key is of another kind; nothing is recorded then.
        """
        if values is not None:
            self._scalar_mapping(values, **keywords)
            return
        pending = self._scope.get().scalars
        if len(keywords) > 1:
            self._check_numbers(keywords)
        for key, value in keywords.items():
            number = value if type(value) is float else self._number(key, value)
            try:
                numbers = pending[key]
            except KeyError:
                numbers = self._new_scalar(key)
            numbers.append(number)
            if len(numbers) >= FOLD_AT:
                self._fold_early(key)

    def _check_numbers(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if type(value) is not float:
                self._number(key, value)

    def _number(self, key: str, value: Any) -> float:
        try:
            return fold.number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise RecordError(f"{self._key(key)}: expected one number, got {_summary(value)}") from error

    def _new_scalar(self, key: str) -> list[float]:
        scope = self._scope.get()
        entry = self._entry(self._key(key), SCALAR)
        scope.scalars[key] = entry.pending
        return entry.pending

    def _fold_early(self, key: str) -> None:
        with self._lock:
            self._entries[self._key(key)].fold()

    def _scalar_mapping(self, values: Mapping[str, Any], *, weight: float = 1.0) -> None:
        _check_weight("scalar", weight)
        numbers = {self._key(key): self._number(key, value) for key, value in values.items()}
        self._add_all(SCALAR, {key: _weighted(value, weight) for key, value in numbers.items()})

    def weighted_mean(self, key: str, value: Any, weight: Any) -> None:
        """One value that counts ``weight`` times: leaves as the weighted average. Zero weight records nothing."""
        number, share = self._number(key, value), self._number(f"{key} (weight)", weight)
        _check_weight(self._key(key), share)
        self._add_all(WEIGHTED_AVG, {self._key(key): _weighted(number, share)})

    def gauge(self, values: Mapping[str, Any] | None = None, /, *, ranks: str = "mean", **keywords: Any) -> None:
        """The last value of each key; over ranks the ``mean`` of those that have one, or ``sum, min, max, writer``."""
        if ranks not in GAUGES:
            raise RecordError(f'gauge: ranks: expected one of {", ".join(GAUGES)}, got "{ranks}"')
        given = {**(values or {}), **keywords}
        numbers = {self._key(key): self._number(key, value) for key, value in given.items()}
        self._add_all(GAUGES[ranks], {key: _weighted(value, 1.0) for key, value in numbers.items()})

    def count(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Add to counters. The flat dict has what was added since the last export; Prometheus and OTLP the total.

        Raises `RecordError` for a negative or non-finite amount.
        """
        given = {**(values or {}), **keywords}
        numbers = {self._key(key): self._number(key, value) for key, value in given.items()}
        for key, amount in numbers.items():
            if not 0 <= amount < float("inf"):
                raise RecordError(f"{key}: a counter only grows: expected a finite number >= 0, got {amount}")
        self._add_all(COUNTER, {key: Moments(total=amount) for key, amount in numbers.items()})

    # --- tensors ----------------------------------------------------------------------------------------------------

    def denominator(self, **masks: Any) -> None:
        """Name boolean masks that `stat` averages over. Each also leaves as the sum of its true elements.

        A mask holds in the current scope and those inside it, until it is redefined there or exported.

        Raises `RecordError` if a mask is not boolean, or empty.
        """
        checked = {name: _as_mask(self._key(name), mask) for name, mask in masks.items()}
        for name, mask in checked.items():
            self._entry(self._key(name), SUM)
            with self._lock:
                self._fold_values(self._key(name), SUM, mask, None)
            self._define(self._key(name), _copy(mask))

    def _define(self, path: str, mask: Any) -> None:
        holder = _Mask(mask)
        with self._lock:
            self._masks[path] = holder
        mine = self._own_masks.get()
        if path in mine:
            mine[path].mask = None  # ours, and redefined; another task's of the same name may still be in use
        alive = {name: held for name, held in mine.items() if held.mask is not None}
        self._own_masks.set({**alive, path: holder})

    def stat(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        denominator: str | None = None,
        mask: Any | None = None,
        reduce_type: Any = "avg_min_max",
        **tensors: Any,
    ) -> None:
        """Record every element of tensors where a mask is true.

        Args:
            values, tensors: torch tensors of any float or integer dtype on any device, NumPy arrays or sequences.
            denominator: name of a mask given to `denominator`, looked up in this scope, then outwards.
            mask: a boolean mask given directly, of the same shape. Without either, every element counts.
            reduce_type: ``avg_min_max`` (``k/avg k/min k/max``), ``avg``, ``sum``, ``min`` or ``max`` (``k``).

        Raises `RecordError`, and records nothing, if a shape or dtype does not fit, the denominator is not defined, or
        a key is of another kind.
        """
        kind = _tensor_kind(reduce_type)
        if denominator is not None and mask is not None:
            raise RecordError("stat: expected a denominator or a mask, got both")
        chosen = self._find_mask(denominator) if denominator is not None else mask
        given = {self._key(key): tensor for key, tensor in {**(values or {}), **tensors}.items()}
        if chosen is not None and denominator is None:
            chosen = _as_mask(f"stat({', '.join(given)}): mask", chosen, empty_is_wrong=False)
        self._fold_all(given, kind, chosen, denominator or "the mask")

    def distribution(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        denominator: str | None = None,
        mask: Any | None = None,
        **tensors: Any,
    ) -> None:
        """Record how values are spread: ``k/avg k/min k/max k/p50 k/p90 k/p99``, and a histogram.

        Takes what `stat` takes. A device tensor is copied to the host here (its buckets are counted there).
        """
        chosen = self._find_mask(denominator) if denominator is not None else mask
        given = {self._key(key): _on_host(tensor) for key, tensor in {**(values or {}), **tensors}.items()}
        if chosen is not None:
            chosen = _as_mask(f"distribution({', '.join(given)}): mask", _on_host(chosen), empty_is_wrong=False)
        self._fold_all(given, HISTOGRAM, chosen, denominator or "the mask")

    def _find_mask(self, name: str) -> Any:
        """The mask of this name in the current scope, then outwards; this task's or thread's own first."""
        mine = self._own_masks.get()
        path = self._scope.get().path
        for table in (mine, self._masks):
            for where in _outwards(path):
                held = table.get(f"{where}/{name}" if where else name)
                if held is not None and held.mask is not None:
                    return held.mask
        defined = sorted(key for key, held in self._masks.items() if held.mask is not None)
        raise RecordError(
            f'stat: denominator "{name}" is not defined in the scope "{path}" or outside it; '
            f"call denominator({name}=mask) first; defined: {', '.join(defined) or 'none'}"
        )

    def _fold_all(self, tensors: Mapping[str, Any], kind: Kind, mask: Any | None, mask_name: str) -> None:
        """All or nothing: everything is checked before anything is folded."""
        ready = {key: _as_values(key, tensor, mask, mask_name) for key, tensor in tensors.items()}
        for key in ready:
            self._entry(key, kind)
        mask_here = _MaskViews(mask)
        with self._lock:
            for key, tensor in ready.items():
                self._fold_values(key, kind, tensor, mask_here.beside(tensor))

    def _fold_values(self, key: str, kind: Kind, values: Any, mask: Any | None) -> None:
        entry = self._entries[key]
        if fold.on_device(values):
            entry.fold_on_device(values, mask)
            return
        array = fold.as_array(values)
        if mask is not None and not mask.all():
            array = array[mask]
        moments = fold.moments_of_array(array)
        entry.add(moments, _buckets(array, moments) if kind.bucketed else None)

    # --- timings ----------------------------------------------------------------------------------------------------

    def record_timing(self, key: str) -> "_Timing":
        """Time what runs inside the ``with``: ``timeperf/<key>`` (mean seconds a call), and a slice.

        Scopes do not count, as in AReaL; a named tracker's name leads.
        """
        try:
            numbers = self._timings[key]
        except KeyError:
            numbers = self._new_timing(key)
        if len(numbers) >= FOLD_AT:
            self._fold_timing(key)
        return _Timing(self._recorder, numbers, key)

    def _new_timing(self, key: str) -> list[float]:
        entry = self._entry(self._timing_key(key), TIMING)
        self._timings[key] = entry.pending
        return entry.pending

    def _fold_timing(self, key: str) -> None:
        with self._lock:
            self._entries[self._timing_key(key)].fold()

    def _timing_key(self, key: str) -> str:
        return f"{self.name}/timeperf/{key}" if self.name else f"timeperf/{key}"

    def timing_appender(self, key: str, kind: Kind) -> Callable[[int], None]:
        """A function that records one duration (ns) under this key, for clocks that time for themselves."""
        entry = self._entry(f"{self.name}/{key}" if self.name else key, kind)
        pending = entry.pending

        def append(duration_ns: int) -> None:
            pending.append(duration_ns)
            if len(pending) >= FOLD_AT:
                with self._lock:
                    entry.fold()

        return append

    # --- taking what was recorded -------------------------------------------------------------------------------------

    def take(self) -> dict[str, State]:
        """Remove and return everything recorded so far, by key, in the order in which keys first appeared.

        The caller now owns these states. If it fails to use them, `put_back` loses nothing.
        """
        with self._lock:
            self._read_devices()
            for held in self._masks.values():
                held.mask = None
            self._masks.clear()
            return {key: state for key, entry in self._entries.items() if (state := entry.take()) is not None}

    def put_back(self, states: Mapping[str, State]) -> None:
        """Merge what was taken into what was recorded since: the export failed."""
        with self._lock:
            for key, state in states.items():
                self._entry(key, state.kind).merge_older(state)

    def absorb(self, states: Mapping[str, State], source: str) -> None:
        """Merge another process's states into the next export. A gauge replaces what the same ``source`` sent before.

        Raises `RecordError`, and merges nothing, if a key is of another kind here.
        """
        for key, state in states.items():
            self._entry(key, state.kind)
        with self._lock:
            for key, state in states.items():
                self._entries[key].merge_other(state, source)

    def reset(self) -> None:
        """Forget everything recorded (a forked child must not report its parent's numbers). Keys keep their kinds."""
        self._lock = threading.RLock()
        self._masks.clear()
        for entry in self._entries.values():
            entry.reset()

    def _read_devices(self) -> None:
        """One packed copy per device."""
        waiting = [entry for entry in self._entries.values() if entry.on_devices]
        by_device: dict[Any, list[tuple[_Entry, Any]]] = {}
        for entry in waiting:
            for device, moments in entry.on_devices.items():
                by_device.setdefault(device, []).extend((entry, row) for row in moments.packed())
            entry.on_devices = {}
        for rows in by_device.values():
            for (entry, _), numbers in zip(rows, fold.copy_to_host([row for _, row in rows]), strict=True):
                entry.state.add(fold.unpacked(numbers))
                entry.recorded = True

    # --- keys -------------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        if not isinstance(key, str) or not key.strip("/"):
            raise RecordError(f"key: expected a non-empty string, got {key!r}")
        path = self._scope.get().path
        return f"{path}/{key.strip('/')}" if path else key.strip("/")

    def _entry(self, key: str, kind: Kind) -> "_Entry":
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                entry = self._entries.setdefault(key, _Entry(kind))
        if entry.state.kind is not kind:
            raise RecordError(
                f"{key}: recorded as {entry.state.kind.name} before, and now as {kind.name}; use another key"
            )
        return entry

    def _add_all(self, kind: Kind, recorded: Mapping[str, Moments | None]) -> None:
        for key in recorded:
            self._entry(key, kind)
        with self._lock:
            for key, moments in recorded.items():
                if moments is not None:
                    self._entries[key].add(moments)


class _Entry:
    """One key's state, the numbers that wait to be folded into it, and its moments on devices."""

    __slots__ = ("elsewhere", "on_devices", "pending", "recorded", "state")

    def __init__(self, kind: Kind) -> None:
        self.state = State(kind)
        self.pending: list[float] = []
        self.on_devices: dict[Any, fold.DeviceMoments] = {}
        self.elsewhere: dict[str, State] = {}  # gauges of other processes, the last of each
        self.recorded = False

    def reset(self) -> None:
        self.state = State(self.state.kind)
        self.pending.clear()
        self.on_devices, self.elsewhere, self.recorded = {}, {}, False

    def add(self, moments: Moments, buckets: Mapping[int, float] | None = None) -> None:
        if self.state.kind.replaces:
            self.state.replace(moments)
        else:
            self.state.add(moments, buckets)
        self.recorded = True

    def fold(self) -> None:
        """Fold pending numbers. Others may append meanwhile: what is counted is cut off in two atomic steps."""
        count = len(self.pending)
        if not count:
            return
        numbers = self.pending[:count]
        del self.pending[:count]
        timed = self.state.kind.bucketed
        moments = fold.moments_of_numbers(numbers, _NANOSECOND if timed else 1.0)
        self.add(moments, _count_few(numbers) if timed else None)

    def fold_on_device(self, values: Any, mask: Any | None) -> None:
        self.on_devices.setdefault(values.device, fold.DeviceMoments()).fold(values, mask)
        self.recorded = True

    def take(self) -> State | None:
        self.fold()
        for state in self.elsewhere.values():
            self.state.add(state.moments)
            self.recorded = True
        self.elsewhere = {}
        if not self.recorded:
            return None
        taken, self.state = self.state, State(self.state.kind)
        self.recorded = False
        return taken

    def merge_older(self, older: State) -> None:
        if not (older.kind.replaces and self.recorded):  # a newer last value stays
            self.add(Moments(*older.moments), older.buckets)

    def merge_other(self, state: State, source: str) -> None:
        if state.kind.replaces:
            self.elsewhere[source] = state
        else:
            self.add(Moments(*state.moments), state.buckets)


class _Scope:
    """A place in the tree of keys. ``scalars`` is the hot path's cache: key as given -> list to append to."""

    __slots__ = ("children", "path", "scalars")

    def __init__(self, path: str) -> None:
        self.path = path
        self.scalars: dict[str, list[float]] = {}
        self.children: dict[str, _Scope] = {}


class _Scoped:
    """The context manager that `Tracker.scope` returns."""

    __slots__ = ("_buffer", "_name", "_scope", "_token", "_tracker")

    def __init__(self, tracker: Tracker, scope: _Scope, name: str) -> None:
        self._tracker = tracker
        self._scope = scope
        self._name = name

    def __enter__(self) -> Self:
        tracker = self._tracker
        self._token: Token[_Scope] = tracker._scope.set(self._scope)
        recorder = tracker._recorder
        self._buffer = recorder.begin((recorder.now(), self._name, "scope", None, None)) if recorder.on else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tracker = self._tracker
        tracker._scope.reset(self._token)
        if self._buffer is not None:
            self._buffer.records.append(tracker._recorder.now())


class _Timing:
    """The context manager that `Tracker.record_timing` returns."""

    __slots__ = ("_buffer", "_name", "_numbers", "_recorder", "_start")

    def __init__(self, recorder: Recorder, numbers: list[float], name: str) -> None:
        self._recorder = recorder
        self._numbers = numbers
        self._name = name

    def __enter__(self) -> Self:
        recorder = self._recorder
        self._start = start = recorder.now()
        self._buffer = recorder.begin((start, self._name, "timing", None, None)) if recorder.on else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self._recorder.now()
        self._numbers.append(end - self._start)
        if self._buffer is not None:
            self._buffer.records.append(end)


class _Mask:
    """A live denominator. Its mask is dropped when it is exported or redefined."""

    __slots__ = ("mask",)

    def __init__(self, mask: Any) -> None:
        self.mask = mask


_NO_MASKS: Mapping[str, _Mask] = MappingProxyType({})


class _MaskViews:
    """One mask as each tensor needs it: on its device, or as a NumPy array; converted once a call."""

    def __init__(self, mask: Any | None) -> None:
        self._mask = mask
        self._views: dict[Any, Any] = {}

    def beside(self, values: Any) -> Any | None:
        if self._mask is None:
            return None
        device = values.device if fold.on_device(values) else None
        if device not in self._views:
            self._views[device] = fold.mask_on(device, self._mask)
        return self._views[device]


def _tensor_kind(reduce_type: Any) -> Kind:
    """A kind from ``"avg"``, ``"AVG"`` or an enum with such a name (AReaL's ReduceType)."""
    name = str(getattr(reduce_type, "name", reduce_type)).lower()
    if name not in _TENSOR_KINDS:
        raise RecordError(f"stat: reduce_type: expected one of {', '.join(_TENSOR_KINDS)}, got {reduce_type!r}")
    return AVG_MIN_MAX if name == "avg_min_max" else KINDS[name]


def _as_mask(what: str, mask: Any, *, empty_is_wrong: bool = True) -> Any:
    """A boolean mask as a tensor or NumPy array."""
    given = mask if fold.is_tensor(mask) else np.asarray(mask)
    if str(given.dtype).rpartition(".")[2] != "bool":
        raise RecordError(f"{what}: expected a bool mask, got dtype {given.dtype} of shape {tuple(given.shape)}")
    if empty_is_wrong and 0 in tuple(given.shape):
        raise RecordError(f"{what}: expected a mask with elements, got shape {tuple(given.shape)}")
    return given


def _as_values(key: str, values: Any, mask: Any | None, mask_name: str) -> Any:
    """Values as a tensor or NumPy array, checked against the mask."""
    try:
        given = values if fold.on_device(values) else fold.as_array(values)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{key}: expected a tensor, array or sequence of real numbers, got {_summary(values)}"
        ) from error
    if mask is not None and tuple(given.shape) != tuple(mask.shape):
        raise RecordError(
            f"{key}: expected the shape of {mask_name}, {tuple(mask.shape)}, got {tuple(given.shape)} (no broadcasting)"
        )
    return given


def _copy(mask: Any) -> Any:
    """A mask that the caller cannot change afterwards."""
    return mask.detach().clone() if fold.is_tensor(mask) else mask.copy()


def _on_host(values: Any) -> Any:
    return values.detach().cpu() if fold.on_device(values) else values


def _buckets(array: fold.Array, moments: Moments) -> dict[int, float]:
    finite = array[np.isfinite(array)] if moments.nonfinite else array
    return count_buckets(finite.astype(np.float64).ravel())


def _count_few(durations_ns: Iterable[float]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for duration in durations_ns:
        index = bucket_of(duration * _NANOSECOND)
        counts[index] = counts.get(index, 0.0) + 1.0
    return counts


def _weighted(value: float, weight: float) -> Moments | None:
    """One value that counts ``weight`` times. A zero weight is no observation, whatever the value."""
    if not weight:
        return None
    if math.isfinite(value):
        return Moments(value * weight, weight, value, value)
    if math.isnan(value):
        return Moments(nan=weight)
    return Moments(positive_infinity=weight) if value > 0 else Moments(negative_infinity=weight)


def _check_weight(what: str, weight: float) -> None:
    if not 0 <= weight < float("inf"):
        raise RecordError(f"{what}: weight: expected a finite number >= 0, got {weight}")


def _outwards(path: str) -> Iterable[str]:
    """A scope's path, its parent's, and so on to the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def _summary(value: Any) -> str:
    """What was given, short and without its contents where it is large."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}, dtype {getattr(value, 'dtype', '?')}"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"
