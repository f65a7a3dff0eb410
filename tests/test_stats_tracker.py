from __future__ import annotations

import asyncio
import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rltel
from export.making import environment
from realparts import requirements
from realparts.areal import need_areal, real_modules
from rltel import stats_tracker
from rltel.core.errors import PayloadError, RecordError
from rltel.record.recorder import Recorder
from rltel.reduce import trackers as trackers_module
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import StatsTracker, Trackers
from rltel.reduce.workers import Payload, Sender, merge_payloads
from rltel.stats_tracker import DistributedStatsTracker, NamedTrackers, ReduceType

NAN, INF = math.nan, math.inf
ROOT = Path(__file__).parents[1]
VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parent / "vectors" / "areal_vectors.json").read_text())["vectors"]
}

VECTORS |= {
    "export_single_key": {
        "input": {"m": [1], "x": [3.0], "y": 2},
        "output": [{"x/avg": 3.0, "x/min": 3.0, "x/max": 3.0}, {"y": 2.0, "y__count": 1}, {"m": 1.0}],
    },
    "rollout_controller_weighted_mean": {
        "input": [
            {"rollout/reward": 0.5, "rollout/reward__count": 3, "rollout/len": 10.0, "rollout/len__count": 1, "m": 4.0},
            {"rollout/reward": 1.0, "rollout/reward__count": 1, "m": 2.0},
            {"rollout/len": 0.0, "rollout/len__count": 0},
        ],
        "output": {"rollout/reward": 0.625, "rollout/len": 10.0},
    },
    "staleness_new": {
        "input": [{"versions": [0, -1], "mask": [1, 1]}, {"versions": [4, 4, 4, 0], "mask": [1, 1, 1, 0]}],
        "output": {
            "v_theta": 5.0, "v_theta__count": 2, "v_proximal": 5.0, "v_proximal__count": 2,
            "sample_staleness_proximal_avg": 2.0, "sample_staleness_theta_avg": 2.0,
            "sample_staleness_proximal_min": 1.0, "sample_staleness_theta_min": 1.0,
            "sample_staleness_proximal_max": 5.0, "sample_staleness_theta_max": 5.0,
            "n_valid_generated_tokens": 4.0, "stale_token_fraction": 1.0, "future_token_fraction": 0.0,
        },
    },
    "staleness_none_generated": {
        "input": [{"versions": [-1, 0], "mask": [1, 0]}],
        "output": {
            "v_theta": 5.0, "v_theta__count": 1, "v_proximal": 5.0, "v_proximal__count": 1,
            "n_valid_generated_tokens": 0.0,
        },
    },
    "train_infer_compact": {
        "input": [
            {"trainer": [-1, NAN], "rollout": [-3, INF], "mask": [1, 0]},
            {"trainer": [-1, -1, -1], "rollout": [-1, -1, -1], "mask": [1, 1, 1]},
        ],
        "output": {
            "n_valid_tokens": 4.0, "logp_diff/avg": 0.5, "logp_diff/min": 0.0, "logp_diff/max": 2.0,
            "logp_abs_diff/avg": 0.5, "logp_abs_diff/min": 0.0, "logp_abs_diff/max": 2.0, "trainer_nll": 1.0,
            "rollout_nll": 1.5, "kl_k1": -0.5, "kl_k2": 0.5, "kl_k3": 1.0972640247326626,
        },
    },
}  # fmt: skip
"""More of the same origin: what AReaL's code gives, where the file has no such vector."""


def same(found: dict[str, float], expected: dict[str, float]) -> bool:
    return found.keys() == expected.keys() and all(
        found[key] == expected[key] or (math.isnan(found[key]) and math.isnan(expected[key])) for key in found
    )


def mask(*elements: int) -> torch.Tensor:
    return torch.tensor(elements, dtype=torch.bool)


@pytest.fixture
def tracker() -> DistributedStatsTracker:
    return DistributedStatsTracker()


