#!/usr/bin/env bash
# Compiles each public header by itself from the installed tree, with warnings as errors and without a precompiled header: whoever includes
# it needs no other include before.
# usage: tests/deploy/headers_alone.sh BUILD TREE
set -euo pipefail
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
include=$2/include/tandem
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$1/CMakeCache.txt")
export include compiler
cd "$include"
{ grep -v '^#' "$source/deploy/public_headers.txt"; ls proto/*.pb.h; } |
  xargs -P "$(nproc)" -I{} bash -c 'echo "#include \"{}\"" |
    "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I"$include" -isystem "$include/proto" -x c++ - || { echo "{} does not compile alone" >&2; exit 1; }'
