"""Where this process runs, in OpenTelemetry's words: found in the environment and in the files of a pod.

Names of hosts and nodes are left out unless asked for; those of users, and command lines (which hold secrets), always.
"""

import os
import platform
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

Attributes = dict[str, str | int]

_KUBERNETES = {  # what people call the variables that the downward API fills
    "k8s.pod.name": ("K8S_POD_NAME", "POD_NAME"),
    "k8s.pod.uid": ("K8S_POD_UID", "POD_UID"),
    "k8s.namespace.name": ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE", "POD_NAMESPACE"),
    "k8s.container.name": ("K8S_CONTAINER_NAME",),
    "k8s.job.name": ("K8S_JOB_NAME",),
    "k8s.cluster.name": ("K8S_CLUSTER_NAME",),
}
_KUBERNETES_FILES = {  # a downwardAPI volume, as the documentation of Kubernetes mounts it; and what every pod has
    "k8s.pod.name": ("etc/podinfo/name",),
    "k8s.pod.uid": ("etc/podinfo/uid",),
    "k8s.namespace.name": ("etc/podinfo/namespace", "var/run/secrets/kubernetes.io/serviceaccount/namespace"),
}
_NODE = ("K8S_NODE_NAME", "NODE_NAME")
_SLURM = {
    "slurm.job.id": "SLURM_JOB_ID",
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.job.partition": "SLURM_JOB_PARTITION",
    "slurm.step.id": "SLURM_STEP_ID",
    "slurm.array.job.id": "SLURM_ARRAY_JOB_ID",
    "slurm.array.task.id": "SLURM_ARRAY_TASK_ID",
    "slurm.cluster.name": "SLURM_CLUSTER_NAME",
    "slurm.restart.count": "SLURM_RESTART_COUNT",
}
_SLURM_COUNTS = {"slurm.node.id": "SLURM_NODEID", "slurm.process.id": "SLURM_PROCID"}
_TORCHRUN_COUNTS = {
    "torchrun.local_rank": "LOCAL_RANK",
    "torchrun.group_rank": "GROUP_RANK",
    "torchrun.restart.count": "TORCHELASTIC_RESTART_COUNT",
}


def detected(environ: Mapping[str, str], include_host: bool, root: Path = Path("/")) -> Attributes:
    """Everything that can be told. ``root``: of the file system."""
    return {
        **process(),
        **(host() if include_host else {}),
        **kubernetes(environ, include_host, root),
        **slurm(environ, include_host),
        **torchrun(environ),
    }


def process() -> Attributes:
    """This process and its interpreter."""
    return {
        "process.pid": os.getpid(),
        "process.executable.name": Path(sys.executable).name,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }


def host() -> Attributes:
    """The machine."""
    return {
        "host.name": socket.gethostname(),
        "host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os.type": platform.system().lower(),
    }


def kubernetes(environ: Mapping[str, str], include_host: bool, root: Path = Path("/")) -> Attributes:
    """The pod, if it is one: its variables, else its files. A pod on the host's network is named by no host name."""
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return {}
    found: Attributes = {}
    for name, variables in _KUBERNETES.items():
        value = _first(environ, variables) or _first_file(root, _KUBERNETES_FILES.get(name, ()))
        if value:
            found[name] = value
    node = _first(environ, _NODE) if include_host else ""
    return {**found, "k8s.node.name": node} if node else found


def slurm(environ: Mapping[str, str], include_host: bool) -> Attributes:
    """The job, if there is one."""
    if not environ.get("SLURM_JOB_ID"):
        return {}
    found: Attributes = {name: value for name, variable in _SLURM.items() if (value := environ.get(variable, ""))}
    found.update(_counts(environ, _SLURM_COUNTS))
    node = environ.get("SLURMD_NODENAME") if include_host else ""
    return {**found, "slurm.node.name": node} if node else found


def torchrun(environ: Mapping[str, str]) -> Attributes:
    """The elastic group, if torchrun started this process."""
    run_id = environ.get("TORCHELASTIC_RUN_ID")
    return {"torchrun.run.id": run_id, **_counts(environ, _TORCHRUN_COUNTS)} if run_id else {}


def _counts(environ: Mapping[str, str], variables: Mapping[str, str]) -> Attributes:
    return {name: int(text) for name, variable in variables.items() if (text := environ.get(variable, "")).isdecimal()}


def _first(environ: Mapping[str, str], variables: tuple[str, ...]) -> str:
    return next((value for variable in variables if (value := environ.get(variable, "").strip())), "")


def _first_file(root: Path, places: tuple[str, ...]) -> str:
    for place in places:
        try:
            text = (root / place).read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    return ""
