"""Texts, tables and files as data: checked and copied at the call, opened later."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realparts.tracking import shown
from rltel.core.errors import RecordError
from rltel.export.media import MediaLostError, Table, table, unsupported


class TestTable:
    @pytest.mark.parametrize(
        "given",
        [
            {"a": [1, 2], "b": ["x", None]},
            [{"a": 1, "b": "x"}, {"a": 2}],
            Table(("a", "b"), ((1, "x"), (2, None))),
        ],
    )
    def test_of_columns_of_records_or_as_it_is(self, given: Any) -> None:
        assert table("t", given) == Table(("a", "b"), ((1, "x"), (2, None)))

    def test_of_a_data_frame(self) -> None:
        class Frame:
            """What of pandas' is used."""

            columns = ("a",)

            def to_dict(self) -> None:
                """As a frame has it."""

            def __getitem__(self, name: str) -> Any:
                return np.array([1, 2])

        assert table("t", Frame()) == Table(("a",), ((1,), (2,)))

    def test_numpy_s_numbers_are_numbers_and_the_rest_is_text(self, tmp_path: Path) -> None:
        made = table("t", {"a": [np.float32(0.5), np.int64(2), tmp_path, [1]]})
        assert [row[0] for row in made.rows] == [0.5, 2, str(tmp_path), "[1]"]
        assert [type(row[0]) for row in made.rows[:2]] == [float, int]

    def test_what_the_caller_changes_later_does_not_matter(self) -> None:
        cells = [1, 2]
        made = table("t", {"a": cells})
        cells.append(3)
        assert len(made.rows) == 2

    def test_columns_of_different_lengths_are_refused_by_name(self) -> None:
        with pytest.raises(RecordError, match=r"samples: expected columns of one length, got \{'a': 1, 'b': 2\}"):
            table("samples", {"a": [1], "b": [1, 2]})

    def test_rows_of_another_length_are_refused(self) -> None:
        with pytest.raises(RecordError, match=r"samples: expected rows of 2 cells \(a, b\), got 1"):
            table("samples", Table(("a", "b"), ((1,),)))

    def test_what_is_no_table_is_refused(self) -> None:
        with pytest.raises(RecordError, match=r"samples: expected a table: .* got int"):
            table("samples", 3)


class TestMedia:
    def test_a_text_that_is_none_is_refused(self) -> None:
        with pytest.raises(RecordError, match=r"note: expected a text \(a string\), got int"):
            shown("text", "note", 3)

    def test_a_path_that_is_none_is_refused(self) -> None:
        with pytest.raises(RecordError, match="clip: expected the path of a file, got list"):
            shown("video", "clip", [1])

    def test_an_unknown_kind_is_refused(self) -> None:
        kind: Any = "smell"
        with pytest.raises(RecordError, match="x: expected a kind of text, table, file, video, image, got 'smell'"):
            shown(kind, "x", "y")

    def test_a_path_is_of_the_folder_where_it_was_given(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        made = shown("file", "x", "notes.txt")
        monkeypatch.chdir("/")
        (tmp_path / "notes.txt").write_text("hi")
        assert made.path() == tmp_path / "notes.txt"

    def test_nothing_is_opened_until_a_destination_asks(self, tmp_path: Path) -> None:
        made = shown("file", "x", tmp_path / "not-yet")
        with pytest.raises(MediaLostError, match=r"x: cannot read .*not-yet: No such file") as lost:
            made.path()
        assert lost.value.reason == "unreadable"

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(MediaLostError, match="expected a plain file, got"):
            shown("file", "x", tmp_path).path()

    def test_a_pipe_or_a_device_is_none_either_and_nobody_waits_for_it(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(MediaLostError, match="expected a plain file, got") as lost:
                shown("file", "x", path).path()
            assert lost.value.reason == "unreadable"

    def test_a_name_that_no_file_can_have_is_unreadable(self) -> None:
        with pytest.raises(MediaLostError, match="null byte") as lost:
            shown("file", "x", "a\0b").path()
        assert lost.value.reason == "unreadable"

    def test_what_cannot_be_written_is_spelled_out(self) -> None:
        made = shown("text", "x\ud800", "a\udcff", axis="y\ud800")
        assert (made.key, made.axis, made.text()) == ("x\\ud800", "y\\ud800", "a\\udcff")

    def test_stands_where_its_commit_stands(self) -> None:
        made = shown("text", "x", "y", step=3, env_steps=900)
        assert (made.position("step"), made.position("env_steps")) == (3, 900)

    def test_what_has_no_place_says_so(self, tmp_path: Path) -> None:
        lost = unsupported("trackio", shown("video", "clip", tmp_path / "a.avi"))
        assert (str(lost), lost.reason) == ("clip: trackio cannot hold a video (.avi)", "unsupported")
