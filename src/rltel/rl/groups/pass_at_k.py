"""Estimates of how often at least one of k rollouts of a prompt is right, and of how good the best of k is.

Both take all n rollouts of the group, and are the mean over every choice of k of them (without replacement). That makes
them unbiased for k new rollouts of the same policy, which ``1 - (1 - c/n)^k`` is not.
"""

from functools import cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rltel.core.errors import RecordError
from rltel.record.inputs import as_values


def pass_at_k(n: int, c: int, k: int) -> float:
    """``1 - C(n-c, k) / C(n, k)``, for n rollouts of which c are right.

    The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code" (2021), section 2.1.
    Raises ValueError unless ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass_at_k: expected 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1 - comb(n - c, k) / comb(n, k)


def best_at_k(rewards: Any, k: int) -> float:
    """The expected highest reward of k of these rollouts, drawn without replacement.

    The i-th smallest of n is the highest of the k in ``C(i-1, k-1)`` of ``C(n, k)`` choices. Of rewards 0 and 1 it is
    pass@k; with k = n it is the plain best. Raises ValueError unless ``1 <= k <= n``, and for what is no ``[n]``.
    """
    given = as_values("best_at_k: rewards", rewards, None, "")
    if len(given.shape) != 1:
        raise RecordError(f"best_at_k: rewards: expected one for each rollout, [n], got shape {tuple(given.shape)}")
    if not 1 <= k <= len(given):
        raise ValueError(f"best_at_k: expected 1 <= k <= n, got n={len(given)}, k={k}")
    ordered = np.sort(np.asarray(given.tolist(), np.float64))
    with np.errstate(all="ignore"):  # infinite rewards make what they make
        return float(ordered[k - 1 :] @ weights_of_best(len(ordered), k))


@cache
def passes(n: int, k: int) -> NDArray[np.float64]:
    """`pass_at_k` for every c from 0 to n."""
    return np.array([pass_at_k(n, c, k) for c in range(n + 1)])


@cache
def weights_of_best(n: int, k: int) -> NDArray[np.float64]:
    """In how many of all choices of k each of n rewards, from the k-th lowest, is the best: a share.

    The lower ones never are. They would take part with a weight of 0, and make NaN of -inf.
    """
    total = comb(n, k)
    return np.array([comb(i, k - 1) / total for i in range(k - 1, n)])
