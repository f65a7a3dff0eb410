"""Throughput: tokens and FLOPs of all ranks over the time of the slowest."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import rltel
from export.making import Points, commit
from realparts.measures import cpu_as_device
from realparts.ranks import Ranks, ranks
from realparts.simulated_device import SimulatedDevice
from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender
from rltel.rl import throughput
from rltel.rl.throughput import Throughput

VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "areal_throughput_vectors.json").read_text())[
        "vectors"
    ]
}
AREALS = set(VECTORS["train_perf_two_ranks"]["output"])
OURS = {"train_perf/total_estimated_flops"}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
}


def square(length: int) -> float:
    """An estimator that is easy to add up."""
    return float(length * length)


class Host:
    """A host's clock that only moves when told to."""

    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


@pytest.fixture
def trackers() -> Trackers:
    return Trackers(Recorder())


@pytest.fixture
def host() -> Host:
    return Host()


def measuring(trackers: Trackers, host: Host, model: Any = square, **options: Any) -> Throughput:
    """On the host's clock, as no device is in use."""
    source = SimulatedDevice(in_use=False)
    return Throughput(model, trackers=trackers, source=source, now=host.now, sleep=host.sleep, **options)


def train(perf: Throughput, host: Host, lengths: Sequence[int], seconds: float) -> None:
    with perf.batch(lengths=lengths):
        host.sleep(seconds)


def train_and_fail(perf: Throughput, work: Callable[[], object]) -> None:
    with perf.batch(lengths=[1000]):
        work()
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(2, tmp_path_factory.mktemp("two")) as group:
        yield group


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, tmp_path_factory.mktemp("four")) as group:
        yield group


on_two = pytest.mark.xdist_group("two ranks")
on_four = pytest.mark.xdist_group("four ranks")


# --- AReaL's numbers --------------------------------------------------------------------------------------------------


def test_vector_cumulative(trackers: Trackers, host: Host) -> None:
    vector = VECTORS["train_perf_cumulative"]
    perf = measuring(trackers, host)
    for name, expected in zip(("interval1", "interval2", "interval3"), vector["output"], strict=True):
        for batch in vector["input"][name]:
            train(perf, host, batch["lengths"], batch["seconds"])
        exported = trackers.export_all()
        assert {key: exported[key] for key in expected} == pytest.approx(expected)
        assert exported.keys() - expected.keys() <= (OURS if expected else set())


@on_two
def test_vector_two_ranks(two: Ranks) -> None:
    vector = VECTORS["train_perf_two_ranks"]
    each = [vector["input"]["rank0"], vector["input"]["rank1"]]

    def on_rank(rank: int) -> dict[str, float]:
        trackers, host = Trackers(Recorder()), Host()
        train(measuring(trackers, host), host, each[rank]["lengths"], each[rank]["seconds"])
        return dict(trackers.export_all(dist.group.WORLD))

    for exported in two.run(on_rank):
        assert exported.keys() == AREALS | OURS
        assert {key: exported[key] for key in AREALS} == pytest.approx(vector["output"])


# --- any split is the same --------------------------------------------------------------------------------------------