class TestTheModule:
    NAMES = (
        "stat", "denominator", "export", "scope", "scalar", "record_timing", "scope_func_wrapper", "get", "export_all",
        "ReduceType", "DistributedStatsTracker", "DEFAULT_TRACKER", "TRACKERS", "LOCK", "MOE_AUX_LOSSES",
        "stat_compact", "weighted_mean",
    )  # fmt: skip

    def test_has_areal_s_names(self) -> None:
        assert set(self.NAMES) <= {*stats_tracker.__all__}
        assert [name for name in stats_tracker.__all__ if not hasattr(stats_tracker, name)] == []
        assert [kind.name for kind in ReduceType] == [
            "AVG_MIN_MAX", "AVG", "SUM", "MIN", "MAX", "SCALAR", "WEIGHTED_AVG",
        ]  # fmt: skip
        assert stats_tracker.MOE_AUX_LOSSES == {}
        with stats_tracker.LOCK:
            pass

    def test_imports_no_torch(self) -> None:
        code = "import sys, rltel.stats_tracker; print('torch' in sys.modules)"
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=60
        )
        assert ran.stdout == "False\n"

    def test_shares_the_process_s_trackers(self) -> None:
        rltel.export_all()
        with stats_tracker.scope("shared"):
            rltel.scalar(x=1.0)
            stats_tracker.scalar(x=3.0)
        stats_tracker.denominator(shared_mask=mask(1, 0))
        rltel.stat(shared_y=[2.0, 9.0], denominator="shared_mask")
        rltel.get("rollout").scalar(shared=1.0)
        stats_tracker.get("rollout").scalar(shared=5.0)
        expected = {
            "shared/x": 2.0, "shared/x__count": 2, "shared_mask": 1.0, "shared_y/avg": 2.0, "shared_y/min": 2.0,
            "shared_y/max": 2.0, "rollout/shared": 3.0, "rollout/shared__count": 2,
        }  # fmt: skip
        assert rltel.export_all(reset=False) == expected
        assert stats_tracker.export_all(None, None, False) == expected
        found = stats_tracker.export_all(reduce_group=None, key_sync_group=None, reset=True)
        assert type(found) is Stats
        assert found == expected
        assert rltel.export_all() == stats_tracker.export_all() == stats_tracker.export() == {}

    def test_get_gives_the_same_one(self) -> None:
        assert stats_tracker.get() is stats_tracker.get("") is stats_tracker.DEFAULT_TRACKER
        assert stats_tracker.get("rollout") is stats_tracker.get("/rollout/") is stats_tracker.TRACKERS["rollout"]
        assert isinstance(stats_tracker.get("rollout"), StatsTracker)

    def test_trackers_are_a_live_view(self) -> None:
        trackers = Trackers(Recorder())
        view = NamedTrackers(trackers)
        assert list(view) == [""]
        assert "rollout" not in view
        with pytest.raises(KeyError):
            view["rollout"]
        trackers.get("rollout").scalar(x=1.0)
        assert list(view) == ["", "rollout"]
        assert len(view) == 2
        assert view["rollout"].export() == {"rollout/x": 1.0, "rollout/x__count": 1}
        assert trackers.export_all() == {}

    def test_one_made_by_hand_is_by_itself(self) -> None:
        by_hand = DistributedStatsTracker("by_hand")
        by_hand.scalar(x=1.0)
        assert "by_hand" not in stats_tracker.TRACKERS
        assert "by_hand/x" not in stats_tracker.export_all(reset=False)
        assert by_hand.export() == {"by_hand/x": 1.0, "by_hand/x__count": 1}

    def test_after_a_fork_both_faces_have_the_new_lock(self) -> None:
        trackers = Trackers(Recorder())
        face = NamedTrackers(trackers).get_or_make("")
        face.scalar(x=1.0)
        trackers.reset()
        assert face._lock is trackers.default._lock
        assert face.export() == {}


class TestCallShapes:
    """As AReaL's callers write them."""

    def test_stat_with_the_denominator_in_either_form(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 0))
        tracker.stat("m", None, a=torch.tensor([1.0, 2.0]))
        tracker.stat("m", ReduceType.SUM, b=torch.tensor([1.0, 2.0]))
        tracker.stat(c=torch.tensor([1.0, 2.0]), d=torch.tensor([3.0, 4.0]), denominator="m", reduce_type=None)
        tracker.stat(e=torch.tensor([1.0, 2.0]), denominator="m", reduce_type=ReduceType.MAX, reduce_group=None)
        found = tracker.export()
        assert found["a/avg"] == found["b"] == found["c/min"] == found["e"] == 1.0
        assert found["d/max"] == 3.0

    @pytest.mark.parametrize("kind", ["AVG_MIN_MAX", "AVG", "SUM", "MIN", "MAX"])
    def test_reduce_types_also_of_areal_s_own_enum(self, tracker: DistributedStatsTracker, kind: str) -> None:
        other = Enum("ReduceType", {kind: auto()})  # type: ignore[misc]
        tracker.denominator(m=mask(1, 1))
        tracker.stat("m", ReduceType[kind], x=torch.tensor([1.0, 2.0]))
        tracker.stat("m", other[kind], x=torch.tensor([1.0, 2.0]))
        tracker.stat_compact(mask(1, 1), ReduceType[kind], x=torch.tensor([1.0, 2.0]))
        expected = {"AVG": 1.5, "SUM": 9.0, "MIN": 1.0, "MAX": 2.0}
        assert tracker.export().get("x") == expected.get(kind)

    @pytest.mark.parametrize("record", ["stat", "stat_compact"])
    def test_reduce_types_that_have_calls_of_their_own(self, tracker: DistributedStatsTracker, record: str) -> None:
        tracker.denominator(m=mask(1))
        first = {"stat": "m", "stat_compact": mask(1)}[record]
        call: Callable[..., None] = getattr(tracker, record)
        with pytest.raises(ValueError, match="scalar reduce type for a tensor"):
            call(first, ReduceType.SCALAR, x=torch.tensor([1.0]))
        with pytest.raises(ValueError, match="Use weighted_mean"):
            call(first, ReduceType.WEIGHTED_AVG, x=torch.tensor([1.0]))
        with pytest.raises(ValueError, match="reduce_type: expected one of"):
            call(first, torch.tensor([1.0]), x=torch.tensor([1.0]))
        assert tracker.export() == {"m": 1.0}

    def test_stat_needs_the_name_of_a_mask(self, tracker: DistributedStatsTracker) -> None:
        for wrong in (None, mask(1)):
            with pytest.raises(ValueError, match="denominator: expected the name of a mask"):
                tracker.stat(denominator=wrong, x=torch.tensor([1.0]))  # type: ignore[arg-type]

    def test_weighted_mean_and_stat_compact(self, tracker: DistributedStatsTracker) -> None:
        tracker.weighted_mean("w", torch.tensor(2.0), torch.tensor(1.0))
        tracker.weighted_mean("w", 5.0, 2.0)
        tracker.weighted_mean("w", NAN, 0.0)
        tracker.stat_compact(mask(1, 0), x=torch.tensor([1.0, NAN]))
        assert tracker.export() == {"w": 4.0, "x/avg": 1.0, "x/min": 1.0, "x/max": 1.0}

    def test_groups_of_keys_reach_the_export(self, tracker: DistributedStatsTracker) -> None:
        group = object()
        tracker.denominator(m=mask(1), reduce_group=group)
        tracker.stat("m", x=torch.tensor([1.0]), reduce_group=group)
        tracker.scalar(reduce_group=group, s=1.0)
        tracker.scalar(t=1.0, reduce_group=-100)  # what a rank outside a new group is given
        assert tracker.own_groups() == {"m": group, "x": group, "s": group, "t": -100}
        assert tracker.export(None, None, None, True)["s"] == 1.0

    def test_scopes_and_wrappers(self, tracker: DistributedStatsTracker) -> None:
        @tracker.scope_func_wrapper("f")
        def records() -> str:
            tracker.scalar(x=1.0)
            return "done"

        with tracker.scope("a"):
            assert records() == "done"
            with tracker.disable_scope():
                tracker.scalar(y=1.0)
        assert tracker.export().keys() == {"a/f/x", "a/f/x__count", "y", "y__count"}

    def test_any_name_may_be_a_metric_s(self, tracker: DistributedStatsTracker) -> None:
        tracker.scalar(self=1.0, weight=2.0, values=3.0, key=4.0)
        assert tracker.export()["self"] == 1.0


