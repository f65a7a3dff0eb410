"""Which code this is: the commit, the branch, and whether files were changed."""

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_ASK = ("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no", "--ignore-submodules")
_NO_WATCHER = "core.fsmonitor=false"  # it would start a program of the repository's choosing
_UNKNOWN = {"(initial)": None, "(detached)": None}


def git_state(folders: list[Path] | None = None, timeout_s: float = 1.0) -> dict[str, Any] | None:
    """``{"commit", "branch", "dirty"}`` of the first folder that is in a repository; None if none is, or git is slow.

    ``folders``: default, the main script's and the working directory. ``dirty``: a tracked file was changed (untracked
    ones are mostly logs). ``branch`` is None where none is checked out, ``commit`` before the first one. Takes some
    milliseconds in a small repository, and at most `timeout_s` a folder. The answer is kept: what runs is what was
    imported then.
    """
    for folder in script_folders() if folders is None else folders:
        found = _state(folder, timeout_s)
        if found is not None:
            return dict(found)
    return None


def script_folders() -> list[Path]:
    """Where this program's code may be."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    found = [Path(script).resolve().parent] if script else []
    with suppress(FileNotFoundError):  # somebody deleted it
        found.append(Path.cwd())
    return found


@cache
def _state(folder: Path, timeout_s: float) -> dict[str, Any] | None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook's, say
    command = ["git", "--no-optional-locks", "-c", _NO_WATCHER, "-C", str(folder), *_ASK]
    try:
        ran = subprocess.run(  # noqa: S603  # the command is fixed, and no shell reads it
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environ,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # there is no git, or a huge or sleeping file system
        return None
    return None if ran.returncode else _read(ran.stdout)


def _read(answer: str) -> dict[str, Any]:
    heads = dict(line[2:].split(" ", 1) for line in answer.splitlines() if line.startswith("# "))
    commit, branch = (heads.get(name) for name in ("branch.oid", "branch.head"))
    return {
        "commit": _UNKNOWN.get(commit or "", commit),
        "branch": _UNKNOWN.get(branch or "", branch),
        "dirty": any(line and not line.startswith("#") for line in answer.splitlines()),
    }
