"""Which code a run is of, asked of the real git."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rltel.runs import git_state as module
from rltel.runs.git_state import git_state, script_folders

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
ENVIRON = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    ran = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], env=ENVIRON, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def asked(*folders: Path) -> dict[str, Any] | None:
    """What git says, however long a busy machine makes it take: a training waits a second at most."""
    return git_state(list(folders), timeout_s=60.0)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    module._state.cache_clear()
    yield
    module._state.cache_clear()


def test_commit_and_branch(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert asked(repository) == {"commit": commit, "branch": "main", "dirty": False}


def test_a_changed_file_makes_it_dirty_and_an_untracked_one_does_not(repository: Path) -> None:
    (repository / "logs").mkdir()
    (repository / "logs" / "x").write_text("")
    assert (asked(repository) or {})["dirty"] is False
    module._state.cache_clear()
    (repository / "train.py").write_text("2\n")
    assert (asked(repository) or {})["dirty"] is True


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    assert (asked(repository) or {"branch": "?"})["branch"] is None


def test_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert asked(tmp_path) == {"commit": None, "branch": "main", "dirty": False} or asked(tmp_path) == {
        "commit": None,
        "branch": "master",
        "dirty": False,
    }


def test_the_first_folder_in_a_repository_counts(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert asked(other) is None
    assert asked(other, repository) == asked(repository)
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    assert asked(inner) == asked(repository)


def test_a_hook_s_variables_do_not_lead_elsewhere(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert asked(repository) is not None


@pytest.mark.parametrize("script", ["sleep 60", "exit 3", "kill -9 $$"])
def test_a_git_that_hangs_or_fails_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    fake = tmp_path / "git"
    fake.write_text(f"#!/bin/sh\nexec 2>/dev/null\n{'exec ' if 'sleep' in script else ''}{script}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert git_state([tmp_path], timeout_s=0.3) is None


def test_no_git_at_all_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked(tmp_path) is None


def test_no_program_of_the_repository_s_choosing_is_started(repository: Path, tmp_path: Path) -> None:
    proof = tmp_path / "started"
    git(repository, "config", "core.fsmonitor", f"touch {proof}; false")
    assert asked(repository) is not None
    assert not proof.exists()


def test_the_index_is_left_as_it_is(repository: Path) -> None:
    """A lock on it would disturb whoever works there."""
    before = (repository / ".git" / "index").stat().st_mtime_ns
    os.utime(repository / "train.py", (1, 1))
    asked(repository)
    assert (repository / ".git" / "index").stat().st_mtime_ns == before


def test_the_script_s_folder_comes_before_the_working_one() -> None:
    assert script_folders()[-1] == Path.cwd()
