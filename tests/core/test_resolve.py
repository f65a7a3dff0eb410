"""From what the user gave to the config in force: precedence, every form of input, and errors that name the path."""

import contextlib
import json
import sys
import traceback
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from realparts.requirements import need_package
from rltel.core.config import (
    OtlpConfig,
    PrometheusConfig,
    RunConfig,
    Section,
    TelemetryConfig,
    TraceConfig,
    WandbConfig,
)
from rltel.core.errors import ConfigError, RltelError
from rltel.core.resolve import disabled, resolve
from rltel.core.sections import switch_of

SECTIONS = {
    field.name: field.default for field in msgspec.structs.fields(TelemetryConfig) if isinstance(field.default, Section)
}
FIELDS = [(section, name) for section, default in SECTIONS.items() for name in default.__struct_fields__]
SECRET = "sk-SECRET-4711"


def problems_of(given, environ=None):
    """The lines of the error that this input must cause."""
    with pytest.raises(ConfigError) as caught:
        resolve(given, environ or {})
    return str(caught.value).split("\n")


def value_of(config, path):
    section, field = path.split(".")
    return getattr(getattr(config, section), field)


# --- what may be given ----------------------------------------------------------------------------------------------


def test_nothing_gives_the_defaults():
    assert resolve(None, {}) == resolve({}, {}) == TelemetryConfig()


def test_a_mapping():
    config = resolve({"trace": {"enabled": True, "ranks": [0, 2]}, "run": {"name": "a"}}, {})
    assert config.trace == TraceConfig(enabled=True, ranks=[0, 2])
    assert config.run.name == "a"


def test_any_mapping_and_sequence():
    given = MappingProxyType({"trace": MappingProxyType({"ranks": (0, 1), "steps": (2, 9)})})
    assert resolve(given, {}).trace == TraceConfig(ranks=[0, 1], steps=[2, 9])


def test_structs_inside_a_mapping():
    assert resolve({"trace": TraceConfig(enabled=True), "run": {"id": "x"}}, {}) == TelemetryConfig(
        trace=TraceConfig(enabled=True), run=RunConfig(id="x")
    )


def test_a_mapping_inside_the_struct():
    assert resolve(TelemetryConfig(trace={"enabled": True}), {}).trace.enabled


def test_a_struct_is_checked_like_a_mapping():
    assert problems_of(TelemetryConfig(trace=TraceConfig(flush_interval_s="fast"), run=RunConfig(log_interval=0))) == [
        "run.log_interval: expected a whole number >= 1, got 0",
        'trace.flush_interval_s: expected a number > 0, got "fast"',
    ]
    assert problems_of(TelemetryConfig(trace=PrometheusConfig(port=1))) == ["trace.port: unknown key"]


@pytest.mark.parametrize("given", [{"trace": None}, TelemetryConfig(trace=None), {"trace": {}}])
def test_an_empty_section_is_its_defaults(given):
    assert resolve(given, {}) == TelemetryConfig()


def test_the_given_data_is_not_changed_nor_kept():
    given = {"run": {"config": {"lr": [1]}}}
    config = resolve(given, {"RLTEL_RUN_NAME": "n"})
    config.run.config["lr"].append(2)
    assert given == {"run": {"config": {"lr": [1]}}}


@pytest.mark.parametrize(
    "given", [5, ["trace"], b"trace", TraceConfig(enabled=True), object()], ids=lambda g: type(g).__name__
)
def test_anything_else_is_refused(given):
    (problem,) = problems_of(given)
    assert problem.startswith("config: expected a TelemetryConfig, a mapping, an OmegaConf object or a path")
    assert problem.endswith(f"got {type(given).__name__}")


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("RLTEL_RUN_NAME", "from outside")
    assert resolve().run.name == "from outside"


def test_errors_are_value_errors_and_ours():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, RltelError)


# --- YAML -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_a_yaml_file(tmp_path, kind):
    (tmp_path / "c.yaml").write_text(
        "trace: {enabled: true, steps: [1, 5]}\nprometheus:\nrun: {name: größer}\n", "utf-8"
    )
    config = resolve(kind(tmp_path / "c.yaml"), {})
    assert config == TelemetryConfig(trace=TraceConfig(enabled=True, steps=[1, 5]), run=RunConfig(name="größer"))


def test_an_empty_yaml_file_is_the_defaults(tmp_path):
    (tmp_path / "c.yaml").write_text("# nothing\n")
    assert resolve(tmp_path / "c.yaml", {}) == TelemetryConfig()


