from __future__ import annotations

import pytest

from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers


@pytest.fixture
def trackers() -> Trackers:
    return Trackers(Recorder())
