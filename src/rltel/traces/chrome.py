"""Chrome's trace events (JSON), in the dialects of AReaL, UniLab, torch.profiler and others."""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from rltel.traces.foreign import Arrow, Event, Instant, Names, Place, Sample, Skipped, Slice

_PICO = 6  # digits behind the point of a microsecond that are kept
_PER_MICRO: int = 10**_PICO
_MOST_OPEN = 10_000  # slices inside each other; what is deeper is no program's but a broken file's
_MOST_ASYNC = 1 << 17  # pieces of asynchronous work at once; of more, the first are left open
_ASYNC = {"S": "b", "F": "e", "T": "n", "p": "n"}  # the phases of the older form, as those of the newer
_SILENT = {"process_sort_index", "thread_sort_index", "process_uptime_seconds", "num_cpus", "trace_buffer_overflowed"}


class Unfit(Exception):  # noqa: N818  # not an error of ours
    """An event that cannot be drawn; its text is the reason under which it is counted."""


class ChromeReader:
    """Turns trace events into what is drawn. Begins and ends are paired in the order of the file."""

    def __init__(self, names: Names, skipped: Skipped) -> None:
        self._names = names
        self._skipped = skipped
        self._open: dict[Place, list[tuple[int, Mapping[str, Any]]]] = {}
        self._open_async: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any], str]]] = {}
        self._async_number = 0

    def read(self, event: Any) -> Iterator[Event]:
        """What comes of one event: nothing (names, begins), one slice, or several counters."""
        try:
            if event == {}:
                return  # what some writers put behind the last comma
            if not isinstance(event, Mapping) or not isinstance(event.get("ph"), str):
                raise Unfit("not a trace event (no 'ph')")
            yield from self._by_phase(event, event["ph"])
        except Unfit as error:
            self._skipped[str(error)] += 1

    def rest(self) -> Iterator[Event]:
        """What is still open when the file ends."""
        for place, stack in self._open.items():
            for begin, event in stack:
                yield _slice(event, place, begin, None)
        while self._open_async:
            yield from self._first_async()

    def _first_async(self) -> Iterator[Event]:
        """What is open of the asynchronous work that began first, and is open for longest."""
        stack = self._open_async.pop(next(iter(self._open_async)))
        for depth, (begin, event, id) in enumerate(stack):
            yield self._async_slice(event, begin, None, id, stack[:depth])

    def _by_phase(self, event: Mapping[str, Any], phase: str) -> Iterator[Event]:
        if phase == "X":
            begin, end = _span(event)
            yield _slice(event, _thread(event), begin, end)
        elif phase == "B":
            self._begin(event)
        elif phase == "E":
            yield self._end(event)
        elif phase in "iIR":
            place = _thread(event) if event.get("s", "t") == "t" else (_thread(event)[0],)
            yield Instant(_time(event), place, *_labels(event))
        elif phase == "C":
            yield from self._samples(event)
        elif phase in "stf":
            yield self._arrow(event, phase)
        elif phase in "bneSTpF":
            yield from self._async(event, _ASYNC.get(phase, phase))
        elif phase == "M":
            self._name(event)
        else:
            raise Unfit(f"phase {phase[:8]!r}, which is not drawn")

    def _begin(self, event: Mapping[str, Any]) -> None:
        stack = self._open.setdefault(_thread(event), [])
        if len(stack) >= _MOST_OPEN:
            raise Unfit("begin inside too many others")
        stack.append((_time(event), event))

    def _end(self, event: Mapping[str, Any]) -> Slice:
        time = _time(event)
        stack = self._open.get(_thread(event))
        if not stack:
            raise Unfit("end without a begin")
        begin, begun = stack.pop()
        if time < begin:
            raise Unfit("end before its begin")
        args = {**_args(begun), **_args(event)}
        return _slice({**begun, "args": args}, _thread(event), begin, time)

    def _samples(self, event: Mapping[str, Any]) -> Iterator[Event]:
        time, place = _time(event), (_thread(event)[0],)
        name = _text(event.get("name"))
        if event.get("id") is not None:
            name = f"{name} {event['id']}"
        for series, value in _args(event).items():
            number = float(value) if isinstance(value, bytes) else value
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                self._skipped["counter's value that is no number"] += 1
            else:
                own = name if series in ("value", name) else f"{name} {series}"
                yield Sample(time, place, own, float(number))

    def _arrow(self, event: Mapping[str, Any], phase: str) -> Arrow:
        place, name, category = _thread(event), _text(event.get("name")), _text(event.get("cat"))
        flow = repr((*_id(event, place[0]), name, category))
        return Arrow(_time(event), place, phase, flow, name, category, phase == "f" and event.get("bp") != "e")

    def _async(self, event: Mapping[str, Any], phase: str) -> Iterator[Event]:
        time = _time(event)
        key = (*_id(event, _thread(event)[0]), _text(event.get("cat")))
        stack = self._open_async.setdefault(key, [])
        if phase == "b":
            if len(stack) >= _MOST_OPEN:
                raise Unfit("begin inside too many others")
            self._async_number += 1
            stack.append((time, event, f"{self._async_number}"))
            if len(self._open_async) > _MOST_ASYNC:
                yield from self._first_async()
        elif phase == "n":
            place = _async_place(stack[0][1] if stack else event)
            yield Instant(time, place, *_labels(event), stack[-1][2] if stack else None)
        else:
            if not stack:
                del self._open_async[key]
                raise Unfit("end without a begin")
            begin, begun, id = stack.pop()
            if time < begin:
                raise Unfit("end before its begin")
            args = {**_args(begun), **_args(event)}
            yield self._async_slice({**begun, "args": args}, begin, time, id, stack)
        if not stack:
            self._open_async.pop(key, None)

    def _async_slice(self, event: Mapping[str, Any], begin: int, end: int | None, id: str, around: list[Any]) -> Slice:
        place = _async_place(around[0][1] if around else event)
        return Slice(begin, end, place, *_labels(event), id, around[-1][2] if around else None)

    def _name(self, event: Mapping[str, Any]) -> None:
        args, place = _args(event), _thread(event)
        match event.get("name"):
            case "process_name":
                self._names.processes[place[0]] = _text(args.get("name"))
            case "process_labels":
                self._names.labels[place[0]] = [_text(args.get("labels"))]
            case "thread_name":
                self._names.threads[place] = _text(args.get("name"))
            case str(name) if name in _SILENT:
                pass
            case _:
                raise Unfit("metadata that is not drawn")


