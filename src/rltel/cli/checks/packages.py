"""Whether the packages that the config needs are there, and of a version that fits."""

import importlib
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from rltel.cli.checks.finding import Finding, ok, problem
from rltel.core.config import TelemetryConfig

_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)[^;]*?>=\s*([0-9.]+)")
_EXTRA = re.compile(r"extra == ['\"](\w+)['\"]")
_NUMBER = re.compile(r"\d+")
_LEFT_OUT = {"all", "bench", "demo", "test", "docs"}


def check_packages(config: TelemetryConfig) -> Iterator[Finding]:
    """Findings on our own requirements, and on the extra of each destination that is on."""
    extras = {
        "tensorboard": config.tensorboard.path is not None,
        "wandb": config.wandb.mode != "disabled",
        "swanlab": config.swanlab.mode != "disabled",
        "trackio": config.trackio.mode != "disabled",
    }
    needed = {"", *(extra for extra, is_on in extras.items() if is_on)}
    for package, least, extra in requirements():
        if extra in needed:
            yield _package(package, least, extra)
    for module in sorted(needed - {""}):
        yield from _importable(module)
    if config.swanlab.mode == "local":
        yield from _importable("swanboard", 'pip install "swanlab[dashboard]"')


def requirements() -> Iterator[tuple[str, str, str]]:
    """Of this package: name, least version, and the extra that needs it ("" for all)."""
    try:
        lines = requires("rltel") or []
    except PackageNotFoundError:  # run from its source, not installed
        return
    for line in lines:
        found, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if found and not (extra and extra[1] in _LEFT_OUT):
            yield found[1], found[2].rstrip("."), extra[1] if extra else ""


def _package(package: str, least: str, extra: str) -> Finding:
    install = f'pip install "rltel[{extra}]"' if extra else f'pip install --upgrade "{package}>={least}"'
    try:
        there = version(package)
    except PackageNotFoundError:
        return problem(f"package {package}", "is not installed", install)
    if _numbers(there) < _numbers(least):
        return problem(f"package {package}", f"{there} is too old", f'pip install --upgrade "{package}>={least}"')
    return ok(f"package {package}", f"{there} (needs {least} or newer)")


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"[0-9.]+", text)
    return tuple(int(part) for part in _NUMBER.findall(release[0])) if release else ()


def _importable(module: str, install: str = "") -> Iterator[Finding]:
    """A package may be there and still not import: its own requirements may be of a wrong version."""
    try:
        importlib.import_module(module)
    except Exception as error:
        install = install or f'pip install --upgrade "rltel[{module}]"'
        yield problem(f"package {module}", f"does not import: {type(error).__name__}: {error}", install)
