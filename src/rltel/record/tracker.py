"""Trackers: named sets of metrics with scopes and masks, recorded into mergeable states.

Scalars and timings are appended to small lists and folded in bulk, off the hot path. Tensors are folded into their
state at once and not kept. Scopes live in ContextVars: asyncio tasks inherit theirs and do not disturb each other.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from rltel.core.errors import RecordError
from rltel.names.schema import GaugeRule
from rltel.record import fold
from rltel.record.contexts import Timing
from rltel.record.entries import FOLD_AT, Entry, Kinds, Sent, Taken, read
from rltel.record.inputs import MaskViews, as_mask, as_values, copied, given_values, summary, tensor_kind, weight_of
from rltel.record.kinds import (
    COUNTER,
    ELAPSED,
    GAUGES,
    HISTOGRAM,
    SCALAR,
    SUM,
    TIMING,
    WEIGHTED_AVG,
    Kind,
    Moments,
    State,
)
from rltel.record.local_rules import Running, applied, by_rule, check_rules, ended, resumed
from rltel.record.masks import Masks
from rltel.record.recorder import Recorder, timeline
from rltel.record.scoping import Scoping

P = ParamSpec("P")
R = TypeVar("R")
_Recorded = Moments | fold.Folded | fold.DeviceMoments | None


class Tracker(Scoping):
    """A named set of metrics. The name leads every key; the default tracker's name is empty.

    ``kinds``: which kind each key is of, shared with the trackers that are exported together.
    """

    def __init__(self, name: str = "", recorder: Recorder = timeline, kinds: Kinds | None = None) -> None:
        super().__init__(name, recorder)
        self._kinds = kinds or Kinds()
        self._lock = threading.RLock()  # held to merge what is ready: never while a device or a large array is read
        self._entries: dict[str, Entry] = {}
        self._masks = Masks(self.name)
        self._timings: dict[str, list[Timing]] = {}
        self._own_groups: dict[str, Any] = {}
        self._running: dict[str, Running] = {}

    # --- numbers ----------------------------------------------------------------------------------------------------

    def scalar(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Record numbers; each key leaves as the mean over all calls (``k``) and their number (``k__count``).

        Every keyword is a metric: ``scalar(weight=0.1)`` records "weight". With a mapping, keywords are options:
        ``scalar({"pass@1": 0.5}, weight=8)`` counts as 8 observations.

        Raises `RecordError` if a value is not a number or a key is of another kind; nothing is recorded then.
        """
        pending = self._scope.get().scalars
        if values is not None:
            if type(values) is dict and not keywords:
                self._scalars(pending, values)
            else:
                self._scalar_mapping(values, **keywords)
            return
        if len(keywords) != 1:
            self._scalars(pending, keywords)
            return
        for key, value in keywords.items():
            if type(value) is not float:
                value = self._one(key, value)  # noqa: PLW2901  # the same number, as a float
                if type(value) is not float:
                    self._scalar_mapping(keywords)
                    return
            try:
                numbers = pending[key]
            except KeyError:
                self._open_scalars(keywords)
                numbers = pending[key]
            numbers.append(value)
            if len(numbers) >= FOLD_AT:
                self._fold_early(key)

    def _scalars(self, pending: Mapping[str, list[float]], values: Mapping[str, Any]) -> None:
        """Several at once: all of them, or none."""
        for key, value in values.items():
            if type(value) is not float or key not in pending:
                values = self._ready(pending, values)
                break
        for key, number in values.items():
            numbers = pending[key]
            numbers.append(number)
            if len(numbers) >= FOLD_AT:
                self._fold_early(key)

    def _ready(self, pending: Mapping[str, list[float]], values: Mapping[str, Any]) -> Mapping[str, float]:
        """What is left to append after a look at every value and key; device tensors are recorded here."""
        ready = {key: self._one(key, value) for key, value in values.items()}
        self._open_scalars([key for key in ready if key not in pending])
        on_devices = {key: value for key, value in ready.items() if type(value) is not float}
        if not on_devices:
            return ready
        self._scalar_mapping(on_devices)
        return {key: value for key, value in ready.items() if key not in on_devices}

    def _open_scalars(self, names: Iterable[str]) -> None:
        """Find where to append the numbers of these, so that nobody has to look at the keys again."""
        scope = self._scope.get()
        paths = {name: self._key(name) for name in names}
        self._claim(paths.values(), SCALAR)
        for name, path in paths.items():
            scope.scalars[name] = self._entries[path].pending

    def _fold_early(self, key: str) -> None:
        with self._lock:
            self._entries[self._key(key)].fold()

    def _scalar_mapping(self, values: Mapping[str, Any], *, weight: Any = 1.0, reduce_group: Any = None) -> None:
        share = weight_of("scalar", weight)
        self._add_all(SCALAR, self._observed(given_values("scalar", values, {}), share), reduce_group)

    def weighted_mean(self, key: str, value: Any, weight: Any) -> None:
        """One value that counts ``weight`` times: leaves as the weighted average. Zero weight records nothing.

        Raises `RecordError` if the value is no number, or the weight no finite number >= 0. (A weight on a device is
        not waited for: a wrong one makes the average NaN.)
        """
        share = weight_of(self._key(key), weight)
        self._add_all(WEIGHTED_AVG, self._observed({key: value}, share))

    def gauge(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        ranks: str | None = None,
        local: str | None = None,
        alpha: float | None = None,
        **keywords: Any,
    ) -> None:
        """One value of each key, as of now.

        A tag of the metric schema (`docs/schema.md`) goes by its own rules where they are not given; any other key by
        ``mean`` and ``last``, ``alpha`` being 0.1.

        Args:
            ranks: how ranks and workers merge: ``mean`` of those that have one, ``sum``, ``min``, ``max``, ``writer``.
            local: what this process makes of its values: the ``last``; the ``mean``, ``max`` or ``min`` since the last
                export; the ``cumulative`` total since the start; or an ``ema`` with this ``alpha`` (0 to 1).

        Raises `RecordError` for another rule, for what is not one number, or for a value on a device if any rule but
        ``last`` is asked for (the others would have to wait for it).
        """
        check_rules(ranks, local, alpha)
        given = given_values("gauge", values, keywords)
        numbers = {self._key(key): self._one(key, value) for key, value in given.items()}
        rules = by_rule(numbers, self.name, ranks, local, alpha)
        self._claim_gauges(rules)
        with self._lock:
            for rule, of_rule in rules.items():
                self._merge({key: fold.weighted(self._after(rule, key, new), 1.0) for key, new in of_rule.items()})

    def _claim_gauges(self, rules: Mapping[GaugeRule, Mapping[str, Any]]) -> None:
        if len(rules) == 1:
            ((rule, of_rule),) = rules.items()
            self._claim(of_rule, GAUGES[rule.ranks])
        else:
            self._claim_all({key: GAUGES[rule.ranks] for rule, of_rule in rules.items() for key in of_rule})

    def _after(self, rule: GaugeRule, key: str, new: Any) -> Any:
        """What the gauge is after this value."""
        return new if rule.local == "last" else applied(rule.local, rule.alpha, new, key, self._running)

    def count(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Add to counters. The flat dict has what was added since the last export; Prometheus and OTLP the total.

        Raises `RecordError` for a negative or non-finite amount. (An amount on a device is not waited for: what is
        negative or not finite adds nothing.)
        """
        given = given_values("count", values, keywords)
        self._add_all(COUNTER, self._observed({key: self._amount(key, value) for key, value in given.items()}, 1.0))

    def elapsed(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        """Seconds that this process spent: they add up until they are exported, and over ranks and workers the largest
        sum counts. What a rate of work that all of them share is divided by.

        Raises `RecordError` for a negative or non-finite time, or one on a device.
        """
        given = given_values("elapsed", values, keywords)
        self._add_all(ELAPSED, self._observed({key: self._duration(key, value) for key, value in given.items()}, 1.0))

    def _duration(self, key: str, value: Any) -> float:
        seconds = self._one(key, value)
        if type(seconds) is not float or not 0 <= seconds < float("inf"):
            raise RecordError(
                f"{self._key(key)}: elapsed: expected a finite number of seconds >= 0, got {summary(value)}"
            )
        return seconds

    def _amount(self, key: str, value: Any) -> Any:
        amount = self._one(key, value)
        if type(amount) is not float:
            return fold.at_least_zero(amount)
        if not 0 <= amount < float("inf"):
            raise RecordError(f"{self._key(key)}: a counter only grows: expected a finite number >= 0, got {amount}")
        return amount

    def _one(self, key: str, value: Any) -> Any:
        """One float, or a tensor on a device that holds one number: that is not waited for."""
        try:
            return fold.one(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise RecordError(f"{self._key(key)}: expected one number, got {summary(value)}") from error

    def _observed(self, values: Mapping[str, Any], weight: Any) -> dict[str, _Recorded]:
        """Each of these once, under its full key, ``weight`` times."""
        return {self._key(key): fold.weighted(self._one(key, value), weight) for key, value in values.items()}

    # --- tensors ----------------------------------------------------------------------------------------------------

    def denominator(self, *, reduce_group: Any = None, **masks: Any) -> None:
        """Name boolean masks that `stat` averages over. Each also leaves as the sum of its true elements.

        A mask holds in the current scope and those inside it, until it is redefined there or exported.

        Raises `RecordError`, and records nothing, if a mask is not boolean, or empty.
        """
        checked = {self._key(name): as_mask(self._key(name), mask) for name, mask in masks.items()}
        sums = {path: fold.folded(as_values(path, mask, None, ""), None) for path, mask in checked.items()}
        copies = {path: copied(mask) for path, mask in checked.items()}
        self._claim(checked, SUM)
        self._reduce_over(reduce_group, checked)
        with self._lock:
            self._merge(sums)
            for path, mask in copies.items():
                self._masks.define(path, mask)

    def stat(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        denominator: str | None = None,
        mask: Any | None = None,
        reduce_type: Any = "avg_min_max",
        reduce_group: Any = None,
        **tensors: Any,
    ) -> None:
        """Record every element of tensors where a mask is true.

        Args:
            values, tensors: torch tensors of any float or integer dtype on any device, NumPy arrays or sequences.
            denominator: name of a mask given to `denominator`, looked up in this scope, then outwards.
            mask: a boolean mask given directly, of the same shape. Without either, every element counts.
            reduce_type: ``avg_min_max`` (``k/avg k/min k/max``), ``avg``, ``sum``, ``min`` or ``max`` (``k``).
            reduce_group: a process group of these keys' own, for an export that reduces over ranks.

        Raises `RecordError`, and records nothing, if a shape or dtype does not fit, the denominator is not defined, or
        a key is of another kind.
        """
        given = given_values("stat", values, tensors)
        self._fold_all("stat", given, tensor_kind(reduce_type), denominator, mask, reduce_group)

    def stat_compact(self, mask: Any, reduce_type: Any = "avg_min_max", **tensors: Any) -> None:
        """AReaL's name for `stat` with a mask given directly. (Here every stat is compact.)"""
        self.stat(tensors, mask=mask, reduce_type=reduce_type)

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

        Takes what `stat` takes, and raises what it raises.
        """
        self._fold_all("distribution", given_values("distribution", values, tensors), HISTOGRAM, denominator, mask)

    def _fold_all(
        self,
        what: str,
        given: Mapping[str, Any],
        kind: Kind,
        denominator: str | None,
        mask: Any | None,
        reduce_group: Any = None,
    ) -> None:
        """All or nothing: everything is checked and folded by itself before anything is merged."""
        tensors = {self._key(key): tensor for key, tensor in given.items()}
        if denominator is not None:
            if mask is not None:
                raise RecordError(f"{what}({', '.join(tensors)}): expected a denominator or a mask, got both")
            mask = self._find_mask(what, denominator)
        elif mask is not None:
            mask = as_mask(f"{what}({', '.join(tensors)}): mask", mask, empty_is_wrong=False)
        ready = {key: as_values(key, tensor, mask, denominator or "the mask") for key, tensor in tensors.items()}
        views = MaskViews(mask)
        folded = {key: fold.folded(values, views.beside(values), kind.bucketed) for key, values in ready.items()}
        self._add_all(kind, folded, reduce_group)

    def _find_mask(self, what: str, name: str) -> Any:
        scope = self._scope.get().path
        mask = self._masks.find(scope, name)
        if mask is None:
            raise RecordError(
                f'{what}: denominator "{name}" is not defined in the scope "{scope}" or outside it; '
                f"call denominator({name}=mask) first; defined: {', '.join(self._masks.paths()) or 'none'}"
            )
        return mask

    # --- timings ----------------------------------------------------------------------------------------------------

    def record_timing(self, key: str) -> Timing:
        """Time what runs inside the ``with``: ``timeperf/<key>`` (mean seconds a call), and a slice.

        Scopes do not count, as in AReaL; a named tracker's name leads.
        """
        try:
            timing = self._timings[key].pop()
        except (KeyError, IndexError):
            return self._new_timing(key)
        timing.spent = False
        return timing

    def _new_timing(self, key: str) -> Timing:
        """One more, for a key that is timed for the first time, or by several at once."""
        if not isinstance(key, str) or not key.strip("/"):
            raise RecordError(f"record_timing: expected a non-empty string, got {key!r}")
        entry = self._entry(self._timing_key(key), TIMING)
        return Timing(entry, key, self._recorder, self._timings.setdefault(key, []), self._fold_timing)

    def _fold_timing(self, entry: Entry) -> None:
        with self._lock:
            entry.fold()

    def _timing_key(self, key: str) -> str:
        return f"{self.name}/timeperf/{key.strip('/')}" if self.name else f"timeperf/{key.strip('/')}"

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

    def take(self) -> Taken:
        """Remove and return everything recorded so far, by key, in the order in which keys first appeared.

        The caller now owns these states. If it used them, it says so (`exported`); else `put_back` loses nothing.
        """
        taken = self.cut()
        try:
            read([taken])
        except BaseException:
            self.put_back(taken)
            raise
        return taken

    def cut(self, only: str | None = None) -> Taken:
        """As `take`, but what lies on devices is still there: see `rltel.record.entries.read`.

        ``only``: a key, as given in the current scope. Denominators stay live then. Raises KeyError if it is not there.
        """
        with self._lock:
            taken = Taken()
            if only is None:
                for key, entry in self._entries.items():
                    taken.cut(key, entry)
                taken.masks = tuple(self._masks.live())
            elif (key := self._key(only)) in self._entries:
                taken.cut(key, self._entries[key])
            if only is not None and not taken:
                raise KeyError(key)
            taken.extremes = ended(taken, self._running)
            return taken

    def put_back(self, taken: Taken) -> None:
        """Merge what was taken into what was recorded since: the export failed, or was only a look."""
        with self._lock:
            for key in taken:
                taken.put_back(key, self._entries[key])
            for key, extreme in resumed(taken.extremes, self._running).items():
                self._merge({key: fold.weighted(extreme, 1.0)})

    def exported(self, taken: Taken) -> None:
        """What was taken has arrived: the denominators that were live then are no longer."""
        with self._lock:
            self._masks.drop(taken.masks)

    def absorb(self, states: Mapping[str, State], sent: Sent) -> None:
        """Merge another process's states into the next export. A gauge replaces what the same worker sent before.

        Raises `RecordError`, and merges nothing, if a key is of another kind here.
        """
        self._claim_all({key: state.kind for key, state in states.items()})
        with self._lock:
            for key, state in states.items():
                self._entries[key].add_other(state, sent)

    def reset(self) -> None:
        """Forget everything recorded (a forked child must not report its parent's numbers). Keys keep their kinds."""
        self._lock = threading.RLock()
        self._kinds.after_fork()
        self._masks.drop(self._masks.live())
        self._running.clear()
        for entry in self._entries.values():
            entry.reset()

    # --- keys -------------------------------------------------------------------------------------------------------

    def _entry(self, key: str, kind: Kind) -> Entry:
        self._claim([key], kind)
        return self._entries[key]

    def _claim(self, keys: Collection[str], kind: Kind) -> None:
        """Make these keys metrics of this kind: all of them, or (raising `RecordError`) none."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is None or entry.state.kind is not kind:
                self._claim_all(dict.fromkeys(keys, kind))
                return

    def _claim_all(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds.claim(kinds)
        with self._lock:
            for key, kind in kinds.items():
                if key not in self._entries:
                    self._entries[key] = Entry(kind)

    def _reduce_over(self, group: Any, keys: Iterable[str]) -> None:
        """These keys have a process group of their own."""
        if group is not None:
            self._own_groups.update(dict.fromkeys(keys, group))

    def own_groups(self) -> Mapping[str, Any]:
        """The keys that were recorded with a process group of their own."""
        return dict(self._own_groups)

    def _add_all(self, kind: Kind, recorded: Mapping[str, _Recorded], reduce_group: Any = None) -> None:
        self._claim(recorded, kind)
        self._reduce_over(reduce_group, recorded)
        with self._lock:
            self._merge(recorded)

    def _merge(self, recorded: Mapping[str, _Recorded]) -> None:
        for key, found in recorded.items():
            if isinstance(found, Moments):
                self._entries[key].add(found)
            elif isinstance(found, fold.Folded):
                self._entries[key].add(found.moments, found.buckets)
            elif found is not None:
                self._entries[key].add_on_device(found)
