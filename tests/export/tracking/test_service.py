"""A tracking service's client on its thread: whatever it does costs its own destination, and nothing else."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from export.making import ListSink, commit, run_python, wait_until
from realparts.tracking import ENOUGH_S, Misbehaving, drive, labels, package, shown, worker_of
from rltel.core.config import SwanlabConfig, TrackioConfig, WandbConfig
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.media import Media
from rltel.export.pipeline import RemoteWorker
from rltel.export.sink import Destination
from rltel.export.tracking.hooks import Outcome
from rltel.export.tracking.service import Client, NotOpenError, TrackingSink, TrackingWorker, need_package
from rltel.export.tracking.swanlab import SwanlabClient
from rltel.export.tracking.trackio import TrackioClient
from rltel.export.tracking.wandb import WandbClient

SERVICES = ["wandb", "swanlab", "trackio"]
THREADS = {f"rltel-{service}" for service in SERVICES}
SOON_S = 0.3  # within which a client that hangs is not done, on any machine
TESTS = str(Path(__file__).parents[2])


def client_of(service: str, run_dir: Path) -> Client:
    """Each service's real client, over whatever package is in place."""
    if service == "wandb":
        return WandbClient(WandbConfig(mode="offline"), labels(run_dir))
    if service == "swanlab":
        return SwanlabClient(SwanlabConfig(mode="offline"), labels(run_dir))
    return TrackioClient(TrackioConfig(mode="local"), labels(run_dir))


@pytest.fixture(autouse=True)
def no_traces_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clients set for their packages ends with the test."""
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("TRACKIO_DIR", "")


@pytest.fixture
def hang() -> Iterator[Callable[[], object]]:
    """Waits until the test is over."""
    over, before = threading.Event(), set(threading.enumerate())
    yield over.wait
    over.set()
    # Until its end such a thread holds hooks of the process, which other tests look at.
    wait_until(lambda: not [each for each in set(threading.enumerate()) - before if each.name in THREADS], "their end")


def fail() -> None:
    raise RuntimeError("the service said no")


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Acts at the first call only."""
    acts = [act]

    def step() -> None:
        if acts:
            acts.pop()()

    return step


def leave() -> None:
    sys.exit("the package wants to go")


class Scripted:
    """A client that is scripted by the test."""

    name = "scripted"

    def __init__(self, **at: Callable[[], object]) -> None:
        self._at = at
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.outcomes: list[Outcome] = []

    def describe(self) -> str:
        return "nowhere"

    def open(self) -> None:
        self._call("open")

    def log(self, made: Commit) -> None:
        self._call(f"log {made.step}")

    def show(self, media: Media) -> None:
        self._call(f"show {media.key}")

    def finish(self, how: Outcome) -> None:
        self._call("finish")
        self.outcomes.append(how)

    def _call(self, what: str) -> None:
        self.threads.add(threading.get_ident())
        self.calls.append(what)
        self._at.get(what.partition(" ")[0], lambda: None)()


class TestOrder:
    def test_opened_at_once_then_everything_in_order_then_finished(self) -> None:
        client = Scripted()
        destination = drive(client, commit(step=1), shown("text", "t", "hi"), commit(step=2))
        assert client.calls == ["open", "log 1", "show t", "log 2", "finish"]
        assert (destination.exported_total, destination.dropped_totals) == (3, {})

    def test_opened_before_anything_is_committed(self) -> None:
        client = Scripted()
        worker = worker_of(client)
        wait_until(lambda: client.calls == ["open"], "open")
        worker.close(time.monotonic() + ENOUGH_S)

    def test_all_on_one_thread_that_is_not_the_caller_s(self) -> None:
        client = Scripted()
        drive(client, commit(step=1))
        assert len(client.threads) == 1
        assert threading.get_ident() not in client.threads

    def test_a_run_that_never_opened_is_not_finished(self) -> None:
        client = Scripted(open=fail)
        drive(client)
        assert client.calls == ["open"]


