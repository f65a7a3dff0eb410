"""Files about a run are whole, ours, and never in place of another program's."""

import errno
import json
import resource
import threading
from pathlib import Path

import pytest

from rltel.runs.atomic import place_of, read_json, write_json

NAME = "run_summary.json"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert write_json(tmp_path / NAME, {"status": "running", "text": "half \ud800 a character"}) == tmp_path / NAME
    found = read_json(tmp_path / NAME)
    assert found is not None
    assert (found["status"], found["written_by"].split()[0]) == ("running", "rltel")
    assert names(tmp_path) == [NAME]


def test_nothing_there_and_broken_files_read_as_nothing(tmp_path: Path) -> None:
    assert read_json(tmp_path / NAME) is None
    (tmp_path / NAME).write_text('{"written_by": "rltel 0.1.0", "sta')
    assert read_json(tmp_path / NAME) is None


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_json(path, {"fill": "0" * 100_000, "end": 0})
    done = threading.Event()
    broken: list[str] = []

    def read() -> None:
        while not done.is_set():
            try:
                json.loads(path.read_text())
            except (ValueError, OSError) as error:
                broken.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        write_json(path, {"fill": str(number % 10) * 100_000, "end": number})
    done.set()
    reader.join()
    assert broken == []
    assert names(tmp_path) == [NAME]


@pytest.mark.parametrize("theirs", ['{"status": "completed"}', "not json", "[]", ""])
def test_another_program_s_file_stays_and_ours_lies_beside_it(tmp_path: Path, theirs: str) -> None:
    """UniLab writes a run_summary.json itself, and its own tools read that one."""
    (tmp_path / NAME).write_text(theirs)
    for status in ("running", "completed"):
        assert write_json(tmp_path / NAME, {"status": status}) == tmp_path / "run_summary.rltel.json"
    assert (tmp_path / NAME).read_text() == theirs
    found = read_json(tmp_path / NAME)
    assert found is not None
    assert found["status"] == "completed"
    assert place_of(tmp_path / NAME).name == "run_summary.rltel.json"


def test_on_a_full_disk_the_old_one_stays_and_no_draft_is_left(tmp_path: Path) -> None:
    write_json(tmp_path / NAME, {"status": "running"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match=NAME) as raised:
            write_json(tmp_path / NAME, {"status": "completed"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG
    found = read_json(tmp_path / NAME)
    assert found is not None
    assert found["status"] == "running"
    assert names(tmp_path) == [NAME]


def test_a_number_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / NAME, {"x": float("nan")})
    assert names(tmp_path) == []
