"""OTLP as JSON: what the Collector's file exporter and opentelemetry-exporter-otlp-json-file write.

Tolerant of what other writers make of it: names in snake_case, ids in base64, 64-bit numbers as text or not, enums by
name or number.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltel.core.context import new_id
from rltel.export.otel.span_notes import span_notes
from rltel.traces.foreign import Event, Instant, Names, Place, Skipped, Slice

_KINDS = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"]
_STATUSES = ["UNSET", "OK", "ERROR"]
_HEX = re.compile(r"[0-9a-fA-F]+")
_MOST_LINKS = 1 << 20
_DEEPEST = 16


def is_otlp(value: Any) -> bool:
    """Whether this is an export of spans."""
    return isinstance(value, Mapping) and _get(value, "resourceSpans") is not None


class OtlpReader:
    """Turns exported spans into slices, one process for each resource."""

    def __init__(self, names: Names, skipped: Skipped) -> None:
        self._names = names
        self._skipped = skipped
        self._links = 0

    def read(self, request: Mapping[str, Any]) -> Iterator[Event]:
        """The spans of one export, and their events."""
        for part in self._list(request, "resourceSpans"):
            resource = _mapping(_get(part, "resource"))
            place = self._place(_attributes(_get(resource, "attributes")))
            scopes = _get(part, "scopeSpans")
            for scoped in self._list(part, "instrumentationLibrarySpans" if scopes is None else "scopeSpans"):
                scope = _mapping(_get(scoped, "scope") or _get(scoped, "instrumentationLibrary"))
                for span in self._list(scoped, "spans"):
                    yield from self._span(span, place, str(scope.get("name") or ""))

    def _list(self, holder: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
        found = _get(holder, key)
        for each in found if isinstance(found, list) else []:
            if isinstance(each, Mapping):
                yield each
            else:
                self._skipped[f"{key}: not an object"] += 1

    def _place(self, attributes: dict[str, Any]) -> Place:
        """A process for each resource: the same one, wherever it comes again."""
        service = str(attributes.get("service.name", "unknown_service"))
        labels = [f"{key}={value}" for key, value in sorted(attributes.items()) if key != "service.name"]
        pid = attributes.get("process.pid")
        key = f"{pid if isinstance(pid, int) else ''}\0{service}\0{labels}"
        self._names.processes[key] = service
        self._names.labels[key] = labels
        return (key,)

    def _span(self, span: Mapping[str, Any], process: Place, scope: str) -> Iterator[Event]:
        begin, end = _integer(_get(span, "startTimeUnixNano")), _integer(_get(span, "endTimeUnixNano"))
        span_id = _id(_get(span, "spanId"), 8)
        if begin is None or begin <= 0 or not span_id:
            self._skipped["span without a start time or an id"] += 1
            return
        attributes = _attributes(_get(span, "attributes"))
        if end is not None and 0 < end < begin:
            attributes["otel.end_time_unix_nano"] = end
            end = begin  # the wall clock stepped back meanwhile
        thread = attributes.get("thread.name", attributes.get("thread.id"))
        place = (process[0], "", "spans" if thread is None else str(thread))
        parent = _id(_get(span, "parentSpanId"), 8)
        notes, flows = self._notes(span, span_id, parent, attributes)
        name = str(_get(span, "name") or "")
        yield Slice(begin, end or None, place, name, scope, notes, span_id, parent or None, flows)
        for event in self._list(span, "events"):
            time = _integer(_get(event, "timeUnixNano"))
            if time is None or time <= 0:
                self._skipped["span event without a time"] += 1
            else:
                said = _attributes(_get(event, "attributes")) or None
                yield Instant(time, place, str(_get(event, "name") or ""), scope, said, span_id)

    def _notes(
        self, span: Mapping[str, Any], span_id: str, parent: str, attributes: dict[str, Any]
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        status = _mapping(_get(span, "status"))
        links, flows = [], []
        for link in self._list(span, "links"):
            linked = _id(_get(link, "spanId"), 8)
            said = _attributes(_get(link, "attributes"))
            ids: dict[str, Any] = {"trace_id": _id(_get(link, "traceId"), 16), "span_id": linked}
            links.append({**ids, "attributes": said} if said else ids)
            if self._links < _MOST_LINKS:
                self._links += 1
                flows.append(made := new_id())
                self._names.links.setdefault(linked, []).append(made)
            else:
                self._skipped[f"arrow of a link, after {_MOST_LINKS} others"] += 1
        notes = span_notes(
            trace_id=_id(_get(span, "traceId"), 16),
            span_id=span_id,
            parent_id=parent,
            kind=_enum(_get(span, "kind"), _KINDS, "SPAN_KIND_", 1),
            status=_enum(_get(status, "code"), _STATUSES, "STATUS_CODE_", 0),
            description=str(_get(status, "message") or ""),
            links=links,
            dropped={
                what: _integer(_get(span, f"dropped{what.capitalize()}Count")) or 0
                for what in ("attributes", "events", "links")
            },
            trace_state=str(_get(span, "traceState") or ""),
            attributes=attributes,
        )
        return notes, tuple(flows)


_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_snake_names: dict[str, str] = {}


def _get(holder: Mapping[str, Any], key: str) -> Any:
    """A field by its name in JSON, or by that in the schema."""
    found = holder.get(key)
    if found is None:
        snake = _snake_names.get(key)
        if snake is None:
            snake = _snake_names[key] = _SNAKE.sub("_", key).lower()
        found = holder.get(snake)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _integer(value: Any) -> int | None:
    """A 64-bit number: text in JSON by the standard, a number by many writers."""
    if isinstance(value, int):
        return value
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _id(value: Any, size: int) -> str:
    """An id as hexadecimal text: it comes as that (OTLP's rule), or in base64 (protobuf's)."""
    if not isinstance(value, str):
        return ""
    if len(value) == 2 * size and _HEX.fullmatch(value):
        found = value.lower()
    else:
        try:
            found = base64.b64decode(value, validate=True).hex()
        except (binascii.Error, ValueError):
            found = value
    return found if found.strip("0") else ""


def _enum(value: Any, names: Sequence[str], prefix: str, default: int) -> str:
    if isinstance(value, str) and not value.isdigit():
        return value.removeprefix(prefix)
    number = _integer(value)
    if number is None or number == 0:
        return names[default]
    return names[number] if 0 <= number < len(names) else str(number)


def _attributes(found: Any) -> dict[str, Any]:
    """Attributes as plain values, by their names."""
    pairs = found if isinstance(found, list) else []
    return {str(pair.get("key")): _plain(pair.get("value")) for pair in pairs if isinstance(pair, Mapping)}


def _plain(value: Any, depth: int = 0) -> Any:
    """The value of an AnyValue."""
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return None if value is None else str(value)
    for key, found in value.items():
        match key:
            case "stringValue" | "string_value" | "boolValue" | "bool_value" | "bytesValue" | "bytes_value":
                return found
            case "intValue" | "int_value":
                number = _integer(found)
                return str(found) if number is None else number
            case "doubleValue" | "double_value":
                return _float(found)
            case "arrayValue" | "array_value":
                return [_plain(each, depth + 1) for each in _mapping(found).get("values") or []]
            case "kvlistValue" | "kvlist_value":
                return {
                    str(_mapping(pair).get("key")): _plain(_mapping(pair).get("value"), depth + 1)
                    for pair in _mapping(found).get("values") or []
                }
    return None


def _float(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
