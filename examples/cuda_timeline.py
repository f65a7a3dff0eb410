"""Shows on a CUDA device that the timeline draws device work where the device ran it. Under a minute.

    python examples/cuda_timeline.py [FOLDER]

Two matrix products on one stream must come out back to back, though both are submitted at once; a copy to the device on
a side stream must overlap a product; an end that the host watched must lie where the host saw it; and the lengths must
be those that events of the script's own measured. The trace is read back, figures are printed, and the exit status is 1
if one is wrong. On a machine without CUDA it says so, and exits with 0.
"""

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rltel
from rltel.record.device.device_timeline import device_timeline
from rltel.traces.events import BEGIN, END, EventReader

ROUNDS = 12
PAUSE_S = 0.5  # so that several anchors come and go
CLOSE_US = 50.0  # back to back: the gap between two kernels, and what float32 leaves of it
SEEN_US = 100.0
LENGTH_SHARE = 0.02
LENGTH_US = 20.0  # the script's events lie around the timeline's


class Drawn(NamedTuple):
    """One device slice of the trace, in ns on the host's monotonic clock."""

    name: str
    track: str
    begin: int
    end: int

    @property
    def ms(self) -> float:
        """How long it is."""
        return (self.end - self.begin) / 1e6


class Truth(NamedTuple):
    """What the script knows of a round: lengths by its own events, and when the host saw ``watched`` end."""

    first_ms: float
    second_ms: float
    copy_ms: float
    seen_ns: int


def read_device_slices(path: Path) -> dict[str, list[Drawn]]:
    """The slices of category ``device`` by name, in the order of time."""
    reader = EventReader(path)
    opened: dict[int, list[tuple[int, str, str]]] = {}
    found: dict[str, list[Drawn]] = {}
    for at, event in reader.events():
        if event.kind == BEGIN:
            opened.setdefault(event.track, []).append((at, event.name, event.category))
        elif event.kind == END and opened.get(event.track):
            begin, name, category = opened[event.track].pop()
            if category == "device":
                found.setdefault(name, []).append(Drawn(name, reader.tracks[event.track].name, begin, at))
    return {name: sorted(drawn, key=lambda each: each.begin) for name, drawn in found.items()}


def faults(drawn: dict[str, list[Drawn]], truths: list[Truth]) -> list[str]:
    """What is wrong with what was drawn; prints what it looks at."""
    names = ("first", "second", "product", "copy", "watched")
    wrong = [f"{name}: {len(drawn.get(name, []))} drawn, {len(truths)} ran" for name in names]
    wrong = [text for name, text in zip(names, wrong, strict=True) if len(drawn.get(name, [])) != len(truths)]
    if set(drawn) - set(names):
        wrong.append(f"drawn, and not to be: {sorted(set(drawn) - set(names))}")
    for number, (truth, *each) in enumerate(zip(truths, *(drawn.get(name, []) for name in names), strict=False)):
        wrong += (f"round {number}: {text}" for text in _faults_of_round(truth, *each))
    return wrong


def _faults_of_round(
    truth: Truth, first: Drawn, second: Drawn, product: Drawn, copy: Drawn, watched: Drawn
) -> Iterable[str]:
    gap_us = (second.begin - first.end) / 1e3
    overlap = (min(copy.end, product.end) - max(copy.begin, product.begin)) / max(copy.end - copy.begin, 1)
    late_us = (truth.seen_ns - watched.end) / 1e3
    print(
        f"first {first.ms:8.3f} ms ({truth.first_ms:8.3f})  second {second.ms:8.3f} ms ({truth.second_ms:8.3f})  "
        f"gap {gap_us:6.2f} us  copy {copy.ms:8.3f} ms ({truth.copy_ms:8.3f}), {overlap:4.0%} under the product  "
        f"watched end {late_us:6.2f} us before it was seen"
    )
    if not 0 <= gap_us <= CLOSE_US:
        yield f"the products are {gap_us:.2f} us apart, not back to back"
    if overlap < 0.5:
        yield f"only {overlap:.0%} of the copy overlaps the product"
    if not 0 <= late_us <= SEEN_US:
        yield f"the host saw the end {late_us:.2f} us after it was drawn"
    for slice, ms in ((first, truth.first_ms), (second, truth.second_ms), (copy, truth.copy_ms)):
        if abs(slice.ms - ms) > LENGTH_US / 1e3 + LENGTH_SHARE * ms:
            yield f"{slice.name} is drawn {slice.ms:.3f} ms long, and took {ms:.3f} ms"


