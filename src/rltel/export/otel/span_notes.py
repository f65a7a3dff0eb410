"""What is written beside a span's slice, as annotations: the same for spans from the SDK and from OTLP files."""

from collections.abc import Mapping, Sequence
from typing import Any


def span_notes(
    *,
    trace_id: str,
    span_id: str,
    parent_id: str = "",
    kind: str = "",
    status: str = "",
    description: str = "",
    links: Sequence[Mapping[str, Any]] = (),
    dropped: Mapping[str, int] | None = None,
    trace_state: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Ids (hexadecimal), what is not the usual (kind, status, links, losses), and the span's own attributes.

    Names are those that OpenTelemetry gives to exporters of other formats (``otel.status_code`` ...).
    """
    notes: dict[str, Any] = dict(attributes or {})
    notes["trace_id"] = trace_id
    notes["span_id"] = span_id
    optional = {
        "parent_span_id": parent_id,
        "otel.kind": "" if kind == "INTERNAL" else kind,
        "otel.status_code": "" if status == "UNSET" else status,
        "otel.status_description": description,
        "otel.trace_state": trace_state,
        "otel.links": list(links),
    }
    notes.update((name, value) for name, value in optional.items() if value)
    for what, count in (dropped or {}).items():
        if count:
            notes[f"otel.dropped_{what}_count"] = count
    return notes
