"""The task of `grpo_arithmetic.py`: sums, with an answer that can be verified. No telemetry in here.

A problem is ``47+85=``; its answer is written from the last digit to the first, ``231`` and a stop, since that is the
way a carry goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PLUS, EQUALS, STOP, PAD = 10, 11, 12, 13
VOCABULARY = 14
LARGEST = 99
MOST_ANSWER_TOKENS = 5
"""Digits and the stop; longer answers are cut off."""
MOST_TOKENS = 6 + MOST_ANSWER_TOKENS
HELD_OUT = frozenset(np.random.default_rng(11).permutation((LARGEST + 1) ** 2)[:900].tolist())
"""Numbers of the problems that no training sees."""


FORGETS = 0.6
"""How often the teacher of the warm-up forgets to carry."""


class Problem(NamedTuple):
    """Two numbers to add."""

    left: int
    right: int

    @property
    def prompt(self) -> list[int]:
        """As tokens."""
        return [*map(int, str(self.left)), PLUS, *map(int, str(self.right)), EQUALS]

    @property
    def answer(self) -> list[int]:
        """The right one, as tokens."""
        return [*map(int, reversed(str(self.left + self.right))), STOP]

    def taught(self, random: np.random.Generator) -> list[int]:
        """The answer of a sloppy teacher: what its pupil has to unlearn, and cannot by more of the same."""
        if random.random() > FORGETS:
            return self.answer
        ones, tens = (sum(pair) % 10 for pair in ((self.left, self.right), (self.left // 10, self.right // 10)))
        return [*map(int, reversed(str(10 * tens + ones))), STOP]


def problems(random: np.random.Generator, count: int, *, held_out: bool = False) -> list[Problem]:
    """Problems to train on, or of those that no training sees."""
    drawn: list[int] = []
    while len(drawn) < count:
        number = int(random.integers((LARGEST + 1) ** 2))
        if (number in HELD_OUT) == held_out:
            drawn.append(number)
    return [Problem(*divmod(number, LARGEST + 1)) for number in drawn]


def reward_of(problem: Problem, said: list[int]) -> float:
    """1 for the right answer with its stop, else 0: nothing in between to be gamed."""
    return float(said == problem.answer)


def text_of(tokens: list[int]) -> str:
    """Tokens as people read them."""
    return "".join({PLUS: "+", EQUALS: "=", STOP: ".", PAD: " "}.get(token, str(token)) for token in tokens)
