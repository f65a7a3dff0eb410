"""Old tags: every one of UniLab's table becomes what the table says."""

from collections.abc import Iterator

import pytest

from realparts.event_runs import schema, vector
from rltel.names.legacy import AmbiguousTagError, Renamed, Retired, successor
from rltel.names.schema import tag, tags

ALGORITHMS = {"sac_family": ("sac", "flashsac"), "appo": ("appo",)}


def table() -> Iterator[tuple[str, str | None, str, float]]:
    """Old tag, algorithm, new tag and scale: one of each name and meaning."""
    for row in schema()["legacy_migration"]:
        for old in row["old"].split(" | "):
            scale = float(row["scale_old_to_new"])
            if "new" in row:
                yield old.replace("<phase>", "any_phase"), None, row["new"].replace("<phase>", "any_phase"), scale
            for path, new in row.get("new_by_path", {}).items():
                yield from ((old, algo, new, scale) for algo in ALGORITHMS[path])


TABLE = list(table())


def test_the_table_has_all_52_rows() -> None:
    assert len(schema()["legacy_migration"]) == 52
    assert len({old for old, *_ in TABLE}) == 64


@pytest.mark.parametrize(("old", "algo", "new", "scale"), TABLE, ids=[f"{old}-{algo}" for old, algo, *_ in TABLE])
def test_every_old_tag_becomes_what_the_table_says(old: str, algo: str | None, new: str, scale: float) -> None:
    found = successor(old, algo)
    assert isinstance(found, Renamed)
    assert (found.tag, found.scale) == (new, scale)


@pytest.mark.parametrize(("old", "algo", "new", "scale"), TABLE, ids=[f"{old}-{algo}" for old, algo, *_ in TABLE])
def test_what_it_becomes_is_of_the_schema(old: str, algo: str | None, new: str, scale: float) -> None:
    assert "any_phase" in new or tag(new) is not None


@pytest.mark.parametrize("old", schema()["retired_without_replacement"])
def test_a_retired_tag_says_what_to_take_instead(old: str) -> None:
    found = successor(old.replace("*", "train"))
    assert isinstance(found, Retired)
    assert found.instead


def test_episode_reward_is_retired_although_the_new_family_looks_alike() -> None:
    found = successor("Episode_Reward/upright")
    assert isinstance(found, Retired)
    assert "reward/<term>" in found.instead
    assert successor("reward/upright") is None


@pytest.mark.parametrize("new", [each.name for each in tags() if not each.is_family])
def test_no_canonical_tag_is_an_old_one(new: str) -> None:
    assert successor(new) is None


@pytest.mark.parametrize("name", ["my/tag", "", "perf", "timing/foo_ms", "Perf/iter_ms"])
def test_other_tags_are_none(name: str) -> None:
    assert successor(name) is None


def test_v05_values_and_units() -> None:
    given = vector("V05")
    canonical, retired = {}, []
    for old, number in given["input"]["legacy"].items():
        found = successor(old, given["input"]["algo"])
        if isinstance(found, Renamed):
            canonical[found.tag] = number * found.scale
        elif isinstance(found, Retired):
            retired.append(old)
    assert canonical == pytest.approx(given["expect"]["canonical"], abs=given["tolerance"])
    assert retired == given["expect"]["retired"]


def test_v05_an_ambiguous_name_depends_on_the_algorithm() -> None:
    for old, meanings in vector("V05")["expect"]["ambiguous_needs_algo"].items():
        for algo, new in meanings.items():
            found = successor(old, algo)
            assert isinstance(found, Renamed)
            assert found.tag == new


@pytest.mark.parametrize("old", ["timing/learner_incremental_h2d_ms", "train/actor_loss"])
@pytest.mark.parametrize(
    ("algo", "said"), [(None, "nothing says which algorithm"), ("ppo", '"ppo"'), ("dreamer", '"dreamer"')]
)
def test_an_ambiguous_name_asks_for_the_algorithm(old: str, algo: str | None, said: str) -> None:
    with pytest.raises(AmbiguousTagError, match=said) as raised:
        successor(old, algo)
    assert old in str(raised.value)
    for name in ("sac", "flashsac", "appo"):
        assert name in str(raised.value)


def test_an_algorithm_may_be_given_as_its_log_folder() -> None:
    assert successor("train/actor_loss", "flash_sac") == successor("train/actor_loss", "FlashSAC")


@pytest.mark.parametrize(
    ("preferred", "other"),
    [
        ("reward/mean_ep100", "reward/mean"),
        ("timing/learner_train_ms", "perf/train_time_ms"),
        ("timing/learner_inference_ms", "timing/inference_total_ms"),
        ("timing/replay_ingress_h2d_submit_ms", "timing/learner_incremental_h2d_ms"),
        ("timing/collector_learner_action_wait_ms", "timing/collector_inference_wait_ms"),
    ],
)
def test_of_two_that_became_one_the_more_exact_is_preferred(preferred: str, other: str) -> None:
    first, second = successor(preferred, "sac"), successor(other, "sac")
    assert isinstance(first, Renamed)
    assert isinstance(second, Renamed)
    assert first.tag == second.tag
    assert first.place < second.place