def test_a_yaml_file_is_checked(tmp_path):
    (tmp_path / "c.yaml").write_text("trace: {flush_interval_s: fast, enabeld: on}\n")
    assert problems_of(tmp_path / "c.yaml") == [
        'trace.flush_interval_s: expected a number > 0, got "fast"',
        'trace.enabeld: unknown key (did you mean "enabled"?)',
    ]


def test_a_missing_yaml_file_is_named(tmp_path):
    assert problems_of(tmp_path / "no.yaml") == [
        f"config: cannot read {tmp_path / 'no.yaml'}: No such file or directory"
    ]


def test_a_folder_is_no_yaml_file(tmp_path):
    assert problems_of(tmp_path) == [f"config: cannot read {tmp_path}: Is a directory"]


def test_yaml_that_is_no_mapping(tmp_path):
    (tmp_path / "c.yaml").write_text("[trace]\n")
    assert problems_of(tmp_path / "c.yaml") == [
        f"config: {tmp_path / 'c.yaml'}: expected a mapping of sections, got list"
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("trace:\n  enabled: true: false\n", ", line 2, column 16: mapping values are not allowed here"),
        ("wandb: {api_key: sk-SECRET-4711: x}\n", ", line 1, column 32: expected ',' or '}', but got ':'"),
        ("wandb:\n  api_key: 'sk-SECRET-4711\n", ", line 3, column 1: found unexpected end of stream"),
        ("wandb:\n  api_key: *sk-SECRET-4711\n", ", line 2, column 12: found undefined alias '...'"),
        (
            "wandb: {api_key: !sk-SECRET-4711 x}\n",
            ", line 1, column 18: could not determine a constructor for the tag '...'",
        ),
        ("run: {name: 2024-13-45}\n", ""),
    ],
)
def test_what_is_no_yaml_is_located_and_not_quoted(tmp_path, text, place):
    """The parser's own message quotes the line, and the line may hold a key."""
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        resolve(tmp_path / "c.yaml", {})
    assert str(caught.value) == f"config: {tmp_path / 'c.yaml'} is not YAML{place}"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"run: {name: \xff}")
    assert problems_of(tmp_path / "c.yaml") == [f"config: {tmp_path / 'c.yaml'} is not YAML"]


def test_without_pyyaml_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text("")
    monkeypatch.setitem(sys.modules, "yaml", None)
    (problem,) = problems_of(tmp_path / "c.yaml")
    assert "pip install pyyaml" in problem


# --- OmegaConf ------------------------------------------------------------------------------------------------------


@pytest.fixture
def omegaconf():
    return need_package("omegaconf").OmegaConf


def test_an_omegaconf_object(omegaconf):
    trace = {"enabled": True, "ranks": [0, 1], "output_dir": "${run.log_root}/t"}
    given = omegaconf.create({"trace": trace, "run": {"log_root": "r"}})
    assert resolve(given, {}).trace == TraceConfig(enabled=True, ranks=[0, 1], output_dir="r/t")


def test_a_node_of_a_larger_omegaconf_object(omegaconf):
    trainer = omegaconf.create({"lr": 0.1, "name": "walk", "telemetry": {"run": {"name": "${name}"}, "trace": None}})
    assert resolve(trainer.telemetry, {}) == TelemetryConfig(run=RunConfig(name="walk"))


def test_what_an_error_says_a_destination_is_switched_on_with_does_so():
    switches = {section: switch for section in SECTIONS if (switch := switch_of(section)) is not None}
    assert set(SECTIONS) - switches.keys() == {"run", "names", "pipeline"}
    for switch in switches.values():
        assert resolve(yaml.safe_load(switch), {}).anything_on()


def test_omegaconf_objects_are_checked(omegaconf):
    given = omegaconf.create({"trace": {"enabeld": True, "max_file_mb": "big"}, "tarce": {}})
    assert problems_of(given) == [
        'tarce: unknown section (did you mean "trace"?); have ' + ", ".join(SECTIONS),
        'trace.enabeld: unknown key (did you mean "enabled"?)',
        'trace.max_file_mb: expected a number > 0, got "big"',
    ]


def test_a_missing_value_of_omegaconf_is_named(omegaconf):
    with pytest.raises(ConfigError, match=r"trace\.output_dir"):
        resolve(omegaconf.create({"trace": {"output_dir": "???"}}), {})


def test_an_interpolation_that_leads_nowhere_is_named(omegaconf):
    with pytest.raises(ConfigError, match="nowhere"):
        resolve(omegaconf.create({"trace": {"output_dir": "${nowhere}"}}), {})


