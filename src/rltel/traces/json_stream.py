"""Events out of JSON text of any layout, with a memory that does not grow with the file.

A line for each event, an array of them (closed or not), or an object that has such an array: all are read as a sequence
of values, of which one at a time is decoded. A broken one is counted, and reading goes on at the next.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

_WINDOW = 1 << 20  # characters: objects up to that size are decoded at once, arrays inside larger ones streamed
_LONGEST = 1 << 26  # characters of one value in an array of events, or in the header
_ARRAYS = {"traceEvents", "resourceSpans", "resource_spans"}
_BETWEEN = re.compile(r"[\s,\]\x00]*")
_SPACE = re.compile(r"\s*")
_COMMA = re.compile(r"[\s,]*")
_NEXT = re.compile(r"[,\n]\s*(?=\{)")
_MAY_BE_NEXT = re.compile(r"[,\n]\s*\Z")
_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_TAIL = 16  # characters: an error this near to the end of what is read may be mended by what follows

BROKEN = "broken JSON"
CUT = "cut off at the end"
TOO_LONG = "event of more than 2 MiB of text"

# Floats stay text, as bytes (which JSON never gives): times in microseconds have more digits than a float holds.
_decode = json.JSONDecoder(parse_float=str.encode).raw_decode


class JsonStream:
    """The values of one text. ``header`` collects what else is in the object around the events."""

    def __init__(self, pieces: Iterator[str], skipped: Counter[str]) -> None:
        self.header: dict[str, Any] = {}
        self._pieces = pieces
        self._skipped = skipped
        self._text = ""
        self._at = 0
        self._before = 0  # characters that were let go of
        self._is_done = False

    def values(self) -> Iterator[Any]:
        """Every value on the top level, in a top-level array, or in an array of events. Floats are bytes."""
        while self._skip(_BETWEEN):
            here = self._text[self._at]
            if here == "[":
                self._at += 1
            elif here == "{":
                yield from self._object()
            elif here == "}":
                self._at += 1
            else:
                self._broken("value that is no event")

    def _object(self) -> Iterator[Any]:
        start = self._at
        value = self._whole()
        if value is not None:
            yield from self._taken_apart(value)
        elif self._at == start:  # broken, or longer than what is looked at: perhaps it has an array of events
            yield from self._by_key()

    def _taken_apart(self, value: dict[str, Any]) -> Iterator[Any]:
        arrays = [key for key in value if key in _ARRAYS and isinstance(value[key], list)]
        if not arrays:
            yield value
            return
        for key in arrays:
            for inner in value.pop(key):
                yield {key: [inner]} if key != "traceEvents" else inner
        self.header.update(value)

    def _whole(self) -> Any:
        """The value that begins here, if it is sound and not longer than the window."""
        while True:
            try:
                value, self._at = _decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._is_done or not self._is_cut(error) or len(self._text) - self._at > 2 * _WINDOW:
                    return None
                self._more()
            else:
                return value

    def _is_cut(self, error: Exception) -> bool:
        """Whether the error may only be that the text ends too early."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.pos >= len(self._text) - _TAIL or error.msg.startswith("Unterminated string")

    def _by_key(self) -> Iterator[Any]:
        """An object key by key, for the arrays of events in it."""
        had_array = False
        start = self._before + self._at
        self._at += 1
        while self._skip(_COMMA):
            if self._text[self._at] == "}":
                self._at += 1
                if not had_array:
                    self._skipped[BROKEN if self._before + self._at - start < _WINDOW else TOO_LONG] += 1
                return
            key = self._key()
            if key in _ARRAYS and self._text[self._at] == "[":
                had_array = True
                self._at += 1
                yield from self._elements(key)
                continue
            value = _NOTHING if key is None else self._long()
            if value is _NOTHING or key is None:
                self._broken(BROKEN)
                return
            self.header[key] = value
        if not had_array:
            self._skipped[CUT] += 1

    def _key(self) -> str | None:
        while (found := _KEY.match(self._text, self._at)) is None or found.end() >= len(self._text):
            if self._is_done or len(self._text) - self._at > _WINDOW:
                return None
            self._more()
        self._at = found.end()
        try:
            return str(json.loads(found[1]))
        except ValueError:
            return None

    def _elements(self, key: str) -> Iterator[Any]:
        """The elements of an array of events, up to its end."""
        while self._skip(_SPACE):
            here = self._text[self._at]
            if here == "]":
                self._at += 1
                return
            if here == ",":
                self._at += 1
                continue
            value = self._long()
            if value is _NOTHING:
                self._broken(BROKEN)
            else:
                yield {key: [value]} if key != "traceEvents" else value

    def _long(self) -> Any:
        """The value that begins here, whatever its length; `_NOTHING`, and the place of the error, if it is broken."""
        size = _WINDOW
        while True:
            try:
                value, self._at = _decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                length = len(self._text) - self._at
                if self._is_done or not self._is_cut(error) or length > _LONGEST:
                    return _NOTHING
                size = max(_WINDOW, length)  # twice as much each time: the work stays linear
                self._fill(length + size)
            else:
                return value

    def _broken(self, sound: str) -> None:
        """Count what is broken here, and go on behind it. ``sound``: the reason if it is no broken value after all."""
        start = self._at
        self._at += 1
        try:
            _, end = _decode(self._text, start)
        except json.JSONDecodeError as error:
            is_last = self._is_done and self._is_cut(error) and _NEXT.search(self._text, error.pos) is None
            self._skipped[CUT if is_last else BROKEN] += 1
            if not error.msg.startswith("Unterminated string"):
                self._at = max(self._at, error.pos - 1)
        except (ValueError, RecursionError):
            self._skipped[BROKEN] += 1
        else:
            is_last = sound == BROKEN and self._is_done and not self._text[end:].strip(" :\r\n\t")
            self._skipped[CUT if is_last else sound] += 1
        self._find_next()

    def _find_next(self) -> None:
        """Go to where the next object seems to begin, or to the end."""
        while (found := _NEXT.search(self._text, self._at)) is None:
            may_begin = _MAY_BE_NEXT.search(self._text, self._at)
            self._at = may_begin.start() if may_begin and not self._is_done else len(self._text)
            if self._is_done:
                return
            self._more()
        self._at = found.end()

    def _skip(self, what: re.Pattern[str]) -> bool:
        """Go behind what stands between values. False at the end."""
        while True:
            found = what.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return True
            if self._is_done:
                return False
            self._more()

    def _fill(self, length: int) -> None:
        while not self._is_done and len(self._text) - self._at < length:
            self._more()

    def _more(self) -> None:
        """Read on, and let go of what is behind."""
        pieces = [self._text[self._at :]]
        self._before += self._at
        self._at = 0
        piece = next(self._pieces, None)
        if piece is None:
            self._is_done = True
        else:
            pieces.append(piece)
        self._text = "".join(pieces)


_NOTHING = object()
