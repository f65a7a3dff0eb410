"""``names.strict``: keys that the catalogue does not have are refused, and nothing is lost."""

import pytest

from export.making import recorded
from rltel.core.errors import RecordError
from rltel.export.strict import StrictNames
from rltel.names.schema import persisted_tags
from rltel.record.phase_sets import LLM_LEARNER
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

KNOWN = {"Loss/actor": 0.5, "Train/mean_reward": 1.0, "reward/upright": 0.25}


def test_keys_of_the_catalogue_pass() -> None:
    StrictNames().check(Snapshot.of_numbers(KNOWN))


def test_others_are_named() -> None:
    with pytest.raises(RecordError, match=r'no key "Los/actor", "speed"; record keys of .*strict: false'):
        StrictNames().check(Snapshot.of_numbers({**KNOWN, "Los/actor": 1.0, "speed": 2.0}))


def test_of_many_the_first_are_named() -> None:
    with pytest.raises(RecordError, match=r'"k0", "k1", "k2", "k3", "k4" and 95 more;'):
        StrictNames().check(Snapshot.of_numbers({f"k{i}": 0.0 for i in range(100)}))


def test_what_was_refused_once_is_refused_again() -> None:
    strict = StrictNames()
    for _ in range(2):
        with pytest.raises(RecordError, match='no key "speed"'):
            strict.check(Snapshot.of_numbers({"speed": 2.0}))


def test_nothing_is_lost() -> None:
    trackers = Trackers()
    strict = StrictNames()
    trackers.default.gauge(KNOWN)
    trackers.default.scalar(speed=2.0)
    with pytest.raises(RecordError, match="speed"), trackers.taken() as snapshot:
        strict.check(snapshot)
    with trackers.taken() as snapshot:
        assert {*KNOWN, "speed"} <= snapshot.keys()


def test_a_named_tracker_s_key_counts_without_its_name() -> None:
    StrictNames().check(recorded(lambda trackers: trackers.get("rollout").gauge({"Train/mean_reward": 1.0})))


def test_but_not_in_the_default_one() -> None:
    with pytest.raises(RecordError, match="rollout/Train"):
        StrictNames().check(Snapshot.of_numbers({"rollout/Train/mean_reward": 1.0}))


def test_a_phase_passes_whatever_its_key() -> None:
    def record(trackers: Trackers) -> None:
        clock = PhaseClock(LLM_LEARNER, trackers.default, Recorder())
        with clock.iteration(step=0), clock.phase(LLM_LEARNER.phases[0].name):
            pass

    StrictNames().check(recorded(record))


class TestTheMetricSchema:
    """Its namespaces are closed: a pattern of the catalogue would name a misspelt phase or loss."""

    @pytest.mark.parametrize("key", ["Perf/learner_inferense_ms", "Train/mean_rewrad", "reward/mean"])
    def test_refuses_what_is_no_tag(self, key: str) -> None:
        with pytest.raises(RecordError, match=f'no key "{key}"'):
            StrictNames().check(Snapshot.of_numbers({key: 1.0}))

    def test_says_what_has_the_meaning_of_a_removed_tag(self) -> None:
        with pytest.raises(RecordError, match=r"Episode_Reward/\.\.\. is not emitted any more, reward/<term> has its"):
            StrictNames().check(Snapshot.of_numbers({"Episode_Reward/upright": 1.0}))

    def test_an_open_family_is_open_to_its_algorithms(self) -> None:
        StrictNames(algorithm="ppo").check(Snapshot.of_numbers({"Loss/symmetry": 1.0}))
        with pytest.raises(RecordError, match='no key "Loss/symmetry"'):
            StrictNames(algorithm="sac").check(Snapshot.of_numbers({"Loss/symmetry": 1.0}))

    def test_has_every_persisted_tag(self) -> None:
        StrictNames().check(Snapshot.of_numbers({each.name: 1.0 for each in persisted_tags()}))
