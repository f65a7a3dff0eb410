"""Copies an event file with other names: the same events at the same steps and times, but for what is left out."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rltel.analysis.event_records import EventRecords, events_of, record_of
from rltel.analysis.plan import Plan
from rltel.analysis.scalars import Numbers


class EventCopy:
    """``points``: how many scalars each of the plan's tags had. ``damage``: what was not read, in words."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = Numbers()
        self.points: Counter[str] = Counter()
        self.damage: str | None = None

    def write(self, source: Path, target: Path) -> None:
        """Copy one file to a new one. Raises OSError (FileExistsError if the target is there)."""
        records = EventRecords(source)
        with target.open("xb") as file:
            for data in self._translated(records):
                file.write(record_of(data))
        self.damage = records.damage

    def _translated(self, records: EventRecords) -> Iterator[bytes]:
        for data, event in events_of(records):
            values = event.summary.value
            gone = [place for place, value in enumerate(values) if self._is_gone(value)]
            if gone and len(gone) == len(values):
                continue
            for place in reversed(gone):
                del values[place]
            renamed = sum(map(self._rename, values))
            yield event.SerializeToString() if gone or renamed else data

    def _is_gone(self, value: Any) -> bool:
        if value.tag not in self._plan.left_out or self._numbers.of(value) is None:
            return False
        self.points[value.tag] += 1
        return True

    def _rename(self, value: Any) -> bool:
        found = self._plan.renamed.get(value.tag)
        number = None if found is None else self._numbers.of(value)
        if found is None or number is None:
            return False
        self.points[value.tag] += 1
        value.tag = found.tag
        if found.scale != 1:
            _set_number(value, number * found.scale)
        return True


def _set_number(value: Any, number: float) -> None:
    if value.WhichOneof("value") == "simple_value":
        value.simple_value = number
        return
    from tensorboard.util import tensor_util  # an extra: only where it is used

    kind = tensor_util.make_ndarray(value.tensor).dtype
    of = kind if kind.kind == "f" else np.dtype(np.float32)  # a whole number of milliseconds is none of seconds
    value.tensor.CopyFrom(tensor_util.make_tensor_proto(of.type(number)))
