from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.buckets import count_buckets
from rltel.record.fold import DeviceMoments
from rltel.record.kinds import EMPTY, Moments
from rltel.record.tracker import Tracker

NAN, INF = math.nan, math.inf
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool]
DTYPES = [*FLOATS, *INTEGERS]

VALUES = [0.0, 1.0, 3.0, 0.0, 2.0, 1.0]  # every dtype but bool holds these

tensors_of_anything = st.lists(st.floats(width=32), max_size=70)


def device_moments(values: torch.Tensor, mask: torch.Tensor | None = None, *, bucketed: bool = False) -> fold.Folded:
    """What the route for devices makes of a tensor on the CPU."""
    moments = DeviceMoments()
    moments.fold(values, mask, bucketed=bucketed)
    rows = moments.packed()
    return fold.unpacked(fold.copy_to_host(rows)[0]) if rows else fold.Folded(EMPTY, {} if bucketed else None)


def host_moments(values: torch.Tensor, mask: torch.Tensor | None = None) -> Moments:
    return fold.folded(fold.as_array(values), None if mask is None else mask.numpy())


def check_same(found: Moments, expected: Moments) -> None:
    assert found[1:] == expected[1:]  # counts and extremes: exact
    assert found.total == pytest.approx(expected.total, rel=1e-12, abs=1e-12)


def exact(values: list[float]) -> Moments:
    finite = [value for value in values if math.isfinite(value)]
    return Moments(
        math.fsum(finite),
        len(finite),
        min(finite, default=INF),
        max(finite, default=-INF),
        sum(math.isnan(value) for value in values),
        values.count(INF),
        values.count(-INF),
    )


class TestNumbers:
    @pytest.mark.parametrize(
        "value",
        [3, 3.0, True, "3.5", np.float32(1.5), np.int8(3), np.array(2.5), torch.tensor(2.5), torch.tensor([2.5]),
         torch.tensor(2.5, requires_grad=True), torch.tensor(2.5, dtype=torch.bfloat16), torch.tensor(True)],
        ids=repr,
    )  # fmt: skip
    def test_is_whatever_is_one_number(self, value: object) -> None:
        for read in (fold.number, fold.one):
            assert type(read(value)) is float
            assert read(value) == (float(value.item()) if isinstance(value, torch.Tensor) else float(value))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "value", [None, "x", [1.0], np.ones(2), torch.ones(2), torch.empty(0), 1j, torch.tensor(1j), 10**400], ids=repr
    )
    def test_is_nothing_else(self, value: object) -> None:
        for read in (fold.number, fold.one):
            with pytest.raises((TypeError, ValueError, RuntimeError, OverflowError)):
                read(value)

    @pytest.mark.filterwarnings("error")
    def test_reading_a_parameter_does_not_warn(self) -> None:
        assert fold.number(torch.nn.Parameter(torch.tensor(1.5))) == 1.5


class TestHostValues:
    @given(tensors_of_anything)
    @example([1.0] * 64)
    @example([1.0] * 65)
    @example([NAN] * 65)
    @example([3e38, 3e38])
    def test_moments_are_those_of_the_elements(self, values: list[float]) -> None:
        check_same(fold.moments_of_array(np.array(values)), exact(values))
        check_same(fold.moments_of_numbers(values) if values else EMPTY, exact(values))

    def test_few_and_many_numbers_go_the_same_way(self) -> None:
        values = [float(number) for number in range(-32, 32)]
        assert len(values) == fold._FEW
        many = fold.moments_of_array(np.array([*values, 0.0]))
        assert fold.moments_of_array(np.array(values)) == many._replace(n=64.0)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_dtype(self, dtype: torch.dtype) -> None:
        values = [1.0, 0.0, 1.0] if dtype is torch.bool else VALUES
        check_same(host_moments(torch.tensor(values).to(dtype)), exact(values))

    @pytest.mark.parametrize("dtype", FLOATS[:4], ids=str)
    def test_nan_and_infinity_of_every_float(self, dtype: torch.dtype) -> None:
        values = [1.0, NAN, INF, -INF, 2.0]
        assert host_moments(torch.tensor(values, dtype=dtype)) == exact(values)

    def test_sums_are_in_float64(self) -> None:
        """AReaL adds in float32: 16777217 comes out as 16777216."""
        ones = torch.ones(2**24 + 1, dtype=torch.uint8).to(torch.float16)
        assert host_moments(ones).total == 2**24 + 1

    def test_large_integers(self) -> None:
        assert host_moments(torch.tensor([2**62, 2**62, -1])).total == float(2**63)

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
    def test_of_nothing(self, shape: tuple[int, ...]) -> None:
        assert host_moments(torch.empty(shape)) == EMPTY

    @pytest.mark.parametrize(
        "values",
        [
            torch.tensor(3.0),
            torch.arange(12.0).reshape(3, 4).T,
            torch.arange(12.0)[::3],
            torch.arange(3.0).expand(4, 3),
            torch.arange(3.0, requires_grad=True) * 2,
            torch.tensor([1 + 2j]).conj().imag,
            np.arange(12.0).reshape(3, 4)[::2, ::-1],
            np.float32(2.0),
            [1, 2.5, True],
            [[1], [2]],
            (),
            range(3),
        ],
        ids=str,
    )
    def test_of_any_make(self, values: object) -> None:
        array = fold.as_array(values)
        check_same(fold.moments_of_array(array), exact([float(v) for v in np.asarray(array).ravel()]))

    @pytest.mark.parametrize(
        "values",
        [None, "abc", ["a"], [None], [1j], torch.tensor([1j]), np.array(["x"]), np.array([1], "datetime64[s]"), {}],
        ids=repr,
    )  # fmt: skip
    def test_not_of_anything_else(self, values: object) -> None:
        with pytest.raises(TypeError, match="real numbers"):
            fold.as_array(values)

    def test_nothing_is_copied_where_it_need_not_be(self) -> None:
        tensor = torch.arange(3.0)
        assert np.shares_memory(fold.as_array(tensor), tensor.numpy())


