#!/usr/bin/env bash
# Unpacks the PyPI package areal into DIR/areal, without its requirements and without installing it: the tests load
# single modules of it.
#   get_areal.sh DIR [PYTHON]     for instance: get_areal.sh .tools .venv/bin/python
# What is already there is left alone. If it cannot be had, that costs one line on stderr and exit status 3.
set -euo pipefail

version=1.0.4
dir=$(mkdir -p "$1" && cd "$1" && pwd)
python=${2:-python3}

fail() { echo "get_areal: $*" >&2; exit 3; }
have_areal() { [ -s "$dir/areal/areal-$version.dist-info/METADATA" ]; }

have_areal && exit 0
work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
output=$("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work" "areal==$version" 2>&1) || fail "pip download areal==$version: $(echo "$output" | tail -n 1)"
"$python" -m zipfile -e "$work"/areal-*.whl "$work/areal" || fail "the wheel does not unpack"
rm -rf "$dir/areal"
mv "$work/areal" "$dir/areal" # a rename: it appears whole
