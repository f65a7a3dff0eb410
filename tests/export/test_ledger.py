"""What a destination has had: right after a crash, small, and never in the way."""

import json
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import run_python
from rltel.export.ledger import Ledger, Numbers, about, elsewhere, folder_of, had, kept
from rltel.export.sink import Destination

WHO, WHERE = ("learner-0.1", "otlp"), "http://127.0.0.1:4318"


def ledger(run_dir: Path, **changed: object) -> Ledger:
    return Ledger(run_dir, *WHO, WHERE, **changed)  # type: ignore[arg-type]


def numbers(run_dir: Path, place: str = WHERE, until: int = 200) -> list[int]:
    found = had(run_dir, *WHO, place)
    return [number for number in range(until) if number in found]


class TestNumbers:
    @given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40))), st.lists(st.integers(0, 300)))
    def test_is_a_set(self, ranges: list[tuple[int, int]], more: list[int]) -> None:
        one, other = Numbers(), Numbers()
        for first, length in ranges:
            one.add(first, first + length)
        for number in more:
            other.add(number, number)
        both = one | other
        expected = {n for first, length in ranges for n in range(first, first + length + 1)} | set(more)
        assert {number for number in range(400) if number in both} == expected
        assert len(both) == len(expected)


class TestLedger:
    def test_remembers_what_was_sent(self, tmp_path: Path) -> None:
        kept_here = ledger(tmp_path)
        kept_here.sent(3)
        kept_here.sent(10, 20)
        assert numbers(tmp_path) == [3, *range(10, 21)]

    def test_goes_on_where_it_was(self, tmp_path: Path) -> None:
        for number in (1, 2):
            made = ledger(tmp_path, replay=True)
            made.sent(number)
            made.close()
        assert numbers(tmp_path) == [1, 2]

    def test_a_replay_has_a_file_of_its_own_beside_the_process_s(self, tmp_path: Path) -> None:
        ledger(tmp_path).sent(1)
        ledger(tmp_path, replay=True).sent(2)
        names = sorted(path.name for path in folder_of(tmp_path, "otlp", WHERE).glob("*.bits"))
        assert names == ["learner-0.1.replay.bits", "learner-0.1.run.bits"]
        assert numbers(tmp_path) == [1, 2]

    def test_another_place_is_another_destination(self, tmp_path: Path) -> None:
        ledger(tmp_path).sent(1)
        assert numbers(tmp_path, "http://elsewhere:4318") == []
        assert elsewhere(tmp_path, "otlp", "http://elsewhere:4318") == [WHERE]
        assert elsewhere(tmp_path, "otlp", WHERE) == []

    def test_a_place_in_the_run_directory_moves_with_it(self, tmp_path: Path) -> None:
        before, after = tmp_path / "before", tmp_path / "after"
        Ledger(before, "learner-0.1", "tensorboard", f"tensorboard --logdir {before}/tb").sent(1)
        before.rename(after)
        assert 1 in had(after, "learner-0.1", "tensorboard", f"tensorboard --logdir {after}/tb")
        assert elsewhere(after, "tensorboard", "") == ["tensorboard --logdir {run_dir}/tb"]

    def test_no_secret_of_a_place_is_written(self, tmp_path: Path) -> None:
        Ledger(tmp_path, *WHO, "http://user:secret@host/?key=secret", about={"api_key": "secret"})
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or "secret" not in path.read_text()

    def test_keeps_what_the_destination_was_told(self, tmp_path: Path) -> None:
        ledger(tmp_path, about={"resource": {"process.pid": 7}, "started_ns": 5})
        assert about(tmp_path, *WHO) == {"resource": {"process.pid": 7}, "started_ns": 5}
        assert about(tmp_path, "learner-0.2", "otlp") == {}

    def test_knows_who_delivered_by_itself(self, tmp_path: Path) -> None:
        ledger(tmp_path)
        Ledger(tmp_path, "learner-1.1", "otlp", WHERE, replay=True)
        assert [kept(tmp_path, name, "otlp") for name in ("learner-0.1", "learner-1.1")] == [True, False]

    def test_a_million_commits_are_125_kilobytes(self, tmp_path: Path) -> None:
        made = ledger(tmp_path)
        for number in range(0, 1_000_000, 1000):
            made.sent(number, number + 999)
        (file,) = folder_of(tmp_path, "otlp", WHERE).glob("*.bits")
        assert file.stat().st_size == 125_000
        assert len(had(tmp_path, *WHO, WHERE)) == 1_000_000


class TestTrouble:
    def test_a_full_disk_is_counted_and_raises_nothing(self, tmp_path: Path) -> None:
        account = Destination("otlp")
        made = ledger(tmp_path, account=account)
        made.close()
        made.sent(1)  # its file cannot be written any more
        made.sent(2)
        assert account.dropped_totals == {"ledger": 0}
        assert numbers(tmp_path) == []

    def test_what_a_full_disk_did_not_take_is_written_with_what_follows(self, tmp_path: Path) -> None:
        made = ledger(tmp_path, account=Destination("otlp"))
        made.sent(0, 15)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, before[1]))
        try:
            made.sent(16, 40)
            assert numbers(tmp_path) == list(range(16))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        made.sent(99)
        assert numbers(tmp_path) == [*range(41), 99]

    def test_a_place_that_cannot_be_made_is_the_maker_s_trouble(self, tmp_path: Path) -> None:
        (tmp_path / "ledger").write_text("in the way")
        with pytest.raises(OSError, match="ledger"):
            ledger(tmp_path)

    def test_what_was_sent_before_a_kill_is_known(self, tmp_path: Path) -> None:
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom rltel.export.ledger import Ledger\n"
            "made = Ledger(Path(sys.argv[1]), 'learner-0.1', 'otlp', sys.argv[2])\n"
            "for number in range(100): made.sent(number)\nos.kill(os.getpid(), 9)\n"
        )
        assert run_python(code, tmp_path, WHERE).returncode == -9
        assert numbers(tmp_path) == list(range(100))

    def test_broken_notes_about_a_process_are_none(self, tmp_path: Path) -> None:
        ledger(tmp_path, about={})
        (path,) = folder_of(tmp_path, "otlp", WHERE).glob("learner-0.1.json")
        for text in ("", "[1]", json.dumps({"x": 1})[:-1]):
            path.write_text(text)
            assert about(tmp_path, *WHO) == {}
