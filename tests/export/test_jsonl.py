"""The run's own record: nothing committed is lost, and what comes back is what was recorded."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from export.making import TIME_NS, commit, environment, identity, recorded, run_python
from rltel.core.errors import RltelError
from rltel.export.commit import Commit
from rltel.export.jsonl import VERSION, JsonlFile, Line, line_of, read_jsonl
from rltel.export.sink import Destination
from rltel.record.kinds import KINDS, PHASE_MS, PHASE_S, TIMING, Kind, State
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

Record = Callable[[Tracker, str, list[float]], object]

VALUES = st.lists(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=4)
COUNTS = st.integers(0, 2**53)


def _stat(reduce_type: str) -> Record:
    return lambda tracker, key, values: tracker.stat({key: np.array(values)}, reduce_type=reduce_type)


def _gauge(ranks: str) -> Record:
    return lambda tracker, key, values: [tracker.gauge({key: value}, ranks=ranks) for value in values]


def _clocked(kind: Kind) -> Record:
    def record(tracker: Tracker, key: str, values: list[float]) -> None:
        append = tracker.timing_appender(key, kind)
        for value in values:
            append(int(min(abs(value), 1e18)) if math.isfinite(value) else 0)

    return record


def _count(tracker: Tracker, key: str, values: list[float]) -> None:
    for value in values:
        tracker.count({key: abs(value) if math.isfinite(value) else 0.0})


def _elapse(tracker: Tracker, key: str, values: list[float]) -> None:
    for value in values:
        tracker.elapsed({key: abs(value) if math.isfinite(value) else 0.0})


RECORD: dict[str, Record] = {
    **{kind: _stat(kind) for kind in ("avg_min_max", "avg", "sum", "min", "max")},
    **{f"gauge_{ranks}": _gauge(ranks) for ranks in ("mean", "sum", "min", "max", "writer")},
    **{kind.name: _clocked(kind) for kind in (TIMING, PHASE_S, PHASE_MS)},
    "scalar": lambda tracker, key, values: [tracker.scalar({key: value}, weight=2.5) for value in values],
    "weighted_avg": lambda tracker, key, values: [tracker.weighted_mean(key, value, 3) for value in values],
    "histogram": lambda tracker, key, values: tracker.distribution({key: np.array(values)}),
    "counter": _count,
    "elapsed": _elapse,
}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """What a program may record: any kinds, under any keys, in two trackers."""
    trackers = Trackers(Recorder())
    keys = draw(st.lists(st.text(min_size=1, max_size=5).filter(lambda key: key.strip("/")), max_size=6))
    for number, key in enumerate(keys):
        kind = draw(st.sampled_from(sorted(RECORD)))
        RECORD[kind](trackers.get(draw(st.sampled_from(["", "rollout"]))), f"{number}/{key}", draw(VALUES))
    with trackers.taken() as snapshot:
        return snapshot


COMMITS = st.builds(
    commit,
    snapshots(),
    number=COUNTS,
    step=COUNTS,
    axis=st.text(max_size=5),
    env_steps=st.none() | COUNTS,
    epoch=st.none() | COUNTS,
    epoch_step=st.none() | COUNTS,
)


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """All that a snapshot holds, to be compared."""
    return {
        key: (metric.state.kind.name, metric.state.moments, metric.state.buckets, metric.tracker, metric.reduced)
        for key, metric in snapshot.items()
    }


def write(path: Path, *commits: Commit, **who: Any) -> JsonlFile:
    file = JsonlFile(path, identity(**who), Destination("jsonl"))
    for made in commits:
        file.write(made)
    return file


class TestRoundTrip:
    def test_knows_every_kind(self) -> None:
        assert set(RECORD) == KINDS.keys() - {"expert_loads"}  # tests/rl/moe has that

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
    @given(st.lists(COMMITS, min_size=1, max_size=3))
    def test_states_of_any_kind(self, tmp_path: Path, commits: list[Commit]) -> None:
        path = tmp_path / f"{os.urandom(8).hex()}.jsonl"
        write(path, *commits).close()
        lines = list(read_jsonl(path))
        assert len(lines) == len(commits)
        for line, made in zip(lines, commits, strict=True):
            assert plain(line.snapshot) == plain(made.snapshot)
            assert (line.number, line.time_ns) == (made.number, made.time_ns)
            assert (line.axis, line.step) == (made.axis, made.step)
            assert (line.env_steps, line.epoch, line.epoch_step) == (made.env_steps, made.epoch, made.epoch_step)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, 1e-310])
    def test_any_number_comes_back(self, tmp_path: Path, value: float) -> None:
        write(tmp_path / "r.jsonl", commit({"x": value})).close()
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert str(line.values["x"]) == str(value)

    def test_what_a_program_records_comes_back(self, tmp_path: Path) -> None:
        def record(trackers: Trackers) -> None:
            trackers.default.stat(loss=np.array([1.0, math.nan, math.inf]))
            trackers.default.stat(none=np.array([]))
            trackers.default.distribution(seq_len=np.array([-1.0, 0.0, 5.0]))
            trackers.get("rollout").scalar(reward=0.5)
            trackers.default.count(n=3)
            with trackers.default.record_timing("x"):
                pass

        made = commit(recorded(record))
        write(tmp_path / "r.jsonl", made).close()
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert plain(line.snapshot) == plain(made.snapshot)
        shown = {key: str(value) for key, value in line.values.items() if not key.endswith("__count")}
        assert shown == {key: str(value) for key, value in made.values.items()}

    def test_lines_that_were_read_merge_like_the_live_ones(self, tmp_path: Path) -> None:
        halves = [recorded(lambda t, v=values: t.default.distribution(x=np.array(v))) for values in ([1.0], [2.0, 9.0])]
        write(tmp_path / "r.jsonl", *(commit(half) for half in halves)).close()
        first, second = (line.snapshot for line in read_jsonl(tmp_path / "r.jsonl"))
        whole = recorded(lambda trackers: trackers.default.distribution(x=np.array([1.0, 2.0, 9.0])))
        assert first.merged(second).flat() == whole.flat()


class TestLines:
    def test_are_json_without_nan(self, tmp_path: Path) -> None:
        """Any JSON reader takes them: a NaN is a count, an extreme of nothing is null."""
        write(tmp_path / "r.jsonl", commit({"x": math.nan}), commit(Snapshot.of_states({"m": State(KINDS["max"])})))

        def refuse(word: str) -> None:
            raise AssertionError(word)

        header, nan, empty = (
            json.loads(line, parse_constant=refuse) for line in (tmp_path / "r.jsonl").read_text().splitlines()
        )
        assert nan["metrics"] == [{"kind": "gauge_mean", "states": {"x": [0.0, 0.0, 1.0]}}]
        assert empty["metrics"] == [{"kind": "max", "states": {"m": [None]}}]
        assert {header["v"], nan["v"]} == {VERSION}

    def test_say_who_wrote_them(self, tmp_path: Path) -> None:
        who = {"role": "collector", "index": 3, "rank": 3, "world_size": 4, "is_writer": False}
        write(tmp_path / "r.jsonl", commit(identity=identity(**who)), **who)
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        known = {"run": "run-1", "role": "collector", "rank": 3, "world_size": 4, "index": 3, "incarnation": 1}
        assert known.items() <= line.process.items()

    def test_what_is_not_known_is_left_out(self) -> None:
        assert not {"env_steps", "epoch", "epoch_step"} & line_of(commit()).keys()

    def test_numpy_s_integers_are_steps(self, tmp_path: Path) -> None:
        """Trainers count in them, and JSON encoders refuse them."""
        write(tmp_path / "r.jsonl", commit(step=np.int64(3), env_steps=np.int32(7), epoch=np.uint8(1)))
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert (line.step, line.env_steps, line.epoch) == (3, 7, 1)

    def test_ray_40586_a_key_that_is_no_text_costs_nothing(self, tmp_path: Path) -> None:
        write(tmp_path / "r.jsonl", commit({"ok": 1.0, "data/\udcff": 2.0}, axis="a\ud800"))
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert (line.values, line.axis) == ({"ok": 1.0, "data/\\udcff": 2.0}, "a\\ud800")

    def test_each_is_one_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[bytes] = []
        file = write(tmp_path / "r.jsonl")
        monkeypatch.setattr(os, "write", lambda _, data: written.append(data) or len(data))
        file.write(commit({f"key/{number}": 1.0 for number in range(300)}))
        assert len(written) == 1
        assert written[0].endswith(b"\n")
        assert written[0].count(b"\n") == 1

    def test_another_version_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        write(path, commit())
        path.write_text(path.read_text() + '{"v":99,"type":"commit"}\n')
        with pytest.raises(RltelError, match=rf"{path}:3: expected a line of version {VERSION}, got"):
            list(read_jsonl(path))

    def test_a_line_that_is_none_of_ours_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        write(path, commit({"x": 1.0}))
        path.write_text(path.read_text().replace('"x":1.0', '"x":["one",1.0]'))
        with pytest.raises(RltelError, match=rf"{path}:2: .*x: "):
            list(read_jsonl(path))

    def test_a_line_of_a_later_kind_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        write(path, commit())
        path.write_text(path.read_text() + f'{{"v":{VERSION},"type":"text"}}\n{{"v":{VERSION}}}\n')
        assert len(list(read_jsonl(path))) == 1


class TestTornLines:
    def test_a_last_line_that_is_cut_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        write(path, commit({"x": 1.0}, step=1), commit({"x": 2.0}, step=2))
        whole = path.read_bytes()
        last = whole.rstrip(b"\n").rfind(b"\n") + 1
        for cut in range(last, len(whole) - 1):
            path.write_bytes(whole[:cut])
            assert [line.step for line in read_jsonl(path)] == [1]

    def test_what_follows_a_cut_line_is_read(self, tmp_path: Path) -> None:
        """A process that continues another's file does not continue its torn line."""
        path = tmp_path / "r.jsonl"
        write(path, commit(step=1), commit(step=2)).close()
        path.write_bytes(path.read_bytes()[:-9])
        write(path, commit(step=3, identity=identity(incarnation=2)), incarnation=2).close()
        lines = list(read_jsonl(path))
        assert [(line.step, line.process["incarnation"]) for line in lines] == [(1, 1), (3, 2)]

    def test_a_write_that_stops_halfway_is_counted_and_read_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        destination = Destination("jsonl")
        file = JsonlFile(tmp_path / "r.jsonl", identity(), destination)
        real = os.write
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:20]))
            file.write(commit(step=1))
        file.write(commit(step=2))
        file.close()
        assert [line.step for line in read_jsonl(tmp_path / "r.jsonl")] == [2]
        assert (destination.exported_total, destination.dropped_totals) == (1, {"disk": 1})


