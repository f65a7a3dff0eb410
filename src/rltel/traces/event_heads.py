"""What an event is, without what hangs on it: attributes, arrows and CPU times differ from one to the next.

Readers that do not look at these decode an event once and know it again by the rest.
"""

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from rltel.traces.reader import read_varint

_SEQUENCE_TAG, _FLAGS_TAG, _EVENT_TAG = 0x50, 0x68, 0x5A  # fields 10, 13 and 11 of TracePacket
_HANGING = frozenset(
    TrackEvent.DESCRIPTOR.fields_by_name[name].number
    for name in ("debug_annotations", "flow_ids", "terminating_flow_ids", "extra_counter_values")
)
_VARINT, _FIXED64, _BLOCK = 0, 1, 2  # kinds of fields


def event_head(tail: bytes) -> bytes | None:
    """The bytes that say what an event is; equal for events that differ only in what hangs on them.

    ``tail``: a packet behind its timestamp. None unless it is laid out as rltel's: sequence, flags, and an event in
    which what hangs on it comes last.
    """
    if len(tail) < 6 or tail[0] != _SEQUENCE_TAG or tail[2] != _FLAGS_TAG or tail[4] != _EVENT_TAG:
        return None
    if tail[1] >= 0x80 or tail[3] >= 0x80:
        return None
    length, start = read_varint(tail, 5)
    if not start or start + length != len(tail):
        return None
    cut = _where_it_hangs(tail, start)
    return None if cut is None else tail[:5] + tail[start:cut]


def _where_it_hangs(tail: bytes, at: int) -> int | None:
    """Where the first field stands that hangs on the event; None if others follow it."""
    cut, size = 0, len(tail)
    while at < size:
        begin, tag = at, tail[at]
        at += 1
        if tag >= 0x80:
            tag, at = read_varint(tail, begin)
        if tag >> 3 in _HANGING:
            cut = cut or begin
        elif cut:
            return None
        kind = tag & 7
        if kind == _FIXED64:
            at += 8
        elif kind in (_VARINT, _BLOCK) and at:
            value, at = read_varint(tail, at)
            at += value if kind == _BLOCK and at else 0
        else:
            return None
        if not at:
            return None
    return None if at != size else cut or size
