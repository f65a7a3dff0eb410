from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError, RltelError
from rltel.record import fold
from rltel.record.recorder import Recorder
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import Trackers


class TestNames:
    def test_the_default_one_has_none(self, trackers: Trackers) -> None:
        assert trackers.get() is trackers.get("") is trackers.get("/") is trackers.default

    def test_one_tracker_per_name(self, trackers: Trackers) -> None:
        assert trackers.get("rollout") is trackers.get("/rollout/")
        assert trackers.get("rollout") is not trackers.get("eval")
        assert [tracker.name for tracker in trackers.all()] == ["", "rollout", "eval"]

    def test_threads_get_the_same_one(self, trackers: Trackers) -> None:
        barrier = threading.Barrier(8)
        found: list[Any] = []

        def gets() -> None:
            barrier.wait(60)
            found.append(trackers.get("x"))

        threads = [threading.Thread(target=gets) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(tracker) for tracker in found}) == 1


class TestExport:
    def test_of_all(self, trackers: Trackers) -> None:
        trackers.default.scalar(a=1.0)
        trackers.get("rollout").scalar(reward=2.0)
        stats = trackers.export_all()
        assert type(stats) is Stats
        assert stats == {"a": 1.0, "a__count": 1, "rollout/reward": 2.0, "rollout/reward__count": 1}
        assert stats.snapshot["rollout/reward"].tracker == "rollout"
        assert stats.snapshot["a"].tracker == ""
        assert trackers.export_all() == {}

    def test_of_one(self, trackers: Trackers) -> None:
        trackers.default.scalar(a=1.0)
        trackers.get("rollout").scalar(reward=2.0)
        assert trackers.get("rollout").export() == {"rollout/reward": 2.0, "rollout/reward__count": 1}
        assert trackers.export_all() == {"a": 1.0, "a__count": 1}

    def test_resets_exactly_what_it_exported(self, trackers: Trackers) -> None:
        trackers.default.scalar(a=1.0)
        with trackers.taken() as snapshot:
            trackers.default.scalar(a=5.0)
            trackers.default.denominator(n=[True])
        assert snapshot.flat() == {"a": 1.0, "a__count": 1}
        trackers.default.stat(x=[2.0], denominator="n", reduce_type="sum")  # defined meanwhile: still live
        assert trackers.export_all() == {"a": 5.0, "a__count": 1, "n": 1.0, "x": 2.0}

    def test_ends_the_denominators(self, trackers: Trackers) -> None:
        for export in (trackers.export_all, trackers.default.export):
            trackers.default.denominator(n=[True])
            export()
            with pytest.raises(RecordError, match='"n" is not defined'):
                trackers.default.stat(x=[1.0], denominator="n")

    def test_a_look_resets_nothing(self, trackers: Trackers) -> None:
        trackers.default.denominator(n=[True, False])
        trackers.default.stat(x=[1.0, 2.0], denominator="n")
        trackers.default.gauge(g=1.0)
        trackers.get("t").count(c=1)
        first = trackers.export_all(reset=False)
        assert trackers.default.export(reset=False).items() <= first.items()
        trackers.default.stat(x=[3.0, 4.0], denominator="n")  # its denominator is still live
        assert trackers.export_all() == {
            "n": 1.0, "x/avg": 2.0, "x/min": 1.0, "x/max": 3.0, "g": 1.0, "t/c": 1.0,
        }  # fmt: skip
        assert trackers.export_all() == {}

    def test_the_same_key_in_two_trackers_is_one_metric(self, trackers: Trackers) -> None:
        trackers.get("rollout").scalar(reward=1.0)
        with trackers.default.scope("rollout"):
            trackers.default.scalar(reward=4.0)
            trackers.default.scalar(reward=4.0)
        assert trackers.export_all() == {"rollout/reward": 3.0, "rollout/reward__count": 3}

    def test_of_another_kind_there_it_is_refused_at_the_call(self, trackers: Trackers) -> None:
        """Not at the export, which would then fail for ever."""
        trackers.get("rollout").scalar(reward=1.0)
        with (
            trackers.default.scope("rollout"),
            pytest.raises(RecordError, match="rollout/reward: recorded as scalar before, and now as gauge_mean"),
        ):
            trackers.default.gauge(reward=4.0)
        assert trackers.export_all() == {"rollout/reward": 1.0, "rollout/reward__count": 1}


