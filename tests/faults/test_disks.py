"""Disks that are full, for a while or from the start, and folders that cannot be written or go away.

A full disk is a tmpfs where we may mount one, and a limit on the size of files (RLIMIT_FSIZE) everywhere.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from faults.rest import AT_REST
from realparts.otlp_receiver import otlp_sink
from realparts.tensorboard_reader import all_events
from realparts.trace_processor import query
from realparts.trainer import plain_result, replayed, trained
from realparts.wandb_reader import read_offline
from rltel import read_jsonl

STEPS = 60
FULL_AT, FREE_AT = 20, 40

LOCAL = {
    "trace": {"enabled": True, "flush_interval_s": 0.05},
    "tensorboard": {"path": "{run_dir}/tb"},
    "prometheus": {"enabled": True, "port": 0},
    "pipeline": {"shutdown_timeout_s": 60.0},  # where the end is not what is tested, it may take its time
}


@dataclass(frozen=True)
class Disk:
    """A disk, and the programs by which a training fills it and frees it."""

    folder: Path
    fill: str
    free: str


LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))\n"
FILL = """
def fill(path, room=4096):
    with open(path, "wb", buffering=0) as ballast:
        while room:
            try:
                if ballast.write(bytes(room)) == room:
                    continue
            except OSError:
                pass
            room //= 2
