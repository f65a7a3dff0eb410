#!/usr/bin/env bash
# slurm.conf: TaskProlog=/etc/rltel/task_prolog.sh, or srun --task-prolog. What it prints as "export NAME=value" SLURM puts
# into the task's environment. What a user has set stays.
[ -n "${RLTEL_OTLP_ENDPOINT:-}" ] || echo "export OTEL_EXPORTER_OTLP_ENDPOINT=${OTEL_EXPORTER_OTLP_ENDPOINT:-http://127.0.0.1:4318}"
[ -n "${RLTEL_OTLP_ENABLED:-}" ] || echo "export RLTEL_OTLP_ENABLED=1"
