"""``names.strict``: a commit may only hold keys that the catalogue has, so that a typing error is no new metric."""

from rltel.core.errors import RecordError
from rltel.names.catalogue import Catalogue, catalogue
from rltel.names.schema import allowed, removed
from rltel.reduce.snapshot import Metric, Snapshot

_SHOWN = 5


class StrictNames:
    """Checks commits. A key is looked up once; after that a commit costs a set operation.

    ``algorithm``: whose tags (`rltel.names.schema.ALGORITHMS`); None: any's.
    """

    def __init__(self, entries: Catalogue | None = None, algorithm: str | None = None) -> None:
        self._catalogue = entries or catalogue()
        self._algorithm = algorithm
        self._known: set[str] = set()

    def check(self, snapshot: Snapshot) -> None:
        """Raise `RecordError` naming the keys that the catalogue does not have.

        To be called before anything of the commit is written, and inside ``trackers.taken()``, which then puts
        everything back: nothing is lost, and a later commit without the strange keys has all the rest.
        """
        new = snapshot.keys() - self._known
        strange = [key for key in snapshot if key in new and not self._has(key, snapshot[key])] if new else []
        if strange:
            shown = ", ".join(f'"{key}"' for key in strange[:_SHOWN])
            more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
            raise RecordError(
                f"commit: names.strict is on, and the catalogue has no key {shown}{more}; {_instead(strange)}"
                f"record keys of the catalogue (docs/names.md), or set names.strict: false"
            )
        self._known |= new

    def _has(self, key: str, metric: Metric) -> bool:
        """A phase's time is named by what it is, whatever its key."""
        if metric.state.kind.phase is not None or self._is_known(key):
            return True
        return bool(metric.tracker) and self._is_known(key.removeprefix(f"{metric.tracker}/"))

    def _is_known(self, key: str) -> bool:
        """Patterns of the catalogue name whatever fits; the metric schema says which tags its namespaces have."""
        of_schema = allowed(key, self._algorithm)
        return self._catalogue.find(key) is not None if of_schema is None else of_schema


def _instead(keys: list[str]) -> str:
    gone = next((found for key in keys if (found := removed(key))), None)
    return "" if gone is None else f"{gone.prefix}... is not emitted any more, {gone.instead} has its meaning; "
