"""What stands where, and what goes first."""

from itertools import pairwise

import pytest

from export.panel.making import RUNS, async_run, llm_run, sac_run
from rltel.export.panel.blocks import rows_of
from rltel.export.panel.glyphs import LINES
from rltel.export.panel.layout import Band, arrange, fit


def titles(bands: list[Band]) -> list[list[str]]:
    return [[block.title for block in band.blocks] for band in bands]


@pytest.mark.parametrize("width", [60, 80, 95])
def test_below_96_columns_everything_is_stacked(width: int) -> None:
    assert titles(arrange(sac_run().model, width, LINES)) == [["Metrics"], ["Rewards"], ["Timing: Learner"]]


@pytest.mark.parametrize("width", [96, 119])
def test_from_96_metrics_and_rewards_share_a_row(width: int) -> None:
    assert titles(arrange(sac_run().model, width, LINES)) == [["Metrics", "Rewards"], ["Learner", "Collector"]]


@pytest.mark.parametrize("width", [120, 200])
def test_from_120_system_is_a_column_of_its_own(width: int) -> None:
    assert titles(arrange(sac_run().model, width, LINES)) == [
        ["Metrics", "Rewards"],
        ["Learner (Iter Wall)", "Collector (own clock)", "System"],
    ]


def test_a_controller_stands_below_the_rollout() -> None:
    panel = llm_run()
    panel.add({"timeperf/controller/round": 40.0, "timeperf/controller/rollout_wait": 25.0})
    _, beside = arrange(panel.model, 120, LINES)[1].blocks
    assert beside.title == "Rollout (own clock)"
    assert "Controller (own clock)" in [row.text for row in beside.rows]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", [60, 96, 120, 200])
def test_bands_fill_the_width(name: str, width: int) -> None:
    for band in arrange(RUNS[name]().model, width, LINES):
        assert sum(band.widths) + len(band.widths) - 1 == width - 2


class TestGroups:
    @pytest.mark.parametrize("width", [60, 75])
    def test_below_76_columns_every_group_has_a_band_of_its_own(self, width: int) -> None:
        assert titles(arrange(async_run().model, width, LINES)) == [
            ["Rewards"], ["Loss and policy"], ["Train vs rollout"], ["Staleness"], ["Throughput"], ["MoE"],
            ["Sessions"], ["Timing: Learner"],
        ]  # fmt: skip

    @pytest.mark.parametrize(("width", "columns"), [(76, 2), (119, 2), (120, 3), (200, 3)])
    def test_from_there_on_they_stand_side_by_side_in_their_order(self, width: int, columns: int) -> None:
        band = arrange(async_run().model, width, LINES)[0]
        assert len(band.blocks) == columns
        every = [each for block in band.blocks for each in (block.title, *(r.text for r in block.rows if r.is_title))]
        assert every == [section.title for section in async_run().model.groups]

    def test_no_other_way_to_share_them_out_would_be_lower(self) -> None:
        band = arrange(async_run().model, 80, LINES)[0]
        heights = [len(section.rows) + 1 for section in async_run().model.groups]
        lowest = min(max(sum(heights[:cut]), sum(heights[cut:])) - 1 for cut in range(1, len(heights)))
        assert rows_of(band.blocks) == lowest

    @pytest.mark.parametrize("width", [60, 80, 120])
    @pytest.mark.parametrize("lines", range(3, 45))
    def test_on_a_low_terminal_a_title_goes_with_its_last_row(self, width: int, lines: int) -> None:
        bands, hidden = fit(arrange(async_run().model, width, LINES), lines)
        assert sum(rows_of(band.blocks) + 1 for band in bands) <= lines
        kept = 0
        for block in (block for band in bands for block in band.blocks):
            assert [row.is_title for row in block.rows][-1:] != [True]
            assert not any(row.is_title and after.is_title for row, after in pairwise(block.rows))
            kept += sum(not row.is_title for row in block.rows)
        every = [row for band in arrange(async_run().model, width, LINES) for b in band.blocks for row in b.rows]
        assert kept + hidden == sum(not row.is_title for row in every)

    @pytest.mark.parametrize("width", [60, 80, 120])
    def test_the_mean_reward_stays_longest_and_what_is_wrong_outlives_the_phases(self, width: int) -> None:
        for lines in range(4, 45):
            bands, _ = fit(arrange(async_run().model, width, LINES), lines)
            shown = {row.text for band in bands for block in band.blocks for row in block.rows}
            assert "Reward" in shown
            if "Sync" in shown:
                assert {"Failed", "Pass@1", "Actor Loss", "KL k3", "Staleness", "MFU"} <= shown


class TestCropping:
    def shown(self, lines: int, width: int = 80) -> tuple[list[str], int]:
        bands, hidden = fit(arrange(sac_run().model, width, LINES), lines)
        assert sum(rows_of(band.blocks) + 1 for band in bands) <= lines
        return [row.text for band in bands for block in band.blocks for row in block.rows], hidden

    def test_nothing_goes_where_there_is_room(self) -> None:
        assert self.shown(100)[1] == 0

    def test_every_row_is_shown_or_counted(self) -> None:
        every = len(self.shown(100)[0])
        for lines in range(1, 40):
            shown, hidden = self.shown(lines)
            assert len(shown) + hidden == every

    def test_ingress_goes_before_training_before_losses_before_times(self) -> None:
        shown, _ = self.shown(34)
        assert "Ingress Drops" not in shown
        assert "Target Q Max" in shown
        shown, _ = self.shown(20)
        assert not {"Target Q Max", "Backend Step"} & set(shown)
        assert {"Actor", "Learning", "Env Step", "Reward"} <= set(shown)

    def test_the_longest_phases_stay_longest(self) -> None:
        shown, _ = self.shown(10)
        assert "Learning" in shown
        assert "Collector Release" not in shown

    def test_what_stays_to_the_end(self) -> None:
        shown, _ = self.shown(6)
        assert shown == ["Reward", "Iter Wall", "Collector", "Cycle"]

    def test_side_by_side_only_what_makes_a_band_high_goes(self) -> None:
        """Leaving out a reward term beside a long list of losses would gain nothing."""
        shown, _ = self.shown(20, width=120)
        assert {"tracking_lin_vel", "Learning"} <= set(shown)
        assert "Ingress Drops" not in shown
