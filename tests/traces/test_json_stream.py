"""JSON of any layout as a stream of values: broken ones are skipped and counted, the rest is all there."""

import gzip
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.traces import json_stream
from rltel.traces.json_stream import BROKEN, CUT, JsonStream
from rltel.traces.json_text import read_text

E = [{"ph": "X", "name": f"e{n}", "args": {"n": {"m": n}}} for n in range(3)]
A, B, C = (json.dumps(event) for event in E)


def read(text: str, size: int = 7) -> tuple[list[Any], dict[str, int], dict[str, Any]]:
    """The values, what was skipped, and the header of a text that comes in pieces of that size."""
    skipped: Counter[str] = Counter()
    stream = JsonStream(iter([text[at : at + size] for at in range(0, len(text), size)]), skipped)
    return list(stream.values()), dict(skipped), stream.header


LAYOUTS = {
    "lines": f"{A}\n{B}\n{C}\n",
    "lines without a last newline": f"{A}\r\n{B}\r\n{C}",
    "array": f"[{A},{B},{C}]",
    "array, pretty": json.dumps(E, indent=2),
    "array without its end": f"[\n{A},\n{B},\n{C},\n",
    "array without commas": f"[{A} {B} {C}]",
    "object": json.dumps({"traceEvents": E}),
    "object, pretty": json.dumps({"displayTimeUnit": "ms", "traceEvents": E, "x": {"y": [1]}}, indent=4),
    "object without its end": f'{{"displayTimeUnit": "ms", "traceEvents": [{A}, {B}, {C}',
    "object, cut after a comma": f'{{"traceEvents": [{A}, {B}, {C}, ',
    "two objects": f'{{"traceEvents": [{A}]}}\n{{"traceEvents": [{B}, {C}]}}',
}


@pytest.mark.parametrize("window", [20, 1 << 20], ids=["streamed", "at once"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, size: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """google/perfetto#926: a missing `]` is no error."""
    if window == 20 and "object" not in layout:
        window = 100  # room for one event
    monkeypatch.setattr(json_stream, "_WINDOW", window)
    values, skipped, _ = read(LAYOUTS[layout], size)
    assert values == E
    assert skipped == {}


@pytest.mark.parametrize("window", [20, 1 << 20], ids=["streamed", "at once"])
def test_the_rest_of_the_object_is_its_header(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", window)
    text = json.dumps({"before": 2**63, "traceEvents": E, "after": {"a": [1, {"b": "]"}]}})
    values, skipped, header = read(text)
    assert values == E
    assert skipped == {}
    assert header == {"before": 2**63, "after": {"a": [1, {"b": "]"}]}}


def test_otlp_comes_by_resource() -> None:
    parts = [{"scopeSpans": [{"spans": []}]}, {"resource": {}}]
    assert read(json.dumps({"resourceSpans": parts}))[0] == [{"resourceSpans": [part]} for part in parts]


def test_floats_keep_their_digits() -> None:
    """A time since the epoch in microseconds has more than a float."""
    assert read('{"ts": 1795998185272120.618, "n": 3}')[0] == [{"ts": b"1795998185272120.618", "n": 3}]


BAD = ['{"ph": "X", "name": }', '{"ph": "X" "name": 1}', '{"ph": "X", "args": {"a": [1,}}', "nonsense", "{]"]


@pytest.mark.parametrize("size", [1, 13, 10_000])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "layout", ["{a}\n{bad}\n{c}\n", "[{a},\n{bad},\n{c}]", '{{"traceEvents": [{a},{bad},{c}], "x": 1}}']
)
def test_a_broken_one_costs_no_other(layout: str, bad: str, size: int) -> None:
    values, skipped, _ = read(layout.format(a=A, bad=bad, c=C), size)
    assert values == [E[0], E[2]]
    assert skipped == {BROKEN: 1}


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("layout", ["lines", "array", "object", "object, pretty"])
def test_a_cut_anywhere_costs_at_most_the_one_that_it_hits(layout: str, size: int) -> None:
    whole = LAYOUTS[layout]
    before = 0
    for cut in range(1, len(whole)):
        values, skipped, _ = read(whole[:cut], size)
        assert values == E[: len(values)]
        assert before <= len(values) <= before + 1
        assert skipped in ({}, {CUT: 1})
        assert len(values) + sum(skipped.values()) >= whole[:cut].count('"e')
        before = len(values)
    assert before >= 2


def test_what_is_no_event_is_counted() -> None:
    values, skipped, _ = read('1\n"text"\n{"ph": "i"}\n')
    assert values == [{"ph": "i"}]
    assert sum(skipped.values()) >= 1


@given(st.text(max_size=60) | st.text(alphabet='[]{},:" a1\\n', max_size=80))
def test_any_text_comes_to_an_end(text: str) -> None:
    read(text)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.recursive(st.integers() | st.text(), st.lists)), max_size=10))
def test_any_objects_in_an_array_come_back(objects: list[dict[str, Any]]) -> None:
    objects = [each for each in objects if not any(isinstance(value, list) for value in each.values())]
    assert read(json.dumps(objects))[0] == objects


def test_memory_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 1 << 16)

    def pieces() -> Iterator[str]:
        yield '{"traceEvents": ['
        for _ in range(300):
            yield (B + ",\n") * 2000

    skipped: Counter[str] = Counter()
    tracemalloc.start()
    assert sum(1 for _ in JsonStream(pieces(), skipped).values()) == 600_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000
    assert not skipped


class TestText:
    def text(self, path: Path) -> tuple[str, dict[str, int]]:
        skipped: Counter[str] = Counter()
        return "".join(read_text(path, skipped, lambda _: None)), dict(skipped)

    def test_gzip_is_known_by_its_first_bytes_and_may_have_members(self, tmp_path: Path) -> None:
        path = tmp_path / "named.json"
        path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two") + b"\x00" * 20)
        assert self.text(path) == ("one two", {})

    def test_of_a_cut_one_all_that_is_readable_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "cut"
        lines = "".join(f"{n} {n * n}\n" for n in range(10_000))
        whole = gzip.compress(lines.encode())
        path.write_bytes(whole[: len(whole) // 2])
        found, skipped = self.text(path)
        assert lines.startswith(found)
        assert len(found) > len(lines) / 3
        assert skipped == {"gzip cut off": 1}

    def test_of_a_damaged_one_what_is_before(self, tmp_path: Path) -> None:
        path = tmp_path / "damaged"
        path.write_bytes(gzip.compress(b"whole ") + b"no gzip at all")
        assert self.text(path) == ("whole ", {"gzip damaged from here on": 1})

    def test_utf_8_in_pieces_with_a_mark_and_with_errors(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_bytes("\ufeffgrün".encode() + b"\xff!")
        assert self.text(path) == ("grün\ufffd!", {})
