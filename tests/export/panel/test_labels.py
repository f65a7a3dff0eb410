"""Where a key stands."""

import json
from pathlib import Path

import pytest

from rltel.export.panel.labels import HIDDEN, OTHER, label_of, words

SCHEMA = json.loads((Path(__file__).parents[2] / "vectors" / "unilab_schema.json").read_text())
TAGS = {metric["tag"]: metric["terminal"] for metric in SCHEMA["metrics"]}
SHOWN_AS_TITLE = {"Train/iteration", "Train/mean_reward"}  # "iter i/N", "Reward Mean/Peak": no labels of a row


@pytest.mark.parametrize(("tag", "shown"), TAGS.items(), ids=list(TAGS))
def test_every_tag_stands_where_unilab_shows_it(tag: str, shown: dict[str, str] | None) -> None:
    label = label_of(tag)
    assert label.section == (HIDDEN if shown is None else shown["section"])
    if shown is not None and tag not in SHOWN_AS_TITLE:
        assert label.text == shown["label"]
        assert label.is_known


def test_a_reward_term() -> None:
    assert label_of("reward/upright")[:2] == ("rewards", "upright")


def test_an_average_stands_where_its_tag_does() -> None:
    assert label_of("Loss/actor/avg")[:2] == ("metrics.loss_policy", "Actor")


@pytest.mark.parametrize(
    "key", ["replay/target_q/avg", "pass@1", "reward/mean", "Rnd/weight", "Episode_Termination/fell"]
)
def test_everything_else_is_shown_verbatim(key: str) -> None:
    assert label_of(key)[:2] == (OTHER, key)


def test_rsl_rls_copies_over_time_are_not_shown_twice() -> None:
    assert label_of("Train/mean_reward/time").section == HIDDEN


def test_words() -> None:
    assert words("old_logprobs") == "Old Logprobs"
