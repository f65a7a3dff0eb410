#!/bin/sh
# Tells Prometheus which processes there are: gathers what every run has in prometheus_sd/ into one file.
#   gather_targets.sh RUNS_DIR FILE [SECONDS]
# RUNS_DIR holds run directories, at any depth (rltel's run.log_root). With SECONDS it goes on, each so many seconds;
# else it does it once. The file is replaced as a whole, and only if something changed. POSIX sh: it runs in busybox too.
set -eu

[ $# -ge 2 ] || { echo "usage: $0 RUNS_DIR FILE [SECONDS]" >&2; exit 2; }
runs=$1
file=$2
[ -d "$runs" ] || { echo "$0: $runs is not a directory" >&2; exit 2; }

gather() {
    # Each of these files is a list with one group: "[{...}]". One that goes meanwhile is simply not there.
    find -L "$runs" -path '*/prometheus_sd/*.json' -type f 2>/dev/null | sort | while read -r found; do
        { tr -d '\n' <"$found" 2>/dev/null; echo; } | sed -n 's/^[[:space:]]*\[\(.*\)\][[:space:]]*$/\1/p'
    done | sed '$!s/$/,/' | { echo '['; cat; echo ']'; } >"$file.new"
    if cmp -s "$file.new" "$file"; then rm -f "$file.new"; else mv -f "$file.new" "$file"; fi
}

mkdir -p "$(dirname "$file")"
gather
[ $# -ge 3 ] || exit 0
while sleep "$3"; do gather; done
