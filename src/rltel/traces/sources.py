"""What a command was given: the trace files to work on, of how many runs they are, and what is merged already."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rltel.core.errors import TraceError
from rltel.traces.reader import SUFFIX
from rltel.traces.skim import Skimmed, skim, trace_files

_RUN_FILE = "run.json"


@dataclass(frozen=True)
class Sources:
    """The files of one source; those that are merged traces already are left out of a folder's."""

    files: list[Skimmed]
    merged_before: list[Path]
    runs: int
    """Of how many runs the files are, by the ``run.json`` above them; 1 if they have none."""

    @property
    def paths(self) -> list[Path]:
        """Those of the files to work on."""
        return [file.path for file in self.files]


def gathered(source: Path, output: Path | None = None, look: Callable[[Path], Skimmed] = skim) -> Sources:
    """The file itself, or the traces of a folder (see `trace_files`) but for ``output``.

    In a folder a merged trace holds what the others hold, so it is left out. A file that was asked for by its own name
    never is. Raises `TraceError` if nothing is left.
    """
    paths = [path for path in trace_files(source) if output is None or path.resolve() != output.resolve()]
    if not paths:
        raise TraceError(f"{source}: no trace files (*{SUFFIX}) below it")
    looked = [look(path) for path in paths]
    files = [file for file in looked if not file.is_merged or file.path == source]
    merged_before = [file.path for file in looked if file.is_merged and file.path != source]
    if not files:
        raise TraceError(
            f"{source}: what is below it is merged already ({_first(merged_before)}); give such a file itself"
        )
    return Sources(files, merged_before, _runs(paths, source))


def spell_files(files: int, runs: int = 1) -> str:
    """``1 file``, ``4 files``, ``4 files of 2 runs``."""
    counted = "1 file" if files == 1 else f"{files} files"
    return f"{counted} of {runs} runs" if runs > 1 else counted


def _first(paths: list[Path]) -> str:
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(paths[0])


def _runs(paths: Iterable[Path], source: Path) -> int:
    """Folders alone do not tell: those that were copied from several hosts may be of one run."""
    folders = {folder for path in paths for folder in path.parents if folder.is_relative_to(source)}
    ids = {id for folder in folders if (id := _run_id(folder)) is not None}
    return max(len(ids), 1)


def _run_id(folder: Path) -> str | None:
    with suppress(OSError, ValueError):  # no file, or another program's
        match json.loads((folder / _RUN_FILE).read_text()):
            case {"id": str(found)}:
                return found
    return None
