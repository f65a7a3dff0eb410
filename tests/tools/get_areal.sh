#!/usr/bin/env bash
# Unpacks the PyPI package areal into DIR/areal, without its requirements and without installing it: the tests load
# single modules of it.
#   get_areal.sh DIR [PYTHON]     for instance: get_areal.sh .tools
# PYTHON, which has to have pip, is that of .venv/ at the root of the repository if there is one, else python3.
# What is already there is left alone. If it cannot be had, that costs one line on stderr and exit status 3.
set -euo pipefail

version=1.0.4
dir=$(mkdir -p "$1" && cd "$1" && pwd)
venv=$(dirname "${BASH_SOURCE[0]}")/../../.venv/bin/python
python=${2:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

fail() { echo "get_areal: $*" >&2; exit 3; }
have_areal() { [ -s "$dir/areal/areal-$version.dist-info/METADATA" ]; }

have_areal && exit 0
work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
# It asks for a Python older than 3.13: here nobody runs it whole, so pip need not refuse it.
output=$("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.12 --dest "$work" "areal==$version" 2>&1) || fail "pip download areal==$version: $(echo "$output" | tail -n 1)"
"$python" -m zipfile -e "$work"/areal-*.whl "$work/areal" || fail "the wheel does not unpack"
rm -rf "$dir/areal"
mv "$work/areal" "$dir/areal" # a rename: it appears whole
