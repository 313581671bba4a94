#!/usr/bin/env bash
# Builds the fuzz targets (preset fuzz: Debian's clang-14) and runs each for SECONDS, one after the other, from the corpus that
# earlier runs have left in build-fuzz/corpus. Prints a table; exits 1 if anything was found, and says where.
# usage: tests/fuzz/run.sh [SECONDS, default 60] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
targets=("${@:2}")
command -v clang++-14 >/dev/null || { echo "run.sh: no clang++-14: run deploy/install_deps.sh --tests" >&2; exit 2; }

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
build-fuzz/tests/fuzz/fuzz_write_seeds build-fuzz/corpus
((${#targets[@]})) || targets=($(ls build-fuzz/corpus))

found=0
printf '%-16s %12s %8s %10s %8s\n' target executions edges features finds
for target in "${targets[@]}"; do
  log=build-fuzz/$target.log
  mkdir -p "build-fuzz/finds/$target"
  "build-fuzz/tests/fuzz/fuzz_$target" "build-fuzz/corpus/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=8192 -print_final_stats=1 -artifact_prefix="build-fuzz/finds/$target/" >"$log" 2>&1 || found=1
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  features=$(sed -n 's/.* ft: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  finds=$(find "build-fuzz/finds/$target" -type f | wc -l)
  printf '%-16s %12s %8s %10s %8s\n' "$target" "${executions:--}" "${edges:--}" "${features:--}" "$finds"
done
((found)) && echo "found something: build-fuzz/finds, build-fuzz/TARGET.log" >&2
exit "$found"
