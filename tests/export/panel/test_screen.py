"""The panel as text. What holds for every screen; `test_golden.py` has whole ones."""

import math

import pytest
from rich.cells import cell_len

from export.panel.making import LLM, RUNS, SAC, Panel, async_run, llm_run, run_of, sac_run
from rltel.export.panel.ansi import encoded
from rltel.export.panel.glyphs import ASCII
from rltel.export.panel.screen import draw

WIDTHS = [60, 80, 95, 96, 119, 120, 140, 200]
LINES_HIGH = 40
HEIGHTS = [4, 5, 8, 10, 15, 24, 50]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", WIDTHS)
class TestEveryScreen:
    def test_every_line_is_as_wide_as_the_screen(self, name: str, width: int) -> None:
        assert {cell_len(line) for line in RUNS[name]().lines(width)} == {width}

    def test_no_label_is_cut(self, name: str, width: int) -> None:
        panel = RUNS[name]()
        text = "\n".join(panel.lines(width))
        model = panel.model
        labels = [row.text for row in (*model.metrics, *model.rewards, *model.others)]
        labels += [row.text for timing in model.timings for row in timing.rows]
        labels += [text for section in model.groups for text in (section.title, *(row.text for row in section.rows))]
        assert [label for label in labels if label not in text] == []

    @pytest.mark.parametrize("height", HEIGHTS)
    def test_no_screen_is_too_high(self, name: str, width: int, height: int) -> None:
        lines = RUNS[name]().lines(width, height)
        assert len(lines) <= height
        assert lines[-1].startswith("╰")
        assert {cell_len(line) for line in lines} == {width}

    @pytest.mark.parametrize("height", HEIGHTS)
    def test_what_is_hidden_is_said(self, name: str, width: int, height: int) -> None:
        panel = RUNS[name]()
        whole, cropped = panel.lines(width), panel.lines(width, height)
        assert ("too low" in cropped[-1]) == (len(whole) > height)

    def test_in_ascii(self, name: str, width: int) -> None:
        assert all(line.isascii() for line in RUNS[name]().lines(width, glyphs=ASCII))


@pytest.mark.parametrize("width", range(24, 60))
def test_narrower_than_anybody_works(width: int) -> None:
    for name in RUNS:
        assert {cell_len(line) for line in RUNS[name]().lines(width, 20)} == {width}


class TestTitle:
    def test_in_full(self) -> None:
        assert " rltel | sac | go2_joystick_flat | GPUs 1 | iter 12344/65000 " in sac_run().lines(80)[0]

    def test_a_long_task_gives_way_and_nothing_else(self) -> None:
        panel = run_of(SAC, algo="sac", task="a_very_long_name_of_a_task_that_nobody_could_read")
        assert " sac | a_very_long_name_of_a_tas… | GPUs 1 | iter 12344 " in panel.lines(60)[0]

    def test_wide_characters(self) -> None:
        panel = run_of(SAC, algo="sac", task="机器人" * 20)
        for width in range(40, 130, 7):
            assert {cell_len(line) for line in panel.lines(width)} == {width}


class TestPrecision:
    def test_the_peak_has_fewer_decimals_where_it_is_narrow(self) -> None:
        (narrow,) = [line for line in sac_run().lines(95) if "Reward " in line and "187" in line]
        (wide,) = [line for line in sac_run().lines(96) if "Reward " in line and "187" in line]
        assert narrow.split()[2:4] == ["187.432", "187.43"]
        assert "187.432  187.432" in wide


class TestMarks:
    def styled(self, panel: Panel, text: str) -> set[str]:
        (line,) = [line for line in draw(panel.model, 80) if f"│ {text} " in line.plain]
        return {str(span.style) for span in line.spans}

    def test_a_loss_above_ten_is_red(self) -> None:
        assert "red" in self.styled(sac_run(), "Critic")
        assert "red" not in self.styled(sac_run(), "Actor")

    def test_a_long_wait_is_red(self) -> None:
        assert "red" in self.styled(sac_run(), "Collector Wait")

    def test_what_has_no_mark_has_no_style(self) -> None:
        """A line's border is dim; that must not be the base of the whole line."""
        for line in draw(sac_run().model, 120):
            assert line.style == ""

    def test_what_went_wrong_in_an_llm_run_is_red(self) -> None:
        assert "red" in self.styled(async_run(), "Failed")
        assert "red" not in self.styled(async_run(), "Accepted")

    def test_nan_is_red(self) -> None:
        assert "red" in self.styled(run_of({"x": math.nan}), "x")

    def test_phases_that_overlap_are_a_red_row(self) -> None:
        panel = run_of({**SAC, "Perf/learning_time": 0.06})
        assert "red" in self.styled(panel, "Phases overlap")
        (line,) = [line for line in panel.lines(80) if "Phases overlap" in line]
        assert "131%" in line


class TestHeader:
    def test_how_many_samples(self) -> None:
        assert "Avg 2s (n=4)" in "\n".join(sac_run().lines(120))

    def test_and_how_old_the_last_is(self) -> None:
        panel = llm_run()
        panel.wait(300)
        assert "Avg 2s (n=1, 5m ago)" in "\n".join(panel.lines(120))

    def test_another_window(self) -> None:
        assert "Avg 0.5s (n=" in "\n".join(run_of(SAC, window_s=0.5).lines(120))


def test_a_key_that_is_too_long_loses_its_beginning() -> None:
    panel = run_of({f"{'a/' * 60}the_end": 1.0})
    (line,) = [line for line in panel.lines(60) if "the_end" in line]
    assert line.startswith("│ …")


def test_hundreds_of_keys() -> None:
    panel = run_of({**LLM, **{f"layer_{i}/norm": float(i) for i in range(500)}})
    lines = panel.lines(120, 40)
    assert len(lines) == 40
    assert "more rows" in lines[-1]


def test_nothing_but_a_commit() -> None:
    panel = Panel()
    panel.add({})
    assert [line.strip("─╭╮╰╯│ ") for line in panel.lines(60)] == [
        "rltel | GPUs 1 | iter 1",
        "Elapsed 0:00:00  Avg 2s (n=1)",
        "",
    ]


def test_users_control_codes_do_not_get_through() -> None:
    """A key, a task or a status may hold anything; a line must stay one line."""
    bad = "x\x1b[2Jy\nz\x07\x9b1A"
    panel = run_of({f"key{bad}": 1.0, f"reward/term{bad}": 2.0}, algo=f"algo{bad}", task=f"task{bad}")
    panel.facts = {"status": f"status{bad}", "mps": "off"}
    text = "".join(encoded(draw(panel.model, 200, LINES_HIGH)))
    assert not set(text) & {"\n", "\x07", "\x9b"}
    assert "\x1b[2J" not in text
    for what in ("key", "term", "algo", "task", "status"):
        assert f"{what}x?[2Jy?z??1A" in text


def test_users_text_is_not_markup() -> None:
    panel = run_of({"[red]x[/red]": 1.0}, task="[bold]")
    text = "\n".join(panel.lines(100))
    assert "[red]x[/red]" in text
    assert "[bold]" in text