class TestDeviceMoments:
    @given(tensors_of_anything, st.randoms(use_true_random=False))
    @example([], None)
    def test_are_the_same_as_on_the_host(self, values: list[float], random) -> None:  # type: ignore[no-untyped-def]
        tensor = torch.tensor(values, dtype=torch.float32)
        mask = torch.tensor([random.random() < 0.5 for _ in values], dtype=torch.bool)
        check_same(device_moments(tensor).moments, host_moments(tensor))
        check_same(device_moments(tensor, mask).moments, host_moments(tensor, mask))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_dtype(self, dtype: torch.dtype) -> None:
        tensor = torch.tensor([1.0, 0.0, 1.0] if dtype is torch.bool else VALUES).to(dtype)
        check_same(device_moments(tensor).moments, host_moments(tensor))

    @pytest.mark.parametrize("dtype", FLOATS[:4], ids=str)
    def test_nan_and_infinity_of_every_float(self, dtype: torch.dtype) -> None:
        values = [1.0, NAN, INF, -INF, 2.0]
        assert device_moments(torch.tensor(values, dtype=dtype)).moments == exact(values)

    @pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
    def test_of_any_shape(self, shape: tuple[int, ...]) -> None:
        tensor = torch.ones(shape)
        assert device_moments(tensor).moments == host_moments(tensor)
        mask = torch.zeros(shape, dtype=torch.bool)
        assert device_moments(tensor, mask).moments == EMPTY

    @given(tensors_of_anything)
    @example([-1.0, 1.0, -(2.0**-40), 2.0**-40, 0.0, -0.0, 2.0**24, -(2.0**24), 3e38, -3e38])
    def test_buckets_are_those_of_the_host(self, values: list[float]) -> None:
        tensor = torch.tensor(values, dtype=torch.float32)
        finite = tensor[tensor.isfinite()].double().numpy()
        assert device_moments(tensor, bucketed=True).buckets == count_buckets(finite)
        mask = tensor > 0
        kept = tensor[mask & tensor.isfinite()].double().numpy()
        assert device_moments(tensor, mask, bucketed=True).buckets == count_buckets(kept)

    def test_add_up_over_folds(self) -> None:
        moments, other = DeviceMoments(), DeviceMoments()
        moments.fold(torch.tensor([1.0, NAN]), bucketed=True)
        moments.fold(torch.empty(0), bucketed=True)
        other.fold(torch.tensor([-5.0, INF]), bucketed=True)
        moments.merge(other)
        (row,) = fold.copy_to_host(moments.packed())
        assert fold.unpacked(row).moments == exact([1.0, NAN, -5.0, INF])
        assert fold.unpacked(row).buckets == count_buckets(np.array([1.0, -5.0]))

    def test_keep_no_graph(self) -> None:
        moments = DeviceMoments()
        moments.fold(torch.ones(3, requires_grad=True) * 2)
        assert not any(row.requires_grad for row in moments.packed())

    def test_go_on_outside_of_inference_mode(self) -> None:
        """A rollout runs under inference_mode, the update after it does not: one key for both."""
        moments = DeviceMoments()
        with torch.inference_mode():
            moments.fold(torch.tensor([1.0]))
        moments.fold(torch.tensor([2.0], requires_grad=True))
        assert fold.unpacked(fold.copy_to_host(moments.packed())[0]).moments == exact([1.0, 2.0])

    @pytest.mark.parametrize(
        ("value", "weight", "expected"),
        [
            (2.0, 3.0, Moments(6.0, 3.0)),
            (NAN, 2.0, Moments(nan=2.0)),
            (INF, 2.0, Moments(positive_infinity=2.0)),
            (-INF, 2.0, Moments(negative_infinity=2.0)),
            (NAN, 0.0, EMPTY),
            (2.0, 0.0, EMPTY),
            (2.0, -1.0, Moments(nan=1.0)),
            (2.0, NAN, Moments(nan=1.0)),
            (2.0, INF, Moments(nan=1.0)),
        ],
    )
    @pytest.mark.parametrize("on_device", ["value", "weight", "both"])
    def test_of_one_weighted_observation(self, value: float, weight: float, expected: Moments, on_device: str) -> None:
        moments = DeviceMoments()
        given_value = value if on_device == "weight" else torch.tensor(value)
        given_weight = weight if on_device == "value" else torch.tensor([weight])
        moments_on_host = torch.device("cpu")
        moments._add(
            fold._weighted_moments(*(fold._scalar_on(moments_on_host, g) for g in (given_value, given_weight)))
        )
        found = fold.unpacked(fold.copy_to_host(moments.packed())[0]).moments
        assert found[:2] + found[4:] == expected[:2] + expected[4:]  # no weighted kind keeps extremes

    def test_rows_of_different_length_travel_in_one_copy(self) -> None:
        plain, bucketed = DeviceMoments(), DeviceMoments()
        plain.fold(torch.tensor([1.0]))
        bucketed.fold(torch.tensor([2.0]), bucketed=True)
        rows = fold.copy_to_host([*plain.packed(), *bucketed.packed(), *plain.packed()])
        assert [fold.unpacked(row).moments.total for row in rows] == [1.0, 2.0, 1.0]
        assert [fold.unpacked(row).buckets is None for row in rows] == [True, False, True]


