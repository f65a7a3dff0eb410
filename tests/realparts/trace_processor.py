"""Perfetto's own SQL engine on a trace file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from realparts import requirements

Row = dict[str, Any]


class TraceQueryError(Exception):
    """The trace processor refused the trace or a query; the message is its own."""


def query(trace_path: Path | str, *sql: str, timeout: float = 120.0) -> list[list[Row]]:
    """Loads the trace once and runs the queries on it, in order.

    Args:
        trace_path: A trace in any format that Perfetto loads.
        sql: The queries, at least one. Nearly all of a call's time is the start of the engine, so
            pass all that a test needs at once.
        timeout: Seconds for the whole call.

    Returns:
        For each query its rows, for each row its columns by name: int, float, str, None; a blob as
        hexadecimal text, a float without a fraction as an int. Each text given as SQL has one
        result, of its last statement.

    Raises:
        TraceQueryError: The trace or a query was refused.
    """
    if not sql:
        raise ValueError("query() needs at least one SQL statement")
    done = subprocess.run(
        [requirements.need_node(), requirements.TOOLS_SOURCE / "trace_query.mjs", trace_path, *sql],
        env={**os.environ, "TRACE_PROCESSOR_ASSETS": str(requirements.need_trace_processor())},
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise TraceQueryError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]
