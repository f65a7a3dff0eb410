# The node's Collector for SLURM's Prolog and Epilog: one for all jobs on the node, from the first one to the last one's end.
# Sourced by prolog.sh and epilog.sh, which run as root. Set these in the environment, or here.
OTELCOL=${OTELCOL:-/usr/local/bin/otelcol}
OTELCOL_CONFIG=${OTELCOL_CONFIG:-/etc/rltel/agent.yaml}
OTELCOL_USER=${OTELCOL_USER:-nobody} # never root: it talks to the network
STATE=${COLLECTOR_STATE:-/run/rltel-collector}
export COLLECTOR_GATEWAY=${COLLECTOR_GATEWAY:-http://gateway.example:4318}

in_turn() { # one prolog or epilog at a time
    mkdir -p "$STATE/jobs"
    exec 9>"$STATE/lock"
    flock -w 20 9
}

runs() { # the number alone could be another process's by now
    [ -s "$STATE/pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$(cat "$STATE/pid")/cmdline" | grep -qF -- "--config=$OTELCOL_CONFIG"
} 2>/dev/null

start() {
    local as=()
    [ "$(id -u)" != 0 ] || as=(setpriv --reuid "$OTELCOL_USER" --regid "$(id -g "$OTELCOL_USER")" --clear-groups --)
    setsid "${as[@]}" "$OTELCOL" --config="$OTELCOL_CONFIG" >"$STATE/log" 2>&1 9>&- </dev/null &
    echo $! >"$STATE/pid"
    for _ in $(seq 20); do # until it is the program, not yet this script's copy
        runs && break
        sleep 0.1
    done
}

stop() { # SIGTERM lets it send what it holds; it has ten seconds for that
    local pid
    pid=$(cat "$STATE/pid")
    kill "$pid" 2>/dev/null
    for _ in $(seq 100); do
        runs || break
        sleep 0.1
    done
    ! runs || kill -9 "$pid" 2>/dev/null
    rm -f "$STATE/pid"
}
