"""Thirteen numbers of a run: means over its last points, of timings and rates, in the units that scripts know."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rltel.analysis.rows import CANONICAL, OLD, ROWS, Origin, Row, origin
from rltel.analysis.run_files import SUMMARY, RunFiles, algorithm_of, find_run, points_of_record, read_object
from rltel.analysis.scalars import Scalars, Series, read_events, read_points
from rltel.analysis.schema_gate import Gate, Reading
from rltel.core.errors import RltelError
from rltel.names.legacy import AmbiguousTagError
from rltel.names.schema import METRIC_SCHEMA_VERSION

_GATE = Gate(METRIC_SCHEMA_VERSION, CANONICAL, OLD)


@dataclass(frozen=True, slots=True)
class Extracted:
    """``rows``: each label's number, NaN where there is none.

    ``why``: of those that are not finite, the reason. ``notes``: what a reader has to know beside, in words.
    """

    rows: Mapping[str, float]
    why: Mapping[str, str]
    notes: list[str]
    files: tuple[Path, ...]


def extract(
    log_dir: str | os.PathLike[str], last: int = 20, *, reading: Reading = "stamped", algo: str | None = None
) -> Extracted:
    """The rows of a run, from its event file, or its JSONL record where it has none.

    Args:
        log_dir: the folder of one run.
        last: over how many points of each tag, the latest ones, the mean is; fewer if there are not as many.
        reading: which kind of run is expected.
        algo: who wrote an old run, for names that had several meanings; else as its ``run_config.json`` says.

    Raises `RltelError` for a run that is not certainly of the kind expected, OSError for a file that cannot be read.
    """
    if last < 1:
        raise RltelError(f"last: expected at least 1 point, got {last}")
    files = find_run(Path(log_dir))
    summary = files.beside(SUMMARY)
    _GATE.check_summary(read_object(summary), reading, str(summary or files.paths[0].parent))
    chosen = _Chosen(reading == "legacy-unversioned", algo or algorithm_of(files))
    scalars = _scalars(files, chosen)
    _GATE.check_tags(scalars.tags, reading, str(files.paths[0]))
    return chosen.extracted(scalars, last, files)


def _scalars(files: RunFiles, chosen: "_Chosen") -> Scalars:
    if files.record:
        return read_points(points_of_record(files), chosen.wants)
    return read_events(files.events, files.late, chosen.wants)


@dataclass(slots=True)
class _Chosen:
    """Which tags the rows come from."""

    is_old: bool
    algo: str | None
    origins: dict[str, Origin] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)

    def wants(self, tag: str) -> bool:
        try:
            found = origin(tag, is_old=self.is_old, algo=self.algo)
        except AmbiguousTagError as error:
            self.asked[tag] = str(error)
            return False
        if found is not None:
            self.origins[tag] = found
        return found is not None

    def extracted(self, scalars: Scalars, last: int, files: RunFiles) -> Extracted:
        rows, why = {}, {}
        for row in ROWS:
            tag = self._tag_of(row)
            rows[row.label] = math.nan if tag is None else _mean(scalars.series[tag], last) * self.origins[tag].scale
            if not math.isfinite(rows[row.label]):
                why[row.label] = self._why_none(row) if tag is None else f"{tag}: {_spelled(rows[row.label])}"
        return Extracted(rows, why, [*scalars.damage, *self.asked.values()], files.paths)

    def _tag_of(self, row: Row) -> str | None:
        found = [tag for tag, each in self.origins.items() if each.row is row]
        return min(found, key=lambda tag: self.origins[tag].place, default=None)

    def _why_none(self, row: Row) -> str:
        if self.is_old:
            return f"{row.old}: not in this run"
        return f"retired; instead: {row.instead}" if row.tag is None else f"{row.tag}: not in this run"


def _mean(series: Series, last: int) -> float:
    values = series.values[-last:]
    return sum(values) / len(values) if values else math.nan


def _spelled(number: float) -> str:
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
