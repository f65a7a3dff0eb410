"""Thirteen numbers of a run. Where they differ from UniLab's extractor, both are stated."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from export.making import commit, identity, run_python
from realparts.event_runs import STAMP, schema, write_events, write_run
from realparts.ledgered import keep_record
from realparts.unilab import need_unilab
from rltel.analysis.extract import Extracted, extract
from rltel.core.errors import RltelError


def finite(found: Extracted) -> dict[str, float]:
    return {label: number for label, number in found.rows.items() if math.isfinite(number)}


def as_unilab_reads(path: Path, tag: str, last: int = 20) -> float:
    """Its extractor's way: TensorBoard's accumulator, as it is without any settings."""
    reader = EventAccumulator(str(path))
    reader.Reload()
    values = [point.value for point in reader.Scalars(tag)]
    return sum(values[-last:]) / len(values[-last:])


def test_every_row_is_the_mean_of_its_tag_s_last_points_in_its_own_unit(tmp_path: Path) -> None:
    rows = [row for row in schema()["extractor_rows"] if row["canonical"]]
    write_run(tmp_path, {row["canonical"]: [1000.0, *range(20)] for row in rows}, STAMP)
    assert finite(extract(tmp_path)) == {row["label"]: pytest.approx(9.5 * row["scale"]) for row in rows}
    assert finite(extract(tmp_path, last=2)) == {row["label"]: pytest.approx(18.5 * row["scale"]) for row in rows}
    assert extract(tmp_path, last=100).rows["steps_per_sec"] == pytest.approx((1000 + 190) / 21)


def test_every_row_of_an_old_run_too(tmp_path: Path) -> None:
    rows = schema()["extractor_rows"]
    write_run(tmp_path, {row["legacy"]: [float(place)] for place, row in enumerate(rows)})
    found = extract(tmp_path, reading="legacy-unversioned")
    assert found.rows == {row["label"]: float(place) for place, row in enumerate(rows)}
    assert (found.why, found.notes) == ({}, [])


def test_30000_points_are_all_read_where_unilab_s_extractor_takes_a_sample(tmp_path: Path) -> None:
    """Its last 20 are the last of the 10,000 that TensorBoard's accumulator keeps by default: 14 too low."""
    path = write_run(tmp_path, {"Perf/total_fps": [float(step) for step in range(30_000)]}, STAMP)
    assert as_unilab_reads(path, "Perf/total_fps") == 29_975.55
    assert extract(tmp_path).rows["steps_per_sec"] == 29_989.5


def test_a_row_without_a_number_says_why(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        {
            "Perf/iteration_time": [1.0, math.nan],
            "Perf/total_fps": [1.0, math.inf],
            "Perf/learning_time": [-math.inf],
        },
        STAMP,
    )
    found = extract(tmp_path)
    assert finite(found) == {}
    assert found.why["iter_ms"] == "Perf/iteration_time: NaN"
    assert found.why["steps_per_sec"] == "Perf/total_fps: Infinity"
    assert found.why["learner_train_ms"] == "Perf/learning_time: -Infinity"
    assert found.why["collector_cycle_ms"].startswith("retired; instead: the sum of the collector's phases")
    assert found.why["learner_inference_ms"] == "Perf/learner_inference_ms: not in this run"
    assert set(found.why) == set(found.rows)


def test_a_mean_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RltelError, match="last: expected at least 1 point, got 0"):
        extract(tmp_path, 0)


def test_nan_before_the_last_points_does_no_harm(tmp_path: Path) -> None:
    write_run(tmp_path, {"Perf/total_fps": [math.nan, *[5.0] * 20]}, STAMP)
    assert extract(tmp_path).rows["steps_per_sec"] == 5.0


APPO = {"Perf/iteration_time": [0.018], "Perf/learner_replay_stage_ms": [2.0], "Perf/collection_time": [0.017]}
PPO = {"Perf/total_fps": [9_000.0], "Perf/learning_time": [0.25], "Loss/value": [1.0], "Train/mean_reward/time": [1.0]}


