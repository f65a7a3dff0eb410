"""Scalars of event files, and their points over restarts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb

from realparts.event_runs import scalar, write_events
from realparts.tensorboard_reader import scalars
from rltel.analysis.scalars import Numbers, Scalars, Series, read_events, read_points


def everything(tag: str) -> bool:
    return True


def event(step: int, *values: Any) -> Event:
    return Event(wall_time=float(step), step=step, summary=Summary(value=values))


def restart(step: int) -> Event:
    return Event(wall_time=float(step), step=step, session_log=SessionLog(status=SessionLog.START))


def points(read: Scalars) -> dict[str, list[tuple[int, float]]]:
    return {tag: list(zip(each.steps, each.values, strict=True)) for tag, each in read.series.items()}


def by_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    return {tag: [(point.step, point.value) for point in found] for tag, found in scalars(folder).items()}


def test_plain_scalars_and_tensors_of_the_scalars_plugin_are_numbers() -> None:
    numbers = Numbers()
    assert numbers.of(scalar("a", 1.5)) == 1.5
    (value,) = scalar_pb("b", 2.5).value
    assert numbers.of(value) == 2.5
    value.ClearField("metadata")  # as writers do from the second on
    assert numbers.of(value) == 2.5


def test_other_values_are_none() -> None:
    numbers = Numbers()
    for made in (text_pb("t", "x"), histogram_pb("h", np.arange(5.0))):
        assert [numbers.of(value) for value in made.value] == [None]
    assert numbers.of(Summary.Value(tag="i", image=Summary.Image(height=1))) is None


def test_reads_what_tensorboard_reads_several_values_an_event_nan_and_infinity(tmp_path: Path) -> None:
    inf = float("inf")
    made = [event(step, scalar("a", step), scalar("b", inf)) for step in range(50)]
    path = write_events(tmp_path, [*made, event(50, scalar("c", float("nan")), *text_pb("t", "x").value)])
    read = read_events([path], (), everything)
    assert (read.tags, read.damage) == ({"a", "b", "c"}, [])
    assert repr(points(read)) == repr(by_tensorboard(tmp_path))


def test_a_restart_drops_what_it_writes_anew_as_in_tensorboard(tmp_path: Path) -> None:
    first = write_events(tmp_path, [event(step, scalar("a", step), scalar("b", 1.0)) for step in range(10)], ".1")
    made = [restart(6), *(event(step, scalar("a", 100 + step)) for step in range(6, 8))]
    second = write_events(tmp_path, made, ".2")
    read = points(read_events([first, second], (), everything))
    assert read == by_tensorboard(tmp_path)
    assert [step for step, _ in read["b"]] == [*range(6)]


def test_a_later_file_goes_on_where_it_begins_also_without_a_mark(tmp_path: Path) -> None:
    first = write_events(tmp_path, [event(step, scalar("a", step)) for step in range(10)], ".1")
    second = write_events(tmp_path, [event(step, scalar("a", 100 + step)) for step in range(6, 8)], ".2")
    read = read_events([first, second], (), everything)
    assert points(read)["a"] == [*((step, step) for step in range(6)), (6, 106), (7, 107)]


def test_steps_that_go_back_in_one_file_are_all_there_as_in_tensorboard(tmp_path: Path) -> None:
    path = write_events(tmp_path, [event(step, scalar("a", step)) for step in (1, 5, 3, 4)])
    assert points(read_events([path], (), everything)) == by_tensorboard(tmp_path)


def test_late_values_come_to_their_places(tmp_path: Path) -> None:
    first = write_events(tmp_path, [event(step, scalar("a", step)) for step in (0, 1, 3, 4)])
    late = write_events(tmp_path / "out_of_order", [event(2, scalar("a", 2.0), scalar("new", 1.0))])
    read = read_events([first], [late], everything)
    assert points(read) == {"a": [(step, step) for step in range(5)], "new": [(2, 1.0)]}
    assert read.tags == {"a", "new"}


def test_only_what_is_wanted_is_kept_and_all_tags_are_known(tmp_path: Path) -> None:
    path = write_events(tmp_path, [event(0, scalar("a", 1.0), scalar("b", 2.0))])
    read = read_events([path], (), lambda tag: tag == "b")
    assert (read.tags, points(read)) == ({"a", "b"}, {"b": [(0, 2.0)]})


def test_damage_is_told_for_every_file(tmp_path: Path) -> None:
    paths = [write_events(tmp_path, [event(0, scalar("a", 1.0))], suffix) for suffix in (".1", ".2")]
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])
    damage = read_events(paths[:1], paths[1:], everything).damage
    assert [str(path) in told for path, told in zip(paths, damage, strict=True)] == [True, True]


def test_points_of_a_record_restart_with_their_process() -> None:
    given = [(0, step, {"a": float(step), "b": 0.0}) for step in range(4)] + [(1, 2, {"a": 20.0})]
    read = read_points(given, lambda tag: tag == "a")
    assert (read.tags, points(read)) == ({"a", "b"}, {"a": [(0, 0.0), (1, 1.0), (2, 20.0)]})


@pytest.mark.parametrize(("step", "left"), [(0, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3])])
def test_cutting_drops_a_step_and_all_later(step: int, left: list[int]) -> None:
    series = Series()
    for at in (1, 2, 3):
        series.add(at, 0.0)
    series.cut(step)
    assert list(series.steps) == left
    assert len(series.values) == len(left)