def test_omegaconf_parts_inside_other_forms(omegaconf):
    """A trainer hands over the section, or its own config to be kept, as the OmegaConf object that it has."""
    parts = omegaconf.create({"trace": {"ranks": [0]}, "headers": {"a": "b"}, "trainer": {"lr": [0.1]}})
    config = resolve(
        {"trace": parts.trace, "otlp": {"headers": parts.headers}, "run": RunConfig(config=parts.trainer)}, {}
    )
    assert (config.trace.ranks, config.otlp.headers) == ([0], {"a": "b"})
    assert config.run.config == {"lr": [0.1]}
    assert type(config.run.config["lr"]) is list
    with pytest.raises(ConfigError, match=r"output_dir"):
        resolve({"trace": omegaconf.create({"output_dir": "???"})}, {})


def test_an_omegaconf_list_is_refused(omegaconf):
    (problem,) = problems_of(omegaconf.create(["trace"]))
    assert problem.endswith("got ListConfig")


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_a_wrong_type_names_path_and_value(section, field):
    default = getattr(SECTIONS[section], field)
    wrong = ["x"] if isinstance(default, dict) else {"x": 1}
    (problem,) = problems_of({section: {field: wrong}})
    shown = '"[redacted]"' if field in ("api_key", "password") else ('["x"]' if wrong == ["x"] else '{"x": 1}')
    if field in ("headers", "api_key", "password"):
        assert problem.startswith(f"{section}.{field}: expected a ")
        assert "[redacted]" in problem
    else:
        assert problem.startswith(f"{section}.{field}: expected ")
        assert problem.endswith(f", got {shown}")


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_an_unknown_key_names_the_one_that_was_meant(section, field):
    (problem,) = problems_of({section: {f"{field}x": 1}})
    assert problem.startswith(f'{section}.{field}x: unknown key (did you mean "')


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"trace": {"flush_interval_s": "fast"}}, 'trace.flush_interval_s: expected a number > 0, got "fast"'),
        ({"trace": {"flush_interval_s": 0}}, "trace.flush_interval_s: expected a number > 0, got 0"),
        ({"trace": {"flush_interval_s": -1.5}}, "trace.flush_interval_s: expected a number > 0, got -1.5"),
        ({"trace": {"flush_interval_s": True}}, "trace.flush_interval_s: expected a number > 0, got true"),
        ({"trace": {"flush_interval_s": None}}, "trace.flush_interval_s: expected a number > 0, got null"),
        ({"trace": {"flush_interval_s": float("nan")}}, "trace.flush_interval_s: expected a number > 0, got NaN"),
        ({"pipeline": {"queue_mb": float("inf")}}, "pipeline.queue_mb: expected a number > 0, got Infinity"),
        ({"prometheus": {"linger_s": -1}}, "prometheus.linger_s: expected a number >= 0, got -1"),
        ({"prometheus": {"port": 65536}}, "prometheus.port: expected a whole number >= 0 and <= 65535, got 65536"),
        ({"prometheus": {"port": 9464.5}}, "prometheus.port: expected a whole number >= 0 and <= 65535, got 9464.5"),
        ({"run": {"log_interval": True}}, "run.log_interval: expected a whole number >= 1, got true"),
        ({"run": {"id": 7}}, "run.id: expected a string or null, got 7"),
        ({"run": {"log_root": None}}, "run.log_root: expected a string, got null"),
        ({"run": {"resume": "maybe"}}, 'run.resume: expected one of "auto", "never", "must", got "maybe"'),
        ({"run": {"writer": "first"}}, 'run.writer: expected a whole number or "last", got "first"'),
        ({"run": {"config": {1: 2}}}, 'run.config: expected a mapping with strings as keys, got {"1": 2}'),
        ({"trace": {"enabled": "yes"}}, 'trace.enabled: expected true or false, got "yes"'),
        ({"trace": {"enabled": 1}}, "trace.enabled: expected true or false, got 1"),
        ({"trace": {"ranks": "some"}}, 'trace.ranks: expected "all" or a list (a whole number each), got "some"'),
        (
            {"trace": {"steps": [1, 2, 3]}},
            "trace.steps: expected two whole numbers [first, last] or null, got [1, 2, 3]",
        ),
        ({"wandb": {"tags": "a"}}, 'wandb.tags: expected a list (a string each), got "a"'),
        (
            {"wandb": {"mode": False}},
            'wandb.mode: expected one of "disabled", "online", "offline", "shared", got false',
        ),
        ({"otlp": {"insecure": "no"}}, 'otlp.insecure: expected true or false or null, got "no"'),
        ({"trace": True}, "trace: expected a mapping, got true (switched on with `trace: {enabled: true}`)"),
        (
            {"trace": ["enabled"]},
            'trace: expected a mapping, got ["enabled"] (switched on with `trace: {enabled: true}`)',
        ),
        ({"run": True}, "run: expected a mapping, got true"),
        ({"wandb": {"enabled": True}}, "wandb.enabled: unknown key (switched on with `wandb: {mode: online}`)"),
        (
            {"tensorboard": {"enabled": True}},
            'tensorboard.enabled: unknown key (switched on with `tensorboard: {path: "{run_dir}/tensorboard"}`)',
        ),
        ({"run": {"dir": "a\0b"}}, 'run.dir: expected text without NUL characters, got "a\\u0000b"'),
        ({"run": {"log_root": "\0"}}, 'run.log_root: expected text without NUL characters, got "\\u0000"'),
        ({"wandb": {"tags": ["a", "\0"]}}, 'wandb.tags: expected text without NUL characters, got ["a", "\\u0000"]'),
        ({"trace": {"flush_interval_s": 1e300}}, "trace.flush_interval_s: expected a number <= 1e+09, got 1e+300"),
        ({"pipeline": {"queue_mb": 1e308}}, "pipeline.queue_mb: expected a number <= 1e+09, got 1e+308"),
        ({"tensorboard": {"path": ""}}, 'tensorboard.path: expected a folder or null, got ""'),
        ({"jsonl": {"path": ""}}, 'jsonl.path: expected a file or null, got ""'),
        ({"run": {"name": object}}, "run.name: expected a string or null, got <class 'object'>"),
        ({"prometheus": {"prot": 1}}, 'prometheus.prot: unknown key (did you mean "port"?)'),
        ({"prometheus": {"zzz": 1}}, "prometheus.zzz: unknown key"),
        ({"prometheus": {7: 1}}, "prometheus.7: unknown key"),
        ({"zzz": {}}, f"zzz: unknown section; have {', '.join(SECTIONS)}"),
        ({"otpl": {}}, f'otpl: unknown section (did you mean "otlp"?); have {", ".join(SECTIONS)}'),
        ({"trace.enabled": True}, f"trace.enabled: unknown section; have {', '.join(SECTIONS)}"),
        ({7: {}}, f"7: unknown section; have {', '.join(SECTIONS)}"),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_the_error_says_path_need_and_value(given, problem):
    assert problems_of(given) == [problem]