@pytest.mark.parametrize(
    ("scalars", "rows"),
    [(APPO, {"iter_ms": 18.0}), (PPO, {"steps_per_sec": 9_000.0, "learner_train_ms": 250.0})],
    ids=["appo", "ppo"],
)
def test_appo_and_ppo_runs_are_read_with_our_stamp(
    tmp_path: Path, scalars: Mapping[str, list[float]], rows: dict[str, float]
) -> None:
    """UniLab's own carry none, so that its extractor never read one."""
    write_run(tmp_path / "unilab", scalars, {"status": "completed"})
    with pytest.raises(RltelError, match=r"no metric_schema_version"):
        extract(tmp_path / "unilab")
    write_run(tmp_path / "ours", scalars, STAMP)
    assert finite(extract(tmp_path / "ours")) == pytest.approx(rows)


def test_unilab_rl_1_4_1_to_1_4_4_is_read_when_asked_for(tmp_path: Path) -> None:
    """Canonical tags without a version: no mode of UniLab's extractor takes them."""
    write_run(tmp_path, {"Perf/iteration_time": [0.02]})
    for reading in ("stamped", "legacy-unversioned"):
        with pytest.raises(RltelError):
            extract(tmp_path, reading=reading)
    assert finite(extract(tmp_path, reading="canonical-unversioned")) == {"iter_ms": pytest.approx(20.0)}


def test_other_old_names_of_a_row_are_read_which_unilab_s_extractor_has_as_nan(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        {
            "perf/iter_ms": [50.0],
            "perf/train_time_ms": [40.0],
            "timing/inference_total_ms": [3.0],
            "timing/collector_inference_wait_ms": [20.0],
        },
    )
    assert finite(extract(tmp_path, reading="legacy-unversioned")) == pytest.approx(
        {
            "iter_ms": 50.0,
            "learner_train_ms": 40.0,
            "learner_inference_ms": 3.0,
            "collector_learner_action_wait_ms": 20.0,
        }
    )


def test_of_two_old_names_the_one_that_unilab_s_extractor_reads_wins(tmp_path: Path) -> None:
    write_run(tmp_path, {"perf/train_time_ms": [1.0], "timing/learner_train_ms": [2.0]})
    assert extract(tmp_path, reading="legacy-unversioned").rows["learner_train_ms"] == 2.0


AMBIGUOUS = {"perf/iter_ms": [50.0], "timing/learner_incremental_h2d_ms": [2.0]}


def test_an_ambiguous_name_is_no_row_s_until_the_algorithm_is_known(tmp_path: Path) -> None:
    write_run(tmp_path, AMBIGUOUS)
    found = extract(tmp_path, reading="legacy-unversioned")
    assert finite(found) == {"iter_ms": 50.0}
    (note,) = found.notes
    assert "timing/learner_incremental_h2d_ms had several meanings" in note
    assert "--algo" in note


@pytest.mark.parametrize(("algo", "rows"), [("sac", {"replay_ingress_h2d_submit_ms": 2.0}), ("appo", {})])
@pytest.mark.parametrize("by", ["argument", "config"])
def test_the_algorithm_comes_from_the_caller_or_the_run(
    tmp_path: Path, algo: str, rows: dict[str, float], by: str
) -> None:
    write_run(tmp_path, AMBIGUOUS)
    if by == "config":
        (tmp_path / "run_config.json").write_text(json.dumps({"run": {"algo": algo}}))
    found = extract(tmp_path, reading="legacy-unversioned", algo=algo if by == "argument" else None)
    assert (finite(found), found.notes) == ({"iter_ms": 50.0, **rows}, [])


def test_a_file_cut_short_gives_what_is_whole_and_a_note(tmp_path: Path) -> None:
    path = write_run(tmp_path, {"Perf/total_fps": [1.0, 2.0, 3.0]}, STAMP)
    path.write_bytes(path.read_bytes()[:-7])
    found = extract(tmp_path)
    assert found.rows["steps_per_sec"] == 1.5
    (note,) = found.notes
    assert str(path) in note
    assert "cut short" in note


def test_a_session_that_begins_again_replaces_what_came_before(tmp_path: Path) -> None:
    """As in UniLab's, whose accumulator purges."""
    path = write_run(tmp_path, {"Perf/total_fps": [1.0, 1.0, 1.0]}, STAMP)
    again = Event(wall_time=1.0, step=1, session_log=SessionLog(status=SessionLog.START))
    second = write_events(tmp_path / "second", [again, *_one(7.0, step=2048)])
    path.write_bytes(path.read_bytes() + second.read_bytes())
    second.unlink()
    assert extract(tmp_path).rows["steps_per_sec"] == 4.0
    assert as_unilab_reads(path, "Perf/total_fps") == 4.0


