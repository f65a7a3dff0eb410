"""The whole configuration: one documented struct per section, every destination off until enabled or given a path.

Build it in code (``TelemetryConfig(prometheus=PrometheusConfig(enabled=True))``), or hand ``rltel.init`` a mapping, an
OmegaConf object or a YAML path. A field that is left alone is *unset*, not its default, so that the environment can
still set it (`resolve.py` has the order of precedence).
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct, StructMeta

from rltel.core.redact import redact

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class _RemembersGiven(StructMeta):
    """Structs that know which of their fields the caller gave (msgspec itself keeps only the values)."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        made = super().__call__(*args, **given)
        made.__dict__["_given"] = frozenset(given)
        return made


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, metaclass=_RemembersGiven):
    """Base of the config's sections: immutable, keyword-only. Secrets do not show in its ``repr``."""

    def given(self) -> frozenset[str]:
        """Names of the fields that were set, as opposed to left at their defaults."""
        given: frozenset[str] | None = self.__dict__.get("_given")
        return self._changed() if given is None else given

    def _changed(self) -> frozenset[str]:
        """What differs from the defaults: for one that msgspec made past the call (``convert``, ``replace``)."""
        blank = type(self)()
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name) != getattr(blank, name))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, redact(getattr(self, name), name)) for name in self.__struct_fields__ if name in self.given()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # msgspec's own forgets which fields were given; a config travels to spawned processes by pickle.
        return _make, (type(self), {name: getattr(self, name) for name in self.given()})


def _make(kind: type[Section], given: dict[str, Any]) -> Section:
    return kind(**given)


class RunConfig(Section, frozen=True):
    """What the run is called, where it lives, and which process writes for it."""

    name: str | None = None
    """Display name of the run. Default: the run id."""
    dir: str | None = None
    """Run directory. Default: made under ``log_root`` from algo, task, the time and the backend."""
    id: str | None = None
    """Run id, the same in every process of the run. Default: the launcher's, else made by the first process."""
    algo: str | None = None
    """Algorithm, as ``sac`` or ``grpo``: part of the run directory and of the resource (``rl.algorithm``)."""
    task: str | None = None
    """Task or environment: part of the run directory and of the resource (``rl.environment.name``)."""
    backend: str | None = None
    """Simulator or inference backend: ends the name of the run directory."""
    log_root: str = "logs"
    """Where run directories are made."""
    log_interval: Count = 1
    """Every Nth step (and the last) goes to the destinations. The JSONL always has every step."""
    step_axis: Literal["step", "env_steps"] = "step"
    """The x axis of TensorBoard and its like."""
    resume: Literal["auto", "never", "must"] = "auto"
    """Whether a run directory that already holds a run may be continued."""
    primary_role: str = "learner"
    """The role whose ranks reduce together; one of its processes is the writer."""
    writer: int | Literal["last"] = 0
    """Rank of the writer among the primary role (``last`` suits pipeline-parallel layouts)."""
    config: dict[str, Any] = {}
    """The trainer's own configuration, kept with the run. Secrets are redacted."""
    include_host: bool = False
    """Whether host and user names may be written."""


class TraceConfig(Section, frozen=True):
    """The timeline: one native Perfetto file per process."""

    enabled: bool = False
    output_dir: str | None = None
    """Default: ``trace`` in the run directory."""
    thread_time: bool = False
    """Record the CPU time of the thread with each slice."""
    cuda_events: bool = True
    """Draw device work where the device ran it."""
    ranks: Literal["all"] | list[int] = "all"
    """Which ranks trace: ``all`` or a list (``0,2-3`` in the environment)."""
    steps: (
        Annotated[list[int], Meta(min_length=2, max_length=2, description="two whole numbers [first, last]")] | None
    ) = None
    """First and last step to trace. Default: all."""
    flush_interval_s: Positive = 1.0
    """How much of a trace a killed process may lose."""
    max_file_mb: Positive = 256.0
    """A larger trace file is closed and a new one begun."""
    max_total_mb: Positive = 4096.0
    """Above this the process stops tracing, and counts what it did not record."""


class PrometheusConfig(Section, frozen=True):
    """The scrape endpoint."""

    enabled: bool = False
    host: str = "127.0.0.1"
    """Address to bind. Loopback unless told otherwise."""
    port: Port = 9464
    """Port of the writer; if it is taken the next free one is used and named."""
    advertise: str | None = None
    """Address that ``prometheus_sd/`` names, if it is not the bound one."""
    timestamps: bool = False
    """Give samples their step's own time (a vanished series then stays visible for Prometheus's lookback)."""
    linger_s: NotNegative = 0.0
    """How long the endpoint stays up after a clean end at most, so that the last step is scraped (twice)."""
    tls_cert: str | None = None
    tls_key: str | None = None
    username: str | None = None
    password: str | None = None
    push_url: str | None = None


