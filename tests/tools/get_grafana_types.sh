#!/usr/bin/env bash
# Puts Grafana's own types of dashboards, and a TypeScript compiler, into DIR/grafana-types from npm.
#   get_grafana_types.sh DIR
# What is there is left alone. Without npm: one line on stderr and exit status 3; the test that needs them skips.
set -euo pipefail

schema=13.2.3
typescript=5.9.3

fail() { echo "get_grafana_types: $*" >&2; exit 3; }
dir=$(mkdir -p "$1" && cd "$1" && pwd)/grafana-types
[ ! -s "$dir/node_modules/typescript/bin/tsc" ] || exit 0
command -v npm >/dev/null || fail "no npm here"

work=$(mktemp -d "$1/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
# Only these two packages, unpacked: their types need no other, and nothing of them runs when they are installed.
npm pack --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000 \
    "@grafana/schema@$schema" "typescript@$typescript" >/dev/null 2>npm.log ||
    fail "npm pack: $(head -n 1 npm.log)"
mkdir -p types/node_modules/@grafana/schema types/node_modules/typescript
tar xzf grafana-schema-*.tgz --strip-components=1 -C types/node_modules/@grafana/schema
tar xzf typescript-*.tgz --strip-components=1 -C types/node_modules/typescript
[ -s types/node_modules/typescript/bin/tsc ] || fail "typescript $typescript has no bin/tsc"
rm -rf "$dir"
mv types "$dir"