class TestArealVectors:
    """What AReaL's released code gives for the same calls. (Those of tests/record use our own call shapes.)"""

    def test_weighted_avg_two_batches(self, tracker: DistributedStatsTracker) -> None:
        vector = VECTORS["weighted_avg_two_batches"]
        for batch in vector["input"]["batches"]:
            tracker.denominator(m=torch.tensor(batch["mask"], dtype=torch.bool))
            tracker.stat("m", ReduceType[vector["input"]["reduce"]], x=torch.tensor(batch["x"], dtype=torch.float32))
        assert tracker.export() == vector["output"]

    def test_all_false_denominator(self, tracker: DistributedStatsTracker) -> None:
        vector = VECTORS["all_false_denominator"]
        values = torch.tensor([1.0, 2.0])
        tracker.denominator(m=mask(*vector["input"]["mask"]))
        tracker.stat("m", x=values)
        tracker.stat("m", ReduceType.SUM, y=values)
        tracker.stat("m", ReduceType.MAX, z=values)
        assert tracker.export() == vector["output"]

    def test_export_single_key(self, tracker: DistributedStatsTracker) -> None:
        vector = VECTORS["export_single_key"]
        tracker.denominator(m=mask(*vector["input"]["m"]))
        tracker.stat("m", x=torch.tensor(vector["input"]["x"]))
        tracker.scalar(y=vector["input"]["y"])
        assert [tracker.export(key="x"), tracker.export(key="y"), tracker.export()] == vector["output"]

    @pytest.mark.parametrize("id_", ["staleness_new", "staleness_none_generated"])
    def test_staleness(self, tracker: DistributedStatsTracker, id_: str) -> None:
        current = 5
        for batch in VECTORS[id_]["input"]:
            versions = torch.tensor(batch["versions"])
            valid = mask(*batch["mask"]) & (versions >= 0)
            tracker.scalar(v_theta=current, v_proximal=current)
            tracker.stat_compact(valid, ReduceType.SUM, n_valid_generated_tokens=torch.ones(len(versions)))
            tracker.stat_compact(valid, ReduceType.AVG, stale_token_fraction=(versions < current).float())
            tracker.stat_compact(valid, ReduceType.AVG, future_token_fraction=(versions > current).float())
            for name, kind in (("avg", ReduceType.AVG), ("min", ReduceType.MIN), ("max", ReduceType.MAX)):
                keys = (f"sample_staleness_theta_{name}", f"sample_staleness_proximal_{name}")
                tracker.stat_compact(valid, kind, **dict.fromkeys(keys, (current - versions).double()))
        assert tracker.export() == VECTORS[id_]["output"]

    def test_train_infer_compact(self, tracker: DistributedStatsTracker) -> None:
        vector = VECTORS["train_infer_compact"]
        for batch in vector["input"]:
            valid = mask(*batch["mask"])
            trainer, rollout = (torch.tensor(batch[side], dtype=torch.float64) for side in ("trainer", "rollout"))
            diff = torch.where(valid, trainer - rollout, 0.0)
            tracker.stat_compact(valid, ReduceType.SUM, n_valid_tokens=torch.ones_like(diff))
            tracker.stat_compact(valid, ReduceType.AVG_MIN_MAX, logp_diff=diff, logp_abs_diff=diff.abs())
            tracker.stat_compact(valid, ReduceType.AVG, trainer_nll=-trainer, rollout_nll=-rollout)
            kl_k3 = diff.expm1() - diff
            tracker.stat_compact(valid, ReduceType.AVG, kl_k1=-diff, kl_k2=diff.square() / 2, kl_k3=kl_k3)
        assert tracker.export() == pytest.approx(vector["output"], rel=1e-12)


