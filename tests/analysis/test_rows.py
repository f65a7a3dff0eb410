"""The extractor's rows are those of UniLab's, label for label."""

import pytest

from realparts.event_runs import schema
from rltel.analysis.rows import CANONICAL, OLD, ROWS, Row, origin
from rltel.names.legacy import AmbiguousTagError

GIVEN = schema()["extractor_rows"]


@pytest.mark.parametrize(("row", "given"), list(zip(ROWS, GIVEN, strict=True)), ids=[each["label"] for each in GIVEN])
def test_rows_are_unilab_s(row: Row, given: dict[str, object]) -> None:
    assert (row.label, row.old, row.tag) == (given["label"], given["legacy"], given["canonical"])
    assert given["scale"] in (None, row.scale)
    assert bool(row.instead) == (row.tag is None)


def test_thirteen_old_tags_and_eleven_canonical_ones_are_known() -> None:
    assert (len(OLD), len(CANONICAL)) == (13, 11)


@pytest.mark.parametrize(
    ("tag", "label", "scale"),
    [
        ("perf/iter_ms", "iter_ms", 1.0),
        ("perf/train_time_ms", "learner_train_ms", 1.0),
        ("timing/inference_total_ms", "learner_inference_ms", 1.0),
        ("timing/collector_inference_wait_ms", "collector_learner_action_wait_ms", 1.0),
        ("perf/collector_cycle_ms", "collector_cycle_ms", 1.0),
    ],
)
def test_an_old_tag_is_for_the_row_of_what_it_became(tag: str, label: str, scale: float) -> None:
    found = origin(tag, is_old=True)
    assert found is not None
    assert (found.row.label, found.scale) == (label, pytest.approx(scale))


def test_a_canonical_time_in_seconds_gives_milliseconds() -> None:
    found = origin("Perf/iteration_time", is_old=False)
    assert found is not None
    assert (found.row.label, found.scale) == ("iter_ms", 1000.0)


def test_no_tag_is_for_a_row_of_the_other_kind() -> None:
    assert origin("perf/iter_ms", is_old=False) is None
    assert origin("Perf/iteration_time", is_old=True) is None
    assert origin("my/tag", is_old=True) is None


def test_the_algorithm_is_asked_for_only_where_a_row_depends_on_it() -> None:
    with pytest.raises(AmbiguousTagError):
        origin("timing/learner_incremental_h2d_ms", is_old=True)
    sac = origin("timing/learner_incremental_h2d_ms", is_old=True, algo="sac")
    assert sac is not None
    assert sac.row.label == "replay_ingress_h2d_submit_ms"
    assert origin("timing/learner_incremental_h2d_ms", is_old=True, algo="appo") is None
    assert origin("train/actor_loss", is_old=True) is None