BATCHES = st.lists(
    st.tuples(st.lists(st.integers(0, 500), max_size=4), st.integers(1, 1000), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)
"""Lengths, milliseconds, and on which worker or rank."""


def expected_of(batches: Sequence[tuple[Sequence[int], int, int]]) -> dict[str, float]:
    spent = [sum(ms for _, ms, where in batches if where == rank) for rank in range(4)]
    lengths = [length for each, *_ in batches for length in each]
    seconds = max(spent) / 1e3
    return {
        "train_perf/tokens": float(sum(lengths)),
        "train_perf/seconds": seconds,
        "train_perf/estimated_flops": math.fsum(map(square, lengths)),
        "train_perf/tokens_per_second": sum(lengths) / seconds,
        "train_perf/estimated_flops_per_second": math.fsum(map(square, lengths)) / seconds,
    }


def assert_holds(exported: dict[str, float], expected: dict[str, float]) -> None:
    assert {key: exported[key] for key in expected} == pytest.approx(expected)
    for name in ("tokens", "seconds", "estimated_flops"):  # one interval: totals are the same
        assert exported[f"train_perf/total_{name}"] == pytest.approx(expected[f"train_perf/{name}"])


@given(batches=BATCHES)
def test_workers_payloads_merge_to_the_same(batches: list[tuple[list[int], int, int]]) -> None:
    learner = Trackers(Recorder())
    throughput.derive(trackers=learner)
    receiver = Receiver(learner)
    for worker in range(4):
        trackers, host = Trackers(Recorder()), Host()
        perf = measuring(trackers, host)
        for lengths, ms, where in batches:
            if where == worker:
                train(perf, host, lengths, ms / 1e3)
        with trackers.taken() as snapshot:
            receiver.absorb(Sender().payload(snapshot))
    assert_holds(learner.export_all(), expected_of(batches))


@on_four
@settings(max_examples=25)
@given(batches=BATCHES)
def test_ranks_reduce_to_the_same(four: Ranks, batches: list[tuple[list[int], int, int]]) -> None:
    def on_rank(rank: int) -> dict[str, float]:
        trackers, host = Trackers(Recorder()), Host()
        perf = measuring(trackers, host)
        for lengths, ms, where in batches:
            if where == rank:
                train(perf, host, lengths, ms / 1e3)
        return dict(trackers.export_all(dist.group.WORLD))

    everybody = four.run(on_rank)
    assert all(exported == everybody[0] for exported in everybody)
    assert_holds(everybody[0], expected_of(batches))


@given(lengths=st.lists(st.integers(0, 500), min_size=1, max_size=20), parts=st.integers(1, 5))
def test_more_batches_of_the_same_sequences_are_the_same(lengths: list[int], parts: int) -> None:
    exported = []
    for count in (1, parts):
        trackers, host = Trackers(Recorder()), Host()
        perf = measuring(trackers, host)
        for part in range(count):
            train(perf, host, lengths[part::count], 6.0 / count)
        exported.append(trackers.export_all())
    assert exported[0] == pytest.approx(exported[1])


# --- what counts ------------------------------------------------------------------------------------------------------


def test_what_is_outside_of_batches_does_not_count(trackers: Trackers, host: Host) -> None:
    """Rollouts, evaluation, loading, checkpoints and the export itself."""
    perf = measuring(trackers, host)
    host.sleep(100.0)
    train(perf, host, [4], 2.0)
    host.sleep(100.0)
    train(perf, host, [4], 2.0)
    host.sleep(100.0)
    assert trackers.export_all()["train_perf/seconds"] == pytest.approx(4.0)


def test_an_interval_without_batches_yields_nothing(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    assert trackers.export_all() == {}
    train(perf, host, [4], 2.0)
    trackers.export_all()
    perf.settle()
    assert trackers.export_all() == {}


def test_a_batch_that_took_no_time_yields_nothing_and_counts_with_the_next(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    train(perf, host, [4], 0.0)
    assert trackers.export_all() == {}
    train(perf, host, [6], 2.0)
    exported = trackers.export_all()
    assert exported["train_perf/tokens"] == 10.0
    assert exported["train_perf/tokens_per_second"] == pytest.approx(5.0)


def test_a_batch_that_raises_leaves_the_interval_as_it_was(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    train(perf, host, [4], 2.0)
    with pytest.raises(ZeroDivisionError):
        train_and_fail(perf, lambda: host.sleep(50.0))
    train(perf, host, [6], 2.0)
    exported = trackers.export_all()
    assert (exported["train_perf/tokens"], exported["train_perf/seconds"]) == (10.0, pytest.approx(4.0))


def test_keys_do_not_depend_on_the_caller_s_scope(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    with trackers.default.scope("ppo_actor"), trackers.default.scope("update"):
        train(perf, host, [4], 2.0)
        trackers.default.scalar(loss=1.0)
    exported = trackers.export_all()
    assert exported["train_perf/tokens"] == 4.0
    assert exported["ppo_actor/update/loss"] == 1.0


def test_two_engines_of_a_process_have_keys_of_their_own(trackers: Trackers, host: Host) -> None:
    actor, critic = measuring(trackers, host), measuring(trackers, host, prefix="critic/train_perf")
    train(actor, host, [4], 2.0)
    train(critic, host, [6], 1.0)
    exported = trackers.export_all()
    assert exported["train_perf/tokens_per_second"] == pytest.approx(2.0)
    assert exported["critic/train_perf/tokens_per_second"] == pytest.approx(6.0)


def test_totals_begin_anew_with_the_engine(trackers: Trackers, host: Host) -> None:
    train(measuring(trackers, host), host, [4], 2.0)
    trackers.export_all()
    train(measuring(trackers, host), host, [6], 2.0)
    exported = trackers.export_all()
    assert (exported["train_perf/total_tokens"], exported["train_perf/total_seconds"]) == (6.0, pytest.approx(2.0))


def test_an_export_that_fails_or_only_looks_loses_no_time(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    train(perf, host, [4], 2.0)
    trackers.export_all(reset=False)
    with pytest.raises(rltel.RltelError):
        trackers.export_all(object())
    train(perf, host, [6], 3.0)
    exported = trackers.export_all()
    assert (exported["train_perf/tokens"], exported["train_perf/seconds"]) == (10.0, pytest.approx(5.0))


def test_a_second_consumer_has_the_time_of_its_own_interval(trackers: Trackers, host: Host) -> None:
    trackers.add_reader("panel")
    perf = measuring(trackers, host)
    for seconds in (2.0, 3.0):
        train(perf, host, [5], seconds)
        assert trackers.export_all()["train_perf/seconds"] == pytest.approx(seconds)
    assert trackers.export_all(reader="panel")["train_perf/tokens_per_second"] == pytest.approx(2.0)


def test_several_payloads_of_a_worker_in_one_interval_add_up(trackers: Trackers, host: Host) -> None:
    learner, sender = Trackers(Recorder()), Sender()
    throughput.derive(trackers=learner)
    receiver, perf = Receiver(learner), measuring(trackers, host)
    for seconds in (2.0, 3.0):
        train(perf, host, [5], seconds)
        with trackers.taken() as snapshot:
            receiver.absorb(sender.payload(snapshot))
    assert learner.export_all()["train_perf/tokens_per_second"] == pytest.approx(2.0)


def test_totals_are_of_the_slowest_rank_however_often_one_exports() -> None:
    """Each of two workers is the slower one once: adding up the slower of each interval would give 6 seconds."""
    learner = Trackers(Recorder())
    throughput.derive(trackers=learner)
    receiver = Receiver(learner)
    workers = []
    for _ in range(2):
        trackers, host = Trackers(Recorder()), Host()
        workers.append((trackers, host, measuring(trackers, host), Sender()))
    for times in ((3.0, 1.0), (1.0, 3.0)):
        for (trackers, host, perf, sender), seconds in zip(workers, times, strict=True):
            train(perf, host, [8], seconds)
            with trackers.taken() as snapshot:
                receiver.absorb(sender.payload(snapshot))
        exported = learner.export_all()
        assert exported["train_perf/seconds"] == pytest.approx(3.0)
    assert exported["train_perf/total_seconds"] == pytest.approx(4.0)
    assert exported["train_perf/cumulative_tokens_per_second"] == pytest.approx(8.0)


def test_one_batch_at_a_time(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    with perf.batch(lengths=[4]):
        host.sleep(2.0)
        with pytest.raises(RecordError, match="one at a time"):
            perf.batch(lengths=[4]).__enter__()
    assert trackers.export_all()["train_perf/tokens"] == 4.0


def test_a_mask_that_does_not_fit_opens_nothing(trackers: Trackers, host: Host) -> None:
    perf = measuring(trackers, host)
    with pytest.raises(RecordError, match="attention_mask"), perf.batch(np.ones(4)):
        pass
    train(perf, host, [4], 2.0)
    assert trackers.export_all()["train_perf/tokens"] == 4.0


def test_a_process_measures_into_its_own_trackers() -> None:
    rltel.export_all()  # what other tests left
    perf = Throughput(square)
    with perf.batch([[1, 1, 0], [1, 1, 1]]):
        pass
    exported = rltel.export_all()
    assert exported["train_perf/tokens"] == 5.0
    assert exported["train_perf/tokens_per_second"] == 5.0 / exported["train_perf/seconds"]


# --- FLOPs ------------------------------------------------------------------------------------------------------------


def test_flops_are_summed_over_sequences(trackers: Trackers, host: Host) -> None:
    train(measuring(trackers, host, model=square), host, [3, 4], 1.0)
    assert trackers.export_all()["train_perf/estimated_flops"] == 25.0


def test_a_model_s_config_is_enough(trackers: Trackers, host: Host) -> None:
    train(measuring(trackers, host, model=LLAMA), host, [5], 1.0)
    assert trackers.export_all()["train_perf/estimated_flops"] > 0


@pytest.mark.parametrize("model", [None, {"model_type": "of a new kind"}])
def test_an_architecture_without_an_estimator_keeps_tokens_and_time(trackers: Trackers, host: Host, model: Any) -> None:
    train(measuring(trackers, host, model=model, peak_flops=1e12), host, [4], 2.0)
    assert trackers.export_all() == pytest.approx(
        {
            "train_perf/tokens": 4.0,
            "train_perf/seconds": 2.0,
            "train_perf/tokens_per_second": 2.0,
            "train_perf/total_tokens": 4.0,
            "train_perf/total_seconds": 2.0,
            "train_perf/cumulative_tokens_per_second": 2.0,
        }
    )


@pytest.mark.parametrize("answer", [-1.0, math.nan, math.inf, "3"])
def test_an_estimator_that_cannot_be_right_is_refused_at_once(trackers: Trackers, host: Host, answer: Any) -> None:
    with pytest.raises(RecordError, match="expected a finite number >= 0"):
        measuring(trackers, host, model=lambda length: answer)


def test_a_model_itself_says_its_config_and_is_not_called() -> None:
    """Modules can be called, and so can estimators."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32, "head_dim": 8}
    config = Qwen3Config(**sizes, num_attention_heads=2, num_key_value_heads=1)
    found = []
    for model in (config, Qwen3ForCausalLM(config)):
        trackers, host = Trackers(Recorder()), Host()
        train(measuring(trackers, host, model=model), host, [5], 1.0)
        found.append(trackers.export_all()["train_perf/estimated_flops"])
    assert found[0] == found[1] > 0


def test_a_critic_s_head_is_said_or_seen() -> None:
    from transformers import Qwen3Config, Qwen3ForTokenClassification

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32, "head_dim": 8}
    config = Qwen3Config(**sizes, num_attention_heads=2, num_key_value_heads=1, num_labels=1)
    found = []
    for model, said in (config, {}), (config, {"head": 1}), (Qwen3ForTokenClassification(config), {}):
        trackers, host = Trackers(Recorder()), Host()
        train(measuring(trackers, host, model=model, **said), host, [5], 1.0)
        found.append(trackers.export_all()["train_perf/estimated_flops"])
    assert found[0] - found[1] == 3 * 2 * 16 * (32 - 1) * 5
    assert found[1] == found[2]


def test_an_estimator_is_not_told_of_a_head(trackers: Trackers, host: Host) -> None:
    with pytest.raises(RecordError, match="throughput: head: expected none, as an estimator says what it counts"):
        measuring(trackers, host, model=square, head=1)


def test_a_module_without_a_config_is_refused_and_not_called(trackers: Trackers, host: Host) -> None:
    with pytest.raises(RecordError, match=r"expected a model's config .* got Linear"):
        measuring(trackers, host, model=torch.nn.Linear(1, 1))


@pytest.mark.parametrize("kind", [int, float, np.float32, np.float64, np.int64])
def test_an_estimator_may_answer_with_any_real_number(trackers: Trackers, host: Host, kind: Any) -> None:
    train(measuring(trackers, host, model=kind), host, [3, 4], 1.0)
    assert trackers.export_all()["train_perf/estimated_flops"] == 7.0


def test_an_estimator_that_fails_later_stops_no_training(
    trackers: Trackers, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_at_nine(length: int) -> float:
        return 1.0 if length < 9 else 1 / 0

    perf = measuring(trackers, host, model=fails_at_nine)
    with caplog.at_level(logging.WARNING, logger="rltel"):
        train(perf, host, [9], 2.0)
        train(perf, host, [9], 2.0)
    assert trackers.export_all()["train_perf/tokens"] == 18.0
    assert len(caplog.records) == 1
    assert "FLOPs are left out from now on: ZeroDivisionError" in caplog.text
    train(perf, host, [1], 2.0)
    assert "train_perf/estimated_flops" not in trackers.export_all()


# --- MFU --------------------------------------------------------------------------------------------------------------


def test_mfu_is_the_share_of_all_devices_peak() -> None:
    """Two workers, one of which has twice the device's peak of the other: 100 FLOPs in 2 s of 60 FLOPs/s."""
    learner = Trackers(Recorder())
    throughput.derive(trackers=learner)
    receiver = Receiver(learner)
    for peak in (20.0, 40.0):
        trackers, host = Trackers(Recorder()), Host()
        perf = measuring(trackers, host, model=lambda length: 50.0, peak_flops=peak)
        train(perf, host, [7], 2.0)
        with trackers.taken() as snapshot:
            receiver.absorb(Sender().payload(snapshot))
    exported = learner.export_all()
    assert exported["train_perf/devices"] == 2.0
    assert exported["train_perf/mfu"] == pytest.approx(100.0 / 2.0 / 60.0)


def test_a_device_that_is_not_known_has_no_mfu(trackers: Trackers, host: Host) -> None:
    train(measuring(trackers, host), host, [4], 2.0)
    assert not {"train_perf/mfu", "train_perf/devices"} & trackers.export_all().keys()


def test_a_known_device_has_one(trackers: Trackers, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "device_peak_flops", lambda: 16.0)
    train(measuring(trackers, host), host, [4], 2.0)
    assert trackers.export_all()["train_perf/mfu"] == pytest.approx(0.5)


@pytest.mark.parametrize("peak", [0, -1.0, math.nan, math.inf, "989e12"])
def test_a_peak_is_a_number_of_flops_a_second(trackers: Trackers, host: Host, peak: Any) -> None:
    with pytest.raises(RecordError, match="peak_flops: expected a finite number > 0"):
        measuring(trackers, host, peak_flops=peak)


@pytest.mark.parametrize("peak", [1, 1.0, np.float32(1.0), np.int64(1)])
def test_a_peak_may_be_any_real_number(trackers: Trackers, host: Host, peak: Any) -> None:
    train(measuring(trackers, host, peak_flops=peak), host, [4], 2.0)
    assert trackers.export_all()["train_perf/mfu"] == 8.0


# --- on a device ------------------------------------------------------------------------------------------------------


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


def on_device(trackers: Trackers, device: SimulatedDevice) -> Throughput:
    return Throughput(square, trackers=trackers, source=device, now=device.now, sleep=device.sleep)


def submit(perf: Throughput, device: SimulatedDevice, lengths: Sequence[int], ms: float) -> None:
    with perf.batch(lengths=lengths):
        device.run(ms)


def test_no_batch_waits_for_the_device(trackers: Trackers, device: SimulatedDevice) -> None:
    perf = on_device(trackers, device)
    begin_ns = device.host_ns
    for _ in range(10):
        submit(perf, device, [4], 1000.0)
    assert device.host_ns - begin_ns < 1e6


def test_the_device_s_time_counts_not_the_host_s(trackers: Trackers, device: SimulatedDevice) -> None:
    perf = on_device(trackers, device)
    for _ in range(10):
        submit(perf, device, [4], 1000.0)
    assert perf.settle()
    exported = trackers.export_all()
    assert exported["train_perf/tokens"] == 40.0
    assert exported["train_perf/seconds"] == pytest.approx(10.0, rel=1e-4)


def test_what_the_device_has_not_done_counts_when_it_has_tokens_and_time_together(
    trackers: Trackers, device: SimulatedDevice
) -> None:
    perf = on_device(trackers, device)
    submit(perf, device, [4], 1000.0)
    submit(perf, device, [6], 1000.0)
    device.advance(1500.0)
    assert not perf.poll()
    exported = trackers.export_all()
    assert (exported["train_perf/tokens"], exported["train_perf/seconds"]) == (4.0, pytest.approx(1.0, rel=1e-4))
    device.advance(1000.0)
    assert perf.poll()
    exported = trackers.export_all()
    assert (exported["train_perf/tokens"], exported["train_perf/seconds"]) == (6.0, pytest.approx(1.0, rel=1e-4))


def test_settling_ends_after_its_time(trackers: Trackers, device: SimulatedDevice) -> None:
    perf = on_device(trackers, device)
    submit(perf, device, [4], 60_000.0)
    begin_ns = device.host_ns
    assert not perf.settle(timeout_s=1.0)
    assert 1e9 <= device.host_ns - begin_ns < 1.1e9
    assert trackers.export_all() == {}


def test_what_a_graph_captures_is_not_counted_and_the_device_not_asked(
    trackers: Trackers, device: SimulatedDevice
) -> None:
    perf = on_device(trackers, device)
    device.capturing = True
    submit(perf, device, [1000], 1.0)
    device.capturing = False
    submit(perf, device, [4], 1000.0)
    perf.settle()
    assert trackers.export_all()["train_perf/tokens"] == 4.0


@pytest.mark.parametrize("when", ["begin", "end", "after"])
def test_a_device_that_fails_stops_no_training_and_is_counted(
    trackers: Trackers, device: SimulatedDevice, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    perf = on_device(trackers, device)
    fail = RuntimeError(f"the device fell off the bus at the {when}")
    device.broken = fail if when == "begin" else None
    with caplog.at_level(logging.WARNING, logger="rltel"), perf.batch(lengths=[1000]):
        device.run(10.0)
        device.broken = fail if when == "end" else None
    device.broken = fail if when == "after" else None
    perf.poll()
    device.broken = None
    submit(perf, device, [4], 1000.0)
    assert perf.settle()
    assert perf.lost == 1
    assert "fell off the bus" in caplog.text
    assert trackers.export_all()["train_perf/tokens"] == 4.0


def test_lengths_that_a_device_turns_out_to_have_wrong_stop_no_training(
    trackers: Trackers, device: SimulatedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    perf = on_device(trackers, device)
    with cpu_as_device(), caplog.at_level(logging.WARNING, logger="rltel"):
        with perf.batch(lengths=torch.tensor([4, -1])):
            device.run(10.0)
        with perf.batch(lengths=torch.tensor([4, 2])):
            device.run(10.0)
        assert perf.settle()
    assert perf.lost == 1
    assert "lengths: expected whole numbers >= 0, got -1" in caplog.text
    assert trackers.export_all()["train_perf/tokens"] == 6.0


def test_a_device_s_batch_that_raises_is_not_counted(trackers: Trackers, device: SimulatedDevice) -> None:
    perf = on_device(trackers, device)
    with pytest.raises(ZeroDivisionError):
        train_and_fail(perf, lambda: device.run(500.0))
    submit(perf, device, [4], 1000.0)
    perf.settle()
    exported = trackers.export_all()
    assert (exported["train_perf/tokens"], exported["train_perf/seconds"]) == (4.0, pytest.approx(1.0, rel=1e-4))


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_key_has_its_name(trackers: Trackers, host: Host) -> None:
    train(measuring(trackers, host, peak_flops=16.0), host, [4], 2.0)
    with trackers.taken(derive=True) as snapshot:
        points = {(point.kind, point.name, point.unit) for point in Points().of(commit(snapshot))}
    assert {
        ("counter", "rl.train.tokens", "{token}"),
        ("counter", "rl.train.estimated_flops", "{flop}"),
        ("gauge", "rl.tokens.rate", "{token}/s"),
        ("gauge", "rl.train.mfu", ""),
    } <= points
    assert not [name for _, name, _ in points if name.startswith("rl.stats.train_perf")]