def test_a_long_value_is_cut():
    (problem,) = problems_of({"trace": {"steps": list(range(10_000))}})
    assert problem.endswith("...")
    assert len(problem) < 400


def test_a_config_without_end_is_refused():
    """One that holds itself, or is nested deeper than Python goes."""
    circular, deep = {}, {}
    circular["run"] = {"config": circular}
    for _ in range(5000):
        deep = {"a": deep}
    for endless in (circular, {"run": {"config": deep}}):
        with pytest.raises(ConfigError, match="got something without end, or that holds itself"):
            resolve(endless, {})


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("RLTEL_RUN_CONFIG", "[" * 100_000, r'run\.config: expected a JSON object, got "\[\[\['),
        ("RLTEL_TRACE_RANKS", "0-99999999999", 'trace.ranks: expected "all" or a list'),
        ("RLTEL_TRACE_RANKS", f"0-{'9' * 5000}", 'trace.ranks: expected "all" or a list'),
        ("RLTEL_PROMETHEUS_PORT", "9" * 5000, "prometheus.port: expected a whole number"),
    ],
)
def test_a_variable_without_end_is_refused(variable, text, problem):
    with pytest.raises(ConfigError, match=problem):
        resolve(None, {variable: text})


def test_what_looks_misspelt_goes_with_the_problems():
    """It may be why the rest is wrong; a traceback shows it."""
    given = {"stats_logger": {}, "promethues": {"enabled": True}, "trace": {"enabled": "yes"}}
    with pytest.raises(ConfigError) as raised:
        resolve(given, {})
    (note,) = raised.value.__notes__
    assert note.startswith('promethues: taken for the trainer\'s own section; if "prometheus" was meant')


def test_all_problems_at_once():
    given = {
        "trace": {"flush_interval_s": "fast", "enabeld": True},
        "prometheus": {"tls_cert": "c.pem", "port": 1},
        "otpl": {},
        "console": {"interval_s": 0},
    }
    environ = {"RLTEL_RUN_LOG_INTERVAL": "often", "RLTEL_OTLP_HEADERS": "{", "RLTEL_WANDB_MOED": "online"}
    assert sorted(line.partition(": ")[0] for line in problems_of(given, environ)) == [
        "RLTEL_WANDB_MOED",
        "console.interval_s",
        "otlp.headers",
        "otpl",
        "prometheus.tls_cert, prometheus.tls_key",
        "run.log_interval",
        "trace.enabeld",
        "trace.flush_interval_s",
    ]


