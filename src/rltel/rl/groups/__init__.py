"""Group statistics for GRPO and its kin: rollouts of the same prompt, and what completions are like.

Definitions and keys: docs/groups.md.
"""

from rltel.rl.groups.entropy import entropy_of, record_entropy
from rltel.rl.groups.pass_at_k import best_at_k, pass_at_k
from rltel.rl.groups.repetition import loop_length, record_repetition, repeated_ngrams
from rltel.rl.groups.samples import sample_completions
from rltel.rl.groups.statistics import record

__all__ = [
    "best_at_k", "entropy_of", "loop_length", "pass_at_k", "record", "record_entropy", "record_repetition",
    "repeated_ngrams", "sample_completions",
]  # fmt: skip