class TestRetry:
    def test_not_before_its_time_then_again_and_it_goes_on(self) -> None:
        now = [0.0]
        broken = [True]
        client = Scripted(open=lambda: fail() if broken[0] else None)
        sink = TrackingSink(client, now=lambda: now[0])
        with pytest.raises(NotOpenError, match="cannot open its run: the service said no") as first:
            sink.open()
        now[0] = 2.0
        with pytest.raises(NotOpenError, match="its run is not open: the service said no") as second:
            sink.write(commit(step=1), [])
        assert (first.value.retry_after_s, second.value.retry_after_s) == (5.0, 3.0)
        assert client.calls == ["open"]
        broken[0], now[0] = False, 31.0
        sink.write(commit(step=2), [])
        assert client.calls == ["open", "open", "log 2"]

    def test_at_ever_longer_intervals_up_to_a_bound(self) -> None:
        now = [0.0]
        sink = TrackingSink(Scripted(open=fail), now=lambda: now[0])
        waits = []
        for _ in range(9):
            with pytest.raises(NotOpenError) as error:
                sink.open()
            waits.append(error.value.retry_after_s)
            now[0] += waits[-1]
        assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600]

    def test_what_comes_meanwhile_waits_and_arrives(self) -> None:
        now = [0.0]
        broken = [True]
        client = Scripted(open=lambda: fail() if broken[0] else None)
        worker = TrackingWorker(TrackingSink(client, now=lambda: now[0]), Destination("scripted"), 10_000_000)
        worker.put(commit(step=1), [])
        wait_until(lambda: worker.destination.retries_total, "a try that failed")
        broken[0], now[0] = False, 31.0
        worker.close(time.monotonic() + ENOUGH_S)
        assert client.calls == ["open", "open", "log 1", "finish"]
        assert worker.destination.exported_total == 1

    def test_a_wrong_setting_is_not_tried_again(self) -> None:
        def refuse() -> None:
            raise ConfigError("no key")

        destination = drive(Scripted(open=refuse), commit(step=1), commit(step=2))
        assert (destination.exported_total, destination.dropped_totals) == (0, {"error": 2})
        assert destination.retries_total == 0


