"""A plain line per interval."""

import io
import os
import pty
import re
import termios
from dataclasses import replace
from typing import Any

import pytest

from export.making import PATIENT, TIME_NS, FakeClock, commit, recorded, run_python
from rltel.export.commit import Commit
from rltel.export.console import ConsoleSink
from rltel.names.catalogue import Catalogue, Entry

SECOND = 1_000_000_000


class Console:
    """A sink with its stream and its clock."""

    def __init__(self, interval_s: float = 10.0, entries: Catalogue | None = None) -> None:
        self.stream = io.StringIO()
        self.clock = FakeClock()
        self.sink = ConsoleSink(self.stream, interval_s, self.clock.monotonic_ns, entries)

    def write(self, made: Commit, after_s: float = 0.0) -> None:
        self.clock.now += int(after_s * SECOND)
        self.sink.write(replace(made, time_ns=TIME_NS + self.clock.now), [])

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


class TestIntervals:
    def test_a_line_when_the_interval_is_over(self) -> None:
        console = Console()
        for step in range(1, 31):
            console.write(commit({"x": 1.0}, step=step), after_s=1.0)
        assert [line.split(" | ")[0] for line in console.lines] == ["step 10", "step 20", "step 30"]

    def test_a_hostile_key_or_axis_neither_reaches_the_terminal_nor_begins_a_line(self) -> None:
        console = Console()
        console.write(commit({"\x1b[2Jred\nstep 9": 1.0, "a\rb": 2.0}, axis="\x1b]0;title\x07"), after_s=10)
        assert console.lines == ["?]0;title? step 1 | ?[2Jred?step 9 1 | a?b 2"]

    def test_the_last_commit_is_printed_at_the_end(self) -> None:
        console = Console()
        console.write(commit({"x": 1.0}, step=3))
        console.sink.flush()
        assert console.lines == []
        console.sink.close()
        assert console.lines == ["step 3 | x 1"]

    def test_an_axis_that_stopped_has_its_line_with_the_next_interval(self) -> None:
        console = Console()
        console.write(commit({"x": 1.0}, step=1, number=0), after_s=1)
        console.write(commit({"y": 2.0}, step=5, number=1, axis="eval"), after_s=1)
        console.write(commit({"x": 3.0}, step=2, number=2), after_s=8)
        assert console.lines == ["eval step 5 | y 2", "step 2 | x 3"]
        console.sink.close()
        assert len(console.lines) == 2

    def test_but_not_twice(self) -> None:
        console = Console()
        console.write(commit({"x": 1.0}), after_s=10)
        console.sink.close()
        assert len(console.lines) == 1

    def test_nothing_committed_is_nothing_printed(self) -> None:
        console = Console()
        console.sink.close()
        assert console.lines == []


class TestLine:
    def test_headlines_of_the_catalogue(self) -> None:
        console = Console()
        numbers: dict[str, float] = {
            "other": 9.0,
            "Perf/total_fps": 12345.6,
            "Train/mean_reward": -1.5,
            "Loss/actor": 0.25,
        }
        console.write(commit(numbers, step=7, env_steps=700), after_s=10)
        assert console.lines == ["step 7 | env steps 700 | steps/s 1.235e+04 | reward -1.5 | actor 0.25"]

    def test_an_average_is_a_headline_too(self) -> None:
        console = Console()
        console.write(commit(recorded(lambda trackers: trackers.default.stat({"Loss/actor": [1.0, 2.0]}))), after_s=10)
        assert console.lines == ["step 1 | actor 1.5"]

    def test_without_any_the_first_few_keys(self) -> None:
        console = Console()
        console.write(commit({f"k{number}": float(number) for number in range(20)}), after_s=10)
        assert console.lines == ["step 1 | k0 0 | k1 1 | k2 2 | k3 3 | k4 4 | k5 5"]

    def test_the_catalogue_may_be_injected(self) -> None:
        entries = Catalogue((Entry("mine", "rl.mine", "", "gauge", "Mine.", headline="MINE"),))
        console = Console(entries=entries)
        console.write(commit({"mine": 1.0, "Loss/actor": 2.0}), after_s=10)
        assert console.lines == ["step 1 | MINE 1"]

    def test_iterations_per_second_of_each_axis(self) -> None:
        """wandb#10628: the steps of two axes have nothing to do with each other."""
        console = Console()
        for step in (10, 30):
            console.write(commit({"x": 1.0}, step=step), after_s=10)
            console.write(commit({"x": 1.0}, step=8000 + step, axis="rollout"), after_s=10)
        assert console.lines == [
            "step 10 | x 1",
            "rollout step 8010 | x 1",
            "step 30 | 1.0 it/s | x 1",
            "rollout step 8030 | 1.0 it/s | x 1",
        ]

    def test_the_last_line_s_rate_is_that_of_the_steps_whenever_it_is_printed(self) -> None:
        """Saving a model between the last step and the end is no slower training."""
        console = Console()
        for step in range(1, 26):
            console.write(commit({"x": 1.0}, step=step, number=step), after_s=0.5)
        console.clock.now += 30 * SECOND
        console.sink.close()
        assert console.lines == ["step 20 | x 1", "step 25 | 2.0 it/s | x 1"]

    def test_what_is_not_finite_is_shown(self) -> None:
        console = Console()
        console.write(commit({"x": float("nan")}), after_s=10)
        assert console.lines == ["step 1 | x nan | x/nonfinite 1"]


