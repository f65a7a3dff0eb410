"""The file that a command makes, and what it says when it cannot."""

from pathlib import Path

import pytest

from rltel.core.errors import TraceError
from rltel.traces.writing import check_input, draft


def test_the_file_is_there_when_all_is_done_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "o"
    output.write_bytes(b"of yesterday")
    with draft(output) as write:
        write(b"new")
        assert output.read_bytes() == b"of yesterday"
    assert (output.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (b"new", ["o"])


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    output = tmp_path / "o"
    output.write_bytes(b"of yesterday")

    def fail() -> None:
        with draft(output) as write:
            write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (output.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (b"of yesterday", ["o"])


def test_a_folder_that_is_not_there_is_named_and_the_draft_is_not(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as raised, draft(tmp_path / "no" / "o"):
        pass
    assert str(raised.value) == f"{tmp_path}/no/o: cannot be written: there is no folder {tmp_path}/no"


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"{tmp_path}: is a folder; expected the name of the file"), draft(tmp_path):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_told_of_the_output(tmp_path: Path) -> None:
    (tmp_path / ".o.part").symlink_to("/dev/full")
    with pytest.raises(TraceError, match=f"{tmp_path}/o: cannot be written: No space left"), draft(tmp_path / "o") as w:
        w(b"x" * 1_000_000)
    assert list(tmp_path.iterdir()) == []


def test_what_an_input_has_to_be(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    check_input(tmp_path / "f", "a profile")
    with pytest.raises(TraceError, match=f"{tmp_path}: is a folder; expected a profile"):
        check_input(tmp_path, "a profile")
    with pytest.raises(TraceError, match=f"{tmp_path}/no: no such file; expected a profile"):
        check_input(tmp_path / "no", "a profile")
