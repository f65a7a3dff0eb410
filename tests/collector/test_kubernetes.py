"""The Kubernetes manifests hold together: kinds, selectors, names, ports and volumes that exist."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.schema import listeners, loaded, problems
from realparts.processes import free_port
from realparts.requirements import REPOSITORY

CONFIGS = REPOSITORY / "collector-config"
FOLDER = CONFIGS / "kubernetes"
KINDS = {
    "Namespace": "v1",
    "ConfigMap": "v1",
    "Service": "v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
}


def manifests() -> list[dict[str, Any]]:
    files = sorted(file for file in FOLDER.glob("*.yaml") if file.name != "kustomization.yaml")
    return [manifest for file in files for manifest in yaml.safe_load_all(file.read_text())]


ALL = manifests()
WORKLOADS = [manifest for manifest in ALL if manifest["kind"] in ("DaemonSet", "Deployment", "Job")]
COLLECTORS = [manifest for manifest in WORKLOADS if manifest["kind"] != "Job"]
(JOB,) = (manifest for manifest in ALL if manifest["kind"] == "Job")


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in ALL if one["kind"] == kind and one["metadata"]["name"] == name)
    return found


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (one,) = pod(workload)["containers"]
    return dict(one)


def variables(workload: dict[str, Any]) -> dict[str, str]:
    """Those whose values stand in the manifest."""
    return {entry["name"]: entry["value"] for entry in container(workload)["env"] if "value" in entry}


def ports(workload: dict[str, Any]) -> dict[str, int]:
    return {entry["name"]: entry["containerPort"] for entry in container(workload)["ports"]}


def collector_config(workload: dict[str, Any]) -> dict[str, Any]:
    """What its container reads, with its variables."""
    (text,) = named("ConfigMap", workload["metadata"]["name"])["data"].values()
    return loaded(text, variables(workload))


def name_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def test_there_is_a_kind_for_each_purpose() -> None:
    assert {manifest["kind"] for manifest in ALL} == KINDS.keys()
    assert all(manifest["apiVersion"] == KINDS[manifest["kind"]] for manifest in ALL)
    assert len({name_of(manifest) for manifest in ALL}) == len(ALL)


def test_the_kustomization_names_every_file_but_the_example() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {file.name for file in FOLDER.glob("*.yaml")}
    assert set(kustomization["resources"]) == files - {"kustomization.yaml", "job.yaml"}
    assert kustomization["namespace"] == named("Namespace", "rltel")["metadata"]["name"]


@pytest.mark.parametrize("name", ["agent", "gateway"])
def test_the_config_map_is_the_file(name: str) -> None:
    data = named("ConfigMap", f"rltel-{name}")["data"]
    assert data == {f"{name}.yaml": (CONFIGS / f"{name}.yaml").read_text()}


@pytest.mark.parametrize("workload", COLLECTORS, ids=name_of)
def test_a_collector_reads_the_file_that_is_mounted(workload: dict[str, Any]) -> None:
    (mount,) = container(workload)["volumeMounts"]
    (volume,) = pod(workload)["volumes"]
    (argument,) = container(workload)["args"]
    config_map = named("ConfigMap", volume["configMap"]["name"])
    assert mount["name"] == volume["name"]
    assert argument.removeprefix(f"--config={mount['mountPath']}/") in config_map["data"]


@pytest.mark.parametrize("workload", COLLECTORS, ids=name_of)
def test_a_collector_s_ports_are_those_of_its_config(workload: dict[str, Any]) -> None:
    config = collector_config(workload)
    assert problems(config) == []
    places = [listens.rpartition(":") for _, listens in listeners(config)]
    assert {host for host, _, _ in places} == {"0.0.0.0"}  # within the pod's own network
    assert {int(port) for _, _, port in places} == set(ports(workload).values())


@pytest.mark.parametrize("workload", COLLECTORS, ids=name_of)
def test_the_memory_limiter_acts_before_the_pod_s_limit(workload: dict[str, Any]) -> None:
    limit = container(workload)["resources"]["limits"]["memory"]
    limiter = collector_config(workload)["processors"]["memory_limiter"]
    assert limiter["limit_mib"] < int(limit.removesuffix("Mi"))
    assert int(variables(workload)["GOMEMLIMIT"].removesuffix("MiB")) <= limiter["limit_mib"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_names_of_ports_are_short_and_probes_name_one(workload: dict[str, Any]) -> None:
    assert all(len(name) <= 15 for name in ports(workload))
    probe = container(workload).get("readinessProbe")
    assert probe is None or probe["tcpSocket"]["port"] in ports(workload)


@pytest.mark.parametrize("workload", COLLECTORS, ids=name_of)
def test_selectors_select_their_own_pods(workload: dict[str, Any]) -> None:
    wanted = workload["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= workload["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_every_mounted_volume_is_there(workload: dict[str, Any]) -> None:
    mounted = {mount["name"] for mount in container(workload)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(workload)["volumes"]}


def test_the_agents_send_to_the_service_of_the_gateway() -> None:
    service = named("Service", "rltel-gateway")
    gateway = named("Deployment", "rltel-gateway")
    labels = gateway["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    by_name = {entry["name"]: entry for entry in service["spec"]["ports"]}
    assert all(entry["targetPort"] in ports(gateway) for entry in by_name.values())
    sends = variables(named("DaemonSet", "rltel-agent"))["COLLECTOR_GATEWAY"]
    assert sends == f"http://rltel-gateway.rltel.svc:{by_name['otlp-http']['port']}"


def test_the_job_sends_to_its_node_s_agent() -> None:
    agent = named("DaemonSet", "rltel-agent")
    open_on_node = {entry["name"]: entry.get("hostPort") for entry in container(agent)["ports"]}
    assert variables(JOB)["RLTEL_OTLP_ENDPOINT"] == f"http://$(NODE_IP):{open_on_node['otlp-http']}"
    names = [entry["name"] for entry in container(JOB)["env"]]
    for what_refers, referred in (("RLTEL_OTLP_ENDPOINT", "NODE_IP"), ("RLTEL_PROMETHEUS_ADVERTISE", "POD_IP")):
        assert names.index(referred) < names.index(what_refers), "Kubernetes puts in only what came before"


def monitors() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each PodMonitor with each of the workloads whose pods it selects."""
    for monitor in (manifest for manifest in ALL if manifest["kind"] == "PodMonitor"):
        selector = monitor["spec"]["selector"]
        for workload in WORKLOADS:
            labels = workload["spec"]["template"]["metadata"]["labels"]
            exact = selector.get("matchLabels", {}).items() <= labels.items()
            among = all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))
            if exact and among:
                yield monitor, workload


