"""What a destination missed comes back: once, in order, with its own steps and times, and right sums."""

import math
import signal
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from export.making import TIME_NS, ListSink, commit, environment, identity, recorded, run_python
from realparts.ledgered import Remembered, keep_record
from realparts.otlp_receiver import OtlpSink as Receiver
from realparts.otlp_receiver import otlp_grpc_sink, otlp_sink
from realparts.processes import free_port
from realparts.tensorboard_reader import event_files, scalars, steps
from rltel.core.claims import claim_place
from rltel.core.config import OtlpConfig, TelemetryConfig
from rltel.core.errors import ConfigError, RltelError
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.ledger import Ledger
from rltel.export.otlp.metrics import OtlpSink, open_otlp_metrics
from rltel.export.points import Point, Totals, points_of
from rltel.export.sink import Sink
from rltel.export.tensorboard.sink import open_tensorboard
from rltel.names.otel import Namer
from rltel.reduce.trackers import Trackers
from rltel.runs.recorded import recorded as read_record
from rltel.runs.replay import Replay, replay
from rltel.runs.report import Report
from rltel.runs.target import Target
from rltel.runs.targets import NAMES

QUIET = environment()


class ListTarget(Target):
    """A destination that remembers, and can be told to refuse."""

    name, place = "list", "here"
    sums = True

    def __init__(self, refuse_at: int | None = None, error: Exception | None = None) -> None:
        self.sinks: dict[str, ListSink] = {}
        self.closed = False
        self.refuse_at, self.error = refuse_at, error or ValueError("no room")

    def open(self, identity: Identity, started_ns: int) -> Sink:
        target = self

        class Sinking(ListSink):
            def write(self, made: Commit, points: Sequence[Point]) -> None:
                if made.number == target.refuse_at:
                    raise target.error
                super().write(made, points)

        return self.sinks.setdefault(identity.name, Sinking())

    def close(self) -> None:
        self.closed = True

    def numbers(self, process: str = "learner-0.1") -> list[int]:
        return [made.number for made in self.sinks[process].commits]


def training(run_dir: Path, number: int = 6, **changed: Any) -> list[Commit]:
    """Commits with everything that is summed: an average, a counter, a timing and a distribution."""
    who = identity(run_dir, **changed)

    def record(n: int) -> Any:
        def step(trackers: Trackers) -> None:
            trackers.default.scalar({"reward": float(n)}, weight=n + 1)
            trackers.default.count(episodes=n)
            trackers.default.distribution(length=np.arange(1.0, n + 2))
            trackers.default.gauge({"lr": math.nan if n == 2 else 1.0 / (n + 1)})

        return step

    return [
        commit(recorded(record(n)), identity=who, number=n, step=10 * n, time_ns=TIME_NS + 10**9 * n, env_steps=100 * n)
        for n in range(number)
    ]


def to_list(run_dir: Path, target: ListTarget | None = None, **how: Any) -> tuple[ListTarget, Report]:
    target = target or ListTarget()
    found = read_record(run_dir)
    return target, Replay(run_dir, found, target, set(), **{"sleep": lambda seconds: None, **how}).run()


