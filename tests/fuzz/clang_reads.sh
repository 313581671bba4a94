#!/usr/bin/env bash
# Has clang read all that fuzz targets are built from: every other build is g++'s, which knows more builtins. Configures the preset `fuzz`
# in FOLDER and has each source parsed, not compiled: half of the time. What was parsed well is parsed again only after a change.
# usage: tests/fuzz/clang_reads.sh FOLDER
set -euo pipefail
folder=${1:?usage: clang_reads.sh FOLDER}
cd "$(dirname "$0")/../.."
command -v clang++-14 >/dev/null || { echo "clang_reads.sh: no clang++-14: run deploy/install_deps.sh --tests" >&2; exit 2; }
mkdir -p "$folder"

# The precompiled header is compiled. An empty object tells ninja that a source was parsed.
cat >"$folder/parse" <<'END'
#!/bin/sh
case " $* " in *" -emit-pch "*) exec "$@" ;; esac
"$@" -fsyntax-only || exit
while [ $# -gt 1 ]; do
  [ "$1" != -o ] || : >"$2"
  shift
done
END
chmod +x "$folder/parse"
cmake --preset fuzz -B "$folder" -DCMAKE_CXX_COMPILER_LAUNCHER="$folder/parse" >/dev/null
objects=$(ninja -C "$folder" -t inputs tandem_fuzz | grep '\.cc\.o$' | grep -v '\.pb\.cc\.o$')
# shellcheck disable=SC2086  # a list of names without spaces
ninja -C "$folder" -j "$(nproc)" -k 0 --quiet $objects
