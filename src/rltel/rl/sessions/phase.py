"""One call of a phase of a session: timed, and drawn, by one pair of clock readings."""

from typing import Any, Protocol, Self

from rltel.record.lane import Open
from rltel.record.recorder import Recorder
from rltel.record.records import Attributes, Site
from rltel.record.slices import Raised


class Times(Protocol):
    """Who wants to know how long it took."""

    def phase_begins(self, name: str, now_ns: int) -> None:
        """A call begins."""

    def phase_ends(self, name: str, begun_ns: int, now_ns: int) -> None:
        """And ends."""


class SessionPhase(Open):
    """From ``with`` to its end; for one use. Others of the same session may be open at the same time."""

    __slots__ = ("_attributes", "_name", "_recorder", "_site", "_times")

    def __init__(self, times: Times | None, site: Site, recorder: Recorder, attributes: Attributes | None) -> None:
        self._times = times
        self._name = site.name
        self._site = site
        self._recorder = recorder
        self._attributes: dict[str, Any] | None = dict(attributes) if attributes else None
        self.lane = None

    def __enter__(self) -> Self:
        self.begin_ns = now = self._recorder.now()
        if self._times is not None:
            self._times.phase_begins(self._name, now)
        if self._recorder.on:
            self._recorder.enter(self, self._site, now, None, self._attributes)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        now = self._recorder.now()
        if self.lane is not None:
            self._recorder.leave(self, now, kind)
        if self._times is not None:
            self._times.phase_ends(self._name, self.begin_ns, now)
