#!/usr/bin/env bash
# slurm.conf: Prolog=/etc/rltel/prolog.sh (as root, on each node of a job, before its first task).
# Starts the node's Collector, unless it runs. Its own failure is logged and never drains a node: it always ends well.
set -uo pipefail
. "$(dirname "$(readlink -f "$0")")/collector.sh"

if in_turn; then
    touch "$STATE/jobs/${SLURM_JOB_ID:?set by SLURM}"
    runs || start
else
    logger -t rltel "prolog: another one holds $STATE/lock" 2>/dev/null
fi
exit 0
