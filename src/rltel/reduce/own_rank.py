"""A warning for the step that forgot its group: what the other ranks recorded is in no chart then."""

import logging
import sys
from typing import Any

from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats

_log = logging.getLogger("rltel")
_AXIS = "train"


class OwnRank:
    """Watches what the run's writer commits on ``train``, until it has warned or the trainer exports by hand.

    Args:
        is_writer: others' statistics without a group are their own anyway.
        world_size: of the writer's role.
    """

    def __init__(self, *, is_writer: bool, world_size: int) -> None:
        self._watches = is_writer and world_size > 1

    def given(self, stats: Any, axis: str) -> None:
        """Numbers are committed. What comes from `export_all` has been reduced, or on purpose not."""
        if self._watches and axis == _AXIS and isinstance(stats, Stats):
            self._watches = False

    def recorded(self, snapshot: Snapshot, axis: str, step: int) -> None:
        """What was recorded is committed as it is, without other ranks' share."""
        if not self._watches or axis != _AXIS or not snapshot:
            return
        ranks = _ranks()
        if ranks > 1:
            self._watches = False
            _log.warning(
                "step %d: the statistics of 1 of %d ranks are committed, and the other ranks' are left out; give "
                "rltel.step a reduce_group (torch.distributed.group.WORLD, say) on every rank. If this rank's own are "
                "meant: rltel.commit(rltel.export_all(), step=...) (said once)",
                *(step, ranks),
            )


def _ranks() -> int:
    """How many ranks the program's torch.distributed has; 1 without it. Never imports torch."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 1
    return int(dist.get_world_size())