def _slice(event: Mapping[str, Any], place: Place, begin: int, end: int | None) -> Slice:
    return Slice(begin, end, place, *_labels(event))


def _labels(event: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
    return _text(event.get("name")), _text(event.get("cat")), _args(event) or None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)


def _thread(event: Mapping[str, Any]) -> Place:
    return _text(event.get("pid", 0)), _text(event.get("tid", 0))


def _async_place(event: Mapping[str, Any]) -> Place:
    return _thread(event)[0], "", _text(event.get("name")) or _text(event.get("cat")) or "async"


def _args(event: Mapping[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    if isinstance(args, dict):
        return args
    return {} if args is None else {"args": args}


def _id(event: Mapping[str, Any], pid: str) -> tuple[str, ...]:
    """The id of an arrow or of async work; one that is local to its process with that."""
    scoped = event.get("id2")
    if isinstance(scoped, Mapping):
        if scoped.get("global") is not None:
            return _text(scoped["global"]), _text(event.get("scope"))
        return _text(scoped.get("local")), pid, _text(event.get("scope"))
    if event.get("id") is None and event.get("bind_id") is None:
        raise Unfit("arrow or async event without an id")
    return _text(event.get("id", event.get("bind_id"))), _text(event.get("scope"))


def _time(event: Mapping[str, Any]) -> int:
    return _nanoseconds(_micros(event, "ts"))


def _span(event: Mapping[str, Any]) -> tuple[int, int]:
    """Begin and end, both rounded from their exact values: slices that touch in the file touch afterwards."""
    begin = _micros(event, "ts")
    duration = _micros(event, "dur") if event.get("dur") is not None else 0
    if duration < 0:
        raise Unfit("negative duration")
    return _nanoseconds(begin), _nanoseconds(begin + duration)


def _nanoseconds(picoseconds: int) -> int:
    return (picoseconds + 500) // 1000


def _micros(event: Mapping[str, Any], key: str) -> int:
    """A time given in microseconds, as picoseconds: exact, however many digits it has."""
    value: object = event.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * _PER_MICRO
    if isinstance(value, str):
        value = value.encode(errors="replace")
    if isinstance(value, bytes):
        whole, _, fraction = value.partition(b".")
        digits = whole.lstrip(b"-")
        if digits.isdigit() and (fraction.isdigit() or not fraction):
            size = int(digits) * _PER_MICRO + int(fraction[:_PICO].ljust(_PICO, b"0"))
            return -size if whole.startswith(b"-") else size
        try:
            found = Decimal(value.decode())
            if found.is_finite() and abs(found) < Decimal(10) ** 20:
                return int(found.scaleb(_PICO))
        except (InvalidOperation, UnicodeDecodeError):
            pass
    raise Unfit(f"no {key!r}" if value is None else f"{key!r} that is no time")
