"""One event file: its own name, whole records, the official classes."""

import errno
import os
import resource
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import SessionLog

from realparts.tensorboard_reader import all_events, event_files
from rltel.export.tensorboard.event_file import EventFile, protos


def scalar(tag: str = "x") -> list[object]:
    return [protos().Summary.Value(tag=tag, simple_value=1.0)]


def test_begins_with_its_version_and_holds_what_was_written(tmp_path: Path) -> None:
    file = EventFile(tmp_path, "learner-0.1")
    file.start(3 * 10**9, 7)
    file.write(4 * 10**9, 8, scalar())
    head, start, value = all_events(tmp_path)
    assert (head.file_version, head.source_metadata.writer) == ("brain.Event:2", "rltel")
    assert (start.session_log.status, start.step, start.wall_time) == (SessionLog.START, 7, 3.0)
    assert (value.summary.value[0].tag, value.step, value.wall_time) == ("x", 8, 4.0)


def test_many_at_once_have_names_of_their_own_in_the_order_of_their_making(tmp_path: Path) -> None:
    made = [EventFile(tmp_path, "learner-0.1").path for _ in range(50)]
    assert made == event_files(tmp_path)


def test_a_write_that_was_cut_short_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EventFile(tmp_path, "w")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:-5]))
        with pytest.raises(OSError, match=r"only \d+ of \d+ bytes written"):
            file.write(0, 1, scalar("lost"))
    file.write(0, 2, scalar("kept"))
    assert [event.summary.value[0].tag for event in all_events(tmp_path) if event.summary.value] == ["kept"]


def test_half_a_record_that_cannot_be_cut_off_at_once_is_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EventFile(tmp_path, "w")
    write = os.write

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:-5]))
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="the disk is away"):
            file.write(0, 1, scalar("lost"))
    file.write(0, 2, scalar("kept"))
    assert [event.summary.value[0].tag for event in all_events(tmp_path) if event.summary.value] == ["kept"]


@pytest.mark.parametrize("room", [0, 10])
def test_one_that_a_full_disk_refuses_is_named_and_leaves_nothing(tmp_path: Path, room: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match=r"events\.out\.tfevents.*\.w"):
            EventFile(tmp_path, "w")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_does_nothing(tmp_path: Path) -> None:
    file = EventFile(tmp_path, "w")
    file.close()
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.write(0, 1, scalar())
