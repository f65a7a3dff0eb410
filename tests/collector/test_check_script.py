"""``check.sh`` puts every file to every Collector that is here, and says what it could not put to any."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from realparts.requirements import REPOSITORY

CHECK = REPOSITORY / "collector-config" / "check.sh"
CORE = {
    "receivers": ["otlp"],
    "processors": ["batch", "memory_limiter"],
    "exporters": ["debug", "otlp_http", "otlp_grpc"],
}
CONTRIB = {
    "receivers": ["otlp"],
    "processors": [*CORE["processors"], "tail_sampling", "transform"],
    "exporters": [*CORE["exporters"], "file", "prometheus"],
}


def fake(folder: Path, name: str, components: dict[str, list[str]], refuses: str = "") -> None:
    """A program that answers as otelcol does: its components, and whether a file is valid."""
    listed = "buildinfo:\n    command: otelcol\n" + "".join(
        f"{section}:\n" + "".join(f"    - name: {component}\n      module: x\n" for component in names)
        for section, names in components.items()
    )
    program = folder / name
    program.write_text(
        f"""#!/bin/sh
case "$1" in
components) cat <<'END'
{listed}END
;;
validate) echo "$2" >>{folder}/asked
case "$2" in *{refuses or "nothing-is-called-so"}*) echo "invalid keys: x" >&2; exit 1;; esac
;;
esac
"""
    )
    program.chmod(0o755)


def check(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run([CHECK, *files], env=environ, capture_output=True, text=True, timeout=60, check=False)


def asked(folder: Path) -> list[str]:
    return [Path(line.partition("=")[2]).name for line in (folder / "asked").read_text().splitlines()]


def test_every_file_is_put_to_a_program_that_has_it_all(tmp_path: Path) -> None:
    fake(tmp_path, "otelcol-contrib", CONTRIB)
    done = check(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert asked(tmp_path) == ["agent.yaml", "gateway-contrib.yaml", "gateway.yaml"]
    assert done.stdout.count("ok ") == 3


def test_what_a_program_lacks_is_named_and_the_file_not_put_to_it(tmp_path: Path) -> None:
    fake(tmp_path, "otelcol", CORE)
    done = check(tmp_path)
    assert done.returncode == 3
    assert "lacks   gateway-contrib.yaml: otelcol has no" in done.stdout
    for component in ("exporters/file", "exporters/prometheus", "processors/tail_sampling", "processors/transform"):
        assert component in done.stdout
    assert "gateway-contrib.yaml was put to no Collector" in done.stderr
    assert asked(tmp_path) == ["agent.yaml", "gateway.yaml"]


def test_two_programs_are_both_asked(tmp_path: Path) -> None:
    fake(tmp_path, "otelcol", CORE)
    fake(tmp_path, "otelcol-contrib", CONTRIB)
    done = check(tmp_path)
    assert done.returncode == 0
    assert asked(tmp_path) == ["agent.yaml", "agent.yaml", "gateway-contrib.yaml", "gateway.yaml", "gateway.yaml"]


def test_a_refused_file_is_shown_with_the_reason(tmp_path: Path) -> None:
    fake(tmp_path, "otelcol-contrib", CONTRIB, refuses="agent.yaml")
    done = check(tmp_path)
    assert done.returncode == 1
    assert "REFUSED agent.yaml: otelcol-contrib: invalid keys: x" in done.stdout
    assert done.stdout.count("ok ") == 2


def test_without_any_program_it_says_so(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 2
    assert "no Collector here" in done.stderr


@pytest.mark.parametrize(("name", "status"), [("otlphttp", 0), ("otlpgrpc", 3)])
def test_a_component_s_older_name_is_still_one(tmp_path: Path, name: str, status: int) -> None:
    fake(tmp_path, "otelcol", CORE)
    file = tmp_path / "old.yaml"
    file.write_text(f"receivers:\n  otlp:\nexporters:\n  {name}/there:\n    endpoint: http://x\n")
    assert check(tmp_path, file).returncode == status


def test_it_needs_no_program_of_this_repository() -> None:
    assert os.access(CHECK, os.X_OK)
