"""Where a process runs, told from its environment and the files of its pod; and what is not told."""

import getpass
import os
import socket
from pathlib import Path

import pytest

from export.making import identity
from rltel.core.config import RunConfig
from rltel.export.detect import detected, host, kubernetes, process, slurm, torchrun
from rltel.export.resource import resource_of

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
JOB = {"SLURM_JOB_ID": "4711"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pod's file system, with a downwardAPI volume and what every pod has."""
    files = {
        "etc/podinfo/name": "trainer-0\n",
        "etc/podinfo/uid": "uid-1",
        "var/run/secrets/kubernetes.io/serviceaccount/namespace": "rl",
    }
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    return tmp_path


class TestProcess:
    def test_says_which_and_what_runs_it(self) -> None:
        found = process()
        assert found["process.pid"] == os.getpid()
        assert found["process.runtime.name"] == "cpython"

    def test_never_its_command_line_nor_its_user(self) -> None:
        """Command lines hold keys; who started it is nobody's business."""
        found = detected({"USER": getpass.getuser(), "SLURM_JOB_USER": "me", **POD, **JOB}, include_host=True)
        assert not {name for name in found if "command" in name or "user" in name or "owner" in name}
        assert "me" not in found.values()


class TestHost:
    def test_only_if_asked(self) -> None:
        names = {"host.name", "k8s.node.name", "slurm.node.name"}
        environ = {**POD, **JOB, "NODE_NAME": "node-7", "SLURMD_NODENAME": "node-7"}
        assert not names & detected(environ, include_host=False).keys()
        found = detected(environ, include_host=True)
        assert {name: found[name] for name in names} == {
            "host.name": socket.gethostname(),
            "k8s.node.name": "node-7",
            "slurm.node.name": "node-7",
        }

    def test_by_the_config_s_switch(self) -> None:
        for include, wanted in ((False, False), (True, True)):
            found = resource_of(identity(), RunConfig(include_host=include), {}).attributes
            assert ("host.name" in found) == wanted

    def test_architecture_in_the_words_of_the_conventions(self) -> None:
        assert host()["host.arch"] in ("amd64", "arm64", os.uname().machine)


class TestKubernetes:
    def test_nothing_outside_a_pod(self, root: Path) -> None:
        assert kubernetes({"POD_NAME": "x"}, False, root) == {}

    def test_by_the_variables_of_the_downward_api(self, tmp_path: Path) -> None:
        environ = {**POD, "POD_NAME": "trainer-0", "POD_NAMESPACE": "rl", "POD_UID": "u", "K8S_CONTAINER_NAME": "main"}
        assert kubernetes(environ, False, tmp_path) == {
            "k8s.pod.name": "trainer-0",
            "k8s.namespace.name": "rl",
            "k8s.pod.uid": "u",
            "k8s.container.name": "main",
        }

    def test_by_its_files(self, root: Path) -> None:
        assert kubernetes(POD, False, root) == {
            "k8s.pod.name": "trainer-0",
            "k8s.pod.uid": "uid-1",
            "k8s.namespace.name": "rl",
        }

    def test_variables_are_stronger(self, root: Path) -> None:
        assert kubernetes({**POD, "K8S_POD_NAME": "named"}, False, root)["k8s.pod.name"] == "named"

    def test_files_that_cannot_be_read_are_passed_over(self, root: Path) -> None:
        (root / "etc/podinfo/name").write_bytes(b"\xff\xfe")
        (root / "etc/podinfo/uid").unlink()
        (root / "etc/podinfo/uid").mkdir()
        assert kubernetes(POD, False, root) == {"k8s.namespace.name": "rl"}

    def test_the_host_name_is_no_pod_s_name(self, tmp_path: Path) -> None:
        """A pod on the host's network has its node's."""
        assert kubernetes({**POD, "HOSTNAME": "node-7"}, False, tmp_path) == {}


class TestSlurm:
    def test_nothing_outside_a_job(self) -> None:
        assert slurm({"SLURM_PROCID": "0"}, False) == {}

    def test_job_step_and_place(self) -> None:
        environ = {**JOB, "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NODEID": "1", "SLURM_JOB_PARTITION": "gpu"}
        assert slurm(environ, False) == {
            "slurm.job.id": "4711",
            "slurm.step.id": "0",
            "slurm.job.partition": "gpu",
            "slurm.process.id": 3,
            "slurm.node.id": 1,
        }


class TestTorchrun:
    def test_nothing_without_it(self) -> None:
        assert torchrun({"LOCAL_RANK": "0"}) == {}

    def test_group_and_place(self) -> None:
        environ = {"TORCHELASTIC_RUN_ID": "r", "LOCAL_RANK": "1", "GROUP_RANK": "2", "TORCHELASTIC_RESTART_COUNT": "x"}
        assert torchrun(environ) == {"torchrun.run.id": "r", "torchrun.local_rank": 1, "torchrun.group_rank": 2}


class TestResource:
    def test_all_of_it_is_there(self, root: Path) -> None:
        environ = {**POD, **JOB, "TORCHELASTIC_RUN_ID": "r"}
        found = resource_of(identity(), RunConfig(), environ, root).attributes
        wanted = {"k8s.pod.name": "trainer-0", "slurm.job.id": "4711", "torchrun.run.id": "r", "rl.role": "learner"}
        assert wanted.items() <= found.items()

    def test_half_characters_are_spelled_out(self) -> None:
        """Protobuf cannot hold them: nothing at all would be sent."""
        found = resource_of(identity(), RunConfig(name="a\ud800", algo="b\udcff"), {}).attributes
        assert (found["service.name"], found["rl.algorithm"]) == ("a\\ud800", "b\\udcff")

    def test_the_environment_s_words_are_stronger(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An operator of Kubernetes may have set them."""
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=theirs")
        found = resource_of(identity(), RunConfig(), {**POD, **os.environ}, root).attributes
        assert found["k8s.pod.name"] == "theirs"
