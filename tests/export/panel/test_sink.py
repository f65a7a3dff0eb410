"""The panel as a destination."""

import io
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from export.making import commit, wait_until
from export.panel.making import SAC
from export.panel.pseudo import Pseudo, pseudo_terminal
from rltel.export.panel import sink as sink_module
from rltel.export.panel.sink import PanelSettings, PanelSink, PlainPanel, no_facts, open_panel
from rltel.export.panel.system import SystemFacts
from rltel.export.panel.terminal import RELEASE
from rltel.export.sink import Destination

FAST = PanelSettings(50.0, algo="sac", task="go2")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's terminal takes the last frame, too."""
    monkeypatch.setattr(sink_module, "_CLOSE_S", 60.0)


@contextmanager
def panel(columns: int = 100, rows: int = 40, **options: Any) -> Iterator[tuple[PanelSink, Pseudo]]:
    with pseudo_terminal(columns, rows) as terminal:
        sink = PanelSink(terminal.stream, FAST, **options)
        try:
            yield sink, terminal
        finally:
            with suppress(ValueError):  # what the test made go wrong, and has looked at
                sink.close()


class TestDrawing:
    def test_nothing_before_the_first_commit(self) -> None:
        with panel() as (sink, terminal):
            sink.flush()
            sink.close()
            assert (terminal.text, sink.failures) == ("", 0)

    def test_a_commit_is_shown(self) -> None:
        with panel() as (sink, terminal):
            sink.write(commit({**SAC, "Train/iteration": 4711.0}), [])
            terminal.wait_for("iter 4711")
            terminal.wait_for("Learner Action Wait")

    def test_again_and_again_without_commits(self) -> None:
        """It has a clock of its own: a training that stalls is seen to."""
        with panel() as (sink, terminal):
            sink.write(commit(SAC), [])
            wait_until(lambda: terminal.text.count("go2") >= 5, "five frames")

    def test_what_was_told_meanwhile(self) -> None:
        facts = SystemFacts()
        with panel(140, facts=facts) as (sink, terminal):
            sink.write(commit(SAC), [])
            terminal.wait_for("CUDA MPS")
            facts.tell(buffer=123_456, status="Evaluating")
            terminal.wait_for("123,456")
            terminal.wait_for("Evaluating")

    def test_a_new_size_is_a_new_frame(self) -> None:
        with panel(100, 40) as (sink, terminal):
            sink.write(commit(SAC), [])
            terminal.wait_for("╭")
            terminal.resize(140, 50)
            terminal.wait_for("System")

    @pytest.mark.parametrize(("columns", "rows"), [(20, 40), (100, 5), (1, 1)])
    def test_where_there_is_no_room_it_stays_away(self, columns: int, rows: int) -> None:
        with panel(columns, rows) as (sink, terminal):
            sink.write(commit(SAC), [])
            sink.close()
            assert (terminal.text, sink.failures) == ("", 0)


class TestClosing:
    def test_the_last_frame_is_of_the_last_commit(self) -> None:
        with panel() as (sink, terminal):
            for step in range(100):
                sink.write(commit({**SAC, "Train/iteration": float(step)}), [])
            sink.close()
            terminal.wait_for("╯\x1b[0m\x1b[0m\r\r\n")
            last = terminal.text.rpartition(RELEASE)[2]
            assert "iter 99" in last
            assert "\x1b[1;" not in last.replace("\x1b[1;32m", "")  # no region that would stay

    def test_twice(self) -> None:
        with panel() as (sink, terminal):
            sink.write(commit(SAC), [])
            sink.close()
            sink.close()
            wait_until(lambda: RELEASE in terminal.text, "the end")

    def test_commits_after_it_do_nothing(self) -> None:
        with panel() as (sink, _):
            sink.write(commit(SAC), [])
            sink.close()
            sink.write(commit(SAC), [])
            assert not panel_threads()

    def test_no_thread_and_no_process_is_left(self) -> None:
        before = set(threading.enumerate())  # some of these, of other tests, may end meanwhile
        with pseudo_terminal() as terminal:
            sink = PanelSink(terminal.stream, FAST)
            sink.write(commit(SAC), [])
            sink.close()
            assert not panel_threads()
        assert set(threading.enumerate()) <= before


