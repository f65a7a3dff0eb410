"""Role, kind and part of a phase survive payloads, ranks and the JSONL; and roles under one key are kept apart."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from export.making import Points, commit, identity, point
from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.export.jsonl import JsonlFile, read_jsonl
from rltel.export.sink import Destination
from rltel.names.phases import PhaseLabel
from rltel.record.kinds import KINDS
from rltel.record.phase_sets import APPO_COLLECTOR, LLM_LEARNER, LLM_ROLLOUT, PhaseSet, phase_set
from rltel.record.recorder import Recorder
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender, merge_payloads

TRIPS: dict[str, Callable[[Any], Any]] = {
    "json": lambda payload: json.loads(json.dumps(payload)),
    "msgpack": lambda payload: msgspec.msgpack.decode(msgspec.msgpack.encode(payload)),
    "pickle": lambda payload: pickle.loads(pickle.dumps(payload)),
}


def timed(phases: PhaseSet, seconds: float = 0.5) -> Trackers:
    """Each phase and the loop once, so long."""
    trackers = Trackers(Recorder())
    for phase in phases.phases:
        trackers.default.timing_appender(phase.key, phases.metrics[phase.name])(int(seconds * 1e9))
    if phases.loop_key and phases.loop_metric:
        trackers.default.timing_appender(phases.loop_key, phases.loop_metric)(int(seconds * 1e9))
    return trackers


def payload(phases: PhaseSet, seconds: float = 0.5) -> dict[str, Any]:
    with timed(phases, seconds).taken() as snapshot:
        return Sender("w").payload(snapshot)


def labels(snapshot: Snapshot) -> dict[str, PhaseLabel | None]:
    return {key: metric.state.kind.phase for key, metric in snapshot.items()}


def expected(phases: PhaseSet) -> dict[str, PhaseLabel]:
    found = {phase.key: phases.label(phase) for phase in phases.phases}
    if phases.loop_key:
        found[phases.loop_key] = PhaseLabel(phases.role, phases.loop, "loop", phases.loop_rl)
    return found


@pytest.mark.parametrize("trip", TRIPS.values(), ids=TRIPS)
@pytest.mark.parametrize(
    "phases", [APPO_COLLECTOR, LLM_ROLLOUT, phase_set(["a:b", "c d"], "rollout")], ids=lambda each: each.name
)
def test_through_payloads(trip: Callable[[Any], Any], phases: PhaseSet) -> None:
    learner = Trackers(Recorder())
    Receiver(learner).absorb(trip(payload(phases)))
    assert labels(learner.export_all().snapshot) == expected(phases)


def test_through_the_jsonl(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "r.jsonl", identity(), Destination("jsonl"))
    with timed(LLM_LEARNER).taken() as snapshot:
        file.write(commit(snapshot))
    file.close()
    (line,) = read_jsonl(tmp_path / "r.jsonl")
    assert labels(line.snapshot) == expected(LLM_LEARNER)
    assert line.values["timeperf/sample"] == 0.5


def test_lines_from_before_kinds_had_labels_still_read(tmp_path: Path) -> None:
    metric = {"kind": "phase_ms", "state": [0.25, 1.0, 0.25], "buckets": [[608, 1.0]]}
    commit_line = {"v": 1, "type": "commit", "process": "p", "n": 0, "time_ns": 1, "axis": "train", "step": 1}
    metrics = {"Perf/learning_time": {**metric, "kind": "phase_s"}, "Perf/learner_inference_ms": metric}
    (tmp_path / "r.jsonl").write_text(json.dumps({**commit_line, "metrics": metrics}) + "\n")
    (line,) = read_jsonl(tmp_path / "r.jsonl")
    assert line.values == {"Perf/learning_time": 0.25, "Perf/learner_inference_ms": 250.0}
    assert line.snapshot["Perf/learner_inference_ms"].state.kind is KINDS["phase_ms"]
    found = point(Points().of(commit(line.snapshot)), "rl.phase.duration", rl_phase="inference")
    assert found.attributes["rl.role"] == "learner"


class TestRoles:
    def test_a_learner_and_its_rollouts_meet(self) -> None:
        learner = timed(LLM_LEARNER)
        Receiver(learner).absorb(payload(LLM_ROLLOUT, 2.0))
        snapshot = learner.export_all().snapshot
        assert labels(snapshot) == expected(LLM_LEARNER) | expected(LLM_ROLLOUT)
        points = [each for each in Points().of(commit(snapshot)) if each.name == "rl.sample.duration"]
        assert {each.attributes.get("rl.role"): each.value.total for each in points} == {None: 0.5, "rollout": 2.0}

    def test_one_key_of_two_roles_is_told_apart_by_the_role_of_the_worker(self) -> None:
        learner = timed(phase_set(["rollout", "update"], "learner"))
        both = timed(phase_set(["rollout"], "collector"), 2.0)
        with both.taken() as snapshot:
            sent = Sender("w").payload(snapshot)
        Receiver(learner).absorb(sent)
        stats = learner.export_all()
        assert (stats["timeperf/rollout"], stats["timeperf/collector/rollout"]) == (0.5, 2.0)
        roles = {key: metric.state.kind.phase.role for key, metric in stats.snapshot.items() if "rollout" in key}
        assert roles == {"timeperf/rollout": "learner", "timeperf/collector/rollout": "collector"}

    def test_two_payloads_of_two_roles_are_told_apart(self) -> None:
        one, other = (payload(phase_set(["a"], role)) for role in ("learner", "rollout"))
        assert {"timeperf/a", "timeperf/rollout/a"} <= set(merge_payloads([one, other]))

    def test_two_snapshots_of_two_roles_are_refused_in_words(self) -> None:
        one, other = (timed(phase_set(["a"], role)).export_all().snapshot for role in ("learner", "rollout"))
        message = 'cannot merge two kinds, the exclusive phase "a" of the learner and the exclusive phase "a" of the r'
        with pytest.raises(RecordError, match=message):
            one.merged(other)

    def test_a_phase_and_a_timing_of_one_key_are_refused(self) -> None:
        trackers = timed(phase_set(["a"], "learner"))
        with pytest.raises(RecordError, match=r"timeperf/a: recorded as .* before, and now as timing"):
            trackers.default.record_timing("a")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(2, tmp_path_factory.mktemp("two")) as group:
        yield group


@pytest.mark.xdist_group("two ranks")
class TestRanks:
    def test_labels_come_through_the_reduction(self, two: Ranks) -> None:
        def reduced(rank: int) -> tuple[dict[str, PhaseLabel | None], float]:
            import torch.distributed as dist

            stats = timed(APPO_COLLECTOR, 1.0 + rank).export_all(reduce_group=dist.group.WORLD)
            return labels(stats.snapshot), stats["Perf/collection_time"]

        for found, mean in two.run(reduced):
            assert found == expected(APPO_COLLECTOR)
            assert mean == 1.5

    def test_one_key_of_two_roles_fails_on_both_in_words(self, two: Ranks) -> None:
        def reduced(rank: int) -> str:
            import torch.distributed as dist

            trackers = timed(phase_set(["a"], ["learner", "rollout"][rank]))
            try:
                trackers.export_all(reduce_group=dist.group.WORLD)
            except RecordError as error:
                return str(error)
            return "was not refused"

        for message in two.run(reduced):
            assert 'timeperf/a: recorded as the exclusive phase "a" of the rollout on rank 1' in message