class TestDifferences:
    """One test for each row of the table in docs/areal.md."""

    def test_the_table_and_these_tests_name_each_other(self) -> None:
        _, _, table = (ROOT / "docs" / "areal.md").read_text().partition("## Deliberate differences")
        rows = re.findall(r"^\| .* \| `(\w+)` \|$", table, re.MULTILINE)
        mine = [name.removeprefix("test_") for name in vars(TestDifferences) if name.startswith("test_")]
        assert sorted(rows) == sorted(mine[1:])

    def test_masks_belong_to_their_values(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 0))
        tracker.denominator(m=mask(0, 1))
        tracker.stat("m", x=torch.tensor([1.0, 2.0]))
        assert VECTORS["positional_pairing_pitfall"]["output"]["stat_only_in_2nd_batch"]["x/avg"] == 1.0
        assert tracker.export()["x/avg"] == 2.0

    def test_no_value_is_dropped(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1))
        tracker.stat("m", x=torch.tensor([1.0, 2.0]))
        tracker.stat("m", x=torch.tensor([10.0, 20.0]))
        assert VECTORS["positional_pairing_pitfall"]["output"]["two_stats_one_denominator"]["x/max"] == 2.0
        assert tracker.export() == {"m": 2.0, "x/avg": 8.25, "x/min": 1.0, "x/max": 20.0}

    def test_float64(self, tracker: DistributedStatsTracker) -> None:
        tracker.scalar(n=16777217)
        tracker.denominator(m=mask(1, 1, 1))
        tracker.stat("m", ReduceType.AVG, x=torch.tensor([1.0, 1.0, 0.0]))
        found = tracker.export()
        assert (found["n"], found["x"]) == (16777217.0, 2 / 3)

    def test_infinities_stay_visible(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1))
        tracker.stat("m", x=torch.tensor([1.0, INF]))
        assert "x/max" not in VECTORS["nonfinite"]["output"]["pos_inf_valid"]
        assert tracker.export()["x/max"] == INF

    def test_nonfinite_values_are_counted(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1, 0))
        tracker.stat("m", x=torch.tensor([1.0, NAN, NAN]))
        assert tracker.export()["x/nonfinite"] == 1.0

    def test_nan_on_any_rank(self) -> None:
        ranks = [Worker(), Worker()]
        ranks[0].tracker.stat(x=[1.0])
        ranks[1].tracker.stat(x=[NAN])
        payloads = [rank.payload() for rank in ranks]
        for order in (payloads, payloads[::-1]):
            found = merge_payloads(order)
            assert math.isnan(found["x/min"])
            assert math.isnan(found["x/max"])

    def test_scopes_per_task_and_thread(self, tracker: DistributedStatsTracker) -> None:
        async def rollout(name: str) -> None:
            with tracker.scope(name):
                await asyncio.sleep(0)
                tracker.scalar(x=1.0)

        async def all_at_once() -> None:
            await asyncio.gather(*(rollout(name) for name in "ABC"))

        asyncio.run(all_at_once())
        with tracker.scope("D"):
            thread = threading.Thread(target=lambda: tracker.scalar(x=1.0))
            thread.start()
            thread.join()
        assert {key for key in tracker.export() if "__" not in key} == {"A/x", "B/x", "C/x", "x"}

    def test_wrapped_async_functions_run_in_the_scope(self, tracker: DistributedStatsTracker) -> None:
        @tracker.scope_func_wrapper("f")
        async def rollout() -> None:
            """Kept."""
            await asyncio.sleep(0)
            tracker.scalar(x=1.0)

        asyncio.run(rollout())
        assert (rollout.__name__, rollout.__doc__) == ("rollout", "Kept.")
        assert "f/x" in tracker.export()

    def test_disable_scope_restores_on_exceptions(self, tracker: DistributedStatsTracker) -> None:
        with tracker.scope("a"):
            with pytest.raises(ZeroDivisionError), tracker.disable_scope():
                raise ZeroDivisionError
            tracker.scalar(x=1.0)
        assert "a/x" in tracker.export()

    def test_disable_scope_keeps_the_name(self) -> None:
        rollout = DistributedStatsTracker("rollout")
        with rollout.scope("a"), rollout.disable_scope():
            rollout.scalar(x=1.0)
        assert "rollout/x" in rollout.export()

    def test_timings_of_named_trackers_lead_with_the_name(self) -> None:
        given = VECTORS["nested_scope_and_timing_keys"]["input"]
        rollout = DistributedStatsTracker(given["tracker"])
        outer, inner = given["scopes"]
        with rollout.scope(outer), rollout.scope(inner):
            rollout.scalar(**{given["scalar"]: 1.0})
            with rollout.record_timing(given["record_timing"]):
                pass
        areal = VECTORS["nested_scope_and_timing_keys"]["output"]
        ours = [f"rollout/{key}" if key.startswith("timeperf/") else key for key in areal]
        assert sorted(rollout.export()) == sorted(ours)

    def test_any_dtype(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1))
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8):
            tracker.stat("m", x=torch.tensor([1, 3], dtype=dtype))
        tracker.stat("m", x=np.array([1.0, 3.0]))
        tracker.stat("m", x=[1, 3])
        assert tracker.export() == {"m": 2.0, "x/avg": 2.0, "x/min": 1.0, "x/max": 3.0}

    def test_denominators_are_looked_up_outwards(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 0))
        with tracker.scope("update"):
            tracker.stat("m", x=torch.tensor([1.0, 2.0]))
        assert tracker.export()["update/x/avg"] == 1.0

    def test_wrong_shapes_are_value_errors(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 0))
        with pytest.raises(ValueError, match=r"x: expected the shape of m, \(2,\), got \(3,\)"):
            tracker.stat("m", x=torch.tensor([1.0, 2.0, 3.0]))
        with pytest.raises(ValueError, match="k: expected a bool mask, got dtype int64"):
            tracker.denominator(k=[1, 0])

    def test_one_key_one_kind(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1))
        tracker.stat("m", x=torch.tensor([1.0]))
        with pytest.raises(RecordError, match="x: recorded as avg_min_max before, and now as scalar"):
            tracker.scalar(x=2.0)
        with pytest.raises(RecordError, match="x: recorded as avg_min_max before, and now as sum"):
            tracker.stat("m", ReduceType.SUM, x=torch.tensor([1.0]))
        assert tracker.export()["x/avg"] == 1.0
        with pytest.raises(RecordError, match="x: recorded as avg_min_max before"):
            tracker.scalar(x=2.0)

    def test_stat_and_stat_compact_share_keys(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1))
        tracker.stat("m", x=torch.tensor([1.0]))
        tracker.stat_compact(mask(1), ReduceType.AVG_MIN_MAX, x=torch.tensor([3.0]))
        assert tracker.export()["x/avg"] == 2.0

    def test_calls_record_all_or_nothing(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1))
        with pytest.raises(RecordError):
            tracker.stat("m", x=torch.tensor([1.0]), y=torch.tensor([1.0, 2.0]))
        with pytest.raises(RecordError):
            tracker.scalar(a=1.0, b=None)
        assert tracker.export() == {"m": 1.0}

    def test_a_failed_export_resets_nothing(
        self, tracker: DistributedStatsTracker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(taken: Any) -> None:
            raise MemoryError

        tracker.denominator(m=mask(1))
        tracker.stat("m", x=torch.tensor([1.0]))
        with monkeypatch.context() as patched:
            patched.setattr(trackers_module, "read", fails)
            with pytest.raises(MemoryError):
                tracker.export()
        tracker.stat("m", x=torch.tensor([3.0]))  # the mask is still there, too
        assert tracker.export() == {"m": 1.0, "x/avg": 2.0, "x/min": 1.0, "x/max": 3.0}

    def test_export_of_one_key_returns_floats(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1))
        tracker.stat("m", x=torch.tensor([1.0, 3.0]))
        found = tracker.export(key="x")
        assert found == {"x/avg": 2.0, "x/min": 1.0, "x/max": 3.0}
        assert {type(value) for value in found.values()} == {float}

    def test_export_of_a_denominator_leaves_the_rest(self, tracker: DistributedStatsTracker) -> None:
        tracker.denominator(m=mask(1, 1))
        tracker.stat("m", ReduceType.AVG, x=torch.tensor([1.0, 3.0]))
        assert tracker.export(key="m") == {"m": 2.0}
        assert tracker.export() == {"x": 2.0}

    def test_keys_named_like_options(self, tracker: DistributedStatsTracker) -> None:
        with pytest.raises(ValueError, match="reduce_group: expected a process group, got float"):
            tracker.scalar(reduce_group=0.5)
        with pytest.raises(ValueError, match="reduce_group: expected a process group, got Tensor"):
            tracker.denominator(reduce_group=mask(1))
        tracker.denominator(m=mask(1))
        with pytest.raises(ValueError, match="reduce_group: expected a process group, got Tensor"):
            tracker.stat("m", reduce_group=torch.tensor([1.0]))
        with pytest.raises(ValueError, match="reduce_type: expected one of"):
            tracker.stat("m", reduce_type=torch.tensor([1.0]))
        tracker.scalar(self=1.0)
        assert tracker.export() == {"m": 1.0, "self": 1.0, "self__count": 1}

    def test_no_tensor_is_kept(self, tracker: DistributedStatsTracker) -> None:
        values = torch.tensor([1.0])
        tracker.denominator(m=mask(1))
        tracker.stat("m", x=values)
        values.fill_(7.0)
        assert tracker.export()["x/avg"] == 1.0
        for name in ("stats", "denominators", "reduce_types", "reduce_groups", "scope_stack", "lock"):
            assert not hasattr(tracker, name)

    def test_names_are_stripped(self) -> None:
        view = NamedTrackers(Trackers(Recorder()))
        assert view.get_or_make("/rollout/") is view.get_or_make("rollout")