class TestTrouble:
    def test_a_frame_that_cannot_be_made_is_counted_and_said_and_the_next_is_tried(self) -> None:
        broken = threading.Event()
        broken.set()

        def facts() -> Mapping[str, Any]:
            if broken.is_set():
                raise ValueError("no facts today")
            return {}

        with panel(facts=facts) as (sink, terminal):
            sink.write(commit(SAC), [])
            wait_until(lambda: sink.failures >= 3, "failures")
            with pytest.raises(ValueError, match="no facts today"):
                sink.flush()
            broken.clear()
            terminal.wait_for("go2")

    def test_it_is_in_the_account_of_the_destination(self) -> None:
        """As the pipeline asks for it."""
        account = Destination("terminal")

        def facts() -> Mapping[str, Any]:
            raise ValueError("no facts today")

        with panel(facts=facts) as (sink, _):
            sink.write(commit(SAC), [])
            wait_until(lambda: sink.failures >= 2, "failures")  # each is counted before it is kept for the flush
            try:
                sink.flush()
            except ValueError as error:
                account.failed(error, count=0)
        assert account.dropped_totals == {"error": 0}  # no commit is lost by a frame that was not drawn

    def test_the_terminal_is_given_back_all_the_same(self) -> None:
        failing = threading.Event()

        def facts() -> Mapping[str, Any]:
            if failing.is_set():
                raise ValueError("no facts today")
            return {}

        with panel(facts=facts) as (sink, terminal):
            sink.write(commit(SAC), [])
            terminal.wait_for("go2")
            failing.set()
            drawn = terminal.text.count(RELEASE)
            with pytest.raises(ValueError, match="no facts today"):
                sink.close()
            wait_until(lambda: terminal.text.count(RELEASE) > drawn, "the rows")

    def test_a_terminal_that_takes_nothing_holds_nobody_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl+S. Commits go on, and the end is bounded."""
        monkeypatch.setattr(sink_module, "_CLOSE_S", 0.5)
        reading, writing = os.pipe()  # fills up as a stopped terminal does
        with os.fdopen(writing, "w") as stream:
            os.set_blocking(writing, False)
            with suppress(BlockingIOError):
                while True:
                    os.write(writing, bytes(4096))
            os.set_blocking(writing, True)
            sink = PanelSink(stream, FAST)
            for _ in range(1000):
                sink.write(commit(SAC), [])
            with pytest.raises(TimeoutError, match="did not take the last frame"):
                sink.close()
            sink.write(commit(SAC), [])
            os.set_blocking(reading, False)
            wait_until(lambda: drained(reading) and not panel_threads(), "its end")
        os.close(reading)

    def test_a_terminal_that_has_gone(self) -> None:
        with pseudo_terminal() as terminal:
            sink = PanelSink(terminal.stream, FAST)
            terminal.stream.close()
            sink.write(commit(SAC), [])
            with pytest.raises(ValueError, match="closed file"):
                sink.close()

    def test_a_program_that_turns_its_output_to_a_file_writes_no_panel_into_it(self, tmp_path: Any) -> None:
        """What was a terminal's descriptor may be anybody's a moment later."""
        with panel() as (sink, terminal):
            sink.write(commit(SAC), [])
            terminal.wait_for("go2")
            with (tmp_path / "log").open("w") as file:
                kept = os.dup(terminal.stream.fileno())
                os.dup2(file.fileno(), terminal.stream.fileno())
                seen = terminal.text.count("go2")
                wait_until(lambda: terminal.text.count("go2") > seen + 2, "frames on the terminal")
                os.dup2(kept, terminal.stream.fileno())
                os.close(kept)
            assert (tmp_path / "log").read_text() == ""


def panel_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rltel-panel"]


def drained(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        os.read(descriptor, 1 << 20)
    return True


class TestFork:
    def test_a_child_neither_draws_nor_ends_its_parents_panel(self) -> None:
        with panel() as (sink, terminal):
            sink.write(commit(SAC), [])
            terminal.wait_for("go2")
            child = os.fork()
            if child == 0:
                sink.write(commit({**SAC, "Train/iteration": 666.0}), [])
                sink.flush()
                sink.close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            seen = terminal.text.count("go2")
            wait_until(lambda: terminal.text.count("go2") > seen + 2, "more frames")
            assert "iter 666" not in terminal.text

    def test_a_child_is_not_held_up_by_a_lock_of_its_parent(self) -> None:
        with panel() as (sink, _):
            sink.write(commit(SAC), [])
            with sink._lock:
                child = os.fork()
                if child == 0:
                    sink.write(commit(SAC), [])
                    os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class TestOpening:
    def test_a_terminal_has_a_panel(self) -> None:
        with pseudo_terminal() as terminal:
            sink = open_panel(terminal.stream, FAST, environ={"TERM": "xterm"})
            assert isinstance(sink, PanelSink)
            assert sink.describe() == "a panel at 50 Hz, averages over 2 s"

    def test_everything_else_has_lines(self) -> None:
        stream = io.StringIO()
        sink = open_panel(stream, FAST, environ={"TERM": "xterm"}, interval_s=0.0)
        assert isinstance(sink, PlainPanel)
        sink.write(commit(SAC, step=5), [])
        sink.close()
        assert stream.getvalue().startswith("step 5 | ")
        assert "\x1b" not in stream.getvalue()

    def test_both_have_one_name(self) -> None:
        assert PanelSink.name == PlainPanel.name == "terminal"

    def test_nothing_told(self) -> None:
        assert no_facts() == {}

    def test_an_encoding_without_lines(self) -> None:
        with pseudo_terminal() as terminal:
            terminal.stream.reconfigure(encoding="ascii")
            sink = PanelSink(terminal.stream, FAST)
            sink.write(commit(SAC), [])
            terminal.wait_for(" Actor ")
            sink.close()
            assert terminal.text.isascii()