@pytest.mark.usefixtures("on_a_device")
class TestTrackersWithDevices:
    """The whole route of device tensors, with the CPU as the device."""

    def test_stat_and_denominator(self, tracker: Tracker, taken: Callable[..., dict[str, float]]) -> None:
        tracker.denominator(n=torch.tensor([True, False, True]))
        tracker.stat(x=torch.tensor([1.0, NAN, 3.0]), denominator="n")
        tracker.stat(x=torch.tensor([5.0]), mask=np.array([True]))
        assert taken() == {"n": 2.0, "x/avg": 3.0, "x/min": 1.0, "x/max": 5.0}

    def test_a_mask_on_the_host(self, tracker: Tracker, taken: Callable[..., dict[str, float]]) -> None:
        tracker.stat(x=torch.tensor([1.0, 2.0]), mask=[True, False], reduce_type="sum")
        assert taken() == {"x": 1.0}

    def test_a_mask_on_the_device_for_values_on_the_host(
        self, tracker: Tracker, taken: Callable[..., dict[str, float]]
    ) -> None:
        tracker.stat(x=[1.0, 2.0], mask=torch.tensor([False, True]), reduce_type="sum")
        assert taken() == {"x": 2.0}

    def test_numbers(self, tracker: Tracker, taken: Callable[..., dict[str, float]]) -> None:
        tracker.scalar(a=torch.tensor(1.0))
        tracker.scalar(a=torch.tensor([2]), b=3.0, c=4)
        tracker.scalar(a=6.0)
        tracker.scalar({"w": torch.tensor(2.0)}, weight=torch.tensor(3))
        tracker.scalar({"w": 1.0}, weight=1)
        tracker.weighted_mean("m", torch.tensor(1.0), torch.tensor(3.0))
        tracker.weighted_mean("m", 5.0, torch.tensor(1.0))
        tracker.count(n=torch.tensor(2))
        tracker.count(n=torch.tensor(True))
        tracker.count(n=torch.tensor(-5.0))
        tracker.count(n=torch.tensor(NAN))
        tracker.count(n=torch.tensor(INF))
        assert taken() == {
            "a": 3.0, "a__count": 3, "b": 3.0, "b__count": 1, "c": 4.0, "c__count": 1,
            "w": 1.75, "w__count": 4, "m": 2.0, "n": 3.0,
        }  # fmt: skip

    @pytest.mark.parametrize("last", [torch.tensor(7.0), 7.0])
    @pytest.mark.parametrize("first", [torch.tensor(3.0), 3.0, torch.tensor(NAN)])
    def test_gauges_keep_the_last(
        self, tracker: Tracker, taken: Callable[..., dict[str, float]], first: object, last: object
    ) -> None:
        tracker.gauge(g=first)
        tracker.gauge(g=last)
        assert taken() == {"g": 7.0}

    def test_distribution(self, tracker: Tracker, taken: Callable[..., dict[str, float]]) -> None:
        tracker.distribution(d=torch.tensor([1.0, 2.0, 4.0, NAN]), mask=torch.tensor([True, True, True, False]))
        found = taken()
        assert found.keys() == {f"d/{stat}" for stat in ("avg", "min", "max", "p50", "p90", "p99")}
        assert found["d/p50"] == pytest.approx(2.0, rel=0.022)

    @pytest.mark.parametrize("shape", [(0,), (2, 0)])
    def test_of_nothing(self, tracker: Tracker, taken: Callable[..., dict[str, float]], shape: tuple[int, ...]) -> None:
        tracker.stat(x=torch.empty(shape))
        tracker.stat(y=torch.empty(shape), reduce_type="sum")
        assert taken() == {"y": 0.0}

    @pytest.mark.parametrize("value", [torch.ones(2), torch.empty(0), torch.tensor(1j)], ids=str)
    def test_what_is_no_number_is_refused(
        self, tracker: Tracker, taken: Callable[..., dict[str, float]], value: torch.Tensor
    ) -> None:
        with pytest.raises(RecordError, match="x: expected one number"):
            tracker.scalar(y=1.0, x=value)
        with pytest.raises(RecordError, match="weight: expected one number"):
            tracker.weighted_mean("w", 1.0, value)
        assert taken() == {}

    def test_complex_values_are_refused(self, tracker: Tracker) -> None:
        with pytest.raises(RecordError, match=r"x: expected .* real numbers"):
            tracker.stat(x=torch.tensor([1j]))

    def test_all_are_read_in_one_copy(self, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
        copies = []
        copy = fold.copy_to_host
        monkeypatch.setattr(fold, "copy_to_host", lambda rows: copies.append(len(rows)) or copy(rows))
        tracker.denominator(n=torch.tensor([True]))
        tracker.stat(a=torch.ones(1), b=torch.ones(1), denominator="n")
        tracker.distribution(d=torch.ones(3))
        tracker.gauge(g=torch.tensor(1.0))
        tracker.take()
        assert copies == [5]

    def test_nothing_is_lost_if_the_device_fails(
        self, tracker: Tracker, taken: Callable[..., dict[str, float]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(rows: object) -> list[list[float]]:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        tracker.denominator(n=torch.tensor([True, True]))
        tracker.stat(x=torch.tensor([1.0, 2.0]), denominator="n")
        tracker.gauge(g=torch.tensor(4.0), h=5.0)
        tracker.scalar(s=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(fold, "copy_to_host", broken)
            with pytest.raises(RuntimeError, match="CUDA"):
                tracker.take()
        tracker.stat(x=torch.tensor([6.0, 100.0]), mask=torch.tensor([True, False]))
        tracker.stat(y=torch.tensor([1.0, 1.0]), denominator="n", reduce_type="sum")
        assert taken() == {
            "n": 2.0, "x/avg": 3.0, "x/min": 1.0, "x/max": 6.0, "g": 4.0, "h": 5.0, "s": 1.0, "s__count": 1, "y": 2.0,
        }  # fmt: skip

    def test_what_was_read_and_put_back_is_there_once(
        self, tracker: Tracker, taken: Callable[..., dict[str, float]]
    ) -> None:
        tracker.stat(x=torch.tensor([1.0, 2.0]), reduce_type="sum")
        tracker.scalar(s=torch.tensor(1.0))
        tracker.gauge(g=torch.tensor(1.0))
        for _ in range(2):
            tracker.put_back(tracker.take())
        assert taken() == {"x": 3.0, "s": 1.0, "s__count": 1, "g": 1.0}

    def test_nobody_who_records_waits_for_the_copy(self, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tracker's lock is free while an export waits for the device."""
        copy = fold.copy_to_host
        free: list[bool] = []

        def slow(rows: list[torch.Tensor]) -> list[list[float]]:
            other = threading.Thread(target=lambda: free.append(tracker._lock.acquire(blocking=False)))
            other.start()
            other.join()
            return copy(rows)

        monkeypatch.setattr(fold, "copy_to_host", slow)
        tracker.stat(x=torch.ones(3))
        tracker.take()
        assert free == [True]


class Copies(TorchDispatchMode):
    """Notes every operation that takes a tensor from the device to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(t.device.type == "cuda" for t in given) and any(t.device.type == "cpu" for t in made):
            self.seen.append(str(func))
        return result


class TestNoSynchronisation:
    """On fake CUDA tensors, which raise at every read of a value, with a spy for copies to the host."""

    @pytest.fixture
    def copies(self) -> Iterator[Copies]:
        with FakeTensorMode(), Copies() as spy:
            yield spy

    def test_the_spy_sees_a_copy_and_the_mode_a_read(self, copies: Copies) -> None:
        tensor = torch.empty(3, device="cuda")
        with pytest.raises(DataDependentOutputException):
            tensor.sum().item()
        assert not copies.seen
        tensor.cpu()
        assert copies.seen == ["aten._to_copy.default"]

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_of_tensors(self, copies: Copies, tracker: Tracker, dtype: torch.dtype) -> None:
        values = torch.empty(4, 5, device="cuda", dtype=torch.float32).to(dtype)
        mask = torch.empty(4, 5, device="cuda", dtype=torch.bool)
        for _ in range(2):
            tracker.denominator(n=mask)
            tracker.stat(a=values, b=values, denominator="n")
            tracker.stat({"c": values}, mask=mask, reduce_type="sum")
            tracker.stat({"c": values}, mask=np.ones((4, 5), bool), reduce_type="sum")
            tracker.stat(d=values)
            tracker.distribution(e=values, denominator="n")
        tracker.stat(d=torch.empty(0, 3, device="cuda"))
        tracker.cut()
        assert not copies.seen

    def test_of_numbers(self, copies: Copies, tracker: Tracker) -> None:
        value = torch.empty((), device="cuda")
        tracker.scalar(a=value)
        tracker.scalar(a=value, b=1.0, c=2)
        tracker.scalar({"a": value}, weight=value)
        tracker.weighted_mean("w", value, 2.0)
        tracker.weighted_mean("w", 1.0, torch.empty(1, device="cuda", dtype=torch.int64))
        tracker.gauge(g=value)
        tracker.count(n=value, m=torch.empty((), device="cuda", dtype=torch.bool))
        tracker.cut()
        assert not copies.seen

    def test_errors_are_found_without_a_read(self, copies: Copies, tracker: Tracker) -> None:
        values = torch.empty(4, device="cuda")
        with pytest.raises(RecordError, match=r"x: expected the shape of the mask, \(3,\), got \(4,\)"):
            tracker.stat(x=values, mask=torch.empty(3, device="cuda", dtype=torch.bool))
        with pytest.raises(RecordError, match=r"expected a bool mask, got dtype torch\.float32 .*use mask\.bool\(\)"):
            tracker.denominator(n=values)
        with pytest.raises(RecordError, match="x: expected one number"):
            tracker.scalar(x=values)
        assert not copies.seen


class TestTrainersErrorSettings:
    """What a trainer makes of floating-point errors (``np.seterr``, ``-W error``) is for its own numbers."""

    @pytest.mark.filterwarnings("error")
    def test_a_sum_that_overflows_is_infinite_and_raises_nothing(self) -> None:
        with np.errstate(all="raise"):
            tracker = Tracker("")
            for _ in range(100):
                tracker.scalar(many=1e308)
            tracker.stat(values=np.full(100, 1e308))
            tracker.distribution(tiny=np.full(100, 5e-324))
            found = tracker.cut()
        assert list(found["many"].moments[:2]) == [math.inf, 100.0]
        assert list(found["values"].moments[:2]) == [math.inf, 100.0]

    @pytest.mark.filterwarnings("error")
    def test_times_are_scaled_whatever_they_are(self) -> None:
        with np.errstate(all="raise"):
            made = fold.moments_of_numbers([math.inf, 5e-324, 1.0], 1e-9)
        assert (made.positive_infinity, made.n) == (1.0, 2.0)


class TestMetaTensors:
    """They have no numbers: that is said at the call, not by every export from then on."""

    def test_each_way_in_refuses_them(self) -> None:
        tracker = Tracker("")
        nothing = torch.empty((), device="meta")
        for record in (
            lambda: tracker.scalar(x=nothing),
            lambda: tracker.gauge(x=nothing),
            lambda: tracker.stat(x=torch.empty(3, device="meta")),
            lambda: tracker.distribution(x=torch.empty(3, device="meta")),
        ):
            with pytest.raises(RecordError, match=r"^x: expected"):
                record()
        tracker.scalar(y=1.0)
        assert set(tracker.cut()) == {"y"}
