"""The rows at the bottom. What a real terminal makes of the codes: `test_tmux.py`."""

import io
import os
from pathlib import Path

import pytest

from export.panel.pseudo import pseudo_terminal
from rltel.export.panel.terminal import FALLBACK, RELEASE, Terminal, is_screen

GOOD = {"TERM": "xterm"}


class TestIsScreen:
    def test_a_terminal(self) -> None:
        with pseudo_terminal() as terminal:
            assert is_screen(terminal.stream, GOOD)

    @pytest.mark.parametrize(
        "environ",
        [
            {}, {"TERM": "dumb"}, {"TERM": ""}, {"TERM": "unknown"}, {**GOOD, "NO_COLOR": "1"}, {**GOOD, "CI": "true"},
            {**GOOD, "CI": "1"},
        ],
    )  # fmt: skip
    def test_one_that_refuses_control_codes(self, environ: dict[str, str]) -> None:
        with pseudo_terminal() as terminal:
            assert not is_screen(terminal.stream, environ)

    @pytest.mark.parametrize("environ", [{"NO_COLOR": ""}, {"CI": ""}, {"CI": "false"}, {"CI": "0"}])
    def test_one_that_does_not(self, environ: dict[str, str]) -> None:
        with pseudo_terminal() as terminal:
            assert is_screen(terminal.stream, {**GOOD, **environ})

    def test_a_file_even_if_colours_are_forced(self, tmp_path: Path) -> None:
        with (tmp_path / "log").open("w") as file:
            assert not is_screen(file, {**GOOD, "FORCE_COLOR": "1"})

    def test_a_stream_without_a_file(self) -> None:
        assert not is_screen(io.StringIO(), GOOD)

    def test_a_notebooks_stream_that_says_it_is_one(self) -> None:
        class Claims(io.StringIO):
            def isatty(self) -> bool:
                return True

        assert not is_screen(Claims(), GOOD)

    def test_a_closed_stream(self) -> None:
        stream = io.StringIO()
        stream.close()
        assert not is_screen(stream, GOOD)


class TestSize:
    def test_as_it_is(self) -> None:
        with pseudo_terminal(97, 31) as terminal:
            assert Terminal(terminal.stream.fileno()).size() == (97, 31)

    def test_of_one_that_does_not_know(self) -> None:
        with pseudo_terminal(0, 0) as terminal:
            assert Terminal(terminal.stream.fileno()).size() == FALLBACK

    def test_of_none(self) -> None:
        reading, writing = os.pipe()
        assert Terminal(writing).size() == FALLBACK
        os.close(reading)
        os.close(writing)


def test_without_job_control_it_may_draw() -> None:
    with pseudo_terminal() as terminal:
        assert Terminal(terminal.stream.fileno()).is_ours()


def test_room_is_made_once_for_a_size() -> None:
    with pseudo_terminal() as terminal:
        shown = Terminal(terminal.stream.fileno())
        for text in ("one", "two"):
            shown.show([text] * 5, os.terminal_size((100, 40)))
        terminal.wait_for("\x1b[40;1Htwo")
        assert terminal.text.count("\x1b[1;35r") == 1


def test_fewer_lines_stay_at_the_bottom_and_clear_what_was_above() -> None:
    with pseudo_terminal() as terminal:
        shown = Terminal(terminal.stream.fileno())
        shown.show(["old"] * 5, os.terminal_size((100, 40)))
        shown.show(["new"] * 3, os.terminal_size((100, 40)))
        terminal.wait_for("\x1b[36;1H\x1b[2K\x1b[37;1H\x1b[2K\x1b[38;1Hnew")


def test_nothing_shown_is_nothing_to_leave() -> None:
    with pseudo_terminal() as terminal:
        Terminal(terminal.stream.fileno()).leave(["last"])
        os.write(terminal.stream.fileno(), b".")
        terminal.wait_for(".")
        assert terminal.text == "."


def test_leaving_gives_the_rows_back_and_prints_the_last_lines() -> None:
    with pseudo_terminal() as terminal:
        shown = Terminal(terminal.stream.fileno())
        shown.show(["panel"], os.terminal_size((100, 40)))
        shown.leave(["last"])
        terminal.wait_for("last")
        after = terminal.text.partition("panel")[2]
        assert after.index(RELEASE) < after.index("last")


def test_an_encoding_that_has_not_all_characters() -> None:
    with pseudo_terminal() as terminal:
        Terminal(terminal.stream.fileno(), "ascii").show(["机器人!"], os.terminal_size((100, 40)))
        terminal.wait_for("???!")
