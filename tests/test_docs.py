"""Every example in the documentation runs, and what the pages claim about the code is so."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from export.making import PATIENT, environment
from rltel.core.config import TelemetryConfig
from rltel.core.resolve import resolve

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOST = re.compile(r": lost \d+ in all|counted in rltel_dropped_total")
_SHOWN = re.compile(r"cannot hold a |\{'unsupported': \d+\}")  # a page that shows what goes nowhere
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in _FENCE.findall(page.read_text()) if found == language]


EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code: str, tmp_path: Path) -> None:
    command, environ = [sys.executable, "-c", code], environment(**PATIENT)
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    lost = [line for line in ran.stderr.splitlines() if _LOST.search(line) and not _SHOWN.search(line)]
    assert not lost, "what an example records arrives, also without a shutdown"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


def test_configuration_page_shows_every_field_with_its_default() -> None:
    (text,) = blocks(ROOT / "docs" / "configuration.md", "yaml")
    shown = yaml.safe_load(text)
    assert shown == msgspec.to_builtins(TelemetryConfig())
    resolve(shown, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not broken