def test_no_contradiction_is_made_up_from_a_value_that_was_refused():
    assert problems_of({"prometheus": {"tls_cert": "c.pem", "tls_key": 5}}) == [
        "prometheus.tls_key: expected a string or null, got 5"
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"prometheus": {"tls_cert": "c"}},
            "prometheus.tls_cert, prometheus.tls_key: expected both or neither, got one",
        ),
        (
            {"prometheus": {"tls_key": "k"}},
            "prometheus.tls_cert, prometheus.tls_key: expected both or neither, got one",
        ),
        (
            {"prometheus": {"username": "u"}},
            "prometheus.username, prometheus.password: expected both or neither, got one",
        ),
        (
            {"prometheus": {"password": "p"}},
            "prometheus.username, prometheus.password: expected both or neither, got one",
        ),
        (
            {"trace": {"max_file_mb": 9, "max_total_mb": 8}},
            "trace.max_total_mb: expected at least max_file_mb, 9, got 8",
        ),
        ({"trace": {"steps": [5, 4]}}, "trace.steps: expected the first and the last step, in order, got [5, 4]"),
        ({"trace": {"steps": [-1, 4]}}, "trace.steps: expected the first and the last step, in order, got [-1, 4]"),
        ({"trace": {"ranks": [0, -1]}}, 'trace.ranks: expected ranks >= 0 or "all", got [0, -1]'),
        (
            {"otlp": {"enabled": True, "metrics": False, "traces": False}},
            "otlp.enabled: true, but otlp.metrics and otlp.traces are both false: nothing would be sent",
        ),
        (
            {"otlp": {"enabled": True, "endpoint": "collector:4318"}},
            'otlp.endpoint: expected a URL such as "http://127.0.0.1:4318", got "collector:4318"',
        ),
        ({"run": {"writer": -1}}, 'run.writer: expected a rank >= 0 or "last", got -1'),
    ],
)
def test_contradictions(given, problem):
    assert problems_of(given) == [problem]


@pytest.mark.parametrize(
    "given",
    [
        {"prometheus": {"tls_cert": "c", "tls_key": "k", "username": "u", "password": "p"}},
        {"trace": {"max_file_mb": 8, "max_total_mb": 8, "steps": [4, 4], "ranks": []}},
        {"otlp": {"enabled": True, "metrics": False}},
        {
            "otlp": {"enabled": True, "protocol": "grpc", "endpoint": "collector:4317"}
        },  # as OpenTelemetry's own takes it
        {"run": {"writer": "last"}},
        {"prometheus": {"port": 0, "linger_s": 0}},
        {"trace": {"flush_interval_s": 1}},
    ],
)
def test_settings_that_go_together(given):
    config = resolve(given, {})
    for section, fields in given.items():
        for field, value in fields.items():
            assert value_of(config, f"{section}.{field}") == value


# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({"wandb": {"api_key": [SECRET]}}, {}),
        ({"wandb": {"api_key": {"value": SECRET}}}, {}),
        ({"swanlab": {"api_key": {"value": [SECRET]}}}, {}),
        ({"wandb": [{"api_key": SECRET}]}, {}),
        ({"prometheus": {"password": [SECRET]}}, {}),
        ({"prometheus": {"push_url": [f"http://u:{SECRET}@gateway"]}}, {}),
        ({"otlp": {"headers": f"authorization=Bearer {SECRET}"}}, {}),
        ({"otlp": {"headers": [["authorization", SECRET]]}}, {}),
        ({"otlp": {"headers": {"authorization": [SECRET]}}}, {}),
        ({"otlp": {"enabled": True, "endpoint": f"u:{SECRET}@collector:4318"}}, {}),
        ({"otlp": {"endpoint": [f"https://u:{SECRET}@collector"]}}, {}),
        ({"run": {"config": [{"hf_token": SECRET}]}}, {}),
        ({"run": {"name": WandbConfig(api_key=SECRET)}}, {}),
        ({}, {"RLTEL_OTLP_HEADERS": f"authorization=Bearer {SECRET}"}),
        ({}, {"RLTEL_OTLP_HEADERS": json.dumps([SECRET])}),
        ({}, {"RLTEL_OTLP_HEADERS": json.dumps({"authorization": [SECRET]})}),
        ({"otlp": {"enabled": True}}, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"u:{SECRET}@collector:4318"}),
    ],
)
def test_no_secret_is_in_an_error(given, environ):
    with pytest.raises(ConfigError) as caught:
        resolve(given, environ)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_password_that_yaml_read_as_a_number_is_hidden():
    assert problems_of({"prometheus": {"username": "u", "password": 47114711}}) == [
        'prometheus.password: expected a string or null, got "[redacted]"'
    ]