fill({!r})
"""


MORE = 20_000
SLICES = f"for _ in range({MORE}):\n    with rltel.slice('more'):\n        pass\n"  # more than fits into a last page


def limited(tmp_path: Path) -> Iterator[Disk]:
    """No file may grow: any user may say so. Python ignores SIGXFSZ, so a write fails."""
    yield Disk(tmp_path, LIMIT.format(1), LIMIT.format("resource.RLIM_INFINITY"))


def small(tmp_path: Path) -> Iterator[Disk]:
    """A real one of 4 MB, with the last pages of files half full, so that writes stop halfway."""
    with_mount = mounted(tmp_path / "disk", "size=4m")
    ballast = str(tmp_path / "disk" / "ballast")
    for folder in with_mount:
        yield Disk(folder, FILL.format(ballast), f"os.unlink({ballast!r})\n")


def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if made.returncode != 0:
        pytest.skip(f"a tmpfs needs rights that this user lacks: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=[limited, small], ids=["limit", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    yield from request.param(tmp_path)


def tensorboard_steps(folder: Path) -> list[int]:
    """Of every event with values, in whichever run below the folder."""
    folders = {path.parent for path in folder.rglob("*tfevents*")}
    events = [event for each in folders for event in all_events(each)]
    return sorted(event.step for event in events if any(value.tag == "reward" for value in event.summary.value))


def record_steps(path: Path) -> list[int]:
    return [line.step for line in read_jsonl(path)]


class TestFullForAWhile:
    def test_costs_what_did_not_fit_counted_and_neither_the_training_nor_what_needs_no_disk(self, disk: Disk) -> None:
        run_dir = disk.folder / "run"
        at = {FULL_AT: f"rltel.flush(60)\n{disk.fill}", FREE_AT: f"rltel.flush(60)\n{disk.free}"}
        with otlp_sink() as receiver:
            config = {**LOCAL, "otlp": {"enabled": True, "endpoint": receiver.endpoint}}
            ended = trained(config, run_dir, steps=STEPS, at=at, after="scrape()")
            assert (ended.code, ended.result) == (0, plain_result(STEPS)), ended.err
            assert "Traceback" not in ended.err
            sent = sorted(metric.value for metric in receiver.metrics() if metric.name == "rl.step")
        assert sent == list(range(STEPS))

        fits = {*range(FULL_AT), *range(FREE_AT, STEPS)}
        recorded = record_steps(run_dir)
        assert fits <= set(recorded)
        lost = STEPS - len(recorded)
        assert ended.dropped["jsonl", "disk"] == lost
        assert lost >= (FREE_AT - FULL_AT) / 2  # a little may fit into the last pages
        assert f"jsonl: lost {lost} in all" in ended.err

        shown = tensorboard_steps(run_dir / "tb")
        assert fits <= set(shown)
        assert ended.dropped["tensorboard", "disk"] == STEPS - len(shown)
        assert f"tensorboard: lost {STEPS - len(shown)} in all" in ended.err

        again = [replayed(run_dir, "tensorboard", f"{run_dir}/tb")["sent"] for _ in range(2)]
        assert again == [len(set(recorded) - set(shown)), 0]
        assert tensorboard_steps(run_dir / "tb") == sorted({*recorded, *shown})

    def test_costs_nothing_of_the_trace_which_waits_for_it(self, disk: Disk) -> None:
        run_dir = disk.folder / "run"
        at = {FULL_AT: f"rltel.flush(60)\n{disk.fill}{SLICES}", FREE_AT: f"rltel.flush(60)\n{disk.free}"}
        ended = trained(LOCAL, run_dir, steps=STEPS, at=at, after="scrape()")
        assert ended.result == plain_result(STEPS), ended.err
        assert ended.dropped["trace", "disk"] == 0  # it was said, and lost nothing
        sql = (
            "select name, count(*) as count from slice group by name",
            "select * from stats where severity = 'error'",
        )
        slices, faults = query(run_dir / "trace" / "learner-0.1.pftrace", *sql)
        expected = {"iteration": STEPS, "rollout": STEPS, "update": STEPS, "more": MORE}
        assert {row["name"]: row["count"] for row in slices} == expected
        assert [row for row in faults if row["value"]] == []

    def test_of_another_place_than_the_record_is_made_good_by_a_replay(self, tmp_path: Path) -> None:
        """The ledger, on that disk too, is right again once it is free: nothing is sent twice."""
        for disk in small(tmp_path):
            run_dir = disk.folder / "run"
            config = {**LOCAL, "jsonl": {"path": str(tmp_path / "record.jsonl")}}
            at = {FULL_AT: f"rltel.flush(60)\n{disk.fill}", FREE_AT: f"rltel.flush(60)\n{disk.free}"}
            ended = trained(config, run_dir, steps=STEPS, at=at)
            assert ended.result == plain_result(STEPS), ended.err
            assert record_steps(tmp_path / "record.jsonl") == list(range(STEPS))
            before = tensorboard_steps(run_dir / "tb")
            assert len(before) < STEPS
            metrics = run_dir / "metrics"
            metrics.mkdir()
            (metrics / "learner-0.1.jsonl").symlink_to(tmp_path / "record.jsonl")
            assert replayed(run_dir, "tensorboard", f"{run_dir}/tb")["sent"] == STEPS - len(before)
            assert tensorboard_steps(run_dir / "tb") == list(range(STEPS))


class TestFullToTheEnd:
    def test_all_that_is_lost_is_counted_and_the_program_ends_in_time(self, disk: Disk) -> None:
        run_dir = disk.folder / "run"
        at = {FULL_AT: f"rltel.flush(60)\n{disk.fill}{SLICES}"}
        config = {**LOCAL, "pipeline": {"shutdown_timeout_s": BOUND_S}}
        ended = trained(config, run_dir, steps=STEPS, at=at, after=f"{AT_REST}at_rest(telemetry)\n")
        assert (ended.code, ended.result) == (0, plain_result(STEPS)), ended.err
        assert ended.exit_s < BOUND_S + SLACK_S
        recorded, shown = record_steps(run_dir), tensorboard_steps(run_dir / "tb")
        for name, found in (("jsonl", recorded), ("tensorboard", shown)):
            assert set(range(FULL_AT)) <= set(found)
            assert f"{name}: lost {STEPS - len(found)} in all" in ended.err
        (slices,) = query(run_dir / "trace" / "learner-0.1.pftrace", "select count(*) as count from slice")
        assert f"trace: lost {3 * STEPS + MORE - slices[0]['count']} in all" in ended.err


BOUND_S = 10.0
SLACK_S = 30.0  # for the end of the interpreter, on a machine that has other things to do


class TestFullFromTheStart:
    @pytest.mark.parametrize("room", [0, 60], ids=["run.json", "claims"])
    def test_is_an_error_that_names_the_place(self, tmp_path: Path, room: int) -> None:
        ended = trained(LOCAL, tmp_path / "run", before=LIMIT.format(room))
        assert ended.code == 1
        assert "Error: " in ended.err
        last = ended.err.splitlines()[-1]
        assert str(tmp_path / "run") in last
        assert "File too large" in last
        assert not [path for path in (tmp_path / "run").rglob(".*") if path.is_file()]  # no draft is left

    def test_the_record_s_place_is_named(self, tmp_path: Path) -> None:
        ended = trained(LOCAL, tmp_path / "run", before=LIMIT.format(100))
        assert ended.code == 1
        assert str(tmp_path / "run" / "metrics" / "learner-0.1.jsonl") in ended.err.splitlines()[-1]

    def test_tensorboard_s_place_is_named(self, tmp_path: Path) -> None:
        """Its disk only: the run's is another."""
        for disk in small(tmp_path):
            config = {**LOCAL, "tensorboard": {"path": str(disk.folder / "tb")}}
            ended = trained(config, tmp_path / "run", before=disk.fill)
            assert ended.code == 1
            assert f"tensorboard.path: cannot write {disk.folder / 'tb'}" in ended.err.splitlines()[-1]


