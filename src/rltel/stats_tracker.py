"""What to import instead of ``areal.utils.stats_tracker``: the same names and call shapes, on this process's trackers.

``rltel.get("rollout")`` and ``stats_tracker.get("rollout")`` are two faces of one tracker, so that `rltel.commit` sends
what AReaL's code records here. What differs on purpose stands in one table, in docs/areal.md.
"""

import threading
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Self

from rltel.core.errors import RecordError
from rltel.process import process
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import StatsTracker, Trackers

_scalar = StatsTracker.scalar
_NOT_A_MEMBER = -100  # what torch.distributed gives a rank outside a new group, in the place of the group


class ReduceType(Enum):
    """How values under one key become numbers."""

    AVG_MIN_MAX = auto()
    AVG = auto()
    SUM = auto()
    MIN = auto()
    MAX = auto()
    SCALAR = auto()
    WEIGHTED_AVG = auto()


_OTHER_CALLS = {
    "SCALAR": "stat: cannot use the scalar reduce type for a tensor; call scalar",
    "WEIGHTED_AVG": "stat: Use weighted_mean for the reduce type WEIGHTED_AVG",
}


class DistributedStatsTracker(StatsTracker):
    """A `StatsTracker` with AReaL's call shapes. One that is made by hand belongs to no `export_all`, as in AReaL."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)

    @classmethod
    def over(cls, tracker: StatsTracker) -> Self:
        """Another face of this tracker: everything that one records, the other exports."""
        face = cls.__new__(cls)
        face.__dict__ = tracker.__dict__  # all of its state, also what it replaces later (its lock, after a fork)
        return face

    def scalar(  # type: ignore[override]  # AReaL's call shape: the group is an option beside the keywords
        self, /, *, reduce_group: Any = None, **values: Any
    ) -> None:
        """Record numbers; each key leaves as the mean over all calls (``k``) and their number (``k__count``)."""
        if reduce_group is None:
            _scalar(self, **values)  # super() would cost a tenth of the call
        else:
            super().scalar(values, reduce_group=_as_group("scalar", reduce_group))

    def denominator(self, /, *, reduce_group: Any = None, **masks: Any) -> None:
        """Name boolean masks that `stat` averages over. Each also leaves as the sum of its true elements."""
        super().denominator(reduce_group=_as_group("denominator", reduce_group), **masks)

    def stat(  # type: ignore[override]  # AReaL's call shape: the denominator comes first, and is needed
        self, /, denominator: str, reduce_type: Any = None, *, reduce_group: Any = None, **tensors: Any
    ) -> None:
        """Record every element of tensors where the named mask is true.

        Raises `RecordError` (a ValueError), and records nothing, if the mask is not defined, a shape or dtype does not
        fit, or a key is of another kind.
        """
        if not isinstance(denominator, str):
            raise RecordError(f"stat: denominator: expected the name of a mask, got {type(denominator).__name__}")
        group = _as_group("stat", reduce_group)
        super().stat(tensors, denominator=denominator, reduce_type=_for_tensors(reduce_type), reduce_group=group)

    def stat_compact(self, mask: Any, reduce_type: Any = None, **tensors: Any) -> None:
        """As `stat`, with the mask given directly."""
        super().stat(tensors, mask=mask, reduce_type=_for_tensors(reduce_type))


def _for_tensors(reduce_type: Any) -> Any:
    """A reduce type for `stat`; also one of AReaL's own enum, or a name."""
    if reduce_type is None:
        return "avg_min_max"
    other = _OTHER_CALLS.get(str(getattr(reduce_type, "name", reduce_type)).upper())
    if other:
        raise RecordError(other)
    return reduce_type


def _as_group(what: str, group: Any) -> Any:
    """A process group, and not what was meant as a metric of this name: that would be lost in silence."""
    is_number = isinstance(group, (int, float)) and group != _NOT_A_MEMBER
    if is_number or hasattr(group, "dtype"):
        raise RecordError(
            f"{what}: reduce_group: expected a process group, got {type(group).__name__}; a metric or mask cannot have "
            f"that name in AReaL's call shapes (rltel.scalar and rltel.stat take any name in a mapping)"
        )
    return group


class NamedTrackers(Mapping[str, DistributedStatsTracker]):
    """A live view of this process's trackers by name, each with AReaL's call shapes."""

    def __init__(self, trackers: Trackers) -> None:
        self._trackers = trackers
        self._faces: dict[str, DistributedStatsTracker] = {}

    def get_or_make(self, name: str) -> DistributedStatsTracker:
        """The tracker of this name, made at first use."""
        tracker = self._trackers.get(name)
        face = self._faces.get(tracker.name)
        return face or self._faces.setdefault(tracker.name, DistributedStatsTracker.over(tracker))

    def __getitem__(self, name: str) -> DistributedStatsTracker:
        if name not in self._names():
            raise KeyError(name)
        return self.get_or_make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        return [tracker.name for tracker in self._trackers.all()]


def get(name: str = "") -> DistributedStatsTracker:
    """The tracker of this name, made at first use."""
    return TRACKERS.get_or_make(name)


def export_all(reduce_group: Any = None, key_sync_group: Any = None, reset: bool = True) -> Stats:
    """Everything that any tracker recorded since the last export: see `rltel.export_all`."""
    return process.export_all(reduce_group, key_sync_group=key_sync_group, reset=reset)


TRACKERS = NamedTrackers(process.trackers)
LOCK = threading.Lock()
"""Only there because AReaL's module has it: nothing here takes it."""
MOE_AUX_LOSSES: dict[str, Any] = {}
"""Only there because AReaL's module has it: nothing here reads it."""
DEFAULT_TRACKER = get()
stat = DEFAULT_TRACKER.stat
stat_compact = DEFAULT_TRACKER.stat_compact
denominator = DEFAULT_TRACKER.denominator
export = DEFAULT_TRACKER.export
scope = DEFAULT_TRACKER.scope
scalar = DEFAULT_TRACKER.scalar
weighted_mean = DEFAULT_TRACKER.weighted_mean
record_timing = DEFAULT_TRACKER.record_timing
scope_func_wrapper = DEFAULT_TRACKER.scope_func_wrapper

__all__ = [
    "DEFAULT_TRACKER", "LOCK", "MOE_AUX_LOSSES", "TRACKERS", "DistributedStatsTracker", "NamedTrackers", "ReduceType",
    "denominator", "export", "export_all", "get", "record_timing", "scalar", "scope", "scope_func_wrapper", "stat",
    "stat_compact", "weighted_mean",
]  # fmt: skip
