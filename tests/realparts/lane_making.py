"""Random programs on one lane: what they record, what is true of them, and what packets show of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from rltel.record.records import Attached, Begin, End, Ids, Instant, Record, Site


@dataclass
class Drawn:
    """A slice as it was, or as a trace shows it."""

    name: str
    begin_ns: int
    end_ns: int | None = None
    track: int = 0
    is_continued: bool = False
    parent: str = ""
    """What it lay in when it began: a name, ``attached`` or nothing."""

    @property
    def what(self) -> tuple[str, int, int | None]:
        """Name, begin, end."""
        return self.name, self.begin_ns, self.end_ns


class LaneMaking:
    """Runs a program: opens and closes slices, also those that are not the innermost, as generators do."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.slices: list[Drawn] = []
        """Each has a name of its own."""
        self.now = 1000
        self._open: list[Drawn | None] = []

    def step(self, what: str, choice: int, pause: int) -> None:
        """One step of a program, ``pause`` nanoseconds after the one before."""
        self.now += pause
        if what in ("bare", "rich"):
            self._begin(what)
        elif what == "attach":
            self._open.append(None)
            self.records.append(Attached(Ids(1, 2)))
        elif what == "instant":
            self.records.append(Instant(self.now, "i", "", None, None))
        elif self._open:
            self._end(choice % len(self._open) if what == "cross" else 0)

    def _begin(self, what: str) -> None:
        around = self._open[-1] if self._open else Drawn("", 0)
        made = Drawn(f"s{len(self.slices)}", self.now, parent="attached" if around is None else around.name)
        site = Site(made.name, "")
        self.records += [site, self.now] if what == "bare" else [Begin(self.now, site)]
        self.slices.append(made)
        self._open.append(made)

    def _end(self, depth: int) -> None:
        ended = self._open.pop(len(self._open) - 1 - depth)
        if ended is not None:
            ended.end_ns = self.now
        self.records.append(End(self.now, depth=depth) if depth else self.now)

    def end_all(self) -> None:
        """Close what is open, from the inside."""
        while self._open:
            self.step("end", 0, 1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bare", "rich", "end", "end", "cross", "attach", "instant"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=30,
)
"""Programs, as steps of `LaneMaking`."""


def made(steps: Iterable[tuple[str, int, int]], *, ended: bool = True) -> LaneMaking:
    """What a program recorded; ``ended``: it closes what is open at the end."""
    making = LaneMaking()
    for step in steps:
        making.step(*step)
    if ended:
        making.end_all()
    return making


def cut(records: list[Record], places: Iterable[int]) -> list[list[Record]]:
    """The records in pieces, as several drains find them."""
    ends = sorted({place % (len(records) + 1) for place in places} | {len(records)})
    return [records[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def drawn(packets: Iterable[TracePacket]) -> list[Drawn]:
    """The slices that packets show, by the rule of the trace processor: an end closes its track's innermost."""
    names: dict[tuple[int, int], str] = {}
    defaults: dict[int, int] = {}
    stacks: dict[int, list[Drawn]] = {}
    found: list[Drawn] = []
    for packet in packets:
        sequence, event = packet.trusted_packet_sequence_id, packet.track_event
        names.update(((sequence, each.iid), each.name) for each in packet.interned_data.event_names)
        if packet.HasField("trace_packet_defaults"):
            defaults[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        track = event.track_uuid or defaults.get(sequence, 1)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            made = Drawn(names[sequence, event.name_iid], packet.timestamp, track=track)
            made.is_continued = any(each.bool_value for each in event.debug_annotations)
            found.append(made)
            stacks.setdefault(track, []).append(made)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stacks[track].pop().end_ns = packet.timestamp
    return found


def joined(slices: Iterable[Drawn]) -> list[tuple[str, int, int | None]]:
    """Pieces of one slice, joined: each has to be marked as continued, and to begin where the last one ended."""
    whole: dict[str, Drawn] = {}
    for each in slices:
        before = whole.setdefault(each.name, each)
        if before is not each:
            assert each.is_continued, each
            assert before.end_ns == each.begin_ns, (before, each)
            before.end_ns = each.end_ns
    return sorted(each.what for each in whole.values())
