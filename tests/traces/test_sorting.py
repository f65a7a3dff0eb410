"""Sorting outside of memory."""

import random
import tracemalloc
from pathlib import Path

import pytest

from rltel.traces.sorting import Sorter


@pytest.mark.parametrize("count", [0, 1, 9, 10, 1000])
def test_hands_out_all_in_order(tmp_path: Path, count: int) -> None:
    records = [(n % 7, n, {"a": [n, "x", None, b"1.5", 2**70]}) for n in range(count)]
    random.Random(1).shuffle(records)
    with Sorter(tmp_path, run=10) as sorter:
        for record in records:
            sorter.add(record)
        assert list(sorter.sorted()) == sorted(records, key=lambda record: record[:2])


def test_leaves_nothing_behind(tmp_path: Path) -> None:
    with Sorter(tmp_path, run=2) as sorter:
        for n in range(5):
            sorter.add((n,))
    assert list(tmp_path.iterdir()) == []


def test_memory_is_that_of_a_run(tmp_path: Path) -> None:
    with Sorter(tmp_path, run=1000) as sorter:
        tracemalloc.start()
        for n in range(30_000):
            sorter.add((n * 7919 % 30_000, n, "x" * 1000))
        sorter.add((-1, 0, ""))
        assert sum(1 for _ in sorter.sorted()) == 30_001
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 10_000_000, "30 MB of text went through"