def test_a_pod_monitor_scrapes_a_port_that_its_pods_have() -> None:
    pairs = list(monitors())
    assert {(monitor["metadata"]["name"], workload["metadata"]["name"]) for monitor, workload in pairs} == {
        ("rl-training", "grpo-7"),
        ("rltel-collectors", "rltel-agent"),
        ("rltel-collectors", "rltel-gateway"),
    }
    for monitor, workload in pairs:
        for scraped in monitor["spec"]["podMetricsEndpoints"]:
            assert scraped["port"] in ports(workload)


def test_the_pod_monitor_takes_labels_that_the_job_has() -> None:
    (scraped,) = named("PodMonitor", "rl-training")["spec"]["podMetricsEndpoints"]
    assert scraped["honorLabels"] is True
    labels = {label.replace("/", "_").replace("-", "_") for label in JOB["spec"]["template"]["metadata"]["labels"]}
    taken = {one["sourceLabels"][0]: one["targetLabel"] for one in scraped["relabelings"]}
    of_labels = {name.removeprefix("__meta_kubernetes_pod_label_") for name in taken if "_label_" in name}
    assert of_labels <= labels
    assert set(taken.values()) == {"rl_run_id", "rl_role", "rl_rank"}


def test_the_job_says_one_thing_everywhere() -> None:
    values, template = variables(JOB), JOB["spec"]["template"]["metadata"]
    assert values["RLTEL_RUN_ID"] == template["labels"]["rltel/run-id"] == JOB["metadata"]["name"]
    assert values["RLTEL_ROLE"] == template["labels"]["rltel/role"]
    assert int(values["RLTEL_WORLD_SIZE"]) == JOB["spec"]["completions"] == JOB["spec"]["parallelism"]
    assert template["annotations"]["prometheus.io/port"] == str(ports(JOB)["rl-metrics"])
    assert JOB["spec"]["completionMode"] == "Indexed"  # without it there is no index to be the rank