# --- precedence -----------------------------------------------------------------------------------------------------


def layered(own, given, otel, form):
    environ = {}
    if own:
        environ["RLTEL_OTLP_TIMEOUT_S"] = "1"
    if otel:
        environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "3"
    config = None
    if given:
        config = {"otlp": {"timeout_s": 2}} if form == "mapping" else TelemetryConfig(otlp=OtlpConfig(timeout_s=2))
    return config, environ


@pytest.mark.parametrize("form", ["mapping", "struct"])
@pytest.mark.parametrize("otel", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_rltel_before_config_before_otel_before_defaults(own, given, otel, form):
    expected = 1 if own else 2 if given else 3 if otel else 5
    assert resolve(*layered(own, given, otel, form)).otlp.timeout_s == expected


OTEL = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("http://c:4318", "otlp.endpoint", "http://c:4318"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("grpc", "otlp.protocol", "grpc"),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("gzip", "otlp.compression", "gzip"),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ("ca.pem", "otlp.certificate", "ca.pem"),
    "OTEL_EXPORTER_OTLP_INSECURE": ("True", "otlp.insecure", True),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("7.5", "otlp.timeout_s", 7.5),
    "OTEL_EXPORTER_PROMETHEUS_HOST": ("0.0.0.0", "prometheus.host", "0.0.0.0"),
    "OTEL_EXPORTER_PROMETHEUS_PORT": ("9999", "prometheus.port", 9999),
}


@pytest.mark.parametrize("variable", OTEL)
def test_otel_variables_set_what_was_left_alone(variable):
    text, path, value = OTEL[variable]
    section, field = path.split(".")
    default = value_of(TelemetryConfig(), path)
    assert value_of(resolve({section: {"enabled": True}}, {variable: text}), path) == value
    assert value_of(resolve({section: {field: default}}, {variable: text}), path) == default


def test_a_default_given_in_a_struct_wins_over_otel_and_one_left_alone_does_not():
    environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "30", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    config = resolve(TelemetryConfig(otlp=OtlpConfig(enabled=True, timeout_s=5.0)), environ).otlp
    assert (config.timeout_s, config.protocol) == (5.0, "grpc")


def test_null_in_the_config_is_a_value_and_wins_over_otel():
    assert resolve({"otlp": {"endpoint": None}}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}).otlp.endpoint is None


def test_other_fields_of_a_section_are_not_disturbed():
    config = resolve({"otlp": {"enabled": True, "timeout_s": 2}}, {"RLTEL_OTLP_PROTOCOL": "grpc"}).otlp
    assert config == OtlpConfig(enabled=True, timeout_s=2.0, protocol="grpc")


def test_the_config_in_force_knows_what_was_set():
    config = resolve({"trace": {"enabled": False}}, {"RLTEL_RUN_NAME": "n", "OTEL_EXPORTER_PROMETHEUS_PORT": "1"})
    assert config.trace.given() == {"enabled"}
    assert config.run.given() == {"name"}
    assert config.prometheus.given() == {"port"}
    assert resolve(config, {}) == config


# --- other people's OTEL_* ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "maybe"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "http"),
    ],
)
def test_what_others_set_for_others_is_no_error_until_we_send_there(variable, text):
    """A company's environment must not end a training that does not even use OTLP."""
    section = OTEL[variable][1].split(".")[0]
    path = OTEL[variable][1]
    assert not getattr(resolve({"trace": {"enabled": True}}, {variable: text}), section).enabled
    (problem,) = problems_of({section: {"enabled": True}}, {variable: text})
    assert problem.startswith(f"{path}: expected ")
    assert f'got "{text}"' in problem