def _one(number: float, step: int) -> list[Event]:
    event = Event(wall_time=2.0, step=step)
    event.summary.value.add(tag="Perf/total_fps", simple_value=number)
    return [event]


def test_a_run_with_only_the_record_is_read_from_that_exactly(tmp_path: Path) -> None:
    """Numbers there are float64, and not what float32 makes of them."""
    who = identity(tmp_path)
    made = [commit({"Perf/iteration_time": 0.1 + n, "x": 1.0}, identity=who, number=n, step=n) for n in range(3)]
    keep_record(tmp_path, made, who)
    with pytest.raises(RltelError, match=r"no run_summary.json"):
        extract(tmp_path)
    (tmp_path / "run_summary.json").write_text(json.dumps(STAMP))
    assert extract(tmp_path).rows["iter_ms"] == pytest.approx(1100.0, abs=1e-9)
    assert extract(tmp_path, last=1).rows["iter_ms"] == pytest.approx(2100.0, abs=1e-9)


TRAINER = """
import json, sys
import rltel
first, last, value = map(float, sys.argv[2:])
tensorboard = {"path": "{run_dir}/tensorboard"}
pipeline = {"shutdown_timeout_s": 60}  # a busy machine takes more than 2 s
run = {"dir": sys.argv[1], "algo": "ppo"}
rltel.init({"run": run, "tensorboard": tensorboard, "prometheus": {"enabled": False}, "pipeline": pipeline})
for step in range(int(first), int(last)):
    rltel.log({"Perf/total_fps": value, "Perf/learning_time": 0.25, "Loss/value": 1.0}, step=step)
if first:
    rltel.log({"Perf/total_fps": 100.0}, step=1)
rltel.shutdown()
"""


def test_a_run_of_ours_is_read_through_restarts_and_values_that_came_late(tmp_path: Path) -> None:
    """Several event files, which are of one run for sure: our folders say whose they are."""
    run = tmp_path / "run"
    for arguments in ((0, 10, 1.0), (5, 8, 5.0)):
        done = run_python(TRAINER, run, *arguments)
        assert done.returncode == 0, done.stderr
    summary = run / "run_summary.json"
    if not summary.exists():
        summary.write_text(json.dumps(STAMP))
    assert len(list(run.rglob("events.out.tfevents.*"))) == 3
    for log_dir in (run, run / "tensorboard"):
        found = extract(log_dir)
        assert finite(found) == {"steps_per_sec": (5 + 100 + 15) / 9, "learner_train_ms": 250.0}
        assert len(found.files) == 3


UNILAB = """
import sys
from uni_rl.logging.offpolicy import OffPolicyLogger
logger = OffPolicyLogger("SAC", log_dir=sys.argv[1], timing_profile=sys.argv[2])
for iteration in range(25):
    logger.log_collector(total_steps=1024 * (iteration + 1), buffer_size=0)
    logger.log_step(
        iteration,
        {"Loss/actor": 1.0},
        return_mean_ep100=1.0,
        train_time=0.04,
        collector_wait_time=0.0012,
        inference_time=0.0034,
        iteration_time=0.05,
        extra_info={"throughput_steps": 1024},
    )
logger.finish()
"""


@pytest.mark.parametrize(("profile", "infers"), [("sac_family", {"learner_inference_ms": 3.4}), ("appo", {})])
def test_runs_of_the_real_unilab_rl_are_read(tmp_path: Path, profile: str, infers: dict[str, float]) -> None:
    """Its logger's event file, and the summary as its trainers stamp it (SAC) or do not (APPO)."""
    done = run_python(UNILAB, tmp_path, profile, PYTHONPATH=str(need_unilab()), COLUMNS="200")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("events*")
    expected = {"iter_ms": 50.0, "steps_per_sec": 20480.0, "learner_train_ms": 40.0, "learner_collector_wait_ms": 1.2}
    found = finite(extract(tmp_path, reading="canonical-unversioned"))
    assert {label: found[label] for label in (*expected, *infers)} == pytest.approx({**expected, **infers}, rel=1e-6)
    assert found["iter_ms"] == as_unilab_reads(path, "Perf/iteration_time") * 1000
    (tmp_path / "run_summary.json").write_text(json.dumps(STAMP))
    assert finite(extract(tmp_path)) == found
