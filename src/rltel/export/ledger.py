"""What each destination has had, in the run directory: so that a replay sends the rest, and nothing twice.

One bit a commit, in a file per destination, process and writer: set when the destination has taken the commit, by the
thread that delivered it, with one write of a byte. So a million commits are 125 kB, nothing has to be compacted, and it
is right after a crash: a commit that was taken in the very moment of it may be sent again.

    ledger/<destination>-<which>/place.json              the destination, and where it is
    ledger/<destination>-<which>/learner-0.1.run.bits    what the process itself delivered
    ledger/<destination>-<which>/learner-0.1.replay.bits what a replay did
    ledger/<destination>-<which>/learner-0.1.json        what the destination was told about the process
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rltel.core.files import publish, replace
from rltel.core.redact import redact
from rltel.export.sink import Destination

_FOLDER = "ledger"
_RUN, _REPLAY = "run", "replay"


class Numbers:
    """A set of whole numbers >= 0, a bit each."""

    def __init__(self, data: bytes = b"") -> None:
        self._bits = bytearray(data)

    def add(self, first: int, last: int) -> tuple[int, bytes]:
        """Add ``first`` to ``last``; the bytes that changed, and where they begin."""
        begin, end = first // 8, last // 8 + 1
        if end > len(self._bits):
            self._bits.extend(bytes(end - len(self._bits)))
        for number in range(first, last + 1):
            self._bits[number // 8] |= 1 << number % 8
        return begin, bytes(self._bits[begin:end])

    def rest(self, begin: int) -> bytes:
        """All bytes from this one on."""
        return bytes(self._bits[begin:])

    def __contains__(self, number: int) -> bool:
        place = number // 8
        return place < len(self._bits) and bool(self._bits[place] >> number % 8 & 1)

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def __or__(self, other: "Numbers") -> "Numbers":
        joined = int.from_bytes(self._bits, "little") | int.from_bytes(other._bits, "little")
        return Numbers(joined.to_bytes(max(len(self._bits), len(other._bits)), "little"))


class Ledger:
    """One process's commits, as one destination had them. Never raises after it was made: a failure is counted.

    Args:
        run_dir: the run directory.
        process: whose commits, as in `Identity.name`.
        destination: its name, as ``otlp``.
        place: where it is (`Sink.describe`): another endpoint is another destination.
        about: what the destination was told about the process, for a replay to tell it the same.
        replay: whether a replay keeps it, beside what the process itself kept.
        account: where failures are counted.

    Raises OSError if the files cannot be made.
    """

    def __init__(
        self,
        run_dir: Path,
        process: str,
        destination: str,
        place: str = "",
        *,
        about: Mapping[str, Any] | None = None,
        replay: bool = False,
        account: Destination | None = None,
    ) -> None:
        self._account = account or Destination(f"{destination}'s ledger")
        folder = folder_of(run_dir, destination, place)
        folder.mkdir(parents=True, exist_ok=True)
        publish(folder / "place.json", {"destination": destination, "place": _portable(place, run_dir)})
        if about is not None:
            replace(folder / f"{process}.json", redact(dict(about)))
        self._path = folder / f"{process}.{_REPLAY if replay else _RUN}.bits"
        self._numbers = _read(self._path)
        self._lock = threading.Lock()  # what is thinned, and what is delivered, may be said by two threads
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        self._unwritten: int | None = None  # the first byte that the disk did not take: the next write has it too

    def sent(self, first: int, last: int | None = None) -> None:
        """Commits ``first`` to ``last`` (default: that one) were taken, or are not for this destination (thinned)."""
        try:
            with self._lock:
                self._write(*self._numbers.add(first, first if last is None else last))
        except OSError as error:
            self._account.failed(error, reason="ledger", count=0)  # it arrived; a replay may send it again

    def _write(self, begin: int, changed: bytes) -> None:
        if self._unwritten is not None:
            begin = min(begin, self._unwritten)
            changed = self._numbers.rest(begin)
        self._unwritten = begin
        if os.pwrite(self._descriptor, changed, begin) != len(changed):
            raise OSError(None, "not all was written", str(self._path))
        self._unwritten = None

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


def had(run_dir: Path, process: str, destination: str, place: str = "") -> Numbers:
    """The commits of a process that a destination has had, by the process itself and by replays."""
    folder = folder_of(run_dir, destination, place)
    return _read(folder / f"{process}.{_RUN}.bits") | _read(folder / f"{process}.{_REPLAY}.bits")


def kept(run_dir: Path, process: str, destination: str) -> bool:
    """Whether the process itself delivered to a destination of this name, wherever it was."""
    return any((run_dir / _FOLDER).glob(f"{destination}-*/{process}.{_RUN}.bits"))


def about(run_dir: Path, process: str, destination: str) -> Mapping[str, Any]:
    """What such a destination was told about the process, wherever it was; empty if there was none."""
    for path in sorted((run_dir / _FOLDER).glob(f"{destination}-*/{process}.json")):
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text())
            if isinstance(found, dict):
                return found
    return {}


def elsewhere(run_dir: Path, destination: str, place: str) -> list[str]:
    """Where else the run delivered to destinations of this name."""
    found = []
    for path in sorted((run_dir / _FOLDER).glob(f"{destination}-*/place.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if any(path.parent.glob(f"*.{_RUN}.bits")):
                found.append(str(json.loads(path.read_text())["place"]))
    return [each for each in found if each != _portable(place, run_dir)]


def folder_of(run_dir: Path, destination: str, place: str = "") -> Path:
    """The folder with everything about one destination of the run."""
    which = hashlib.blake2b(_portable(place, run_dir).encode(), digest_size=4).hexdigest()
    return run_dir / _FOLDER / f"{destination}-{which}"


def _portable(place: str, run_dir: Path) -> str:
    """The same after the run directory was moved, and without secrets."""
    for path in (str(run_dir.resolve()), str(run_dir.absolute())):
        place = place.replace(path, "{run_dir}")
    return str(redact(place))


def _read(path: Path) -> Numbers:
    try:
        return Numbers(path.read_bytes())
    except FileNotFoundError:
        return Numbers()