class Worker:
    """A process that records and sends."""

    def __init__(self, name: str | None = None) -> None:
        self.trackers = Trackers(Recorder())
        self.tracker = self.trackers.default
        self.sender = Sender(name)

    def payload(self) -> Payload:
        with self.trackers.taken() as snapshot:
            return self.sender.payload(snapshot)


class TestMergePayloads:
    def test_weights_by_what_was_counted(self) -> None:
        few, many = Worker(), Worker()
        few.tracker.scalar(reward=1.0)
        few.tracker.stat(loss=[4.0])
        for _ in range(3):
            many.tracker.scalar(reward=0.0)
        many.tracker.stat(loss=[1.0, 1.0])
        many.trackers.get("rollout").count(episodes=2)
        wires = [json.loads(json.dumps(worker.payload())) for worker in (few, many)]
        found = rltel.merge_payloads(wires)
        assert type(found) is Stats
        assert found == {
            "reward": 0.25, "reward__count": 4, "loss/avg": 2.0, "loss/min": 1.0, "loss/max": 4.0,
            "rollout/episodes": 2.0,
        }  # fmt: skip
        assert found.snapshot["rollout/episodes"].tracker == "rollout"

    def test_records_nothing_here(self) -> None:
        worker = Worker()
        worker.tracker.scalar(merged_elsewhere=1.0)
        merge_payloads([worker.payload()])
        assert "merged_elsewhere" not in rltel.export_all(reset=False)

    def test_given_twice_counts_once(self) -> None:
        worker = Worker()
        worker.tracker.count(c=2)
        first = worker.payload()
        worker.tracker.count(c=3)
        second = worker.payload()
        assert merge_payloads([first, second, first, dict(second)]) == {"c": 5.0}
        assert merge_payloads([first]) == merge_payloads([first]) == {"c": 2.0}

    def test_gauges(self) -> None:
        a, b = Worker("a"), Worker("b")
        a.tracker.gauge({"queue": 1.0}, ranks="sum")
        old = a.payload()
        a.tracker.gauge({"queue": 2.0}, ranks="sum")
        new = a.payload()
        b.tracker.gauge({"queue": 10.0}, ranks="sum")
        assert merge_payloads([old, new, b.payload()]) == {"queue": 12.0}
        assert merge_payloads([new, old]) == {"queue": 2.0}

    @pytest.mark.parametrize("order", [1, -1])
    def test_rollout_controller_weighted_mean(self, order: int) -> None:
        vector = VECTORS["rollout_controller_weighted_mean"]
        found = merge_payloads(vector["input"][::order])
        assert {key: value for key, value in found.items() if not key.endswith("__count")} == vector["output"]
        assert found["rollout/reward__count"] == 4
        assert found["rollout/len__count"] == 1

    def test_flat_dicts_merge_on(self) -> None:
        """What comes out can go in again: groups of workers merge like workers."""
        dicts = [{"k": 1.0, "k__count": 1}, {"k": 4.0, "k__count": 3}, {"k": 0.0, "k__count": 4}]
        assert merge_payloads([merge_payloads(dicts[:2]), dicts[2]]) == merge_payloads(dicts)

    def test_what_a_tracker_exports_is_a_flat_dict(self) -> None:
        stats = []
        for values in ([1.0, 2.0], [6.0]):
            worker = Worker()
            for value in values:
                worker.tracker.scalar(x=value)
            worker.tracker.stat(y=values)
            stats.append(worker.trackers.export_all())
        assert merge_payloads(stats) == {"x": 3.0, "x__count": 3}

    @pytest.mark.parametrize(("value", "expected"), [(NAN, NAN), (INF, INF), (-INF, -INF)])
    def test_nonfinite_means_stay_visible(self, value: float, expected: float) -> None:
        found = merge_payloads([{"k": value, "k__count": 2}, {"k": 1.0, "k__count": 2}])
        assert same(found, {"k": expected, "k__count": 4, "k/nonfinite": 2.0})

    def test_a_mean_of_nothing_does_not_matter(self) -> None:
        assert merge_payloads([{"k": NAN, "k__count": 0}, {"k": 1.0, "k__count": 2}]) == {"k": 1.0, "k__count": 2}
        assert merge_payloads([{"k": NAN, "k__count": 0}, {"j__count": 2}]) == {}

    def test_of_nothing(self) -> None:
        assert merge_payloads([]) == merge_payloads([{}]) == {}

    def test_not_both_sorts(self) -> None:
        flat = {"k": 1.0, "k__count": 1}
        with pytest.raises(PayloadError, match=r"payloads of export_payload or flat dicts, got both \(1 and 2\)"):
            merge_payloads([flat, Worker().payload(), flat])

    @pytest.mark.parametrize(
        ("flat", "message"),
        [
            ([1.0], "flat dict 1: expected a mapping of keys to numbers, got list"),
            (None, "got NoneType"),
            ({"k": "many", "k__count": 1}, "k: expected one number, got str"),
            ({"k": [1.0, 2.0], "k__count": 1}, "k: expected one number, got list"),
            ({3: 1.0}, "3 is not a key"),
            ({"k": 1.0, "k__count": -1}, "k__count: expected a count >= 0, got -1"),
            ({"k": 1.0, "k__count": NAN}, "k__count: expected a count >= 0, got nan"),
            ({"k": 1.0, "k__count": INF}, "k__count: expected a count >= 0, got inf"),
            ({"worker": "a", "metrics": {}}, "worker: expected one number, got str"),
        ],
    )
    def test_broken_flat_dicts(self, flat: Any, message: str) -> None:
        with pytest.raises(PayloadError, match=message):
            merge_payloads([{"k": 1.0, "k__count": 1}, flat])

    def test_broken_payloads(self) -> None:
        payload = Worker().payload()
        with pytest.raises(PayloadError, match="payload: expected version 1, got 99"):
            merge_payloads([payload, {**payload, "rltel": 99}])
        with pytest.raises(PayloadError, match="payload: metrics: expected a mapping"):
            merge_payloads([{**payload, "metrics": None}])

    def test_one_key_of_two_kinds(self) -> None:
        a, b = Worker("a"), Worker("b")
        a.tracker.scalar(k=1.0)
        b.tracker.gauge(k=1.0)
        with pytest.raises(PayloadError, match="payload of worker b: k: recorded as scalar before"):
            merge_payloads([a.payload(), b.payload()])


