#!/usr/bin/env bash
# Installs what BUILD holds and moves the tree to MOVED, for the tests that use it there. No file of the CMake package may name the folders
# of the sources, the build or the first place.
# usage: tests/deploy/install_and_move.sh BUILD MOVED
set -euo pipefail
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath "$1")
moved=$2
first=$moved.first
rm -rf "$first" "$moved"
cmake --install "$build" --prefix "$first" >"$build/tests/deploy/install.log"
mv "$first" "$moved"
if grep -rFn -e "$source/" -e "$build/" -e "$first" "$moved" --include='*.cmake'; then
  echo "the installed tree cannot be moved: the lines above name folders of this build" >&2
  exit 1
fi
"$moved/bin/tandem" --version