class TestProcesses:
    def test_a_run_directory_is_all_its_processes_in_the_order_of_time(self, tmp_path: Path) -> None:
        for index in (0, 1):
            who = identity(index=index)
            times = [commit(step=step, time_ns=TIME_NS + 2 * step + index, identity=who) for step in range(3)]
            write(tmp_path / "metrics" / f"{who.name}.jsonl", *times, index=index)
        lines = list(read_jsonl(tmp_path))
        assert [(line.step, line.process["index"]) for line in lines] == [(s, i) for s in range(3) for i in (0, 1)]

    def test_processes_that_share_a_file_are_told_apart(self, tmp_path: Path) -> None:
        """`jsonl.path` names one file, and every process of the run appends to it."""
        names: list[dict[str, Any]] = [{"index": 0}, {"index": 1, "role": "collector"}]
        files = [(write(tmp_path / "r.jsonl", **who), identity(**who)) for who in names]
        for step in range(3):
            for file, who in files:
                file.write(commit(step=step, identity=who))
        lines = list(read_jsonl(tmp_path / "r.jsonl"))
        assert [(line.process["role"], line.step) for line in lines] == [
            (role, step) for step in range(3) for role in ("learner", "collector")
        ]

    def test_two_real_processes_at_once_tear_no_line(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path\n"
            "from rltel.core.identity import Identity\n"
            "from rltel.export.commit import Commit; from rltel.export.jsonl import JsonlFile\n"
            "from rltel.export.sink import Destination; from rltel.reduce.snapshot import Snapshot\n"
            "who = Identity('r', None, 'learner', 0, 1, int(sys.argv[2]), 1, False)\n"
            "file = JsonlFile(Path(sys.argv[1]), who, Destination('jsonl'))\n"
            "numbers = Snapshot.of_numbers({f'key/{n}': float(n) for n in range(50)})\n"
            "for step in range(150):\n    file.write(Commit(who, step, 0, step, 'train', numbers))\n"
        )
        path = tmp_path / "r.jsonl"
        running = [
            subprocess.Popen([sys.executable, "-c", code, path, str(index)], env=environment()) for index in (0, 1)
        ]
        assert [process.wait(60) for process in running] == [0, 0]
        lines = list(read_jsonl(path))
        for index in (0, 1):
            own = [line.step for line in lines if line.process["index"] == index]
            assert own == list(range(150))
        assert len(path.read_bytes().splitlines()) == len(lines) + 2