class TestStatScope:
    def test_is_rollout_unless_evaluating(self) -> None:
        assert rltel.stat_scope() == "rollout"
        with rltel.eval_scope():
            assert rltel.stat_scope() == "eval-rollout"
            with rltel.eval_scope(is_eval=False):
                assert rltel.stat_scope() == "rollout"
            assert rltel.stat_scope() == "eval-rollout"
        assert rltel.stat_scope() == "rollout"

    def test_ends_with_an_exception(self) -> None:
        with pytest.raises(ZeroDivisionError), rltel.eval_scope():
            raise ZeroDivisionError
        assert rltel.stat_scope() == "rollout"

    def test_of_tasks_is_their_own(self) -> None:
        seen: list[tuple[str, str]] = []

        async def episode(name: str) -> None:
            for _ in range(3):
                seen.append((name, rltel.stat_scope()))
                await asyncio.sleep(0)

        async def evaluation() -> None:
            with rltel.eval_scope():
                inner = asyncio.create_task(episode("evaluation's"))  # inherits
                await episode("evaluation")
            assert rltel.stat_scope() == "rollout"
            await inner

        async def both() -> None:
            await asyncio.gather(episode("training"), evaluation())

        asyncio.run(both())
        assert len(seen) == 9
        assert set(seen) == {
            ("training", "rollout"), ("evaluation", "eval-rollout"), ("evaluation's", "eval-rollout"),
        }  # fmt: skip

    def test_is_carried_into_threads(self) -> None:
        seen: list[str] = []
        with rltel.eval_scope():
            targets = [lambda: seen.append(rltel.stat_scope()), rltel.carry(lambda: seen.append(rltel.stat_scope()))]
        for target in targets:
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert seen == ["rollout", "eval-rollout"]