class Workload:
    """What the device is given."""

    def __init__(self) -> None:
        self.a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.small = self.a[:1024, :1024].contiguous()
        self.host = torch.zeros(128 << 20, dtype=torch.uint8).pin_memory()
        self.target = torch.empty_like(self.host, device="cuda")
        self.side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types for it
        self.product(1)
        self.copy()
        torch.cuda.synchronize()
        self.products = self._products_as_long_as_the_copy()

    def product(self, times: int) -> None:
        """Some milliseconds each, at most."""
        for _ in range(times):
            torch.mm(self.a, self.a)

    def copy(self) -> None:
        """To the device, on the side stream."""
        with torch.cuda.stream(self.side):
            self.target.copy_(self.host, non_blocking=True)

    def _products_as_long_as_the_copy(self) -> int:
        one, copy = _events(2), _events(2)
        one[0].record()
        self.product(1)
        one[1].record()
        copy[0].record(self.side)
        self.copy()
        copy[1].record(self.side)
        torch.cuda.synchronize()
        return 2 + int(copy[0].elapsed_time(copy[1]) / one[0].elapsed_time(one[1]))

    def round(self) -> Truth:
        """One round. Waits for the device only where it says so."""
        main = _events(3)
        with device_timeline.slice("first"):
            main[0].record()
            self.product(4)
            main[1].record()
        with device_timeline.slice("second"):
            self.product(2)
            main[2].record()
        torch.cuda.synchronize()
        copied = _events(2)
        with device_timeline.slice("product"):
            self.product(self.products)
        with device_timeline.slice("copy", self.side, attributes={"bytes": self.host.numel()}):
            copied[0].record(self.side)
            self.copy()
            copied[1].record(self.side)
        torch.cuda.synchronize()
        lengths = main[0].elapsed_time(main[1]), main[1].elapsed_time(main[2]), copied[0].elapsed_time(copied[1])
        return Truth(*lengths, self.watched())

    def watched(self) -> int:
        """A short product whose end the host watches; when it saw it."""
        (end,) = _events(1)
        with device_timeline.slice("watched"):
            torch.mm(self.small, self.small)
        end.record()
        while not end.query():
            pass
        return time.perf_counter_ns()

    def captured(self) -> None:
        """Of this, nothing is to be drawn."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), device_timeline.slice("captured"):
            torch.mm(self.small, self.small)
            device_timeline.poll()
        graph.replay()


def _events(count: int) -> list[Any]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]  # see above


def main(folder: Path) -> int:
    """Run it; the exit status."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was shown, and nothing is wrong")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    rltel.init({"run": {"dir": str(folder)}, "trace": {"enabled": True, "output_dir": str(folder)}})
    workload = Workload()
    learner = rltel.learner(phases=["work"])
    truths = []
    for step in range(ROUNDS):
        with learner.iteration(step=step), learner.phase("work"):
            truths.append(workload.round())
        time.sleep(PAUSE_S)
    workload.captured()
    torch.cuda.synchronize()
    print(f"elapsed_time backwards: {_backwards():.4f} ms (must be negative)")
    rltel.shutdown(linger=False)
    (path,) = folder.glob("*.pftrace")
    wrong = faults(read_device_slices(path), truths)
    if device_timeline.dropped:
        wrong.append(f"not drawn: {dict(device_timeline.drops)}")
    print("\n".join(f"WRONG: {text}" for text in wrong) or f"all as it ran, in {path}")
    return int(bool(wrong))


def _backwards() -> float:
    one, other = _events(2)
    one.record()
    other.record()
    torch.cuda.synchronize()
    return float(other.elapsed_time(one))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
