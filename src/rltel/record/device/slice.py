"""What a program opens around device work."""

from collections.abc import Iterable
from typing import Any, Protocol, Self

from rltel.core.context import new_flow
from rltel.record.device.work import Stream, Submitted
from rltel.record.recorder import Recorder
from rltel.record.records import Attributes
from rltel.record.slices import Raised, as_flows


class Keeper(Protocol):
    """What takes the work."""

    def begin(self, work: Submitted) -> bool:
        """Record the event before it; False if that is not to be."""

    def end(self, work: Submitted) -> None:
        """Record the event after it."""


class DeviceSlice:
    """Device work, from ``with`` to its end; for one use."""

    __slots__ = ("_host", "_is_begun", "_keeper", "_work")

    def __init__(
        self,
        keeper: Keeper,
        recorder: Recorder,
        name: str,
        stream: Stream,
        flow: int | Iterable[int] | None,
        attributes: Attributes | None,
    ) -> None:
        arrow = new_flow()
        through = (arrow, *(as_flows(flow) or ()))
        self._keeper = keeper
        self._host = recorder.slice(name, "submit", flow=through, attributes=attributes)
        self._work = Submitted(name, stream, (arrow,), dict(attributes or {}))
        self._is_begun = False

    def __enter__(self) -> Self:
        self._host.__enter__()
        self._is_begun = self._keeper.begin(self._work)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: Any) -> None:
        if self._is_begun:
            self._is_begun = False
            self._keeper.end(self._work)
        self._host.__exit__(kind, error, trace)

    def set(self, **attributes: Any) -> None:
        """Say more about it. Drawn with both slices."""
        self._host.set(**attributes)
        self._work.attributes.update(attributes)


class Nothing:
    """What stands for a device slice while there is nothing to draw."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        return None

    def set(self, **attributes: Any) -> None:
        """Nothing to say it about."""


NOTHING = Nothing()
