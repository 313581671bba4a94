#!/usr/bin/env bash
# Builds examples/custom_model as another project would, and trains with it. `find` takes Tandem from an installed tree, `add` adds this
# folder to a project of its own. To add it costs no build of Tandem: only the example is compiled. The project's own command links it with
# the libraries that BUILD holds.
# usage: tests/deploy/build_outside.sh BUILD find TREE
#        tests/deploy/build_outside.sh BUILD add
set -euo pipefail
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath "$1")
way=$2
project=$source/examples/custom_model
name=custom_model
work=$build/tests/deploy/$way
rm -rf "$work"
mkdir -p "$work"
configure() { cmake -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" -B "$work/build" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }; }

if [[ $way == find ]]; then
  configure -S "$project" -DCMAKE_PREFIX_PATH="$3"
  ninja -C "$work/build" --quiet "$name"
  program=$work/build/$name
else
  # A project that has neither warnings as errors nor our flags, and keeps them off.
  cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
add_subdirectory($source tandem)
add_subdirectory($project program)
END
  configure -S "$work" "-DTANDEM_CUDA=$(sed -n 's/^TANDEM_CUDA:[A-Z]*=//p' "$build/CMakeCache.txt")"
  cd "$work/build"
  # shellcheck disable=SC2046  # a list of names without spaces
  ninja --quiet $(ninja -t inputs "$name" | grep "^program/.*\.o$")
  for library in $(ninja -t inputs "$name" | grep '^tandem/.*\.a$'); do
    ln -f "$build/${library#tandem/}" "$library"
  done
  eval "$(ninja -t commands -s "program/$name")"
  program=$work/build/program/$name
  if grep -E -- '-Werror|-ffp-contract|-fno-plt' <(ninja -t commands "$name" | grep -- "-c $project/"); then
    echo "the other project's sources are compiled with flags of ours" >&2
    exit 1
  fi
fi
"$program" synthesize --out "$work/log.txt" --users 200 --items 100
"$program" launch "$project/job.textproto" --local --set data.path="$work/log.txt" --set train.max_steps=10 --out "$work/run"
