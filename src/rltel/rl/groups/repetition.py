"""How much a completion repeats itself: n-grams that come again, and a loop that it ends in."""

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.inputs import summary
from rltel.record.tracker import Tracker
from rltel.rl.groups.hosted import hosted
from rltel.rl.groups.statistics import SCOPE
from rltel.rl.inputs import tracker_of_rollouts


def record_repetition(completions: Iterable[Any], *, n: int = 4, tracker: Tracker | None = None) -> None:
    """Record `repeated_ngrams` and `loop_length` of completions, under ``<current scope>/groups/``.

    ``repetition`` (completions of fewer than n tokens have none) and ``loop_fraction`` (tokens of the loop over all
    tokens; empty completions have none) are averages and extremes over completions. Runs on the host, in Python: about
    a millisecond for 1000 tokens. Where that is too much, record some of the completions.

    Args:
        completions: token ids (or words) of each: lists, arrays or tensors on the host, without prompt and padding.
        n: length of the n-grams.
        tracker: None is the process's default one; inside `rltel.eval_scope`, ``eval-rollout``.

    Raises `RecordError`, and records nothing, for what is no sequence of tokens, or an n below 1.
    """
    if isinstance(completions, (str, bytes)) or not isinstance(completions, Iterable):
        raise RecordError(f"record_repetition: expected the tokens of each completion, got {summary(completions)}")
    _check_n(n)
    tokens = [hosted("record_repetition", each) for each in completions]
    repeated = [share for each in tokens if (share := repeated_ngrams(each, n)) is not None]
    loops = [loop_length(each) / len(each) for each in tokens if each]
    found = {"repetition": repeated, "loop_fraction": loops}
    tracker = tracker_of_rollouts(tracker)
    with tracker.scope(SCOPE):
        tracker.stat({key: values for key, values in found.items() if values})


def repeated_ngrams(tokens: Any, n: int = 4) -> float | None:
    """The share of n-grams that came before in the same completion: ``1 - distinct n-grams / n-grams``.

    This is ``seq-rep-n`` of Welleck et al., "Neural Text Generation with Unlikelihood Training" (2020), and 1 minus
    ``distinct-n`` of Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models" (2016), taken
    for one completion. None for fewer than n tokens.

    ``tokens`` may be text: its characters. Raises `RecordError` for what is no sequence, and for an n below 1.
    """
    _check_n(n)
    tokens = tokens if isinstance(tokens, str) else hosted("repeated_ngrams", tokens)
    count = len(tokens) - n + 1
    if count < 1:
        return None
    grams = zip(*(tokens[begin : begin + count] for begin in range(n)), strict=True)
    return 1 - len(set(grams)) / count


def _check_n(n: Any) -> None:
    if not hasattr(n, "__index__") or index(n) < 1:
        raise RecordError(f"repeated_ngrams: n: expected a whole number >= 1, got {n!r:.60}")


def loop_length(tokens: Any) -> int:
    """How many tokens at the end are a loop: the longest end that is one block at least twice in a row (and a part of
    it, perhaps). 0 if there is none. ``x a b a b a`` ends in a loop of 5.

    In linear time, by the Z-function of the reversed tokens (Gusfield, "Algorithms on Strings, Trees and Sequences",
    1997, section 1.4): where the end, moved back by p, fits itself for p tokens and more, it has period p.
    """
    tokens = tokens if isinstance(tokens, str) else hosted("loop_length", tokens)
    fits = _z_function(tokens[::-1])
    return max((period + fit for period, fit in enumerate(fits) if 0 < period <= fit), default=0)


def _z_function(text: Sequence[Any]) -> list[int]:
    """For each place, how many tokens from there are those of the begin."""
    length = len(text)
    found = [0] * length
    left = right = 0  # of what fits and reaches furthest
    for place in range(1, length):
        fit = min(right - place, found[place - left]) if place < right else 0
        while place + fit < length and text[fit] == text[place + fit]:
            fit += 1
        found[place] = fit
        if place + fit > right:
            left, right = place, place + fit
    return found
