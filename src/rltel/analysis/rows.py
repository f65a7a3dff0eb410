"""The thirteen rows of the extractor: what each is called, and which tags it comes from."""

from dataclasses import dataclass

from rltel.names.legacy import AmbiguousTagError, Renamed, Retired, successor

_OLD = (
    "perf/iter_ms",
    "perf/steps_per_sec",
    "perf/collector_active_steps_per_sec",
    "perf/collector_cycle_ms",
    "timing/collector_learner_action_wait_ms",
    "timing/collector_replay_write_ms",
    "timing/learner_collector_wait_ms",
    "timing/learner_inference_ms",
    "timing/learner_replay_batch_wait_ms",
    "timing/learner_replay_sample_ms",
    "timing/replay_ingress_h2d_submit_ms",
    "timing/learner_collector_release_ms",
    "timing/learner_train_ms",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row keeps the unit of its old tag, which also names it. ``tag``: today's; None if there is none.

    ``scale``: times the value of today's tag it is the row's.
    """

    label: str
    old: str
    tag: str | None
    scale: float
    instead: str = ""


def _row(old: str) -> Row:
    label = old.rpartition("/")[2]
    found = successor(old)
    if isinstance(found, Renamed):
        return Row(label, old, found.tag, 1 / found.scale)
    assert isinstance(found, Retired), old
    return Row(label, old, None, 1.0, found.instead)


ROWS = tuple(map(_row, _OLD))
CANONICAL = frozenset(row.tag for row in ROWS if row.tag is not None)
OLD = frozenset(_OLD)
_OF_TAG = {row.tag: row for row in ROWS if row.tag is not None}
_OF_OLD = {row.old: row for row in ROWS}


@dataclass(frozen=True, slots=True)
class Origin:
    """That a tag is for a row. ``scale``: times its value it is the row's. Of several the lowest ``place`` wins."""

    row: Row
    scale: float
    place: int = -1


def origin(tag: str, *, is_old: bool, algo: str | None = None) -> Origin | None:
    """Which row a tag of an old run, or of today's, is for; None if for none.

    Raises `AmbiguousTagError` if that depends on the algorithm.
    """
    if not is_old:
        row = _OF_TAG.get(tag)
        return None if row is None else Origin(row, row.scale)
    if tag in _OF_OLD:
        return Origin(_OF_OLD[tag], 1.0)
    try:
        found = successor(tag, algo)
    except AmbiguousTagError as error:
        if _OF_TAG.keys() & error.meanings.values():
            raise
        return None  # whatever it is, no row has it
    if not isinstance(found, Renamed) or found.tag not in _OF_TAG:
        return None
    row = _OF_TAG[found.tag]
    return Origin(row, found.scale * row.scale, found.place)