def test_an_error_in_a_variable_names_the_variable():
    assert problems_of({"otlp": {"enabled": True}}, {"OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}) == [
        'otlp.timeout_s: expected a number > 0, got "10s" (from OTEL_EXPORTER_OTLP_TIMEOUT)'
    ]
    assert problems_of({"trace": {"flush_interval_s": 2}}, {"RLTEL_TRACE_FLUSH_INTERVAL_S": "fast"}) == [
        'trace.flush_interval_s: expected a number > 0, got "fast" (from RLTEL_TRACE_FLUSH_INTERVAL_S)'
    ]
    assert problems_of({"otlp": {"timeout_s": "slow"}}, {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}) == [
        'otlp.timeout_s: expected a number > 0, got "slow"'
    ]


# --- RLTEL_* --------------------------------------------------------------------------------------------------------

TEXTS = [
    ("trace.enabled", "1", True),
    ("trace.enabled", " TRUE ", True),
    ("trace.enabled", "yes", True),
    ("trace.enabled", "on", True),
    ("trace.cuda_events", "0", False),
    ("trace.cuda_events", "false", False),
    ("trace.cuda_events", "No", False),
    ("trace.cuda_events", "off", False),
    ("otlp.insecure", "true", True),
    ("otlp.insecure", "null", None),
    ("run.log_interval", " 10 ", 10),
    ("prometheus.port", "9500", 9500),
    ("trace.flush_interval_s", "0.25", 0.25),
    ("trace.flush_interval_s", "2", 2.0),
    ("trace.max_total_mb", "1e6", 1e6),
    ("run.name", "a b", "a b"),
    ("run.name", "none", None),
    ("run.id", "123", "123"),
    ("run.id", "true", "true"),
    ("run.log_root", "none", "none"),
    ("run.step_axis", "env_steps", "env_steps"),
    ("run.writer", "3", 3),
    ("run.writer", "last", "last"),
    ("run.config", '{"lr": 0.1, "env": {"n": [1, 2]}}', {"lr": 0.1, "env": {"n": [1, 2]}}),
    ("otlp.headers", '{"a": "b"}', {"a": "b"}),
    ("otlp.headers", "{}", {}),
    ("otlp.compression", "none", "none"),
    ("otlp.compression", "null", None),
    ("otlp.compression", "gzip", "gzip"),
    ("otlp.protocol", "grpc", "grpc"),
    ("trace.ranks", "all", "all"),
    ("trace.ranks", "0", [0]),
    ("trace.ranks", "3-3", [3]),
    ("trace.ranks", "0,2-4, 7", [0, 2, 3, 4, 7]),
    ("trace.steps", "10,20", [10, 20]),
    ("trace.steps", "10-20", [10, 20]),
    ("trace.steps", "0-1000000000000", [0, 1_000_000_000_000]),
    ("trace.steps", "none", None),
    ("wandb.tags", "a, b,c", ["a", "b", "c"]),
    ("wandb.mode", "offline", "offline"),
]


@pytest.mark.parametrize(("path", "text", "value"), TEXTS)
def test_every_type_of_field_from_the_environment(path, text, value):
    found = value_of(resolve(None, {f"RLTEL_{path.replace('.', '_').upper()}": text}), path)
    assert found == value
    assert type(found) is type(value)


UNLIKE_DEFAULT = {
    "protocol": ("grpc", "grpc"),
    "compression": ("gzip", "gzip"),
    "mode": ("online", "online"),
    "write": ("worker", "worker"),
    "step_axis": ("env_steps", "env_steps"),
    "resume": ("must", "must"),
    "ranks": ("1", [1]),
    "steps": ("1,2", [1, 2]),
    "tags": ("a", ["a"]),
    "headers": ('{"a": "b"}', {"a": "b"}),
    "config": ('{"a": 1}', {"a": 1}),
    "max_total_mb": ("9000", 9000.0),
    "insecure": ("true", True),
}
PAIRS = {"tls_cert": "tls_key", "tls_key": "tls_cert", "username": "password", "password": "username"}


def text_unlike(field, default):
    """A variable's text for a field, and the value that it means; not the default."""
    if field in UNLIKE_DEFAULT:
        return UNLIKE_DEFAULT[field]
    if isinstance(default, bool):
        return ("0", False) if default else ("1", True)
    if isinstance(default, (int, float)):
        return "7", type(default)(7)
    return "seven", "seven"


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_every_field_has_its_variable(section, field):
    default = getattr(SECTIONS[section], field)
    text, value = text_unlike(field, default)
    environ = {f"RLTEL_{section}_{field}".upper(): text}
    if field in PAIRS:
        environ[f"RLTEL_{section}_{PAIRS[field]}".upper()] = "x"
    found = getattr(getattr(resolve(None, environ), section), field)
    assert found == value
    assert type(found) is type(value)
    assert found != default


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("RLTEL_TRACE_ENABLED", "maybe", 'trace.enabled: expected true or false, got "maybe"'),
        ("RLTEL_RUN_LOG_INTERVAL", "0", "run.log_interval: expected a whole number >= 1, got 0"),
        ("RLTEL_RUN_LOG_INTERVAL", "2.5", "run.log_interval: expected a whole number >= 1, got 2.5"),
        ("RLTEL_TRACE_MAX_FILE_MB", "inf", "trace.max_file_mb: expected a number > 0, got Infinity"),
        (
            "RLTEL_TRACE_RANKS",
            "3-1",
            'trace.ranks: expected "all" or a list (a whole number each), got ["3-1"]',
        ),
        ("RLTEL_TRACE_RANKS", "0,x", 'trace.ranks: expected "all" or a list (a whole number each), got [0, "x"]'),
        ("RLTEL_RUN_CONFIG", "lr=1", 'run.config: expected a JSON object, got "lr=1"'),
        ("RLTEL_RUN_CONFIG", "[1]", "run.config: expected a mapping with strings as keys, got [1]"),
        ("RLTEL_WANDB_MODE", "on", 'wandb.mode: expected one of "disabled", "online", "offline", "shared", got "on"'),
    ],
)
def test_a_variable_that_does_not_fit(variable, text, problem):
    assert problems_of(None, {variable: text}) == [f"{problem} (from {variable})"]