class Engine:
    """A train engine that calls AReaL's loss function on what it was given."""

    def __init__(self, *model_outputs: torch.Tensor) -> None:
        self._outputs = model_outputs

    def train(self) -> None:
        pass

    def train_batch(self, input_: dict[str, Any], loss_fn: Any, loss_weight_fn: Any) -> dict[str, float]:
        loss = loss_fn(*self._outputs, input_)
        return {"grad_norm": float(loss), "update_successful": float(loss_weight_fn(input_))}


def train_a_critic(critic: Any) -> None:
    config = SimpleNamespace(mask_no_eos_with_zero=True, eps_clip=0.5, ppo_n_minibatches=1)
    batch = {
        "values": torch.tensor([[1.0, 2.0, 3.0]]),
        "returns": torch.tensor([[1.0, 5.0, 3.5]]),
        "loss_mask": torch.tensor([[1, 1, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1]]),
        "rewards": torch.tensor([1.0]),
    }
    critic.PPOCritic(config, Engine(torch.tensor([[[1.25], [4.0], [9.0]]]))).ppo_update([batch, dict(batch)])


def train_a_language_model(lm_engine: Any) -> None:
    logprobs = torch.tensor([-1.0, -2.0, -4.0, -0.5])
    batch = {"loss_mask": torch.tensor([0, 1, 1, 1]), "cu_seqlens": torch.tensor([0, 2, 4])}
    lm_engine.LMEngine(Engine(logprobs, torch.zeros(4))).train_lm([batch])


