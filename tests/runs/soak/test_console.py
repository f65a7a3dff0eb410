"""The command's output: its begin and its end are kept, however much there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rltel.runs.soak.console import Console


def write(console: Console, text: str) -> None:
    os.write(console.fileno(), text.encode())


def lines(first: int, last: int) -> str:
    return "".join(f"line {number:06}\n" for number in range(first, last))


def test_below_the_limit_nothing_is_cut(tmp_path: Path) -> None:
    console = Console(tmp_path / "log", 1200)
    write(console, lines(0, 100))
    console.trim()
    assert ((tmp_path / "log").read_text(), console.cut_bytes) == (lines(0, 100), 0)
    console.close()


def test_begin_and_end_stay_and_every_byte_is_there_or_counted(tmp_path: Path) -> None:
    """Whatever the number of cuts: whole lines, one mark."""
    console = Console(tmp_path / "log", 1200)
    for number in range(0, 1000, 50):
        write(console, lines(number, number + 50))
        console.trim()
    text = (tmp_path / "log").read_text()
    (mark,) = re.findall(r"\[rltel soak: \d+ bytes cut here\]\n", text)
    assert mark == f"[rltel soak: {console.cut_bytes} bytes cut here]\n"
    head, tail = text.split(mark)
    assert lines(0, 1000).startswith(head)
    assert lines(0, 1000).endswith(tail)
    assert min(len(head), len(tail)) >= 200
    assert len(head) + console.cut_bytes + len(tail) == len(lines(0, 1000))
    console.close()


def test_a_writer_goes_on_at_the_end(tmp_path: Path) -> None:
    """Also another process, with the same descriptor; a hole would have zeros in it."""
    console = Console(tmp_path / "log", 4000)
    write(console, lines(0, 2000))
    console.trim()
    subprocess.run([sys.executable, "-c", "print('from another')"], stdout=console.fileno(), check=True)
    data = (tmp_path / "log").read_bytes()
    assert data.endswith(b"line 001999\nfrom another\n")
    assert b"\0" not in data
    console.close()


def test_one_line_without_end_is_cut_too(tmp_path: Path) -> None:
    console = Console(tmp_path / "log", 1000)
    for _ in range(20):
        write(console, "x" * 500)
        console.trim()
    assert (tmp_path / "log").stat().st_size <= 1000
    console.close()


def test_a_log_that_somebody_moved_is_cut_where_it_is(tmp_path: Path) -> None:
    console = Console(tmp_path / "log", 1000)
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").write_text("another's")
    write(console, lines(0, 1000))
    console.trim()
    assert (tmp_path / "log.1").stat().st_size < 1000
    assert (tmp_path / "log").read_text() == "another's"
    console.close()


def test_an_earlier_soak_s_output_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old\n")
    console = Console(tmp_path / "log", 1000)
    write(console, "new\n")
    assert (tmp_path / "log").read_text() == "new\n"
    console.close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no/log"):
        Console(tmp_path / "no" / "log", 1000)
