import errno
import json
import os
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from rltel.core.files import publish, replace


def test_publish_writes_the_content(tmp_path):
    assert publish(tmp_path / "a.json", {"id": "x"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"id": "x"}


def test_publish_keeps_what_is_there(tmp_path):
    publish(tmp_path / "a.json", {"id": "first"})
    assert not publish(tmp_path / "a.json", {"id": "second"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"id": "first"}


def test_publish_leaves_no_drafts(tmp_path):
    publish(tmp_path / "a.json", {})
    publish(tmp_path / "a.json", {})
    replace(tmp_path / "b.json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_on_a_full_disk_the_error_names_the_file_and_no_draft_is_left(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(OSError, match=r"a\.json") as raised:
            publish(tmp_path / "a.json", {"id": "x"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_processes_publishes(tmp_path, together):
    won = together(8, lambda number: publish(tmp_path / "a.json", {"by": number}))
    assert won.count(True) == 1
    assert json.loads((tmp_path / "a.json").read_text()) == {"by": won.index(True)}


def test_publish_wins_though_nfs_lost_the_answer(tmp_path, monkeypatch):
    """The link was made, its answer was lost, the repeated call finds it there: the file is still ours."""
    link = os.link

    def lossy(source, target):
        link(source, target)
        raise FileExistsError(17, "File exists", str(target))

    monkeypatch.setattr(os, "link", lossy)
    assert publish(tmp_path / "a.json", {"id": "mine"})
    assert not publish(tmp_path / "a.json", {"id": "late"})


def test_publish_raises_where_the_folder_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "nowhere" / "a.json", {})


def test_a_reader_sees_old_or_new_and_never_a_part(tmp_path):
    path = tmp_path / "a.json"
    replace(path, ["x"] * 5000)

    def read(_):
        return len(set(json.loads(path.read_text())))

    with ThreadPoolExecutor(2) as pool:
        reads = pool.map(read, range(200))
        for number in range(100):
            replace(path, [number] * 5000)
        assert set(reads) == {1}
