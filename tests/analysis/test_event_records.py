"""Records of event files: the same as TensorBoard reads, and a word about what cannot be read."""

import gzip
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from realparts.event_runs import records, write_run
from rltel.analysis.event_records import EventRecords, events_of, record_of
from rltel.core.errors import RltelError


def official(path: Path) -> list[bytes]:
    return list(RawEventFileLoader(str(path)).Load())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_run(tmp_path, {"a": [1.0, 2.0, 3.0], "a/long/" + "tag" * 300: [4.0]})


def test_reads_what_tensorboard_reads(path: Path) -> None:
    read = EventRecords(path)
    assert list(read) == official(path)
    assert read.damage is None


def test_reads_the_same_again(path: Path) -> None:
    read = EventRecords(path)
    assert list(read) == list(read)


def test_writes_records_that_tensorboard_reads(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(b"".join(map(record_of, EventRecords(path))))
    assert copy.read_bytes() == path.read_bytes()
    assert official(copy) == official(path)


def test_an_empty_file_has_no_records_and_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.touch()
    read = EventRecords(path)
    assert (list(read), read.damage) == ([], None)


def test_a_file_cut_anywhere_gives_what_is_whole_and_says_where_it_stops(path: Path) -> None:
    whole, data = records(path), path.read_bytes()
    begin = len(data) - len(whole[-1])
    for end in range(begin + 1, len(data)):
        path.write_bytes(data[:end])
        read = EventRecords(path)
        assert len(list(read)) == len(whole) - 1
        assert read.damage is not None
        assert f"{len(whole) - 1} records read" in read.damage
        assert f"stops at byte {begin} of {end}" in read.damage
        assert list(read) == official(path)


def test_a_damaged_record_is_left_out_and_counted_and_reading_goes_on(path: Path) -> None:
    whole, data = records(path), bytearray(path.read_bytes())
    data[len(whole[0]) + 14] ^= 1  # inside the second
    path.write_bytes(data)
    read = EventRecords(path)
    assert list(read) == [record[12:-4] for record in (whole[0], *whole[2:])]
    assert read.damage is not None
    assert "leaves out 1 damaged record" in read.damage
    assert len(official(path)) == 1  # TensorBoard stops there, and says nothing


def test_behind_a_damaged_length_nothing_is_read(path: Path) -> None:
    whole, data = records(path), bytearray(path.read_bytes())
    begin = len(whole[0])
    data[begin] ^= 1
    path.write_bytes(data)
    read = EventRecords(path)
    assert len(list(read)) == 1
    assert read.damage is not None
    assert f"stops at byte {begin} of {len(data)}" in read.damage


@pytest.mark.parametrize("content", [b"{}" * 20, gzip.compress(b"x" * 100, mtime=0)])
def test_what_is_no_event_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(content)
    with pytest.raises(RltelError, match=r"events\.out\.tfevents\.1: expected a TensorBoard event file"):
        list(EventRecords(path))


def test_records_of_another_kind_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(record_of(b"\xff\xff\xff"))
    with pytest.raises(RltelError, match="expected TensorBoard events, got records of another kind"):
        list(events_of(EventRecords(path)))


def test_events_come_with_their_bytes(path: Path) -> None:
    assert [event.SerializeToString() for _, event in events_of(EventRecords(path))] == official(path)
