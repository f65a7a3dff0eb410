"""Every Collector file holds what the Collector takes, and the check that says so finds what is wrong."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.schema import distributions, expanded, listeners, loaded, problems
from realparts.requirements import REPOSITORY

CONFIGS = REPOSITORY / "collector-config"
FILES = sorted([CONFIGS / "agent.yaml", *CONFIGS.glob("gateway*.yaml")])
AGENT, GATEWAY, CONTRIB = (CONFIGS / f"{name}.yaml" for name in ("agent", "gateway", "gateway-contrib"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_component_reference_and_option_is_one(file: Path) -> None:
    assert problems(loaded(file.read_text())) == []


@pytest.mark.parametrize("file", [AGENT, GATEWAY], ids=lambda file: file.stem)
def test_agent_and_gateway_need_core_components_only(file: Path) -> None:
    assert distributions(loaded(file.read_text())) == {"core"}


def test_the_other_gateway_has_what_is_contrib() -> None:
    config = loaded(CONTRIB.read_text())
    assert distributions(config) == {"core", "contrib"}
    assert {"prometheus", "file"} <= config["exporters"].keys()
    assert "tail_sampling" in config["service"]["pipelines"]["traces"]["processors"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_without_variables_it_listens_on_loopback_alone(file: Path) -> None:
    for _, listens in listeners(loaded(file.read_text())):
        assert listens.startswith("127.0.0.1:")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_variables_reach_every_listener(file: Path) -> None:
    config = loaded(file.read_text(), {"COLLECTOR_LISTEN": "0.0.0.0"})
    assert problems(config) == []
    assert {listens.partition(":")[0] for _, listens in listeners(config)} == {"0.0.0.0"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_head_names_its_variables(file: Path) -> None:
    text = file.read_text()
    head = text[: text.index("receivers:")]
    if file == CONTRIB:
        head += GATEWAY.read_text()[:600]  # it says: as in gateway.yaml
    used = set(re.findall(r"\$\{env:(\w+)", text))
    assert used
    assert used <= set(re.findall(r"COLLECTOR_\w+", head))


def test_agent_and_gateway_run_beside_each_other() -> None:
    taken = [listens for file in (AGENT, GATEWAY) for _, listens in listeners(loaded(file.read_text()))]
    assert len(taken) == len(set(taken))


def test_the_agent_sends_to_where_the_gateway_listens() -> None:
    sends = loaded(AGENT.read_text())["exporters"]["otlp_http"]["endpoint"]
    gateway = loaded(GATEWAY.read_text())["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert sends == f"http://{gateway}"


def test_a_variable_without_a_value_is_said() -> None:
    with pytest.raises(ValueError, match="COLLECTOR_X has no default"):
        expanded("${env:COLLECTOR_X}", {})
    assert expanded("${env:X:-1}:${env:Y}", {"Y": "2"}) == "1:2"


# --- the check finds what is wrong ------------------------------------------------------------------------------------


def _set(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        *parents, last = path
        for part in parents:
            config = config[part]
        config[last] = to

    return change


def _rename(section: str, old: str, new: str) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        config[section][new] = config[section].pop(old)

    return change


WRONG = {
    "unknown section": (_set("exporter", to={}), "exporter: unknown section"),
    "misspelt option": (
        _set("receivers", "otlp", "protocols", "grpc", "max_recv_msg_size", to=4),
        "receivers.otlp.protocols.grpc.max_recv_msg_size: unknown option",
    ),
    "no unit": (_set("processors", "batch", "timeout", to="1"), "processors.batch.timeout: expected a duration"),
    "not a number": (
        _set("processors", "memory_limiter", "limit_mib", to="512MiB"),
        "limit_mib: expected a whole number",
    ),
    "unknown component": (_rename("exporters", "debug", "logging"), "exporters.logging: no such component"),
    "not configured": (
        _set("service", "pipelines", "metrics", "exporters", to=["otlp_http"]),
        "service.pipelines.metrics.exporters: otlp_http is not configured",
    ),
    "in no pipeline": (
        _set("service", "pipelines", "traces", "exporters", to=["debug"]),
        "exporters.otlp_http/traces: in no pipeline",
    ),
    "no receiver": (_set("service", "pipelines", "traces", "receivers", to=[]), "traces.receivers: needs a receiver"),
    "unknown signal": (
        lambda config: config["service"]["pipelines"].update(spans=config["service"]["pipelines"].pop("traces")),
        "service.pipelines.spans.receivers: otlp has no spans",
    ),
    "spike above the limit": (
        _set("processors", "memory_limiter", "spike_limit_mib", to=4096),
        "spike_limit_mib: has to be less than limit_mib",
    ),
    "batches too small": (
        _set("processors", "batch", "send_batch_max_size", to=100),
        "send_batch_max_size: has to be at least send_batch_size",
    ),
    "no endpoint": (
        lambda config: config["exporters"]["otlp_http/metrics"].pop("endpoint"),
        "exporters.otlp_http/metrics.endpoint: needed",
    ),
    "limiter late": (
        _set("service", "pipelines", "metrics", "processors", to=["batch", "memory_limiter"]),
        "memory_limiter has to be the first",
    ),
    "one port for two": (
        _set("receivers", "otlp", "protocols", "grpc", "endpoint", to="127.0.0.1:14318"),
        "127.0.0.1:14318 is taken",
    ),
    "no such level": (_set("service", "telemetry", "metrics", "level", to="all"), "level: expected one of"),
    "no URL": (_set("exporters", "otlp_http/traces", "endpoint", to="tempo:4318"), "endpoint: expected a URL of HTTP"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    change, said = WRONG[name]
    config = copy.deepcopy(loaded(GATEWAY.read_text()))
    change(config)
    assert any(said in problem for problem in problems(config)), problems(config)


def test_a_policy_has_the_options_of_its_type_alone() -> None:
    config = loaded(CONTRIB.read_text())
    config["processors"]["tail_sampling"]["policies"][0]["type"] = "latency"
    assert [problem for problem in problems(config) if "policies[0]" in problem]


def test_tail_sampling_takes_no_metrics() -> None:
    config = loaded(CONTRIB.read_text())
    config["service"]["pipelines"]["metrics"]["processors"].insert(1, "tail_sampling")
    assert "service.pipelines.metrics.processors: tail_sampling has no metrics" in problems(config)


# --- the Collector itself, where one is -------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("otelcol") is None, reason="no otelcol on PATH")
def test_the_collector_says_the_same_as_our_check(tmp_path: Path) -> None:
    """Only those that the Collector refuses when it starts: the others are ours to know."""
    for name in ("misspelt option", "no unit", "not a number", "unknown component", "not configured", "no receiver"):
        config = copy.deepcopy(loaded(GATEWAY.read_text()))
        WRONG[name][0](config)
        file = tmp_path / "wrong.yaml"
        file.write_text(yaml.safe_dump(config))
        refused = subprocess.run(["otelcol", "validate", f"--config={file}"], capture_output=True, check=False)
        assert refused.returncode != 0, name


@pytest.mark.skipif(shutil.which("otelcol") is None, reason="no otelcol on PATH")
def test_the_collector_takes_the_files() -> None:
    done = subprocess.run(
        [CONFIGS / "check.sh", AGENT, GATEWAY], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
