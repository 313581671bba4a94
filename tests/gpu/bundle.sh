#!/usr/bin/env bash
# Collects what tests/gpu/run.sh runs into one folder below 40 MiB, to be carried to a machine with a GPU: the program, stripped, and the
# shared libraries that it needs besides the system's and CUDA's. Needs the CUDA toolkit, no GPU.
# usage: tests/gpu/bundle.sh [FOLDER]   default: build/gpu-bundle
set -euo pipefail
folder=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../../build/gpu-bundle}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
limit=$((40 << 20))

deploy/install_deps.sh --tests
cmake --preset default -DTANDEM_TESTS=ON -DTANDEM_CUDA=ON >/dev/null
cmake --build --preset default --parallel "$(nproc)" --target tandem_gpu

rm -rf "$folder"
mkdir -p "$folder"
strip -o "$folder/tandem_gpu" build/tests/gpu/tandem_gpu
# What every Linux with a compiler has, in a version that its own libraries want, stays there.
system='/(ld-linux|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)[.-]'
ldd "$folder/tandem_gpu" | awk '/=> \// { print $3 }' | grep -vE "$system" | sort -u |
  while read -r library; do cp -L "$library" "$folder/"; done
strip --strip-unneeded "$folder"/*.so*

bytes=$(du -sb "$folder" | cut -f1)
echo "bundle: $folder, $(ls "$folder" | wc -l) files, $((bytes >> 20)) MiB"
((bytes < limit)) || { echo "bundle: more than 40 MiB" >&2; exit 1; }
