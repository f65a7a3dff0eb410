"""Styles as control codes."""

from rich.text import Text

from rltel.export.panel.ansi import encoded


def test_a_style_begins_and_ends() -> None:
    assert encoded([Text.assemble("a ", ("b", "red"), (" c", "bold green"))]) == [
        "a \x1b[31mb\x1b[0m\x1b[1;32m c\x1b[0m"
    ]


def test_plain_text_has_none() -> None:
    assert encoded([Text("plain")]) == ["plain"]