class OtlpConfig(Section, frozen=True):
    """OTLP metrics and spans."""

    enabled: bool = False
    endpoint: str | None = None
    """Base URL, as in ``OTEL_EXPORTER_OTLP_ENDPOINT`` (``/v1/metrics`` is appended for HTTP)."""
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    headers: dict[str, str] = {}
    compression: Literal["none", "gzip", "deflate"] | None = None
    certificate: str | None = None
    insecure: bool | None = None
    timeout_s: Positive = 5.0
    metrics: bool = True
    traces: bool = True
    exponential_histograms: bool = False


class TensorBoardConfig(Section, frozen=True):
    """Event files. On when given a path."""

    path: str | None = None
    """Folder; ``{run_dir}`` in it stands for the run directory."""


class JsonlConfig(Section, frozen=True):
    """The run's own record: one line a commit. On whenever anything is on."""

    path: str | None = None
    """File; default: ``metrics/`` in the run directory."""
    write: Literal["commit", "worker"] = "commit"
    """``commit``: one write(2) inside commit. ``worker``: from the pipeline, for slow network file systems."""


class ConsoleConfig(Section, frozen=True):
    """A plain line per interval."""

    enabled: bool = False
    interval_s: Positive = 10.0
    table: bool = False
    """Every value, not only the headlines: as a table on a terminal, else in the line."""


class TerminalConfig(Section, frozen=True):
    """The live panel."""

    enabled: bool = False
    refresh_hz: Positive = 2.0
    window_s: Positive = 2.0


class WandbConfig(Section, frozen=True):
    """Weights & Biases."""

    mode: Literal["disabled", "online", "offline", "shared"] = "disabled"
    project: str | None = None
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = []
    notes: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    id_suffix: str = "train"
    config: dict[str, Any] = {}


class SwanlabConfig(Section, frozen=True):
    """SwanLab."""

    mode: Literal["disabled", "cloud", "online", "local", "offline"] = "disabled"
    project: str | None = None
    name: str | None = None
    logdir: str | None = None
    api_key: str | None = None
    config: dict[str, Any] = {}


class TrackioConfig(Section, frozen=True):
    """Trackio."""

    mode: Literal["disabled", "online", "local"] = "disabled"
    project: str | None = None
    name: str | None = None
    space_id: str | None = None


class NamesConfig(Section, frozen=True):
    """How keys become names."""

    strict: bool = False
    """Refuse keys that the catalogue does not have."""
    max_series_per_metric: Count = 2000
    """Label sets per metric; the rest goes to an overflow series, loudly."""


class PipelineConfig(Section, frozen=True):
    """Threads and queues between ``commit`` and the destinations."""

    queue_mb: Positive = 64.0
    """Bound of each queue; the oldest entry is dropped, and counted."""
    shutdown_timeout_s: Positive = 2.0
    """How long the end of the program may take for all destinations together."""
    sigterm: bool = False
    """Shut down on SIGTERM too."""


class TelemetryConfig(Section, frozen=True):
    """The sections together. Field by field, as in the YAML of the documentation."""

    run: RunConfig = RunConfig()
    trace: TraceConfig = TraceConfig()
    prometheus: PrometheusConfig = PrometheusConfig()
    otlp: OtlpConfig = OtlpConfig()
    tensorboard: TensorBoardConfig = TensorBoardConfig()
    jsonl: JsonlConfig = JsonlConfig()
    console: ConsoleConfig = ConsoleConfig()
    terminal: TerminalConfig = TerminalConfig()
    wandb: WandbConfig = WandbConfig()
    swanlab: SwanlabConfig = SwanlabConfig()
    trackio: TrackioConfig = TrackioConfig()
    names: NamesConfig = NamesConfig()
    pipeline: PipelineConfig = PipelineConfig()

    def anything_on(self) -> bool:
        """Whether any destination is on (the JSONL is then on too)."""
        return (
            any(s.enabled for s in (self.trace, self.prometheus, self.otlp, self.console, self.terminal))
            or any(s.mode != "disabled" for s in (self.wandb, self.swanlab, self.trackio))
            or self.tensorboard.path is not None
            or self.jsonl.path is not None
            or self.prometheus.push_url is not None
        )
