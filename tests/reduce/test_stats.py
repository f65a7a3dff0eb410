from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.kinds import AVG_MIN_MAX, GAUGE_MEAN, SCALAR, SUM, State
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats, numbers_of, snapshot_of
from rltel.reduce.trackers import Trackers

NAN = math.nan


@pytest.fixture
def stats(trackers: Trackers) -> Stats:
    """``loss/{avg,min,max}`` and ``r, r__count``."""
    trackers.default.stat(loss=[1.0, 3.0])
    trackers.default.scalar(r=5.0)
    return trackers.export_all()


def kinds(stats: Stats) -> dict[str, str]:
    return {key: metric.state.kind.name for key, metric in stats.snapshot.items()}


FLAT = {"loss/avg": 2.0, "loss/min": 1.0, "loss/max": 3.0, "r": 5.0, "r__count": 1}
STATES = {"loss": "avg_min_max", "r": "scalar"}


class TestAsADict:
    def test_is_one(self, stats: Stats) -> None:
        assert stats == FLAT
        assert isinstance(stats, dict)
        assert list(stats) == list(FLAT)
        assert stats["loss/avg"] == 2.0
        assert stats.get("nope") is None
        assert "r" in stats
        assert len(stats) == 5
        assert {**stats} == FLAT
        assert dict(stats) == FLAT
        assert sorted(stats.items())[0] == ("loss/avg", 2.0)
        assert json.loads(json.dumps(stats)) == FLAT

    def test_can_be_empty(self) -> None:
        assert Stats() == {}
        assert not Stats()
        assert not Stats().snapshot

    def test_changes_as_one(self, stats: Stats) -> None:
        stats["x"] = 1.0
        assert stats.pop("r") == 5.0
        del stats["r__count"]
        assert stats.setdefault("y", 2.0) == 2.0
        assert stats == {"loss/avg": 2.0, "loss/min": 1.0, "loss/max": 3.0, "x": 1.0, "y": 2.0}
        assert stats.snapshot.flat() == stats
        stats.clear()
        assert not stats.snapshot

    def test_nan_is_unchanged_nan(self, trackers: Trackers) -> None:
        trackers.default.stat(x=[NAN])
        stats = trackers.export_all()
        assert kinds(stats) == {"x": "avg_min_max"}


class TestByHand:
    def test_a_number_that_is_assigned_becomes_a_gauge(self, stats: Stats) -> None:
        stats["lr"] = 1e-4
        assert kinds(stats) == {**STATES, "lr": "gauge_mean"}
        assert stats.snapshot.flat() == {**FLAT, "lr": 1e-4}

    def test_a_statistic_that_is_overwritten_is_no_longer_its_state(self, stats: Stats) -> None:
        """Else two different averages of one key would leave."""
        stats["loss/avg"] = 7.0
        expected = {"r": "scalar", "loss/avg": "gauge_mean", "loss/min": "gauge_mean", "loss/max": "gauge_mean"}
        assert kinds(stats) == expected
        assert stats.snapshot.flat() == {**FLAT, "loss/avg": 7.0}

    def test_however_it_is_overwritten(self, stats: Stats) -> None:
        stats.update({"loss/avg": 7.0})
        assert "loss" not in stats.snapshot
        assert stats.snapshot.flat() == {**FLAT, "loss/avg": 7.0}

    def test_what_is_overwritten_with_itself_keeps_its_state(self, stats: Stats) -> None:
        stats.update(dict(stats))
        assert kinds(stats) == STATES

    def test_what_is_deleted_is_not_sent(self, stats: Stats) -> None:
        del stats["loss/min"]
        assert stats.snapshot.flat() == {key: value for key, value in FLAT.items() if key != "loss/min"}

    @pytest.mark.parametrize("value", [torch.tensor(2.0), np.float32(2.0), np.array(2.0), 2, "2.0"], ids=repr)
    def test_anything_that_is_a_number(self, stats: Stats, value: Any) -> None:
        stats["x"] = value
        flat = stats.snapshot.flat()
        assert flat["x"] == 2.0
        assert type(flat["x"]) is float
        assert {type(moment) for moment in stats.snapshot["x"].state.moments} == {float}

    def test_nothing_else(self, stats: Stats) -> None:
        stats["x"] = "abc"  # type: ignore[assignment]
        with pytest.raises(RecordError, match="x: expected one number, got str"):
            stats.snapshot  # noqa: B018


