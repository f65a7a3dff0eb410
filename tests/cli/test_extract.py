"""``rltel extract``: UniLab's rows and decisions, and exit codes for scripts."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from realparts.event_runs import STAMP, schema, vector, write_run
from rltel.cli import app

LABELS = [row["label"] for row in schema()["extractor_rows"]]
CASES = vector("V06")["cases"]


def call(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["extract", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_v06_decisions(tmp_path: Path, case: dict[str, Any]) -> None:
    write_run(tmp_path, case["tags"], case["summary"])
    code, out, err = call(tmp_path, *(["--legacy-unversioned"] if case["legacy_flag"] else []))
    assert code == case["exit"]
    assert bool(out) == (code == 0)
    assert err.startswith("rltel extract: ") == (code == 1)
    assert (str(tmp_path) in err) == (code == 1)


@pytest.mark.parametrize("files", [0, 2])
@pytest.mark.parametrize("flags", [[], ["--legacy-unversioned"], ["--canonical-unversioned"]])
def test_v06_one_event_file_is_needed(tmp_path: Path, files: int, flags: list[str]) -> None:
    for number in range(files):
        write_run(tmp_path / str(number), ["Perf/iteration_time"], STAMP)
    code, out, err = call(tmp_path, *flags)
    assert (code, out) == (1, "")
    assert "event file" in err


def test_prints_thirteen_rows_as_unilab_does(tmp_path: Path) -> None:
    write_run(tmp_path, {"Perf/iteration_time": [0.0525], "Perf/total_fps": [19504.0]}, STAMP)
    code, out, err = call(tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "iter_ms                                      52.500"
    assert lines[1] == "steps_per_sec                             19504.000"
    assert lines[2] == "collector_active_steps_per_sec                  nan"
    assert [line.split()[0] for line in lines] == LABELS
    assert {len(line) for line in lines} == {51}


def test_json_is_valid_where_unilab_s_has_a_bare_nan(tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    path = write_run(tmp_path, {"Perf/iteration_time": [0.0525], "Perf/total_fps": [float("inf")]}, STAMP)
    code, out, _ = call(tmp_path, "--json")
    found = json.loads(out, parse_constant=refuse)
    assert code == 0
    assert list(found)[: len(LABELS)] == LABELS
    assert found["iter_ms"] == pytest.approx(52.5)
    assert {label for label in LABELS if found[label] is None} == set(found["why_null"])
    assert found["why_null"]["steps_per_sec"] == "Perf/total_fps: Infinity"
    assert (found["notes"], found["files"]) == ([], [str(path)])


def test_last_says_over_how_many_points(tmp_path: Path) -> None:
    write_run(tmp_path, {"Perf/total_fps": [1.0, 2.0, 4.0]}, STAMP)
    _, out, _ = call(tmp_path, "--last", "2", "--json")
    assert json.loads(out)["steps_per_sec"] == 3.0
    code, out, err = call(tmp_path, "--last", "0")
    assert (code, out) == (2, "")
    assert "--last" in err


def test_canonical_tags_without_a_version_need_their_flag(tmp_path: Path) -> None:
    write_run(tmp_path, ["Perf/iteration_time"])
    code, _, err = call(tmp_path)
    assert code == 1
    assert "--canonical-unversioned" in err
    code, out, _ = call(tmp_path, "--canonical-unversioned")
    assert code == 0
    assert "1000.000" in out
    code, _, err = call(tmp_path, "--canonical-unversioned", "--legacy-unversioned")
    assert code == 1
    assert "exclude each other" in err


def test_the_algorithm_can_be_given(tmp_path: Path) -> None:
    write_run(tmp_path, ["perf/iter_ms", "timing/learner_incremental_h2d_ms"])
    code, out, err = call(tmp_path, "--legacy-unversioned", "--json")
    assert (code, json.loads(out)["replay_ingress_h2d_submit_ms"]) == (0, None)
    assert "--algo" in err
    code, out, err = call(tmp_path, "--legacy-unversioned", "--json", "--algo", "sac")
    assert (code, json.loads(out)["replay_ingress_h2d_submit_ms"], err) == (0, 1.0, "")


def test_a_file_cut_short_is_said_on_stderr_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, {"Perf/total_fps": [1.0, 2.0]}, STAMP)
    path.write_bytes(path.read_bytes()[:-1])
    code, out, err = call(tmp_path, "--json")
    assert (code, json.loads(out)["steps_per_sec"]) == (0, 1.0)
    assert "cut short" in err
    assert json.loads(out)["notes"]


def test_what_is_no_event_file_is_one_line_and_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_text("this is no event file at all")
    (tmp_path / "run_summary.json").write_text(json.dumps(STAMP))
    code, out, err = call(tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "expected a TensorBoard event file" in err
