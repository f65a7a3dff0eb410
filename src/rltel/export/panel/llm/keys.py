"""Which row of an LLM run's panel a key is, and whether a run is one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from rltel.export.panel.labels import MEAN_REWARD
from rltel.export.panel.llm.rows import GROUPS, OURS, PERSISTED_ONLY, REWARDS, TERM, Group, Measure
from rltel.names.schema import tag

_REMEMBERED = 1 << 16  # thousands of experts' keys may come with every step
_NUMBERED = re.compile(r"(layer_|expert_|pass@|best@)(\d+)")
_WORDS = re.compile(r"[-_ ]")
_TIMES = "timeperf"
_TERMS = frozenset({"reward", "rewards"})
_STATISTICS = frozenset({"max", "min", "std", "mean", "avg", "p50", "p90", "p99", "nonfinite"})
_UNSAID = frozenset(
    {"", "agent", "groups", "learner", "model", "objective", "optim", "perf"}
    | {"policy", "sampling", "stats", "train", "trainer", "update"}
)
_ACTOR, _CRITIC = "actor", "critic"
_TESTS = frozenset({"eval", "test", "val", "valid", "validation"})
_OTHERS = frozenset({_CRITIC, "eval", "ref", "reference", "reward_model", "rm", "teacher", "value"})


class Place(NamedTuple):
    """Where a key stands."""

    group: Group | None
    """None: only in the persistent destinations."""
    measure: Measure
    order: int
    """Position among all measures, from the top."""
    rank: int
    """Which of its endings the key has: in one scope, the lowest is shown."""
    scope: str
    """Whose it is, in words: ``critic``, ``eval``, ``rollout``; empty for the policy that is trained."""
    number: str
    """What stands for ``*``: the layer, or k."""
    is_ours: bool

    @property
    def is_of_the_policy(self) -> bool:
        """Whether it goes without saying whose it is, and is no critic's or test's."""
        return _OTHERS.isdisjoint(self.scope.split())


class _Ending(NamedTuple):
    group: Group | None
    measure: Measure
    order: int
    rank: int


def _endings() -> Iterator[tuple[str, _Ending]]:
    order = 0
    for group in GROUPS:
        for measure in group.measures:
            order += 1
            for rank, ending in enumerate(measure.endings):
                yield ending, _Ending(group, measure, order, rank)
    for ending in PERSISTED_ONLY:
        yield ending, _Ending(None, Measure("", (ending,)), 0, 0)


_BY_ENDING: Mapping[str, _Ending] = dict(_endings())
_LONGEST = max(ending.count("/") + 1 for ending in _BY_ENDING)
_TERM = _BY_ENDING[TERM.endings[0]]


@lru_cache(_REMEMBERED)
def place_of(key: str) -> Place | None:
    """Where a flat key stands; None for a key that nobody knows. The longest ending that fits decides."""
    parts = key.removesuffix("/avg").removesuffix("/mean").split("/")
    if _TIMES in parts:  # a phase that is called reward is none
        return None
    for size in range(min(_LONGEST, len(parts)), 0, -1):
        said, scopes = parts[-size:], parts[:-size]
        found = _BY_ENDING.get("/".join(said))
        if found is not None:
            return Place(*found, _scope(scopes), "", said[0] in OURS)
        found = _BY_ENDING.get("/".join(_NUMBERED.sub(r"\1*", part) for part in said))
        if found is not None:
            number = next((match[2] for part in said if (match := _NUMBERED.fullmatch(part))), "")
            return Place(*found, _scope(scopes), number, said[0] in OURS)
    if len(parts) > 1 and parts[-2] in _TERMS and parts[-1] not in _STATISTICS:
        return Place(*_TERM._replace(measure=TERM._replace(text=parts[-1])), _scope(parts[:-2]), "", is_ours=False)
    return None


def is_llm_run(keys: Iterable[str]) -> bool:
    """Whether keys are read as an LLM run's: some are ours, or none is a canonical tag of robot RL."""
    of_robots = False
    for key in keys:
        place = place_of(key)
        if place is not None and place.is_ours:
            return True
        of_robots = of_robots or _is_canonical(key)
    return not of_robots


@lru_cache(_REMEMBERED)
def _is_canonical(key: str) -> bool:
    """Whether it is one of the schema's own names. Its families (``reward/<term>``) are anybody's."""
    found = tag(key.removesuffix("/avg"))
    return found is not None and found.family is None


def _scope(parts: Iterable[str]) -> str:
    """The scopes in front of an ending, without those that say nothing."""
    return " ".join(_called(part) for part in parts if part.lower() not in _UNSAID and not part.endswith(_ACTOR))


def _called(scope: str) -> str:
    """``ppo_critic`` and ``critic`` are the critic, ``eval-rollout`` and ``val-core`` are the evaluation."""
    if scope.endswith(_CRITIC):
        return _CRITIC
    return "eval" if _WORDS.split(scope, maxsplit=1)[0].lower() in _TESTS else scope


@lru_cache(64)
def reward_key(keys: tuple[str, ...]) -> str | None:
    """The one of these keys that is the run's mean reward; None without any."""
    if MEAN_REWARD in keys:
        return MEAN_REWARD
    return min((key for key in keys if _is_reward(place_of(key))), key=_reward_rank, default=None)


def _is_reward(place: Place | None) -> bool:
    return place is not None and place.measure is REWARDS.measures[0] and place.is_of_the_policy


def _reward_rank(key: str) -> tuple[bool, int, int]:
    place = place_of(key)
    assert place is not None  # only rewards are ranked
    return bool(place.scope), place.rank, len(key)
