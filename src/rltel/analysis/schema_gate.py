"""Whether a run's tags are what a reader takes them for. What is not certain is refused."""

from collections.abc import Mapping, Set
from typing import Any, Literal

from rltel.core.errors import RltelError

KEY = "metric_schema_version"

Reading = Literal["stamped", "canonical-unversioned", "legacy-unversioned"]
"""Which runs a reader expects: with the version in their summary, or without one and today's or old tags."""


class Gate:
    """Decides for one set of known tags.

    Args:
        version: the only version that is read.
        canonical: today's tags that are known.
        old: the old ones.
    """

    def __init__(self, version: int, canonical: Set[str], old: Set[str]) -> None:
        self._version = version
        self._canonical = canonical
        self._old = old

    def check_summary(self, summary: Mapping[str, Any] | None, reading: Reading, where: str) -> None:
        """Raises `RltelError` if the summary does not say what this reading needs. ``where`` it is, for the message."""
        if reading != "stamped":
            if summary is not None and KEY in summary:
                raise RltelError(
                    f"{where}: --{reading} is for runs without {KEY}, and this has {summary[KEY]!r}; leave it out"
                )
            return
        version = None if summary is None else summary.get(KEY)
        if version is None:
            what = "no run_summary.json" if summary is None else f"no {KEY}"
            raise RltelError(
                f"{where}: {what}, so nothing says what its tags mean; for unilab-rl before 1.4.1 give "
                "--legacy-unversioned, for canonical tags without a version (unilab-rl 1.4.1 to 1.4.4, and its APPO "
                "and PPO) --canonical-unversioned"
            )
        if isinstance(version, bool) or not isinstance(version, int):
            raise RltelError(f"{where}: {KEY}: expected an integer, got {version!r}")
        if version != self._version:
            raise RltelError(f"{where}: {KEY}: expected {self._version}, got {version}, which this release cannot read")

    def check_tags(self, tags: Set[str], reading: Reading, where: str) -> None:
        """Raises `RltelError` for tags of both kinds, or none that is known."""
        kinds = {"canonical": self._canonical, "old": self._old}
        wanted, unwanted = ("old", "canonical") if reading == "legacy-unversioned" else ("canonical", "old")
        mixed = sorted(kinds[unwanted] & tags)
        if mixed:
            raise RltelError(f"{where}: {_why_mixed(reading)}: {', '.join(mixed)}")
        if not kinds[wanted] & tags:
            known = ", ".join(sorted(kinds[wanted]))
            raise RltelError(
                f"{where}: expected a robot's run, with at least one {wanted} tag of these, found none: {known}\n"
                "(for any other run: rltel.read_jsonl)"
            )


def _why_mixed(reading: Reading) -> str:
    if reading == "legacy-unversioned":
        return "canonical tags do not belong into an old run (for these alone: --canonical-unversioned)"
    return "old tags do not belong beside canonical ones (rltel migrate makes a copy with new names)"
