"""Where a replay can send to: for each destination where it is, whose commits it gets, and how to open it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.core.redact import redact_url
from rltel.core.resolve import resolve
from rltel.export import ledger
from rltel.export.commit import Commit
from rltel.export.points import Point
from rltel.export.sink import Sink

if TYPE_CHECKING:
    from rltel.export.otlp import OtlpSink  # imports the OTLP encoders

NAMES = ("otlp", "tensorboard", "wandb", "swanlab", "trackio", "prometheus-push")
_PATIENCE_S = 600.0  # for the end of a tracking service's run: nobody trains meanwhile

# By destination: what switches it on where the config does not, and what `--endpoint` sets.
_ON = {
    "otlp": ("RLTEL_OTLP_ENABLED", "true"),
    "tensorboard": ("RLTEL_TENSORBOARD_PATH", "{run_dir}/tensorboard"),
    "wandb": ("RLTEL_WANDB_MODE", "online"),
    "swanlab": ("RLTEL_SWANLAB_MODE", "cloud"),
    "trackio": ("RLTEL_TRACKIO_MODE", "local"),
}
_ENDPOINT = {
    "otlp": "RLTEL_OTLP_ENDPOINT",
    "tensorboard": "RLTEL_TENSORBOARD_PATH",
    "wandb": "RLTEL_WANDB_BASE_URL",
    "trackio": "RLTEL_TRACKIO_SPACE_ID",
    "prometheus-push": "RLTEL_PROMETHEUS_PUSH_URL",
}
_NOTES = {
    "swanlab": "SwanLab takes no old times: rows have their own steps, and the time of the replay",
    "trackio": "Trackio takes no old times: rows have their own steps, and the time of the replay",
}


class Target(Protocol):
    """One destination of a replay."""

    name: str
    place: str
    of_writer: bool
    """Whether it gets the writer's commits only."""
    sums: bool
    """Whether it gets points, which are sums over all of a process's commits."""
    at_once: bool
    """Whether it takes a process's commits together, at the flush, and so needs those that it had, too."""
    ordered: bool
    """Whether its sinks `note` what it had already, since nothing before that may follow it."""
    note: str
    """What a user should know before, as one sentence; mostly empty."""

    def open(self, identity: Identity, started_ns: int) -> Sink:
        """The sink for one process's commits; ``started_ns`` is the time of the first. May return an earlier one."""

    def seen(self, points: Sequence[Point]) -> None:
        """Points that the destination has had by the process itself, of keys that did not come before."""

    def close(self) -> None:
        """The end: everything has to have arrived then, or it raises."""


@dataclass
class _Setting:
    """What all targets are made of."""

    config: TelemetryConfig
    run_dir: Path
    environ: Mapping[str, str]


def target_of(
    name: str, config: TelemetryConfig, run_dir: Path, identity: Identity, environ: Mapping[str, str]
) -> Target:
    """The destination of this name (one of `NAMES`), as the config and the environment have it.

    ``identity``: the run's writer. Raises `ConfigError` for settings that cannot be.
    """
    setting = _Setting(config, run_dir, environ)
    if name == "otlp":
        return _Otlp(setting)
    if name == "tensorboard":
        return _TensorBoard(setting, identity)
    if name == "prometheus-push":
        return _Push(setting)
    return _Tracking(name, setting, identity)


def replay_config(name: str, given: Any, environ: Mapping[str, str], endpoint: str | None = None) -> TelemetryConfig:
    """A config, as `rltel.init` takes it, with this destination switched on.

    ``endpoint``, the strongest, is a URL; for TensorBoard a folder, for Trackio a space. Raises `ConfigError`.
    """
    if name not in NAMES:
        raise ConfigError(f'--to: expected one of {", ".join(NAMES)}, got "{name}"')
    variables = dict(environ)
    if endpoint is not None:
        if name not in _ENDPOINT:
            raise ConfigError(f"--endpoint: {name} has none; set it up in the config")
        variables[_ENDPOINT[name]] = endpoint
    if endpoint is not None and name == "trackio":
        variables["RLTEL_TRACKIO_MODE"] = "online"
    found = resolve(given, variables)
    if name in _ON and not _is_on(name, found):
        variable, value = _ON[name]
        found = resolve(given, {**variables, variable: value})
    return found


def _is_on(name: str, config: TelemetryConfig) -> bool:
    if name == "otlp":
        return config.otlp.enabled
    if name == "tensorboard":
        return config.tensorboard.path is not None
    return bool(getattr(config, name).mode != "disabled")


