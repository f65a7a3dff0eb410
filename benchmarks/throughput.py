"""What measuring a training batch costs, beside what any such measure needs at least.

    python benchmarks/throughput.py

The least is what AReaL's measure does in a batch: lengths from the mask, and the clock twice; it adds up at export what
we add up in the batch. Each figure is the median over rounds in which both take turns.
"""

import statistics
import time
from collections.abc import Callable

import torch

from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.rl.flops import flops_estimator
from rltel.rl.throughput import Throughput

ROUNDS = 15
NUMBER = 50
SHAPE = (64, 4096)
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
}


def timed(call: Callable[[], object]) -> float:
    """Seconds a call."""
    begin = time.perf_counter()
    for _ in range(NUMBER):
        call()
    return (time.perf_counter() - begin) / NUMBER


def paired(what: str, ours: Callable[[], object], least: Callable[[], object]) -> None:
    """Both in turns: what ours costs more."""
    pairs = [(timed(ours), timed(least)) for _ in range(ROUNDS)]
    mine, other = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"{what:44} {mine * 1e6:9.1f} us   least {other * 1e6:9.1f} us   more {(mine - other) * 1e6:9.1f} us")


def batch_of(model: object, **given: object) -> Callable[[], None]:
    perf = Throughput(model, trackers=Trackers(Recorder()))

    def run() -> None:
        with perf.batch(**given):
            pass

    return run


def least_of(mask: torch.Tensor) -> Callable[[], None]:
    kept: dict[str, object] = {}  # the last one alone: thousands of small tensors slow the allocator down

    def run() -> None:
        lengths = mask.bool().sum(dim=-1)
        begin = time.perf_counter()
        kept["batch"] = lengths, time.perf_counter() - begin

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = torch.randint(1, SHAPE[1], (SHAPE[0],))
    mask = torch.arange(SHAPE[1]) < lengths[:, None]
    paired("batch, mask [64, 4096], tokens and time", batch_of(None, attention_mask=mask), least_of(mask))
    paired("batch, mask [64, 4096], and FLOPs", batch_of(QWEN3_30B, attention_mask=mask), least_of(mask))
    paired("batch, 64 lengths given", batch_of(None, lengths=lengths.tolist()), lambda: None)
    estimate = flops_estimator(QWEN3_30B)
    assert estimate is not None
    paired("FLOPs of one sequence", lambda: estimate(4096), lambda: None)
    trackers = Trackers(Recorder())
    perf = Throughput(QWEN3_30B, trackers=trackers, peak_flops=1e15)

    def export() -> None:
        with perf.batch(lengths=[4096]):
            pass
        trackers.export_all()

    paired("batch and local export, all keys", export, lambda: None)


if __name__ == "__main__":
    main()