def test_a_misspelt_variable_is_an_unknown_key():
    assert problems_of(None, {"RLTEL_TRACE_ENABELD": "1"}) == [
        'RLTEL_TRACE_ENABELD: unknown variable (did you mean "RLTEL_TRACE_ENABLED"?)'
    ]


def test_variables_that_are_no_field_are_left_alone():
    environ = {
        "RLTEL_ROLE": "learner",
        "RLTEL_RANK": "0",
        "RLTEL_WORLD_SIZE": "1",
        "RLTEL_REQUIRE_SERVERS": "1",
        "X": "",
    }
    assert resolve(None, environ) == TelemetryConfig()


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("section_field", ["trace.enabled", "run.dir", "wandb.tags", "otlp.headers", "prometheus.port"])
def test_a_variable_set_to_nothing_is_not_set(section_field, blank):
    given = {"trace": {"enabled": True}, "run": {"dir": "d"}, "wandb": {"tags": ["t"]}, "otlp": {"headers": {"a": "b"}}}
    expected = value_of(resolve(given, {}), section_field)
    assert (
        value_of(resolve(given, {f"RLTEL_{section_field.replace('.', '_').upper()}": blank}), section_field) == expected
    )


def test_otel_set_to_nothing_is_not_set():
    assert resolve({"otlp": {"enabled": True}}, {"OTEL_EXPORTER_OTLP_PROTOCOL": " "}).otlp.protocol == "http/protobuf"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), min_size=1, max_size=6))
def test_ranks_read_as_they_are_written(spans):
    text = ",".join(str(first) if not more else f"{first}-{first + more}" for first, more in spans)
    expected = [rank for first, more in spans for rank in range(first, first + more + 1)]
    assert resolve(None, {"RLTEL_TRACE_RANKS": text}).trace.ranks == expected


keys = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=5)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*SECTIONS, "x"]),
        st.dictionaries(st.sampled_from(["enabled", "path", "mode", "steps", "y"]), json_like) | json_like,
        max_size=4,
    )
)
def test_any_input_gives_a_config_or_an_error_with_paths(given):
    try:
        config = resolve(given, {})
    except ConfigError as error:
        for line in str(error).split("\n"):
            assert line.split(":")[0].split(".")[0].split(",")[0] in {*given, *SECTIONS}
    else:
        assert resolve(config, {}) == config


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([f"RLTEL_{s}_{f}".upper() for s, f in FIELDS]), st.text(max_size=6), max_size=4))
def test_any_text_in_the_environment_gives_a_config_or_an_error(environ):
    with contextlib.suppress(ConfigError):
        assert resolve(resolve(None, environ), {}) == resolve(None, environ)


# --- kill switches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text", "off"),
    [
        ("OTEL_SDK_DISABLED", "true", True),
        ("OTEL_SDK_DISABLED", "TRUE", True),
        ("OTEL_SDK_DISABLED", " true ", True),
        ("OTEL_SDK_DISABLED", "1", False),  # OpenTelemetry knows only "true"
        ("OTEL_SDK_DISABLED", "false", False),
        ("OTEL_SDK_DISABLED", "", False),
        ("RLTEL_DISABLED", "1", True),
        ("RLTEL_DISABLED", "true", True),
        ("RLTEL_DISABLED", "yes", True),
        ("RLTEL_DISABLED", "0", False),
        ("RLTEL_DISABLED", "", False),
        ("RLTEL_DISABLED", "no", False),
    ],
)
def test_kill_switches(variable, text, off):
    assert disabled({variable: text}) is off


def test_no_switch_is_thrown_by_default(monkeypatch):
    assert not disabled({})
    assert not disabled()
    monkeypatch.setenv("RLTEL_DISABLED", "1")
    assert disabled()