def under_a_file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "file").write_text("")
    yield tmp_path / "file" / "below"


def in_proc(tmp_path: Path) -> Iterator[Path]:
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    yield Path("/proc/rltel")


def without_rights(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (tmp_path / "closed").mkdir(mode=0o555)
    yield tmp_path / "closed" / "below"


def read_only_mount(tmp_path: Path) -> Iterator[Path]:
    for folder in mounted(tmp_path / "closed", "ro"):
        yield folder / "below"


class TestReadOnly:
    @pytest.mark.parametrize("where", [under_a_file, in_proc, without_rights, read_only_mount])
    @pytest.mark.parametrize("what", ["run", "trace", "tensorboard", "jsonl"])
    def test_a_place_that_cannot_be_written_is_an_error_that_names_it(
        self, tmp_path: Path, where: Callable[[Path], Iterator[Path]], what: str
    ) -> None:
        for place in where(tmp_path):
            given: dict[str, Any] = {
                "run": {},
                "trace": {"trace": {"enabled": True, "output_dir": str(place)}},
                "tensorboard": {"tensorboard": {"path": str(place)}},
                "jsonl": {"jsonl": {"path": str(place / "record.jsonl")}},
            }[what]
            ended = trained({**LOCAL, **given}, place if what == "run" else tmp_path / "run")
            assert ended.code == 1
            assert str(place) in ended.err.splitlines()[-1]


# A thread may make a file while they are deleted.
GONE = """
import shutil
rltel.flush(60)
while os.path.isdir(run_dir):
    shutil.rmtree(run_dir, ignore_errors=True)
"""
FOR_EVER = f"{GONE}open(run_dir, 'w').close()\n"  # nothing can be made there any more


@pytest.mark.parametrize("how", [GONE, FOR_EVER], ids=["gone", "gone for ever"])
def test_a_run_directory_that_goes_away_costs_neither_the_training_nor_what_is_elsewhere(
    tmp_path: Path, how: str
) -> None:
    with otlp_sink() as receiver:
        config = {
            **LOCAL,
            "otlp": {"enabled": True, "endpoint": receiver.endpoint},
            "jsonl": {"path": str(tmp_path / "record.jsonl")},
            "trace": {"enabled": True, "max_file_mb": 0.001},  # so that it wants new files
        }
        ended = trained(config, tmp_path / "run", steps=STEPS, at={FULL_AT: how}, after="scrape()")
        assert (ended.code, ended.result) == (0, plain_result(STEPS)), ended.err
        assert "Traceback" not in ended.err
        sent = sorted(metric.value for metric in receiver.metrics() if metric.name == "rl.step")
    assert sent == list(range(STEPS))
    assert record_steps(tmp_path / "record.jsonl") == list(range(STEPS))
    assert "trace: " in ended.err  # says that it cannot go on in another file


class TestTrackingOffline:
    """W&B writes its file in a process of its own."""

    CONFIG: ClassVar = {**LOCAL, "wandb": {"mode": "offline", "project": "p"}, "pipeline": {"shutdown_timeout_s": 20.0}}

    def test_wandb_on_a_full_disk_costs_nobody_else(self, tmp_path: Path) -> None:
        for disk in small(tmp_path):
            config = {**self.CONFIG, "jsonl": {"path": str(tmp_path / "record.jsonl")}}
            config = {**config, "tensorboard": {"path": str(tmp_path / "tb")}}
            at = {FULL_AT: f"rltel.flush(30)\n{disk.fill}"}
            ended = trained(config, disk.folder / "run", steps=STEPS, at=at)
            assert (ended.code, ended.result) == (0, plain_result(STEPS)), ended.err
            assert ended.exit_s < 20.0 + SLACK_S
            assert record_steps(tmp_path / "record.jsonl") == list(range(STEPS))
            assert tensorboard_steps(tmp_path / "tb") == list(range(STEPS))

    def test_what_comes_while_the_disk_is_full_is_counted_and_not_given_to_wandb(self, tmp_path: Path) -> None:
        """W&B would take it without a word. (So it did with the last rows before, which it had not written yet.)"""
        for disk in small(tmp_path):
            config = {**self.CONFIG, "jsonl": {"path": str(tmp_path / "record.jsonl")}}
            at = {FULL_AT: f"rltel.flush(30)\n{disk.fill}"}
            ended = trained(config, disk.folder / "run", steps=STEPS, at=at)
            rows = read_offline(disk.folder / "run", timeout=1.0).rows
            assert len(rows) <= FULL_AT
            assert f"wandb: lost {STEPS - FULL_AT} in all ({{'disk': {STEPS - FULL_AT}}})" in ended.err