@pytest.mark.parametrize("service", SERVICES)
class TestMisbehaving:
    def test_init_that_raises_costs_what_was_sent_and_is_not_said_each_time(
        self, service: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rltel.export.tracking.service._RETRY_S", 600.0)  # whatever time this test takes
        with package(service, Misbehaving("init", fail)) as fake:
            destination = drive(client_of(service, tmp_path), *(commit(step=step) for step in range(9)))
        assert (destination.exported_total, destination.dropped_totals) == (0, {"error": 9})
        assert fake.calls == ["init"]
        assert 1 <= caplog.text.count("the service said no") <= 2  # that it is away, and that something was lost

    def test_log_that_raises_costs_that_commit(self, service: str, tmp_path: Path) -> None:
        with package(service, Misbehaving("log", once(fail))) as fake:
            destination = drive(client_of(service, tmp_path), commit({"x": 1.0}), commit({"x": 2.0}))
        assert (destination.exported_total, destination.dropped_totals) == (1, {"error": 1})
        assert [row["x"] for row in fake.rows] == [2.0]

    def test_finish_that_raises_is_said(self, service: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with package(service, Misbehaving("finish", fail)):
            destination = drive(client_of(service, tmp_path), commit({"x": 1.0}))
        assert destination.exported_total == 1
        assert "the service said no" in caplog.text

    @pytest.mark.parametrize(
        ("at", "exported", "dropped"),
        [
            ("init", 0, {"shutdown": 2}),
            ("log", 0, {"shutdown": 2}),
            ("finish", 2, {"unfinished": 1}),
        ],
    )
    def test_a_hang_is_abandoned_and_counted_and_others_flow(
        self,
        service: str,
        at: str,
        exported: int,
        dropped: dict[str, int],
        tmp_path: Path,
        hang: Callable[[], object],
    ) -> None:
        with package(service, Misbehaving(at, hang)) as fake:
            worker = worker_of(client_of(service, tmp_path))
            other = RemoteWorker(sink := ListSink(), Destination("other"), 10_000_000)
            for made in (commit({"x": 1.0}), commit({"x": 2.0})):
                worker.put(made, [])
                other.put(made, [])
            wait_until(lambda: at in fake.calls or worker.destination.exported_total == 2, "the call that hangs")
            worker.close(time.monotonic() + SOON_S)
            other.close(time.monotonic() + ENOUGH_S)
        assert (worker.destination.exported_total, worker.destination.dropped_totals) == (exported, dropped)
        assert len(sink.commits) == 2

    def test_a_package_that_leaves_the_program_does_not_end_the_thread(self, service: str, tmp_path: Path) -> None:
        with package(service, Misbehaving("log", once(leave))) as fake:
            destination = drive(client_of(service, tmp_path), commit({"x": 1.0}), commit({"x": 2.0}))
        assert (destination.exported_total, destination.dropped_totals) == (1, {"error": 1})
        assert "finish" in fake.calls

    def test_is_imported_and_begun_on_its_own_thread(self, service: str, tmp_path: Path) -> None:
        with package(service, Misbehaving()) as fake:
            drive(client_of(service, tmp_path), commit({"x": 1.0}))
        assert fake.calls == ["init", "log", "finish"]
        assert fake.thread != threading.get_ident()


class TestImport:
    def test_nothing_is_imported_when_disabled(self, tmp_path: Path) -> None:
        code = (
            "import json, sys, rltel\n"
            "rltel.init({'jsonl': {'path': sys.argv[1]}, 'wandb': {'mode': 'disabled'}, "
            "'swanlab': {'mode': 'disabled'}, 'trackio': {'mode': 'disabled'}})\n"
            "rltel.log({'x': 1.0}, step=0)\nrltel.shutdown()\n"
            "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
        )
        ran = run_python(code, tmp_path / "r.jsonl", RLTEL_RUN_DIR=str(tmp_path / "run"))
        loaded = set(json.loads(ran.stdout.splitlines()[-1]))
        assert "rltel" in loaded, ran.stderr
        assert not loaded & set(SERVICES)

    def test_nor_while_a_destination_is_built_and_described(self, tmp_path: Path) -> None:
        code = (
            f"import sys; sys.path.insert(0, {TESTS!r})\n"
            "from pathlib import Path\n"
            "from export.tracking.test_service import SERVICES, client_of\n"
            "for service in SERVICES:\n    print(client_of(service, Path(sys.argv[1])).describe())\n"
            "print(sorted({name.split('.')[0] for name in sys.modules} & set(SERVICES)))\n"
        )
        ran = run_python(code, tmp_path)
        assert ran.stdout.splitlines()[-1] == "[]", ran.stderr

    @pytest.mark.parametrize("service", SERVICES)
    def test_without_the_extra_the_error_says_what_to_install(
        self, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, service, raising=False)
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(ConfigError, match=rf'{service}.mode: needs the extra: pip install "rltel\[{service}\]"'):
            client_of(service, tmp_path)

    def test_a_folder_of_that_name_is_not_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "nobodys_tracker").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ConfigError, match="needs the extra"):
            need_package("nobodys_tracker")


def test_media_counts_in_the_queue_as_much_as_it_holds() -> None:
    big, small = shown("text", "t", "x" * 10_000), shown("text", "t", "x")
    assert big.size_bytes >= small.size_bytes + 9_999


def test_media_after_the_end_is_counted() -> None:
    client: Any = Scripted()
    worker = TrackingWorker(TrackingSink(client), Destination("scripted"), 10_000)
    worker.close(time.monotonic() + ENOUGH_S)
    worker.put_media(shown("text", "t", "late"))
    assert worker.destination.dropped_totals == {"shutdown": 1}
