#!/usr/bin/env bash
# Unpacks two packages of PyPI into DIR, without their requirements and without installing them: unilab-rl into
# DIR/unilab, which examples/appo_unilab.py and its tests put on sys.path, and unilab into DIR/unilab-training, whose
# soak monitor the tests of ours run beside it.
#   get_unilab.sh DIR [PYTHON]     for instance: get_unilab.sh .tools
# PYTHON, which has to have pip, is that of .venv/ at the root of the repository if there is one, else python3.
# What is already there is left alone. If it cannot be had, that costs one line on stderr and exit status 3.
set -euo pipefail

dir=$(mkdir -p "$1" && cd "$1" && pwd)
venv=$(dirname "${BASH_SOURCE[0]}")/../../.venv/bin/python
python=${2:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

fail() { echo "get_unilab: $*" >&2; exit 3; }
work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# unpack PACKAGE VERSION FOLDER
unpack() {
    local wheel="${1//-/_}-$2" output
    [ -s "$dir/$3/$wheel.dist-info/METADATA" ] && return
    output=$("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "$1==$2" 2>&1) || fail "pip download $1==$2: $(echo "$output" | tail -n 1)"
    "$python" -m zipfile -e "$work/$wheel"-*.whl "$work/$3" || fail "the wheel of $1 does not unpack"
    rm -rf "${dir:?}/$3"
    mv "$work/$3" "$dir/$3" # a rename: it appears whole
}

unpack unilab-rl 1.4.15 unilab
unpack unilab 1.5.2 unilab-training