_SERVES = """
import rltel
telemetry = rltel.init()
rltel.log({"reward": 1.0}, step=1)
from pathlib import Path
print("serves", *[file.read_text().replace("\\n", "") for file in Path(telemetry.run_dir).glob("prometheus_sd/*.json")])
rltel.shutdown()
"""


@pytest.mark.parametrize("rank", [0, 3])
def test_rltel_takes_the_job_s_variables_and_every_pod_serves_the_same_port(tmp_path: Path, rank: int) -> None:
    """The writer takes the port that is set, the others the next one: the command makes up for that."""
    port = free_port()
    sh, option, command = container(JOB)["command"]
    command = command.replace("$$", "$").replace("9464", str(port)).replace("python train.py", '"$PYTHON" -c "$CODE"')
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    environ |= variables(JOB) | {
        "RLTEL_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "RLTEL_RUN_DIR": str(tmp_path / "run"),
        "RLTEL_PROMETHEUS_HOST": "127.0.0.1",
        "RLTEL_PROMETHEUS_ADVERTISE": "127.0.0.1",
        "RLTEL_PROMETHEUS_LINGER_S": "0",
        "RLTEL_RANK": str(rank),
        "PYTHON": sys.executable,
        "CODE": _SERVES,
    }
    done = subprocess.run(
        [sh, option, command], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (said,) = (line.removeprefix("serves ") for line in done.stdout.splitlines() if line.startswith("serves "))
    (group,) = json.loads(said)
    assert group["targets"] == [f"127.0.0.1:{port}"]
    labels = {name: value for name, value in group["labels"].items() if not name.startswith("__")}
    assert labels == {"rl_run_id": "grpo-7", "rl_role": "learner", "rl_rank": str(rank)}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_kustomize_builds_it() -> None:
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert {one["metadata"].get("namespace") for one in built if one["kind"] != "Namespace"} == {"rltel"}
    data = {key: text for one in built if one["kind"] == "ConfigMap" for key, text in one["data"].items()}
    assert data == {name: (CONFIGS / name).read_text() for name in ("agent.yaml", "gateway.yaml")}


def test_the_page_s_commands_make_rules_and_dashboards_of_the_files(tmp_path: Path) -> None:
    """With a stand-in for kubectl, which keeps what it is given."""
    page = (REPOSITORY / "docs" / "collector.md").read_text()
    (block,) = (block for block in page.split("```")[1::2] if "kind: PrometheusRule" in block)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\ncase "$*" in *"apply -f -") cat >{tmp_path}/rules.yaml;; esac\n'
    )
    kubectl.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=REPOSITORY, env=environ, timeout=60, check=True)
    made = {one["metadata"]["name"]: one for one in yaml.safe_load_all((tmp_path / "rules.yaml").read_text()) if one}
    files = {f"rltel-{file.stem}": file for file in (REPOSITORY / "dashboards" / "rules").glob("*.yml")}
    assert made.keys() == files.keys()
    for name, file in files.items():
        assert made[name]["kind"] == "PrometheusRule"
        assert made[name]["spec"] == yaml.safe_load(file.read_text())
    for line in (tmp_path / "asked").read_text().splitlines():
        assert line.startswith("-n rltel ")