class TestOnce:
    def test_all_comes_with_its_own_steps_and_times_in_order(self, tmp_path: Path) -> None:
        made = training(tmp_path)
        keep_record(tmp_path, made)
        target, report = to_list(tmp_path)
        sent = target.sinks["learner-0.1"].commits
        assert [(c.number, c.step, c.env_steps, c.time_ns, str(c.values)) for c in sent] == [
            (c.number, c.step, c.env_steps, c.time_ns, str(c.values)) for c in made
        ]
        assert (report.sent, report.missing, report.error, target.closed) == (6, 0, None, True)

    def test_a_second_replay_has_nothing_to_send(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        to_list(tmp_path)
        target, report = to_list(tmp_path)
        assert (target.sinks, report.sent, report.processes[0].had) == ({}, 0, 6)

    def test_only_what_the_process_itself_did_not_deliver(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        ledger = Ledger(tmp_path, "learner-0.1", "list", "here")
        ledger.sent(0, 2)
        ledger.sent(4)
        assert to_list(tmp_path)[0].numbers() == [3, 5]

    def test_sums_are_what_they_would_have_been(self, tmp_path: Path) -> None:
        made = training(tmp_path)
        keep_record(tmp_path, made)
        Ledger(tmp_path, "learner-0.1", "list", "here").sent(0, 3)
        namer = Namer()
        totals = Totals(namer)
        live = []
        for each in made:
            totals.add(each)
            live.append(points_of(each, totals))
        target, _ = to_list(tmp_path)
        assert str(target.sinks["learner-0.1"].points) == str(live[4:])

    def test_processes_do_not_add_up_in_each_other(self, tmp_path: Path) -> None:
        for incarnation in (1, 2):
            who = identity(tmp_path, incarnation=incarnation)
            keep_record(tmp_path, training(tmp_path, incarnation=incarnation), who)
        target, _ = to_list(tmp_path)
        episodes = [
            [point.value for points in sink.points for point in points if point.name == "rl.stats.episodes"]
            for sink in target.sinks.values()
        ]
        assert episodes == [[0.0, 1.0, 3.0, 6.0, 10.0, 15.0]] * 2


class TestRefused:
    def test_a_refusal_ends_it_with_the_reason_and_the_next_goes_on_there(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        target, report = to_list(tmp_path, ListTarget(refuse_at=3))
        assert (report.sent, report.missing, target.closed) == (3, 3, True)
        assert report.error == "list: learner-0.1, step 30 of train: no room"
        target, report = to_list(tmp_path)
        assert (target.numbers(), report.error) == ([3, 4, 5], None)

    def test_what_may_help_by_itself_is_tried_again(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        target = ListTarget(refuse_at=3, error=ConnectionError("away"))
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                target.refuse_at = None

        assert to_list(tmp_path, target, sleep=sleep)[1].error is None
        assert target.numbers() == list(range(6))
        assert waits == sorted(set(waits))

    def test_it_says_what_was_raised_first(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        target = ListTarget(refuse_at=3, error=ConnectionError("the true reason"))

        def sleep(seconds: float) -> None:
            target.error = ConnectionError("not open")

        assert to_list(tmp_path, target, sleep=sleep)[1].error == (
            "list: learner-0.1, step 30 of train: the true reason"
        )

    def test_a_process_that_still_runs_is_left_alone(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        claim = claim_place(tmp_path, "learner", 0)
        target, report = to_list(tmp_path)
        assert (target.sinks, report.missing) == ({}, 0)
        assert "still running" in report.processes[0].note
        assert to_list(tmp_path, force=True)[0].numbers() == list(range(6))
        claim.release()

    def test_two_at_a_time_are_refused(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        seen = []

        class Nested(ListTarget):
            def open(self, identity: Identity, started_ns: int) -> Sink:
                with pytest.raises(RltelError, match="list: another replay to here is at work"):
                    to_list(tmp_path)
                seen.append(True)
                return super().open(identity, started_ns)

        to_list(tmp_path, Nested())
        assert seen == [True]


# --- to real destinations -------------------------------------------------------------------------------------------


def arrived(receiver: Receiver) -> list[tuple[Any, ...]]:
    return [
        (each.name, tuple(sorted(each.attributes.items())), each.kind, str(each.point), each.scope.name, each.unit)
        for each in receiver.metrics()
    ]


ABOUT: dict[str, Any] = {
    "resource": {"service.instance.id": identity().instance_id, "process.pid": 7},
    "started_ns": TIME_NS - 5,
}


def live_otlp(endpoint: str) -> OtlpSink:
    config = OtlpConfig(enabled=True, endpoint=endpoint)
    return open_otlp_metrics(config, Resource(ABOUT["resource"]), ABOUT["started_ns"], {})


class TestOtlp:
    def test_what_a_dead_endpoint_missed_is_what_a_living_one_has(self, tmp_path: Path) -> None:
        made = training(tmp_path)
        keep_record(tmp_path, made)
        with otlp_sink() as living, otlp_sink() as revived:
            sink = live_otlp(living.endpoint)
            namer = Namer()
            totals = Totals(namer)
            for each in made:
                totals.add(each)
                sink.write(each, points_of(each, totals))
            place = live_otlp(revived.endpoint).describe()
            Ledger(tmp_path, "learner-0.1", "otlp", place, about=ABOUT)
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=revived.endpoint).run()
            assert (report.sent, report.error) == (6, None)
            assert arrived(revived) == arrived(living) != []
            assert {str(each.resource) for each in revived.metrics()} == {
                str(each.resource) for each in living.metrics()
            }

    def test_the_rest_goes_on_where_the_process_itself_ended(self, tmp_path: Path) -> None:
        """Also its sums: they do not begin again at 0."""
        made = training(tmp_path)
        keep_record(tmp_path, made)
        with otlp_sink() as living, otlp_sink() as revived:
            for receiver, sent in ((revived, made[:4]), (living, made)):
                namer = Namer()
                totals = Totals(namer)
                sink = live_otlp(receiver.endpoint)
                if receiver is revived:
                    sink = Remembered(sink, made[0].identity, ABOUT)
                for each in sent:
                    totals.add(each)
                    sink.write(each, points_of(each, totals))
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=revived.endpoint).run()
            assert (report.sent, report.error) == (2, None)
            assert arrived(revived) == arrived(living)

    def test_a_run_without_otlp_can_be_sent_later_and_claims_no_process_of_its_own(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        with otlp_sink() as receiver:
            assert replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run().sent == 6
            resource = receiver.metrics()[0].resource
            assert resource["service.instance.id"] == identity().instance_id
            assert not [name for name in resource if name.startswith(("process.", "host."))]

    def test_a_receiver_that_refuses_is_the_reason(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        with otlp_sink() as receiver:
            receiver.status = 400
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run()
            assert report.error is not None
            assert report.error.startswith("otlp: learner-0.1, step 0 of train: ")
            assert "400" in report.error

    def test_what_is_refused_in_part_is_said_and_holds_nothing_up(self, tmp_path: Path) -> None:
        """The protocol forbids to send it again, and it would be refused again."""
        keep_record(tmp_path, training(tmp_path))
        with otlp_sink() as receiver:
            partial = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
            receiver.answer = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run()
            assert (report.sent, report.missing, report.error) == (6, 0, None)
            assert "rejected 2 data points: too old" in report.processes[0].refused
            assert replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run().sent == 0

    def test_sigkill_between_commit_and_delivery_is_made_good_exactly_once(self, tmp_path: Path) -> None:
        """The third commit never reaches the receiver: the process is killed while the sink holds it."""
        code = (
            "import os, sys, rltel\nfrom pathlib import Path\nfrom realparts.ledgered import Remembered\n"
            "from runs.test_replay import live_otlp\nfrom export.making import identity\n"
            "class Deadly(Remembered):\n"
            "    def write(self, commit, points):\n"
            "        if commit.number == 2:\n            os.kill(os.getpid(), 9)\n"
            "        super().write(commit, points)\n"
            "who = identity(Path(sys.argv[1]))\n"
            "from rltel.process import process\n"
            "on = {'jsonl': {'path': '{run_dir}/metrics/learner-0.1.jsonl'}}\n"
            "sinks = [Deadly(live_otlp(sys.argv[2]), who)]\n"
            "process.init(on, run_dir=sys.argv[1], run_id='run-1', sinks=sinks)\n"
            "import time\n"
            "for step in range(3):\n    rltel.count(episodes=1)\n    rltel.commit(step=step)\n"
            "time.sleep(60)\n"
        )
        with otlp_sink() as receiver:
            ran = run_python(code, tmp_path, receiver.endpoint, PYTHONPATH=str(Path(__file__).parents[1]))
            assert ran.returncode == -signal.SIGKILL, ran.stderr
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run()
            assert [(each.had, each.sent) for each in report.processes] == [(2, 1)]
            values = [each.value for each in receiver.metrics() if each.name == "rl.stats.episodes"]
            assert values == [1.0, 2.0, 3.0]

    def test_an_endpoint_that_was_dead_during_the_run_has_all_of_it_when_it_is_back(self, tmp_path: Path) -> None:
        code = (
            "import sys, rltel\n"
            "otlp = {'enabled': True, 'protocol': 'grpc', 'endpoint': sys.argv[2], 'traces': False}\n"
            "rltel.init({'otlp': otlp, 'pipeline': {'shutdown_timeout_s': 0.5}}, run_dir=sys.argv[1])\n"
            "for step in range(3):\n    rltel.count(episodes=1)\n    rltel.commit(step=step)\n"
        )
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        ran = run_python(code, tmp_path, endpoint)
        assert ran.returncode == 0, ran.stderr
        with otlp_grpc_sink(port=port) as revived:
            environ = {**QUIET, "RLTEL_OTLP_PROTOCOL": "grpc"}
            report = replay(tmp_path, "otlp", environ=environ, endpoint=endpoint).run()
            assert (report.sent, report.error) == (3, None)
            values = [each.value for each in revived.metrics() if each.name == "rl.stats.episodes"]
            assert values == [1.0, 2.0, 3.0]
            (line, *_) = read_record(tmp_path)
            assert revived.metrics()[0].resource["service.instance.id"] == line.identity(tmp_path).instance_id

    def test_a_replay_that_is_killed_goes_on(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path, 30))
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom rltel.runs.replay import replay\n"
            "def progress(process, done, total):\n    if done == 10: os.kill(os.getpid(), 9)\n"
            "replay(Path(sys.argv[1]), 'otlp', environ={}, endpoint=sys.argv[2]).run(progress)\n"
        )
        with otlp_sink() as receiver:
            assert run_python(code, tmp_path, receiver.endpoint).returncode == -signal.SIGKILL
            report = replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).run()
            assert [(each.had, each.sent) for each in report.processes] == [(10, 20)]
            found = [each.value for each in receiver.metrics() if each.name == "rl.step"]
            assert found == [10.0 * n for n in range(30)]


class TestTensorBoard:
    def test_what_was_lost_at_the_end_continues_the_run(self, tmp_path: Path) -> None:
        made = training(tmp_path)
        keep_record(tmp_path, made)
        sink = Remembered(self.live(tmp_path, made[0].identity), made[0].identity)
        for each in made[:4]:
            sink.write(each, [])
        sink.close()
        report = self.replay(tmp_path)
        assert [(each.had, each.sent) for each in report.processes] == [(4, 2)]
        assert steps(tmp_path / "tensorboard")["lr"] == [0, 10, 20, 30, 40, 50]
        assert scalars(tmp_path / "tensorboard")["lr"][5].wall_time == made[5].time_ns / 1e9

    def test_a_run_that_was_killed_is_complete_after_a_replay(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, rltel\n"
            "rltel.init({'tensorboard': {'path': '{run_dir}/tensorboard'}}, run_dir=sys.argv[1])\n"
            "for step in range(5):\n    rltel.log({'x': 1.0}, step=step)\n"
            "assert rltel.flush(60)\nrltel.log({'x': 1.0}, step=5)\nos.kill(os.getpid(), 9)\n"
        )
        assert run_python(code, tmp_path).returncode == -signal.SIGKILL
        (sent,) = self.replay(tmp_path).processes
        assert (sent.commits, sent.had + sent.sent) == (6, 6)
        assert sent.had >= 5
        assert steps(tmp_path / "tensorboard")["x"] == [0, 1, 2, 3, 4, 5]

    def test_what_was_lost_in_between_hides_nothing_that_came_after(self, tmp_path: Path) -> None:
        made = training(tmp_path)
        keep_record(tmp_path, made)
        sink = Remembered(self.live(tmp_path, made[0].identity), made[0].identity)
        for each in (*made[:2], *made[4:]):
            sink.write(each, [])
        sink.close()
        self.replay(tmp_path)
        assert steps(tmp_path / "tensorboard")["lr"] == [0, 10, 40, 50]
        assert steps(tmp_path / "tensorboard" / "out_of_order")["lr"] == [20, 30]

    def test_gets_the_writer_s_commits_only(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        other = identity(tmp_path, role="collector", is_writer=False)
        keep_record(tmp_path, training(tmp_path, role="collector"), other)
        assert [each.process for each in self.replay(tmp_path).processes] == ["learner-0.1"]

    def test_without_the_writer_s_commits_the_error_says_who_it_would_be(self, tmp_path: Path) -> None:
        other = identity(tmp_path, role="collector", is_writer=False)
        keep_record(tmp_path, training(tmp_path, role="collector"), other)
        with pytest.raises(RltelError, match=r"learner 0 committed nothing; found collector-0\.1; set run\."):
            self.replay(tmp_path)
        report = replay(tmp_path, "tensorboard", {"run": {"primary_role": "collector"}}, environ=QUIET).run()
        assert report.sent == 6

    def test_goes_where_it_is_told(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        replay(tmp_path, "tensorboard", environ=QUIET, endpoint=str(tmp_path / "there")).run()
        assert len(event_files(tmp_path / "there")) == 1

    def resumed(self, run_dir: Path) -> list[list[Commit]]:
        """One that got to 140, and one that resumed at 100; each with an evaluation that is behind."""
        made = []
        for incarnation, first in ((1, 0), (2, 100)):
            who = identity(run_dir, incarnation=incarnation)
            at = TIME_NS + 10**12 * incarnation
            commits = [
                commit({"x": float(incarnation)}, identity=who, number=n, step=first + 10 * n, time_ns=at + n)
                for n in range(15 if incarnation == 1 else 6)
            ]
            commits.append(commit({"e": 1.0}, identity=who, number=99, step=first // 2, time_ns=at + 99, axis="eval"))
            keep_record(run_dir, commits, who)
            made.append(commits)
        return made

    def keep_live(self, run_dir: Path, commits: list[Commit], without: Sequence[int] = ()) -> None:
        sink = Remembered(self.live(run_dir, commits[0].identity), commits[0].identity)
        for each in commits:
            if each.number not in without:
                sink.write(each, [])
        sink.close()

    def shown(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        return {tag: [(point.step, point.value) for point in points] for tag, points in scalars(folder).items()}

    def test_tensorboard_3732_a_run_that_was_resumed_is_as_it_was_live(self, tmp_path: Path) -> None:
        for commits in self.resumed(tmp_path):
            self.keep_live(tmp_path, commits)
        replay(tmp_path, "tensorboard", environ=QUIET, endpoint=str(tmp_path / "new")).run()
        live, replayed = self.shown(tmp_path / "tensorboard"), self.shown(tmp_path / "new")
        assert replayed == live
        assert replayed["x"] == [(n, 1.0) for n in range(0, 100, 10)] + [(n, 2.0) for n in range(100, 151, 10)]
        assert not (tmp_path / "new" / "out_of_order").exists()

    def test_tensorboard_3732_a_replay_of_it_that_is_killed_goes_on_with_its_mark(self, tmp_path: Path) -> None:
        self.resumed(tmp_path)
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom rltel.runs.replay import replay\n"
            "def progress(process, done, total):\n    if done == int(sys.argv[2]): os.kill(os.getpid(), 9)\n"
            "replay(Path(sys.argv[1]), 'tensorboard', environ={}).run(progress)\n"
        )
        for done in (5, 3, 10):  # twice inside the first process, once inside the second
            assert run_python(code, tmp_path, str(done)).returncode == -signal.SIGKILL
        self.replay(tmp_path)
        found = self.shown(tmp_path / "tensorboard")["x"]
        assert found == [(n, 1.0) for n in range(0, 100, 10)] + [(n, 2.0) for n in range(100, 151, 10)]

    def test_what_the_resumed_part_lost_at_its_end_continues_the_run(self, tmp_path: Path) -> None:
        """Also where it is before the end of what was there before: that is void."""
        first, second = self.resumed(tmp_path)
        self.keep_live(tmp_path, first)
        self.keep_live(tmp_path, second, without=(3, 4, 5))
        self.replay(tmp_path)
        found = self.shown(tmp_path / "tensorboard")["x"]
        assert found == [(n, 1.0) for n in range(0, 100, 10)] + [(n, 2.0) for n in range(100, 151, 10)]
        assert not (tmp_path / "tensorboard" / "out_of_order").exists()

    def test_a_second_process_of_the_role_voids_nothing_of_the_first(self, tmp_path: Path) -> None:
        for index in (0, 1):
            who = identity(tmp_path, index=index)
            keep_record(tmp_path, training(tmp_path, index=index), who)
        self.replay(tmp_path)
        assert steps(tmp_path / "tensorboard")["lr"] == [0, 10, 20, 30, 40, 50, 50]

    def live(self, run_dir: Path, who: Identity) -> Sink:
        return open_tensorboard(TelemetryConfig(), who, run_dir / "tensorboard")

    def replay(self, run_dir: Path) -> Report:
        return replay(run_dir, "tensorboard", environ=QUIET).run()


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """What is pushed: method, path and text."""
    taken: list[tuple[str, str, str]] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            taken.append((self.command, self.path, text))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Gateway)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()


class TestPush:
    def test_the_last_value_of_every_series_without_a_time_and_it_says_so(
        self, tmp_path: Path, gateway: tuple[str, list[tuple[str, str, str]]]
    ) -> None:
        url, taken = gateway
        keep_record(tmp_path, training(tmp_path))
        made = replay(tmp_path, "prometheus-push", environ=QUIET, endpoint=url)
        assert "takes no old times" in made.report.note
        report = made.run()
        assert (report.sent, report.error, len(taken)) == (6, None, 1)
        found = {
            sample.name: sample for family in text_string_to_metric_families(taken[0][2]) for sample in family.samples
        }
        assert found["rl_stats_episodes_total"].value == 15.0
        assert found["rl_step"].value == 50.0
        assert {sample.timestamp for sample in found.values()} == {None}
        assert replay(tmp_path, "prometheus-push", environ=QUIET, endpoint=url).run().sent == 0

    def test_ray_39212_set_and_killed_at_once_the_final_value_is_recoverable(
        self, tmp_path: Path, gateway: tuple[str, list[tuple[str, str, str]]]
    ) -> None:
        url, taken = gateway
        code = (
            "import os, sys, rltel\n"
            "rltel.init({'prometheus': {'enabled': True, 'port': 0}}, run_dir=sys.argv[1])\n"
            "rltel.log({'loss': 0.25}, step=1)\nos.kill(os.getpid(), 9)\n"
        )
        assert run_python(code, tmp_path).returncode == -signal.SIGKILL
        assert replay(tmp_path, "prometheus-push", environ=QUIET, endpoint=url).run().sent == 1
        assert 'rl_stats_loss{rl_stat="last"} 0.25' in taken[0][2]

    def test_a_gateway_that_is_not_there_is_the_reason_and_nothing_counts_as_sent(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        made = replay(tmp_path, "prometheus-push", environ=QUIET, endpoint="http://127.0.0.1:1")
        made._sleep = lambda seconds: None
        report = made.run()
        assert (report.sent, report.missing) == (0, 6)
        assert report.error is not None

    def test_needs_an_address(self, tmp_path: Path) -> None:
        keep_record(tmp_path, training(tmp_path))
        with pytest.raises(ConfigError, match=r"prometheus\.push_url: expected the address of a Pushgateway"):
            replay(tmp_path, "prometheus-push", environ=QUIET)


def test_an_unknown_destination_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f'expected one of {", ".join(NAMES)}, got "jsonl"'):
        replay(tmp_path, "jsonl", environ=QUIET)


def test_a_destination_without_an_endpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--endpoint: swanlab has none"):
        replay(tmp_path, "swanlab", environ=QUIET, endpoint="x")
