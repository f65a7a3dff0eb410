"""The sliding average."""

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import FakeClock, commit
from export.panel.making import SECOND, Panel
from rltel.export.panel.sample import Sample, sample_of
from rltel.export.panel.window import Window


def v08() -> tuple[Panel, dict[str, Any]]:
    """The worked example of the sliding window, as UniLab's logger hands it over."""
    vectors = json.loads((Path(__file__).parents[2] / "vectors" / "unilab_vectors.json").read_text())
    (vector,) = [each for each in vectors["vectors"] if each["id"] == "V08-window"]
    panel = Panel()
    before = 0.0
    for step, sample in enumerate(vector["input"]["samples"]):
        values = {
            "Perf/learning_time": sample["train_time"],
            "Perf/iteration_time": sample["iteration_time"],
            "Perf/total_fps": sample["env_steps"] / sample["iteration_time"],
            **({} if sample["Loss/actor"] is None else {"Loss/actor": sample["Loss/actor"]}),
        }
        panel.add(values, after_s=sample["t"] - before, step=step)
        before = sample["t"]
    assert vector["input"]["now"] == before
    return panel, vector["expect"]


class TestVector08:
    def test_each_key_over_the_samples_that_have_it(self) -> None:
        panel, expect = v08()
        assert panel.view.n == expect["n"]
        assert panel.view.mean("Perf/learning_time") == pytest.approx(expect["Learning_s"], abs=1e-9)
        assert panel.view.mean("Perf/iteration_time") == pytest.approx(expect["Iter Wall_s"], abs=1e-9)
        assert panel.view.mean("Loss/actor") == pytest.approx(expect["Loss/actor"], abs=1e-9)

    def test_unilab_averages_rates_and_shows_24320_steps_where_22756_were_made(self) -> None:
        """Four iterations made 4 x 1024 steps in 0.18 s. The mean of their rates favours the short ones."""
        panel, expect = v08()
        rate = panel.view.rate("Perf/total_fps")
        assert rate == pytest.approx(expect["ratio_of_sums_steps_per_s"]) == pytest.approx(4 * 1024 / 0.18)
        assert expect["Steps/s"] == pytest.approx(24_320.0)  # what UniLab shows
        assert panel.view.mean("Perf/total_fps") == pytest.approx(expect["Steps/s"])


class TestSliding:
    def test_a_sample_of_exactly_the_windows_age_is_in(self) -> None:
        panel = Panel(window_s=2.0)
        panel.add({"x": 1.0})
        panel.add({"x": 3.0}, after_s=2.0)
        assert (panel.view.n, panel.view.mean("x")) == (2, 2.0)

    def test_and_an_older_one_is_out(self) -> None:
        panel = Panel(window_s=2.0)
        panel.add({"x": 1.0})
        panel.clock.now += 1
        panel.add({"x": 3.0}, after_s=2.0)
        assert (panel.view.n, panel.view.mean("x")) == (1, 3.0)

    def test_time_alone_lets_samples_go(self) -> None:
        panel = Panel()
        panel.add({"x": 1.0})
        panel.add({"x": 2.0}, after_s=1.5)
        panel.wait(1.0)
        assert (panel.view.n, panel.view.mean("x")) == (1, 2.0)

    def test_unilab_keeps_512_samples_which_is_less_than_two_seconds_above_256_a_second(self) -> None:
        panel = Panel()
        for i in range(2001):
            panel.add({"x": float(i)}, after_s=0.0 if i == 0 else 0.001)
        assert panel.view.n == 2001
        assert panel.view.mean("x") == pytest.approx(1000.0)

    def test_the_last_sample_stands_for_an_empty_window(self) -> None:
        """An LLM's iteration takes minutes: what it reported is shown until the next, and how old it is."""
        panel = Panel()
        panel.add({"x": 1.0, "timeperf/iteration": 40.0})
        panel.wait(60)
        view = panel.view
        assert (view.n, view.age_s, view.mean("x")) == (1, 60.0, 1.0)
        assert view.fraction("timeperf/iteration") == (40.0, 1.0)

    def test_nothing_before_the_first(self) -> None:
        assert Window(2.0, FakeClock().monotonic_ns).view() is None


