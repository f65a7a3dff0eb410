"""rsl_rl (5.4 or later): `RltelLogWriter` for ``cfg["logger"]``, and `instrument` for where its time goes."""

from rltel.integrations.rsl_rl.runner import instrument
from rltel.integrations.rsl_rl.writer import RltelLogWriter

__all__ = ["RltelLogWriter", "instrument"]
