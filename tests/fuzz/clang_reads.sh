#!/usr/bin/env bash
# Whether clang can still read all that fuzz targets are built from: every other build is g++'s, which knows more builtins. Configures the
# preset `fuzz` in a folder that it removes and has each source parsed, not compiled: half of the time.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang++-14 >/dev/null || { echo "clang_reads.sh: no clang++-14: run deploy/install_deps.sh --tests" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

printf '#!/bin/sh\nexec "$@" -fsyntax-only\n' >"$folder/parse"
chmod +x "$folder/parse"
cmake --preset fuzz -B "$folder" -DCMAKE_CXX_COMPILER_LAUNCHER="$folder/parse" >/dev/null
objects=$(ninja -C "$folder" -t inputs tandem_fuzz | grep '\.cc\.o$' | grep -v '\.pb\.cc\.o$')
# shellcheck disable=SC2086  # a list of names without spaces
ninja -C "$folder" -j "$(nproc)" -k 0 --quiet $objects