class _Otlp:
    """A stream of points per process, each with its resource."""

    name = "otlp"
    of_writer, sums, at_once, ordered, note = False, True, False, False, ""

    def __init__(self, setting: _Setting) -> None:
        from rltel.export.otlp_settings import otlp_settings

        self._setting = setting
        self._sink: OtlpSink | None = None
        self.place = otlp_settings(setting.config.otlp, setting.environ, "metrics").address

    def open(self, identity: Identity, started_ns: int) -> Sink:
        from opentelemetry.sdk.resources import Resource

        from rltel.export.otlp import open_otlp_metrics  # imports the OTLP encoders
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
            self._sink._begun |= {
                (each.name, frozenset(each.attributes.items())) for each in points if each.kind == "sum"
            }

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._sink = None


class _One:
    """A destination with one sink for the writer and all its restarts."""

    of_writer, sums, at_once, ordered, note = True, False, False, False, ""

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sink: Sink | None = None

    def open(self, identity: Identity, started_ns: int) -> Sink:
        self._sink = self._sink or self._make()
        return self._sink

    def seen(self, points: Sequence[Point]) -> None:
        """Gets no points."""

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._sink = None


class _TensorBoard(_One):
    name, ordered = "tensorboard", True

    def __init__(self, setting: _Setting, identity: Identity) -> None:
        from rltel.export.tensorboard import TensorBoardSink  # imports tensorboard
        from rltel.export.tensorboard_folder import folder_of_run, take_folder

        config, run_dir = setting.config, setting.run_dir
        wanted = Path((config.tensorboard.path or "").replace("{run_dir}", str(run_dir)))
        folder = folder_of_run(wanted, identity.run_id)
        self.place = f"tensorboard --logdir {folder}"

        def make() -> Sink:
            taken = take_folder(wanted, identity.run_id)
            return TensorBoardSink(taken, config.run.step_axis, writer=f"{identity.name}-replay", restarts=False)

        super().__init__(make)


class _Tracking(_One):
    """W&B, SwanLab or Trackio. "Had" means handed to the package, which keeps it on disk until it is uploaded."""

    def __init__(self, name: str, setting: _Setting, identity: Identity) -> None:
        from rltel.export.tracking import TrackingSink
        from rltel.export.tracking_labels import labels_of

        self.name = name
        self.note = _NOTES.get(name, "")
        labels = replace(labels_of(setting.config, identity, setting.environ), timeout_s=_PATIENCE_S)
        client = _client(name, setting.config, labels)
        self.place = client.describe()
        super().__init__(lambda: TrackingSink(client))


def _client(name: str, config: TelemetryConfig, labels: Any) -> Any:
    if name == "wandb":
        from rltel.export.wandb import WandbClient

        return WandbClient(config.wandb, labels)
    if name == "swanlab":
        from rltel.export.swanlab import SwanlabClient

        return SwanlabClient(config.swanlab, labels)
    from rltel.export.trackio import TrackioClient

    return TrackioClient(config.trackio, labels)


class _Push:
    """A Pushgateway holds the last value of each series, and refuses times: it gets where each process ended."""

    name = "prometheus-push"
    of_writer, sums, at_once, ordered = False, True, True, False
    note = "a Pushgateway takes no old times: it gets the last value of every series, as of now"

    def __init__(self, setting: _Setting) -> None:
        self._setting = setting
        url = setting.config.prometheus.push_url
        if not url:
            raise ConfigError("prometheus.push_url: expected the address of a Pushgateway; set it, or use --endpoint")
        self._url = url
        self.place = redact_url(url)

    def open(self, identity: Identity, started_ns: int) -> Sink:
        from rltel.export.prometheus_push import push_target

        return _PushSink(push_target(self._url, self._setting.config.run, identity))

    def seen(self, points: Sequence[Point]) -> None:
        """Gets all of them again."""

    def close(self) -> None:
        """Nothing is open."""


class _PushSink:
    """Keeps a process's table, as of the last commit's time, and pushes it at the flush."""

    name = "prometheus-push"

    def __init__(self, target: Any) -> None:
        from rltel.export.prometheus_table import PrometheusSink

        self._target = target
        self._time_s = 0.0
        self._table = PrometheusSink(now=lambda: self._time_s)

    def describe(self) -> str:
        return str(self._target.url)

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        self._time_s = commit.time_ns / 1e9
        self._table.write(commit, points)

    def flush(self) -> None:
        """Raises OSError if the gateway does not take it."""
        from rltel.export.prometheus_push import push

        push(self, self._target)

    def collect(self) -> Iterable[Any]:
        """The families, as `push` asks for them."""
        return self._table.families()

    def close(self) -> None:
        """Nothing is open."""
