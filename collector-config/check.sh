#!/usr/bin/env bash
# Asks the Collector itself whether it takes these files, with every otelcol that is here.
#   check.sh [FILE...]
# Programs: those that OTELCOL names (separated by spaces), else otelcol and otelcol-contrib on PATH. A file whose
# components a program lacks is not put to it; which ones are lacking is said. Exit status: 0 no fault found, 1 a file is
# refused, 2 no program is here, 3 a file was put to no program.
set -uo pipefail
shopt -s nullglob

here=$(cd "$(dirname "$0")" && pwd)
files=("$@")
[ $# -gt 0 ] || files=("$here"/agent.yaml "$here"/gateway*.yaml)

programs=()
for name in ${OTELCOL:-otelcol otelcol-contrib}; do
    found=$(command -v "$name") && programs+=("$found")
done
if [ ${#programs[@]} = 0 ]; then
    echo "check: no Collector here: none of ${OTELCOL:-otelcol, otelcol-contrib} is on PATH" >&2
    exit 2
fi

used() { # "section/type" of each component that a file configures
    awk '/^[a-z]+:/ {section = $1; sub(":.*", "", section)}
        section ~ /^(receivers|processors|exporters|extensions|connectors)$/ && /^  [a-z]/ {
            type = $1; sub("[:/].*", "", type); print section "/" type}' "$1" | sort -u
}

had() { # the same of a program; two exporters still answer to their names of before 0.144
    "$1" components 2>/dev/null | awk '/^[a-z]+:/ {section = $1; sub(":.*", "", section)}
        /^ *- *name:/ {print section "/" $NF}
        section == "exporters" && $NF == "otlp_http" {print "exporters/otlphttp"}
        section == "exporters" && $NF == "otlp_grpc" {print "exporters/otlp"}' | sort -u
}

status=0
for file in "${files[@]}"; do
    asked=0
    for program in "${programs[@]}"; do
        lacking=$(comm -23 <(used "$file") <(had "$program") | tr '\n' ' ')
        if [ -n "$lacking" ]; then
            echo "lacks   $(basename "$file"): $(basename "$program") has no ${lacking% }"
            continue
        fi
        asked=1
        if output=$("$program" validate --config="$file" 2>&1); then
            echo "ok      $(basename "$file"): $(basename "$program")"
        else
            echo "REFUSED $(basename "$file"): $(basename "$program"): $output"
            status=1
        fi
    done
    if [ $asked = 0 ]; then
        echo "check: $(basename "$file") was put to no Collector" >&2
        [ $status = 1 ] || status=3
    fi
done
exit $status