LLM = {
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": 0.75,
    "train_perf/tokens_per_second": 48_213.4,
    "train_perf/mfu": 0.38125,
    "rollout/timeperf/session/total": 20.0,
    "groups/n_groups": 64.0,
    "ppo_actor/train_infer/kl_k3": 0.00081,
    "ppo_actor/update/grad_norm": 0.85,
    "ppo_actor/update/actor_loss": -0.0213,
    "groups/pass@8": 0.875,
    "groups/pass@1": 0.5625,
    "rollout/reward": 0.625,
    "my/number": 1.0,
}
FIRST_LOOK = (
    "reward 0.625 | pass@1 0.5625 | loss -0.0213 | kl_k3 0.00081 | grad 0.85 | stale 0.75 | tokens/s 48213 | mfu 0.3812"
)


class TestLlmRuns:
    def test_the_first_look_in_its_order_and_nothing_else(self) -> None:
        console = Console()
        console.write(commit(LLM, step=7), after_s=10)
        assert console.lines == [f"step 7 | {FIRST_LOOK}"]

    def test_where_there_is_little_of_it_the_first_other_keys_are_there_too(self) -> None:
        console = Console()
        values = {"timeperf/save": 1.0, **{f"k{i}": float(i) for i in range(9)}, "loss": 0.5}
        console.write(commit(values), after_s=10)
        assert console.lines == ["step 1 | loss 0.5 | k0 0 | k1 1 | k2 2 | k3 3 | k4 4"]

    def test_but_no_extremes_of_what_is_said(self) -> None:
        console = Console()
        console.write(commit(recorded(lambda trackers: trackers.default.stat({"loss": [1.0, 3.0]}))), after_s=10)
        assert console.lines == ["step 1 | loss 2"]

    def test_a_robot_s_line_is_what_it_was(self) -> None:
        console = Console()
        console.write(commit({"Loss/actor": 0.25, "grad_norm": 1.0, "entropy": 2.0}), after_s=10)
        assert console.lines == ["step 1 | actor 0.25"]

    @pytest.mark.parametrize("columns", [5, 20, 40, 80, 100, 140])
    def test_on_a_terminal_it_is_one_line_whatever_the_width(self, columns: int) -> None:
        controller, side = pty.openpty()
        try:
            termios.tcsetwinsize(side, (24, columns))
            with open(side, "w", closefd=False, encoding="utf-8") as stream:
                clock = FakeClock()
                sink = ConsoleSink(stream, 10.0, clock.monotonic_ns)
                sink.write(commit(LLM, step=7), [])
                sink.close()
            line = os.read(controller, 4096).decode().rstrip("\r\n")
        finally:
            os.close(controller)
            os.close(side)
        assert f"step 7 | {FIRST_LOOK} | ".startswith(f"{line} | ")
        assert len(line) <= columns or line == "step 7"
        left_out = f"step 7 | {FIRST_LOOK}".removeprefix(line).removeprefix(" | ")
        assert not left_out or len(f"{line} | {left_out.partition(' | ')[0]}") > columns, "the next would have fitted"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


NUMBERS = {f"ppo_actor/k{number}": float(number) for number in range(20)}


class TestTable:
    def written(self, stream: io.StringIO) -> str:
        clock = FakeClock()
        sink = ConsoleSink(stream, 10.0, clock.monotonic_ns, table=True)
        sink.write(commit(NUMBERS, step=7), [])
        assert stream.getvalue() == "", "it waits for its interval, as the line does"
        clock.now += 10 * SECOND
        sink.write(commit({"late": 1.0}, step=8), [])
        return stream.getvalue()

    def test_a_terminal_has_every_value_in_a_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        text = self.written(Terminal())
        assert text.splitlines()[0] == "step 8"
        assert all(f"{key} " in text for key in (*NUMBERS, "late"))
        assert "1.9000e+01" in text

    def test_elsewhere_every_value_is_in_the_one_line(self) -> None:
        """Trinity-RFT#167: a redirected log has a plain line an interval."""
        (line,) = self.written(io.StringIO()).splitlines()
        assert line.startswith("step 8 | ppo_actor/k0 0 | ppo_actor/k1 1 | ")
        assert line.endswith(" | ppo_actor/k19 19 | late 1")

    def test_a_terminal_that_can_nothing_gets_the_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert len(self.written(Terminal()).splitlines()) == 1

    def test_without_being_asked_for_there_is_none(self) -> None:
        stream, clock = Terminal(), FakeClock()
        sink = ConsoleSink(stream, 10.0, clock.monotonic_ns)
        sink.write(commit(NUMBERS), [])
        sink.close()
        assert len(stream.getvalue().splitlines()) == 1


TRAINING = """
import sys, time
import rltel
rltel.init({"console": {"enabled": True, "interval_s": 0.05}, "run": {"dir": sys.argv[1]}})
for step in range(10):
    rltel.log({"Loss/actor": 0.5}, step=step)
    time.sleep(0.03)
"""


def test_trinity_rft_167_a_redirected_log_has_plain_lines_and_no_ansi(tmp_path: Any) -> None:
    ran = run_python(TRAINING, tmp_path / "run", FORCE_COLOR="1", TERM="xterm-256color", **PATIENT)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert 2 <= len(lines) <= 10
    assert all(re.fullmatch(r"step \d+( \| [\d.]+ it/s)? \| actor 0\.5", line) for line in lines), lines
    assert lines[-1].startswith("step 9 "), "the last step is there"
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", ran.stdout + ran.stderr), "no escape codes, no carriage returns"
