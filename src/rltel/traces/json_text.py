"""The text of a JSON file, piece by piece: gzip or not, and as much of a cut or damaged one as can be read."""

import codecs
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_GZIP = b"\x1f\x8b"
_AUTO_GZIP = 31  # zlib's window bits for one member with gzip's header
_CHUNK = 1 << 20


def read_text(path: Path, skipped: Counter[str], passed: Callable[[int], None]) -> Iterator[str]:
    """The file's text in pieces of about 1 MiB. ``passed`` is told the bytes of the file that were read.

    What is no UTF-8 becomes U+FFFD, so that it costs a name and not the event; what gzip cannot give is counted.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as file:
        is_gzip = file.peek(2)[:2] == _GZIP
        pieces = _raw(file, passed)
        for piece in _inflated(pieces, skipped) if is_gzip else pieces:
            yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _raw(file: BinaryIO, passed: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    while piece := file.read(_CHUNK):
        done += len(piece)
        yield piece
        passed(done)


def _inflated(pieces: Iterator[bytes], skipped: Counter[str]) -> Iterator[bytes]:
    """The members of a gzip file, one after the other, as far as they are readable."""
    member = zlib.decompressobj(_AUTO_GZIP)
    for piece in pieces:
        data = piece
        while data:
            if member.eof:
                data = data.lstrip(b"\x00")  # padding, as tapes and some tools leave it
                if not data:
                    break
                member = zlib.decompressobj(_AUTO_GZIP)
            try:
                yield member.decompress(data, _CHUNK)
            except zlib.error:
                skipped["gzip damaged from here on"] += 1
                return
            data = member.unconsumed_tail or member.unused_data
    if not member.eof:
        yield member.flush()
    if not member.eof:
        skipped["gzip cut off"] += 1