KILLED = """
import os, signal, sys
import rltel
rltel.init({"jsonl": {"path": sys.argv[1]}})
for step in range(50):
    rltel.log({"loss": step / 2}, step=step)
if sys.argv[2] == "exit":
    os._exit(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


class TestDeath:
    def killed(self, tmp_path: Path, how: str) -> list[Line]:
        ran = run_python(KILLED, tmp_path / "r.jsonl", how, RLTEL_RUN_DIR=str(tmp_path / "run"))
        assert ran.returncode == (1 if how == "exit" else -signal.SIGKILL), ran.stderr
        return list(read_jsonl(tmp_path / "r.jsonl"))

    def test_verl_191_exit_right_after_a_commit_loses_nothing(self, tmp_path: Path) -> None:
        assert [(line.step, line.values["loss"]) for line in self.killed(tmp_path, "exit")] == [
            (step, step / 2) for step in range(50)
        ]

    def test_ray_39212_kill_right_after_a_commit_loses_nothing(self, tmp_path: Path) -> None:
        assert [line.step for line in self.killed(tmp_path, "kill")] == list(range(50))


FULL = """
import json, resource, signal, sys
from rltel.core.config import JsonlConfig, TelemetryConfig
import rltel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
telemetry = rltel.init(TelemetryConfig(jsonl=JsonlConfig(path=sys.argv[1])))
rltel.log({"x": 0.0}, step=0)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
for step in range(1, 10):
    rltel.log({"x": float(step)}, step=step)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
rltel.log({"x": 10.0}, step=10)
(account,) = [each for each in telemetry._destinations if each.name == "jsonl"]
print(json.dumps([account.exported_total, account.dropped_totals]))
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no file size limit here")
def test_a_full_disk_costs_a_count_and_one_line_of_log_and_never_the_training(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    ran = run_python(FULL, path, "1000", RLTEL_RUN_DIR=str(tmp_path / "run"))
    assert ran.returncode == 0, ran.stderr
    exported, dropped = json.loads(ran.stdout)
    steps = [line.step for line in read_jsonl(path)]
    assert steps[0] == 0
    assert steps[-1] == 10, "what comes after the disk is free again is there"
    assert (len(steps), exported + dropped["disk"]) == (exported, 11)
    assert dropped["disk"] >= 3
    # Not of others: the thread that writes the run's summary may or may not come upon the full disk.
    said = [line for line in ran.stderr.splitlines() if "said once" in line and line.startswith("jsonl: ")]
    assert len(said) == 1