def record(trackers: Trackers, value: float) -> None:
    """Something of every kind, in two trackers."""
    for tracker in (trackers.default, trackers.get("named")):
        tracker.scalar(s=value)
        tracker.weighted_mean("w", value, 2.0)
        tracker.gauge(g=value)
        tracker.gauge({"h": value}, ranks="max")
        tracker.count(c=value)
        tracker.denominator(n=[True, False])
        for kind in ("avg_min_max", "avg", "sum", "min", "max"):
            tracker.stat({kind: [value, math.nan]}, denominator="n", reduce_type=kind)
        tracker.distribution(d=[value])


class TestFailure:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_loses_nothing(self, trackers: Trackers, error: type[BaseException]) -> None:
        record(trackers, 1.0)
        untouched = Trackers(Recorder())
        record(untouched, 1.0)
        for _ in range(2):
            with pytest.raises(error), trackers.taken():
                raise error
        trackers.default.stat(more=[1.0, 2.0], denominator="n")
        untouched.default.stat(more=[1.0, 2.0], denominator="n")
        record(trackers, 4.0)
        record(untouched, 4.0)
        assert trackers.export_all() == untouched.export_all()
        assert trackers.export_all() == {}

    def test_of_a_device_loses_nothing(self, trackers: Trackers, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "_HOST", "none")
        trackers.get("a").stat(x=torch.tensor([1.0]))
        trackers.get("b").gauge(x=torch.tensor(1.0))
        trackers.get("b").scalar(y=1.0)

        def broken(rows: Any) -> Any:
            raise RuntimeError("the device is gone")

        with monkeypatch.context() as patch:
            patch.setattr(fold, "copy_to_host", broken)
            for export in (trackers.export_all, trackers.get("a").export):
                with pytest.raises(RuntimeError, match="the device is gone"):
                    export()
        trackers.get("a").stat(x=torch.tensor([3.0]))
        assert trackers.export_all() == {
            "a/x/avg": 2.0, "a/x/min": 1.0, "a/x/max": 3.0, "b/x": 1.0, "b/y": 1.0, "b/y__count": 1,
        }  # fmt: skip

    def test_devices_of_all_trackers_are_read_in_one_copy(
        self, trackers: Trackers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fold, "_HOST", "none")
        copies = []
        copy = fold.copy_to_host
        monkeypatch.setattr(fold, "copy_to_host", lambda rows: copies.append(len(rows)) or copy(rows))
        for name in ("", "a", "b"):
            trackers.get(name).stat(x=torch.tensor([1.0]))
        assert len(trackers.export_all()) == 9
        assert copies == [3]

    def test_in_a_later_tracker_puts_the_earlier_ones_back(
        self, trackers: Trackers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trackers.default.scalar(a=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(trackers.get("broken"), "cut", lambda only=None: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                trackers.export_all()
        assert trackers.export_all() == {"a": 1.0, "a__count": 1}


def test_exports_by_two_threads_share_what_there_is(trackers: Trackers) -> None:
    each, totals = 4000, []
    done = threading.Event()

    def exports() -> None:
        total = 0.0
        while not done.is_set():
            total += trackers.export_all().get("c", 0.0)
        totals.append(total)

    threads = [threading.Thread(target=exports) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(each):
        trackers.default.count(c=1)
    done.set()
    for thread in threads:
        thread.join()
    assert sum(totals) + trackers.export_all().get("c", 0.0) == each


@given(st.lists(st.sampled_from(["record", "export", "look", "fail"]), max_size=20))
def test_every_number_is_exported_once_whatever_happens(steps: list[str]) -> None:
    trackers = Trackers(Recorder())
    recorded = exported = 0.0
    for step in steps:
        if step == "record":
            recorded += 1
            trackers.default.count(c=1)
        elif step == "export":
            exported += trackers.export_all().get("c", 0.0)
        elif step == "look":
            assert trackers.export_all(reset=False).get("c", 0.0) == recorded - exported
        else:
            with pytest.raises(KeyError), trackers.taken():
                raise KeyError
    assert exported + trackers.export_all().get("c", 0.0) == recorded


FORKED = """
import json, os
import rltel

rltel.scalar(x=1.0)
rltel.get("named").scalar(x=1.0)
rltel.denominator(n=[True])
pid = os.fork()
if pid == 0:
    found = {"before": rltel.export_all()}
    rltel.scalar(x=5.0)
    found["after"] = rltel.export_all()
    print(json.dumps(found), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(json.dumps(rltel.export_all()), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_opentelemetry_python_2767_a_forked_child_counts_its_own() -> None:
    """A child does not report its parent's numbers again, and the parent keeps them."""
    run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    child, parent = map(json.loads, run.stdout.splitlines())
    assert child == {"before": {}, "after": {"x": 5.0, "x__count": 1}}
    assert parent == {"x": 1.0, "x__count": 1, "n": 1.0, "named/x": 1.0, "named/x__count": 1}


class TestReaders:
    def test_do_not_drain_each_other(self, trackers: Trackers) -> None:
        trackers.add_reader("panel")
        trackers.default.count(n=1)
        assert trackers.export_all() == {"n": 1.0}
        trackers.default.count(n=2)
        assert trackers.export_all(reader="panel") == {"n": 3.0}
        assert trackers.export_all() == {"n": 2.0}
        assert trackers.export_all(reader="panel") == trackers.export_all() == {}

    def test_that_export_at_once_lose_nothing(self, trackers: Trackers, monkeypatch: pytest.MonkeyPatch) -> None:
        """One exports while the other is in the middle of it: as a panel's thread and a training loop do."""
        trackers.add_reader("panel")
        trackers.default.count(n=1)
        real = trackers.default.cut

        def cut(only: str | None = None) -> Any:
            monkeypatch.setattr(trackers.default, "cut", real)
            trackers.default.count(n=100)
            assert trackers.export_all() == {"n": 101.0}
            return real(only)

        monkeypatch.setattr(trackers.default, "cut", cut)
        first = trackers.export_all(reader="panel").get("n", 0.0)
        assert first + trackers.export_all(reader="panel").get("n", 0.0) == 101.0

    def test_keep_what_is_pending_when_an_export_fails_or_was_only_a_look(
        self, trackers: Trackers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trackers.add_reader("panel")
        trackers.default.count(n=1)
        trackers.export_all()
        assert trackers.export_all(reader="panel", reset=False) == {"n": 1.0}
        trackers.default.count(n=0)
        with monkeypatch.context() as patch:
            patch.setattr(trackers.default, "cut", lambda only=None: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                trackers.export_all(reader="panel")
        assert trackers.export_all(reader="panel") == {"n": 1.0}

    def test_that_were_not_declared_are_refused(self, trackers: Trackers) -> None:
        with pytest.raises(RltelError, match="reader: expected one added by add_reader"):
            trackers.export_all(reader="nobody")

    def test_and_an_export_of_one_tracker_do_not_drain_each_other(self, trackers: Trackers) -> None:
        trackers.add_reader("panel")
        rollout = trackers.get("rollout")
        rollout.count(n=1)
        trackers.default.count(n=5)
        assert rollout.export() == {"rollout/n": 1.0}
        assert trackers.export_all(reader="panel") == {"n": 5.0, "rollout/n": 1.0}
        rollout.count(n=2)
        trackers.export_all(reader="panel")
        assert rollout.export() == {"rollout/n": 2.0}
        assert trackers.export_all() == {"n": 5.0}
