#!/usr/bin/env bash
# slurm.conf: Epilog=/etc/rltel/epilog.sh. Stops the node's Collector after the last job that wanted it.
set -uo pipefail
. "$(dirname "$(readlink -f "$0")")/collector.sh"

if in_turn; then
    rm -f "$STATE/jobs/${SLURM_JOB_ID:?set by SLURM}"
    if runs && [ -z "$(ls -A "$STATE/jobs")" ]; then stop; fi
fi
exit 0
