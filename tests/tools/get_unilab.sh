#!/usr/bin/env bash
# Unpacks the PyPI package unilab-rl into DIR/unilab, without its requirements and without installing it: the example
# examples/appo_unilab.py and its tests put that folder on sys.path.
#   get_unilab.sh DIR [PYTHON]     for instance: get_unilab.sh .tools
# PYTHON, which has to have pip, is that of .venv/ at the root of the repository if there is one, else python3.
# What is already there is left alone. If it cannot be had, that costs one line on stderr and exit status 3.
set -euo pipefail

version=1.4.15
dir=$(mkdir -p "$1" && cd "$1" && pwd)
venv=$(dirname "${BASH_SOURCE[0]}")/../../.venv/bin/python
python=${2:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

fail() { echo "get_unilab: $*" >&2; exit 3; }
have_unilab() { [ -s "$dir/unilab/unilab_rl-$version.dist-info/METADATA" ]; }

have_unilab && exit 0
work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
output=$("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work" "unilab-rl==$version" 2>&1) || fail "pip download unilab-rl==$version: $(echo "$output" | tail -n 1)"
"$python" -m zipfile -e "$work"/unilab_rl-*.whl "$work/unilab" || fail "the wheel does not unpack"
rm -rf "$dir/unilab"
mv "$work/unilab" "$dir/unilab" # a rename: it appears whole
