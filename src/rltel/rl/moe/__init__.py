"""How evenly a mixture-of-experts model uses its experts: assignments counted by layer and expert.

``attach`` counts in a model's own routers; ``record`` takes counts that somebody else made. See ``docs/moe.md``.
"""

from rltel.rl.moe.contracts import CONTRACTS, Buffer, Contract, Router, counter_buffer
from rltel.rl.moe.counting import RouterCounter, attach
from rltel.rl.moe.loads import EXPERT_LOADS, Balance, balance
from rltel.rl.moe.recording import record

__all__ = [
    "CONTRACTS",
    "EXPERT_LOADS",
    "Balance",
    "Buffer",
    "Contract",
    "Router",
    "RouterCounter",
    "attach",
    "balance",
    "counter_buffer",
    "record",
]