def log_staleness(actor: Any) -> None:
    for batch in VECTORS["staleness_new"]["input"]:
        actor._log_version_staleness_stats(torch.tensor(batch["versions"]), 5, mask(*batch["mask"]))


def run_episodes(multi_turn: Any, tokenizer: Any) -> None:
    async def generate(request: Any) -> Any:
        return SimpleNamespace(
            input_tokens=[1, 2], output_tokens=[7], output_logprobs=[-0.5], output_versions=[3], output_len=1
        )

    async def reward(*args: Any, **data: Any) -> float:
        return 1.0

    workflow = multi_turn.MultiTurnWorkflow.__new__(multi_turn.MultiTurnWorkflow)
    vars(workflow).update(
        tokenizer=tokenizer, max_turns=2, turn_discount=0.5, async_reward_fn=reward, multi_turn_prompt_ids=[],
        gconfig=SimpleNamespace(new=lambda n_samples: None),
    )  # fmt: skip

    async def training_and_evaluation() -> None:
        engine = SimpleNamespace(agenerate=generate)
        await workflow.arun_episode(engine, {"messages": []})
        with rltel.eval_scope():
            await workflow.arun_episode(engine, {"messages": []})

    asyncio.run(training_and_evaluation())


class TestRealAreal:
    """AReaL's own code records into our module, found under its name."""

    NAMES = (
        "areal.trainer.ppo.stats",
        "areal.utils.constants",
        "areal.utils.functional.functional",
        "areal.trainer.ppo.critic",
        "areal.trainer.sft.lm_engine",
        "areal.trainer.ppo.actor",
        "areal.workflow.multi_turn",
    )

    def recorded(self, tracker: Any) -> dict[str, float]:
        with real_modules(*self.NAMES, tracker=tracker) as (_, _, functional, critic, lm_engine, actor, multi_turn):
            critic.ppo_critic_loss_fn = functional.ppo_critic_loss_fn
            multi_turn.workflow_context = SimpleNamespace(stat_scope=rltel.stat_scope)
            used = critic.stats_tracker
            assert (used is stats_tracker) == (tracker is not None)
            used.export_all()
            train_a_critic(critic)
            train_a_language_model(lm_engine)
            log_staleness(actor)
            run_episodes(multi_turn, SimpleNamespace(decode=str, eos_token_id=0))
            with used.record_timing("train_step"), used.scope("elsewhere"):
                pass
            return dict(used.export_all(reduce_group=None))

    def test_records_what_areal_s_own_tracker_records(self) -> None:
        ours, areals = self.recorded(stats_tracker), self.recorded(None)
        assert ours.keys() == areals.keys()
        assert len(ours) > 50
        assert {
            "ppo_critic/critic_loss/avg", "sft/ppl/max", "version_stats/v_theta", "rollout/reward",
            "eval-rollout/reward", "timeperf/train_step",
        } <= ours.keys()  # fmt: skip
        for key, value in areals.items():
            if not key.startswith("timeperf/"):
                assert ours[key] == pytest.approx(value, rel=1e-6), key

    def test_reaches_a_commit(self, tmp_path: Path) -> None:
        """In a process of its own, as `init` is once a process."""
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import rltel; from rltel import stats_tracker; from realparts.areal import real_modules\n"
            "rltel.init({'jsonl': {'path': sys.argv[2]}})\n"
            "import torch\n"
            "with real_modules('areal.trainer.ppo.actor', tracker=stats_tracker) as (actor,):\n"
            "    actor._log_version_staleness_stats(torch.tensor([4]), 5, torch.tensor([True]))\n"
            "rltel.commit(step=0)\nrltel.shutdown()\n"
        )
        need_areal()
        path = tmp_path / "r.jsonl"
        subprocess.run(
            [sys.executable, "-c", code, str(ROOT / "tests"), str(path)],
            env=environment(RLTEL_RUN_DIR=str(tmp_path / "run"), RLTEL_TOOLS_DIR=str(requirements.tools_dir())),
            check=True,
            timeout=120,
        )
        assert '"version_stats/sample_staleness_theta_avg"' in path.read_text()

    def test_rollout_controller_merges_as_we_do(self) -> None:
        workers = VECTORS["rollout_controller_weighted_mean"]["input"]
        with real_modules("areal.infra.controller.rollout_controller", tracker=stats_tracker) as (module,):
            controller = module.RolloutController.__new__(module.RolloutController)
            controller._collective_rpc = lambda **_: workers
            areal = controller.export_stats()
        found = merge_payloads(workers)
        assert {key: value for key, value in found.items() if not key.endswith("__count")} == areal

    def test_stat_scope_is_as_workflow_context_s(self) -> None:
        with real_modules("areal.infra.workflow_context", tracker=stats_tracker) as (context,):
            assert context.stat_scope() == rltel.stat_scope()
            context.set(context.WorkflowContext(is_eval=True))
            with rltel.eval_scope():
                assert context.stat_scope() == rltel.stat_scope()
