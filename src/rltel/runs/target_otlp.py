"""A replay over OTLP: a stream of points per process, as it would have come from there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltel.core.identity import Identity
from rltel.export import ledger
from rltel.export.points import Point
from rltel.export.sink import Sink
from rltel.runs.target import Setting, Target

if TYPE_CHECKING:
    from rltel.export.otlp.metrics import OtlpSink  # imports the OTLP encoders


class OtlpTarget(Target):
    """A stream of points per process, each with its resource."""

    name = "otlp"
    sums = True

    def __init__(self, setting: Setting) -> None:
        from rltel.export.otlp.settings import otlp_settings

        self._setting = setting
        self._sink: OtlpSink | None = None
        self.place = otlp_settings(setting.config.otlp, setting.environ, "metrics").address

    def open(self, identity: Identity, started_ns: int) -> Sink:
        """A connection for this process, with its resource and its start."""
        from opentelemetry.sdk.resources import Resource

        from rltel.export.otlp.metrics import open_otlp_metrics  # imports the OTLP encoders
        from rltel.export.resource import resource_of

        self.close()
        config, environ = self._setting.config, self._setting.environ
        known = ledger.about(self._setting.run_dir, identity.name, self.name)
        attributes = known.get("resource")
        if not isinstance(attributes, dict):  # it was off then; what is true of this process is not of that one
            made = resource_of(identity, config.run, environ).attributes
            attributes = {key: each for key, each in made.items() if not key.startswith(("process.", "host."))}
        started_ns = min(started_ns, int(known.get("started_ns", started_ns)))
        self._sink = open_otlp_metrics(config.otlp, Resource(attributes), started_ns, environ)
        return self._sink

    def seen(self, points: Sequence[Point]) -> None:
        """Sums that began then do not begin now, at 0."""
        if self._sink is not None:
            self._sink.have_begun(points)

    def close(self) -> None:
        """The end of the connection."""
        if self._sink is not None:
            self._sink.close()
        self._sink = None
