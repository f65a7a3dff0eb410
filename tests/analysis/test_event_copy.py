"""Copies of event files: other names, the same events."""

import math
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util import tensor_util

from realparts.event_runs import scalar, write_events, write_run
from realparts.tensorboard_reader import accumulated, all_events, scalars
from rltel.analysis.event_copy import EventCopy
from rltel.analysis.plan import plan_of

OLD = {"perf/iter_ms", "train/dp_sync_time", "perf/collector_cycle_ms"}


def copied(source: Path, to: Path) -> EventCopy:
    to.mkdir()
    copy = EventCopy(plan_of(OLD, None, "here"))
    copy.write(source, to / source.name)
    return copy


def test_tags_and_units_change_steps_and_times_do_not(tmp_path: Path) -> None:
    source = write_run(tmp_path / "a", {"perf/iter_ms": [50.0, 60.0], "train/dp_sync_time": [0.003], "other": [1.0]})
    copy = copied(source, tmp_path / "b")
    old, new = scalars(tmp_path / "a"), scalars(tmp_path / "b")
    for before, after, scale in (
        ("perf/iter_ms", "Perf/iteration_time", 1e-3),
        ("train/dp_sync_time", "Perf/dp_gradient_sync_ms_per_rank", 1e3),
        ("other", "other", 1.0),
    ):
        assert [(point.step, point.wall_time) for point in new[after]] == [
            (point.step, point.wall_time) for point in old[before]
        ]
        assert [point.value for point in new[after]] == pytest.approx([point.value * scale for point in old[before]])
    assert set(new) == {"Perf/iteration_time", "Perf/dp_gradient_sync_ms_per_rank", "other"}
    assert copy.points == {"perf/iter_ms": 2, "train/dp_sync_time": 1}


def test_what_is_not_renamed_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    made = [
        Event(wall_time=1.0, step=1, session_log=SessionLog(status=SessionLog.START)),
        Event(wall_time=1.0, step=1, graph_def=b"graph"),
        Event(wall_time=2.0, step=2, summary=Summary(value=[scalar("x", math.nan), *text_pb("t", "x").value])),
        Event(wall_time=2.0, step=2, summary=histogram_pb("perf/iter_ms", np.arange(5.0))),  # a name like a scalar's
    ]
    source = write_events(tmp_path / "a", made)
    assert not copied(source, tmp_path / "b").points
    assert (tmp_path / "b" / source.name).read_bytes() == source.read_bytes()


def test_values_of_one_event_are_renamed_and_left_out_one_by_one(tmp_path: Path) -> None:
    values = [scalar("perf/collector_cycle_ms", 1.0), scalar("perf/iter_ms", 50.0), scalar("other", 2.0)]
    gone = [scalar("perf/collector_cycle_ms", 2.0)]
    made = [Event(step=1, summary=Summary(value=values)), Event(step=2, summary=Summary(value=gone))]
    copy = copied(write_events(tmp_path / "a", made), tmp_path / "b")
    _, event = all_events(tmp_path / "b")
    assert [value.tag for value in event.summary.value] == ["Perf/iteration_time", "other"]
    assert copy.points == {"perf/iter_ms": 1, "perf/collector_cycle_ms": 2}


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_scalars_that_are_tensors_are_converted_too(tmp_path: Path, kind: type) -> None:
    first = scalar_pb("perf/iter_ms", 0.0)
    first.value[0].tensor.CopyFrom(tensor_util.make_tensor_proto(kind(50)))
    second = Summary(value=[Summary.Value(tag="perf/iter_ms", tensor=first.value[0].tensor)])
    made = [Event(step=1, summary=first), Event(step=2, summary=second)]
    copied(write_events(tmp_path / "a", made), tmp_path / "b")
    found = accumulated(tmp_path / "b").Tensors("Perf/iteration_time")
    values = [tensor_util.make_ndarray(point.tensor_proto) for point in found]
    assert values == [pytest.approx(0.05), pytest.approx(0.05)]


def test_nan_and_infinity_stay(tmp_path: Path) -> None:
    source = write_run(tmp_path / "a", {"perf/iter_ms": [math.nan, math.inf, -math.inf]})
    copied(source, tmp_path / "b")
    found = [point.value for point in scalars(tmp_path / "b")["Perf/iteration_time"]]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf]


def test_a_file_cut_short_is_copied_as_far_as_it_goes_with_a_word(tmp_path: Path) -> None:
    source = write_run(tmp_path / "a", {"perf/iter_ms": [50.0, 60.0]})
    source.write_bytes(source.read_bytes()[:-1])
    copy = copied(source, tmp_path / "b")
    assert copy.points == {"perf/iter_ms": 1}
    assert copy.damage is not None
    assert "cut short" in copy.damage


def test_never_writes_over_a_file(tmp_path: Path) -> None:
    source = write_run(tmp_path, ["perf/iter_ms"])
    with pytest.raises(FileExistsError):
        EventCopy(plan_of(OLD, None, "here")).write(source, source)
