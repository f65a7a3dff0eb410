"""What to import instead of ``areal.utils.stats_logger``: the same calls, on every destination that is on."""

from rltel.integrations.areal import StatsLogger

__all__ = ["StatsLogger"]
