"""The page ``docs/schema.md`` is what the command prints."""

import re
from pathlib import Path

from typer.testing import CliRunner

from rltel.cli import app
from rltel.names.schema import persisted_tags, tags

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"


def printed() -> str:
    return CliRunner().invoke(app, ["schema", "--markdown"]).stdout


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == printed(), "run: rltel schema --markdown > docs/schema.md"


def test_every_table_is_one() -> None:
    """As many cells in each row as in its head, and a head before every row."""
    for table in re.findall(r"(?:^\|.*\n?)+", printed(), re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert set(rule) <= set("| -")
        assert rows
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {head.count("|")}


def test_every_tag_is_in_the_tables_of_meanings_and_names() -> None:
    text = printed()
    assert all(text.count(f"| `{each.name}` |") >= 3 for each in persisted_tags())
    assert all(f"({each.about.rstrip('.')})" in text for each in tags() if not each.persisted)
