"""A summary as text."""

from rltel.cli.trace_summary import summary_lines
from rltel.traces.summary import LongWait, Loop, Meanwhile, Overlap, Row, Summary, Wait

MS = 1_000_000


def row(name: str, category: str = "exclusive", share: float | None = None, still_open: int = 0, count: int = 2) -> Row:
    mean = 2.0 * MS if count else None
    return Row("learner 0", "iteration", category, name, count, 2 * MS * count, mean, mean, mean, share, still_open)


def summary(**changed: object) -> Summary:
    known = {
        "files": ["a", "b"],
        "start_ns": 5,
        "uncertainty": "one host",
        "loops": [Loop("learner 0", "iteration", 2, 10 * MS, 2 * MS, 0.2)],
        "rows": [row("iteration", "rl.loop"), row("learning", share=0.4, still_open=1)],
    }
    return Summary(**{**known, **changed})  # type: ignore[arg-type]


def lines(**changed: object) -> list[str]:
    return list(summary_lines(summary(**changed)))


def test_a_table_for_each_process() -> None:
    assert lines() == [
        "2 files; one host",
        "",
        "learner 0",
        "                     kind          count  total  mean   p50   p99  share",
        "  iteration          rl.loop           2   4 ms  2 ms  2 ms  2 ms",
        "  learning (1 open)  exclusive         2   4 ms  2 ms  2 ms  2 ms  40.0%",
        "  Other              of iteration          2 ms                    20.0%",
    ]


def test_phases_of_two_loops_of_a_process_are_told_apart() -> None:
    loops = [Loop("learner 0", name, 2, 10 * MS, 0, 0.0) for name in ("iteration", "cycle")]
    assert any(line.startswith("  learning (1 open)  exclusive of iteration ") for line in lines(loops=loops))


def test_what_never_ended_has_no_times() -> None:
    assert "  learning (1 open)  exclusive         0" in lines(rows=[row("learning", still_open=1, count=0)])


def test_overlaps_with_their_parts_of_both() -> None:
    rows = [row("learning"), row("wait")]
    rows[1].process = "collector 0"
    made = lines(rows=rows, overlaps=[Overlap("learner 0", "learning", "collector 0", "wait", 2 * MS, 0.5, 0.25)])
    assert made[-2:] == [
        "at once, in different processes",
        "  learner 0 learning  collector 0 wait    2 ms  50.0% of the first  25.0% of the second",
    ]


def test_the_longest_overlaps_only() -> None:
    overlaps = [
        Overlap("learner 0", "learning", "learner 0", "learning", number, 1.0, 1.0) for number in range(30, 0, -1)
    ]
    assert lines(overlaps=overlaps)[-1] == "  and 10 shorter ones (--json has all)"


def test_waits() -> None:
    during = [Meanwhile("collector 0", "env_step", MS)]
    wait = Wait("learner 0", "collector_wait", 4 * MS, 0.4, [LongWait(1_500_000, 3 * MS, [])], during)
    assert lines(waits=[wait])[-2:] == [
        "learner 0 waits in collector_wait: 4 ms, 40.0% of the iterations; meanwhile collector 0 env_step 1 ms",
        "  3 ms at +0.001500 s; meanwhile nothing of another process",
    ]


def test_ends_without_a_begin_are_said() -> None:
    assert lines(unmatched_ends=3)[1] == "3 ends of slices have no begin: see rltel trace validate"


def test_nothing() -> None:
    assert lines(files=["a"], loops=[], rows=[], uncertainty="empty") == [
        "1 file; empty",
        "no slices in it: nothing was drawn, or none of it was written before the process was killed",
    ]


def test_files_of_several_runs_and_what_was_left_out() -> None:
    assert lines(runs=2, left_out=["m.pftrace"])[:2] == [
        "2 files of 2 runs; one host",
        "  left out m.pftrace: a merged trace already",
    ]


def test_a_loop_without_phases_of_its_own_has_no_other() -> None:
    made = lines(loops=[Loop("learner 0", "step", 2, 10 * MS, None, None)])
    assert not any("Other" in line for line in made)