class TestJoining:
    def test_update_brings_the_states_along(self, stats: Stats, trackers: Trackers) -> None:
        trackers.default.stat(kl=[0.5])
        trackers.default.stat(loss=[9.0])
        stats.update(trackers.export_all())
        assert kinds(stats) == {**STATES, "kl": "avg_min_max"}
        assert stats.snapshot["loss"].state.moments[:2] == [9.0, 1.0]  # replaces, as in any dict
        assert stats.snapshot.flat() == stats

    def test_or_joins_two(self, stats: Stats, trackers: Trackers) -> None:
        trackers.default.stat(kl=[0.5])
        other = trackers.export_all()
        joined = stats | other
        assert type(joined) is Stats
        assert joined == {**FLAT, "kl/avg": 0.5, "kl/min": 0.5, "kl/max": 0.5}
        assert kinds(joined) == {**STATES, "kl": "avg_min_max"}
        assert kinds(stats) == STATES
        assert stats == FLAT

    def test_or_equals(self, stats: Stats) -> None:
        same = stats
        stats |= {"lr": 0.5}
        assert stats is same
        assert kinds(stats) == {**STATES, "lr": "gauge_mean"}

    def test_with_a_plain_dict_on_either_side(self, stats: Stats) -> None:
        for joined in (stats | {"lr": 0.5}, {"lr": 0.5} | stats):
            assert type(joined) is Stats
            assert joined == {**FLAT, "lr": 0.5}
            assert kinds(joined) == {**STATES, "lr": "gauge_mean"}
        assert ({"r": 1.0} | stats)["r"] == 5.0
        assert (stats | {"r": 1.0})["r"] == 1.0

    def test_with_something_else_is_a_type_error(self, stats: Stats) -> None:
        with pytest.raises(TypeError):
            stats | 3  # type: ignore[operator]
        with pytest.raises(TypeError):
            3 | stats  # type: ignore[operator]

    def test_update_takes_what_dicts_take(self, stats: Stats) -> None:
        stats.update([("a", 1.0)], b=2.0)
        stats.update()
        assert stats == {**FLAT, "a": 1.0, "b": 2.0}

    def test_a_plain_count_of_areal_is_a_number_like_any(self) -> None:
        stats = Stats()
        stats.update({"reward": 0.5, "reward__count": 3})
        assert stats.snapshot.flat() == {"reward": 0.5, "reward__count": 3.0}

    def test_a_wrong_value_changes_nothing(self, stats: Stats) -> None:
        with pytest.raises(RecordError, match=r"bad: expected one number, got NoneType"):
            stats.update({"good": 1.0, "bad": None})
        assert stats == FLAT


class TestTravel:
    @pytest.mark.parametrize(
        "through",
        [lambda stats: stats.copy(), copy.copy, copy.deepcopy, lambda stats: pickle.loads(pickle.dumps(stats))],
        ids=["copy()", "copy", "deepcopy", "pickle"],
    )
    def test_keeps_states(self, stats: Stats, through: Any) -> None:
        stats["lr"] = 0.5
        again = through(stats)
        assert type(again) is Stats
        assert again == {**FLAT, "lr": 0.5}
        assert list(again) == list(stats)
        assert kinds(again) == {**STATES, "lr": "gauge_mean"}
        again["x"] = 1.0
        assert "x" not in stats
        assert again.snapshot["loss"].state.kind is AVG_MIN_MAX
        assert again.snapshot["r"].state.kind is SCALAR


class TestNumbers:
    def test_of_any_make(self) -> None:
        given = {"a": 1, "b": np.float32(0.5), "c": torch.tensor(2.5), "d": torch.tensor([True]), "e": "1e3", "f": NAN}
        found = numbers_of(given)
        assert list(found) == list(given)
        assert {type(value) for value in found.values()} == {float}
        assert list(found.values())[:-1] == [1.0, 0.5, 2.5, 1.0, 1000.0]
        assert math.isnan(found["f"])

    def test_wrong_ones_are_all_named(self) -> None:
        given = {"a": 1.0, "b": None, "c": torch.ones(2), "d": [1.0], "e": 1j, "f": 10**400, "": 1.0, "/": 1.0, 3: 1.0}
        with pytest.raises(RecordError) as caught:
            numbers_of(given)  # type: ignore[arg-type]
        message = str(caught.value)
        for key in "bcdef":
            assert f"{key}: expected one number" in message
        for key in ("''", "'/'", "3"):
            assert f"{key} is not a key (expected a non-empty string)" in message
        assert "a:" not in message

    def test_of_a_device_are_read_in_one_copy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "_HOST", "none")
        copies = []
        copy_scalars = fold.scalars_to_host
        monkeypatch.setattr(fold, "scalars_to_host", lambda given: copies.append(len(given)) or copy_scalars(given))
        found = numbers_of({"a": torch.tensor(1.0), "b": 2.0, "c": torch.tensor([3]), "d": torch.tensor(True)})
        assert list(found.items()) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 1.0)]
        assert copies == [3]

    @pytest.mark.parametrize("given", [5, "loss", [("a", 1.0)]])
    def test_what_is_no_mapping_is_refused_by_its_type(self, given: Any) -> None:
        with pytest.raises(RecordError, match=f"expected a mapping of keys to numbers, got {type(given).__name__}"):
            snapshot_of(given)

    def test_a_snapshot_of_stats_is_its_own(self, stats: Stats) -> None:
        assert snapshot_of(stats) is stats.snapshot
        plain = snapshot_of({"a": 1.0})
        assert plain["a"].state.kind is GAUGE_MEAN


def test_stats_of_a_snapshot() -> None:
    stats = Stats(Snapshot.of_states({"n": State(SUM)}))
    assert stats == {"n": 0.0}
