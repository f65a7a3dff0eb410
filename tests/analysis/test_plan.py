"""What becomes of a file's tags."""

import pytest

from rltel.analysis.plan import plan_of
from rltel.core.errors import RltelError


def test_old_canonical_retired_and_unknown_tags_are_told_apart() -> None:
    tags = {"perf/iter_ms", "timing/collector_foo_ms", "perf/collector_cycle_ms", "reward/upright", "my/tag"}
    plan = plan_of(tags, None, "here")
    renamed = {old: found.tag for old, found in plan.renamed.items()}
    assert renamed == {"perf/iter_ms": "Perf/iteration_time", "timing/collector_foo_ms": "Perf/collector_foo_ms"}
    assert set(plan.left_out) == {"perf/collector_cycle_ms"}
    assert plan.left_out["perf/collector_cycle_ms"].startswith("retired; instead: ")
    assert (plan.canonical, plan.unknown) == ({"reward/upright"}, {"my/tag"})


def test_of_several_that_became_one_the_preferred_one_is_taken_and_the_others_are_left_out() -> None:
    plan = plan_of({"reward/mean", "reward/mean_ep100"}, None, "here")
    assert set(plan.renamed) == {"reward/mean_ep100"}
    assert plan.left_out == {"reward/mean": "Train/mean_reward has reward/mean_ep100"}


def test_what_an_old_tag_became_must_not_stand_beside_it() -> None:
    with pytest.raises(RltelError, match=r"here: .*found both: perf/iter_ms and Perf/iteration_time"):
        plan_of({"perf/iter_ms", "Perf/iteration_time"}, None, "here")
    assert plan_of({"perf/iter_ms", "Perf/total_fps"}, None, "here").canonical == {"Perf/total_fps"}


def test_the_algorithm_is_asked_for() -> None:
    with pytest.raises(RltelError, match=r"--algo"):
        plan_of({"train/actor_loss"}, None, "here")
    assert plan_of({"train/actor_loss"}, "appo", "here").renamed["train/actor_loss"].tag == "Loss/surrogate"
