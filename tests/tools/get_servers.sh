#!/usr/bin/env bash
# Puts programs from Debian packages into DIR/unpacked/usr/bin without touching the system's apt sources or installed
# packages.
#   get_servers.sh DIR SUITE PACKAGE...     for instance: get_servers.sh .servers trixie prometheus promtool
# Of each package it keeps /usr/bin/PACKAGE; of a library (lib...), its shared objects, in DIR/unpacked/lib. trixie has Prometheus 2.53 and VictoriaMetrics 1.112, Go programs that
# need no other package than the C library of Debian 12 or newer. The mirror is the one that this machine's apt
# already uses. Each package that cannot be had costs one line on stderr and exit status 3; the others come all
# the same.
set -euo pipefail

dir=$(mkdir -p "$1" && cd "$1" && pwd)
suite=$2
shift 2

fail() { echo "get_servers: $*" >&2; exit 3; }
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "no apt-get and dpkg here"

debian_mirror() { # of the URIs on standard input; third-party and security archives have no suite like ours
    grep -E '^https?://[^ ]+/debian/?$' | head -n 1
}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | debian_mirror) ||
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        grep -E '^(URIs:|deb )' | grep -oE 'https?://[^ ]+' | debian_mirror) ||
    fail "apt has no Debian source to take a mirror from"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || fail "no $keyring"

work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{sources.list.d,lists/partial,cache/archives/partial,root}
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o "Dir::Etc::sourceparts=$work/sources.list.d"
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
    -o Acquire::Languages=none -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30
    -o APT::Update::Error-Mode=any) # else a mirror that cannot be reached is a mere warning
[ "$(id -u)" != 0 ] || apt+=(-o APT::Sandbox::User=root) # the user _apt may not write here

output=$("${apt[@]}" update 2>&1) || fail "apt-get update: $(echo "$output" | grep -m 1 '^E:' || echo "$output" | tail -n 1)"

status=0
mkdir -p "$dir/unpacked/usr/bin" "$dir/unpacked/lib"
for package in "$@"; do
    if ! output=$(cd "$work" && "${apt[@]}" download "$package" 2>&1); then
        echo "get_servers: apt-get download $package: $(echo "$output" | tail -n 1)" >&2
        status=3
    elif [[ $package == lib* ]]; then
        dpkg -x "$work/$package"_*.deb "$work/unpacked" &&
            find "$work/unpacked" -name '*.so.*' -exec cp -Pf {} "$dir/unpacked/lib/" \; || status=3
    elif ! { dpkg -x "$work/$package"_*.deb "$work/unpacked" &&
        mv -f "$work/unpacked/usr/bin/$package" "$dir/unpacked/usr/bin/"; } 2>/dev/null; then # a rename: it appears whole
        echo "get_servers: $package does not unpack to usr/bin/$package" >&2
        status=3
    fi
done
exit "$status"
