"""Places in a run, contested by real processes: together, dead, alive, ended, killed, on other machines."""

import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltel.core import claims
from rltel.core.claims import claim_place, start_of

HOLD = """
import sys
from pathlib import Path
from rltel.core.claims import claim_place
claim = claim_place(Path(sys.argv[1]), "learner", 0)
print(claim.index, claim.incarnation, flush=True)
sys.stdin.read()
"""


def place(claim):
    return claim.index, claim.incarnation


def rewrite(claim, **changes):
    """Make the claim look as if another process had made it."""
    claim.path.write_text(json.dumps(json.loads(claim.path.read_text()) | changes))


def die(claim):
    """As after the holder's death: its pid belongs to a process with another start."""
    rewrite(claim, started=json.loads(claim.path.read_text())["started"] + 1)


def test_the_first_gets_what_it_wants(tmp_path):
    claim = claim_place(tmp_path, "learner", 3)
    assert (claim.role, *place(claim)) == ("learner", 3, 1)
    assert claim.path == tmp_path / "claims" / "learner-3.1.json"


def test_a_claim_names_its_holder_and_no_host_or_user(tmp_path):
    content = json.loads(claim_place(tmp_path, "learner", 0).path.read_text())
    assert set(content) == {"machine", "pid", "started"}
    assert (content["pid"], content["started"]) == (os.getpid(), start_of(os.getpid()))
    assert os.uname().nodename not in content["machine"]


def test_an_alive_holder_keeps_its_place(tmp_path):
    assert [place(claim_place(tmp_path, "learner", 0)) for _ in range(3)] == [(0, 1), (1, 1), (2, 1)]


def test_an_ended_holder_is_followed(tmp_path):
    claim_place(tmp_path, "learner", 0).release()
    second = claim_place(tmp_path, "learner", 0)
    assert place(second) == (0, 2)
    second.release()
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 3)


def test_a_dead_holder_is_followed(tmp_path):
    die(claim_place(tmp_path, "learner", 0))
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_a_freed_place_is_taken_before_a_new_one(tmp_path):
    held = [claim_place(tmp_path, "collector", 0) for _ in range(3)]
    held[1].release()
    assert place(claim_place(tmp_path, "collector", 0)) == (1, 2)
    assert place(claim_place(tmp_path, "collector", 0)) == (3, 1)


def test_roles_do_not_disturb_each_other(tmp_path):
    roles = ["learner", "learner-1", "learner_1", "1", "Learner"]
    assert [place(claim_place(tmp_path, role, 0)) for role in roles] == [(0, 1)] * len(roles)
    assert place(claim_place(tmp_path, "learner", 1)) == (1, 1)


def test_releasing_twice_does_nothing(tmp_path):
    claim = claim_place(tmp_path, "learner", 0)
    claim.release()
    claim.release()
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_how_the_holder_ended_is_kept_as_it_was_said_first(tmp_path):
    claim = claim_place(tmp_path, "learner", 0)
    claim.release({"status": "failed"})
    claim.release({"status": "completed"})
    assert json.loads(claim.path.with_suffix(".ended").read_text()) == {"status": "failed"}
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_a_full_disk_keeps_nobody_from_ending(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rltel.core.claims.replace", full)
    claim_place(tmp_path, "learner", 0).release({"status": "failed"})
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_releasing_after_the_directory_went_does_nothing(tmp_path):
    claim = claim_place(tmp_path / "run", "learner", 0)
    claim.path.unlink()
    claim.path.parent.rmdir()
    claim.release()
    assert not claim.path.parent.exists()


def test_a_recycled_pid_is_not_the_holder(tmp_path):
    claim = claim_place(tmp_path, "learner", 0)
    rewrite(claim, pid=1)  # somebody, alive, who started at another time
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"machine": "x"}', '{"machine": 1, "pid": "x", "started": 0}']
)
def test_a_claim_that_lost_its_content_holds_nothing(tmp_path, content):
    """A file that a crash of the machine left empty must not keep a run from being continued."""
    claim_place(tmp_path, "learner", 0).path.write_text(content)
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_a_holder_on_another_machine_counts_as_alive(tmp_path):
    rewrite(claim_place(tmp_path, "collector", 0), machine="elsewhere")
    assert place(claim_place(tmp_path, "collector", 0)) == (1, 1)


def test_a_holder_on_another_machine_is_a_predecessor_if_the_rank_is_unique(tmp_path):
    rewrite(claim_place(tmp_path, "learner", 0), machine="elsewhere")
    assert place(claim_place(tmp_path, "learner", 0, rank_is_unique=True)) == (0, 2)


