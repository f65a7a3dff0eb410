"""Whether the examples have somebody to send to."""

from __future__ import annotations

import os
import socket


def otlp_is_wanted() -> bool:
    """Whether the environment names an OTLP endpoint, or a Collector listens at the usual place on this machine."""
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
        return True
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 4318)) == 0
