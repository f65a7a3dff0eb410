"""What stands for a session in another process: small plain data, to go along with its result."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rltel.core.errors import PayloadError, RecordError
from rltel.record.inputs import summary
from rltel.rl.sessions.said import as_flow, as_version

_LONGEST_ID = 64


class Ticket(NamedTuple):
    """Pickles, and packs as a list. Give it to `rltel.rl.sessions.consume` where the update is."""

    id: str
    flow: int
    """The arrow to the update that consumes it."""
    policy_version: int | None
    """The oldest policy that generated any of it."""


def as_ticket(given: Any) -> Ticket:
    """A ticket of what another process sent: a `Ticket`, a list of its fields, or a mapping of them.

    Raises `PayloadError` for anything else.
    """
    fields = [given.get(name) for name in Ticket._fields] if isinstance(given, Mapping) else given
    if isinstance(fields, (list, tuple)) and len(fields) == len(Ticket._fields):
        name, flow, version = fields
        try:
            if isinstance(name, str) and 0 < len(name) <= _LONGEST_ID:
                return Ticket(name, as_flow(flow), None if version is None else as_version("policy_version", version))
        except RecordError:
            pass  # another process said so: not this one's mistake
    raise PayloadError(f"consume: expected a session's ticket: id, flow, policy version; got {summary(given)}")