class TestMissing:
    def test_a_missing_field_is_not_a_zero(self) -> None:
        panel = Panel()
        panel.add({"x": 4.0, "y": 1.0})
        panel.add({"y": 1.0})
        assert panel.view.mean("x") == 4.0

    def test_what_the_window_has_not_is_as_it_was_last_reported(self) -> None:
        """A collector reports now and then: its return does not blink."""
        panel = Panel()
        panel.add({"x": 1.0})
        panel.add({"x": 3.0})
        for _ in range(10):
            panel.add({"y": 0.0}, after_s=1.0)
        assert panel.view.mean("x") == 3.0

    def test_what_was_never_reported_is_nothing(self) -> None:
        panel = Panel()
        panel.add({"y": 0.0})
        assert panel.view.mean("x") is None
        assert panel.view.fraction("x") is None
        assert panel.view.rate("x") is None


class TestNotFinite:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_stays_visible_while_it_is_in_the_window(self, value: float) -> None:
        panel = Panel()
        panel.add({"x": value})
        panel.add({"x": 1.0}, after_s=1.0)
        assert panel.view.mean("x") == pytest.approx(value, nan_ok=True)

    @pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
    def test_and_leaves_no_trace_when_it_has_gone(self, value: float) -> None:
        panel = Panel()
        panel.add({"x": value})
        panel.add({"x": 1.0}, after_s=1.5)
        panel.add({"x": 2.0}, after_s=1.0)
        assert panel.view.mean("x") == 1.5

    def test_both_infinities_are_no_number(self) -> None:
        panel = Panel()
        panel.add({"x": math.inf})
        panel.add({"x": -math.inf})
        assert math.isnan(panel.view.mean("x") or 0.0)


class TestAxes:
    def test_other_axes_are_shown_and_do_not_count(self) -> None:
        panel = Panel()
        panel.add({"x": 1.0})
        panel.add({"eval/return": 5.0}, axis="eval", step=9)
        assert (panel.view.n, panel.view.mean("eval/return")) == (1, 5.0)
        assert panel.view.newest.step == 1


class TestRates:
    def test_without_a_measured_iteration_the_plain_mean(self) -> None:
        panel = Panel()
        panel.add({"Perf/total_fps": 100.0})
        panel.add({"Perf/total_fps": 300.0})
        assert panel.view.rate("Perf/total_fps") == 200.0

    def test_environment_steps_by_the_commits_own_counts(self) -> None:
        panel = Panel()
        for i in range(5):
            panel.add({"x": 0.0}, after_s=0.5, env_steps=1000 * i)
        assert panel.view.env_steps_rate == pytest.approx(2000.0)

    def test_over_slow_iterations_from_the_one_before(self) -> None:
        panel = Panel()
        for i in range(3):
            panel.add({"x": 0.0}, after_s=100.0, env_steps=5000 * i)
        assert panel.view.env_steps_rate == pytest.approx(50.0)

    def test_a_count_that_went_back_has_no_rate(self) -> None:
        panel = Panel()
        panel.add({"x": 0.0}, env_steps=500)
        panel.add({"x": 0.0}, after_s=1.0, env_steps=100)
        assert panel.view.env_steps_rate is None

    def test_nor_has_a_single_one(self) -> None:
        panel = Panel()
        panel.add({"x": 0.0}, env_steps=500)
        assert panel.view.env_steps_rate is None


KEYS = ["a", "b", "Perf/iteration_time", "Perf/total_fps"]
numbers = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, 1e18]))
steps = st.tuples(st.integers(0, SECOND), st.dictionaries(st.sampled_from(KEYS), numbers))


@given(st.lists(steps, min_size=1, max_size=200))
def test_as_if_everything_was_added_up_anew(history: list[tuple[int, dict[str, float]]]) -> None:
    clock = FakeClock()
    window = Window(2.0, clock.monotonic_ns)
    kept: deque[tuple[int, Sample]] = deque()
    for wait, values in history:
        clock.now += wait
        sample = sample_of(commit(values))
        window.add(sample)
        kept.append((clock.now, sample))
    inside = [sample for time, sample in kept if clock.now - time <= 2 * SECOND]
    view = window.view()
    assert view is not None
    assert view.n == len(inside)
    for key in KEYS:
        mine = [sample.values[key] for sample in inside if key in sample.values]
        if mine:
            with_infinities = math.nan if {math.inf, -math.inf} <= set(mine) else sum(mine) / len(mine)
            assert view.mean(key) == pytest.approx(with_infinities, rel=1e-9, abs=1e-3, nan_ok=True)
