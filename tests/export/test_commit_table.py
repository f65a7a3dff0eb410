"""AReaL's table, as many columns as fit, nothing cut off."""

import io
import re

import pytest

from realparts.areal_logger import areal_logger
from rltel.export.commit_table import columns_for, print_table, rows_of

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def drawn(values: dict[str, float], width: int) -> list[str]:
    stream = io.StringIO()
    print_table(values, "step 7", stream, width)
    return [_ANSI.sub("", line) for line in stream.getvalue().splitlines()]


def test_a_hostile_key_is_drawn_in_one_line_without_control_codes() -> None:
    assert rows_of({"\x1b[2Jred\nkey": 1.0}, 1) == [[("?[2Jred?key", "1.0000e+00")]]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 10, 13])
def test_the_pairs_stand_where_areal_puts_them(count: int) -> None:
    values = {f"k{number}": number / 3 for number in range(count)}
    theirs = []
    with areal_logger() as areal:
        table = areal.module.tabulate_stats
        table.__globals__["tabulate"] = lambda rows, **how: theirs.append((rows, how["floatfmt"])) or ""
        table(values)
    ((rows, form),) = theirs
    as_pairs = [list(zip(row[::2], (format(value, form) for value in row[1::2]), strict=True)) for row in rows]
    assert rows_of(values, 4) == as_pairs


def test_four_columns_where_they_fit() -> None:
    lines = drawn({f"key{number}": float(number) for number in range(8)}, 120)
    assert lines[0] == "step 7"
    assert [re.findall(r"key\d", line) for line in lines if "key" in line] == [
        ["key0", "key2", "key4", "key6"],
        ["key1", "key3", "key5", "key7"],
    ]
    assert "7.0000e+00" in lines[-2]


@pytest.mark.parametrize("width", [20, 40, 79, 80, 100, 200])
def test_no_key_and_no_value_is_cut_off(width: int) -> None:
    values = {f"ppo_actor/update/{'x' * number}/avg": float(number) for number in range(1, 9)}
    text = "\n".join(drawn(values, width))
    if width >= 60:
        assert all(key in text for key in values)
    letters = re.sub(r"[^\w/]", "", text)
    assert letters.count("x") == sum(range(1, 9)), "a key that is too long for one line is folded"
    assert text.count("e+00") == 8
    assert max(map(len, text.splitlines())) <= width


def test_fewer_columns_on_a_narrow_terminal() -> None:
    values = {f"a/rather/long/key/{number}": 1.0 for number in range(8)}
    assert [columns_for(values, width) for width in (40, 80, 120, 160)] == [1, 2, 3, 4]


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    (line,) = [line for line in drawn({"a[red]b": float("nan")}, 80) if "a[" in line]
    assert "a[red]b" in line
    assert "nan" in line


def test_nothing_is_an_empty_table() -> None:
    assert columns_for({}, 80) == 4
    assert drawn({}, 80)[0] == "step 7"