def test_an_alive_holder_here_keeps_its_place_even_if_the_rank_is_unique(tmp_path):
    claim_place(tmp_path, "learner", 0)
    assert place(claim_place(tmp_path, "learner", 0, rank_is_unique=True)) == (1, 1)


def test_an_ended_holder_on_another_machine_is_followed(tmp_path):
    claim = claim_place(tmp_path, "collector", 0)
    rewrite(claim, machine="elsewhere")
    claim.release()
    assert place(claim_place(tmp_path, "collector", 0)) == (0, 2)


def test_processes_that_claim_at_once_get_places_of_their_own(tmp_path, together):
    places = together(12, lambda _: place(claim_place(tmp_path, "collector", 0)))
    assert sorted(places) == [(index, 1) for index in range(12)]


def test_processes_that_follow_dead_ones_at_once_get_places_of_their_own(tmp_path, together):
    """All see the same dead holders: one follows each, nobody shares."""
    held = [claim_place(tmp_path, "collector", 0) for _ in range(3)]
    for claim in held:
        die(claim)
    places = together(8, lambda _: place(claim_place(tmp_path, "collector", 0)))
    assert sorted(places) == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]


def test_ranks_claim_their_own_index_at_once(tmp_path, together):
    places = together(8, lambda rank: place(claim_place(tmp_path, "learner", rank, rank_is_unique=True)))
    assert places == [(rank, 1) for rank in range(8)]


def test_claimants_that_end_at_once_are_all_followed(tmp_path, together):
    together(6, lambda _: claim_place(tmp_path, "collector", 0).release())
    places = together(6, lambda _: place(claim_place(tmp_path, "collector", 0)))
    assert len({index for index, _ in places}) == 6
    assert len(set(places)) == 6


def test_a_killed_holder_is_followed_and_a_living_one_is_not(tmp_path, fresh_python):
    holder = fresh_python(HOLD, str(tmp_path))
    assert holder.stdout.readline().split() == ["0", "1"]
    assert place(claim_place(tmp_path, "learner", 0)) == (1, 1)
    holder.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie until somebody waits
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)
    holder.wait()
    assert place(claim_place(tmp_path, "learner", 0)) == (2, 1)


@pytest.fixture
def without_proc(monkeypatch, tmp_path):
    """As on a system that has no /proc."""
    nowhere = str(tmp_path / "nowhere")
    monkeypatch.setattr(claims, "Path", lambda path: Path(path.replace("/proc", nowhere)))


def test_without_proc_a_living_holder_keeps_its_place(tmp_path, without_proc):
    assert [place(claim_place(tmp_path, "learner", 0)) for _ in range(2)] == [(0, 1), (1, 1)]
    assert (start_of(os.getpid()), start_of(1)) == (0, 0)


def test_without_proc_another_users_process_is_alive(without_proc, monkeypatch):
    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert start_of(1) == 0


def test_without_proc_a_dead_holder_is_followed(tmp_path, without_proc, together):
    (pid,) = together(1, lambda _: (claim_place(tmp_path, "learner", 0), os.getpid())[1])
    assert start_of(pid) is None
    assert place(claim_place(tmp_path, "learner", 0)) == (0, 2)


def test_without_proc_a_claim_names_no_host(tmp_path, without_proc, monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "secret-host")
    text = claim_place(tmp_path, "learner", 0).path.read_text()
    assert "secret-host" not in text
    monkeypatch.setattr("platform.node", lambda: "other-host")
    assert json.loads(claim_place(tmp_path, "actor", 0).path.read_text())["machine"] != json.loads(text)["machine"]


def test_start_of_tells_processes_apart(together):
    assert start_of(os.getpid()) == start_of(os.getpid())
    starts = together(2, lambda _: (os.getpid(), start_of(os.getpid())))
    assert all(start >= start_of(os.getpid()) for _, start in starts)
    assert [start_of(pid) for pid, _ in starts] == [None, None]  # they have ended


operations = st.lists(st.tuples(st.sampled_from(["claim", "end", "die"]), st.integers(0, 3)), max_size=14)


@settings(max_examples=40, deadline=None)
@given(operations)
def test_no_two_living_processes_share_a_place(tmp_path_factory, steps):
    run_dir = tmp_path_factory.mktemp("run")
    alive, seen = [], []
    for what, number in steps:
        if what == "claim":
            claim = claim_place(run_dir, "collector", number)
            assert claim.index >= number
            assert claim.index not in [other.index for other in alive]
            assert claim.incarnation == 1 + seen.count(claim.index)
            alive.append(claim)
            seen.append(claim.index)
        elif alive:
            (die if what == "die" else type(alive[0]).release)(alive.pop(number % len(alive)))
