#!/usr/bin/env bash
# Counts what is too large to read: folders of more than 30 sources, sources of the product of more than 500 lines, tests of more than 700,
# and interfaces of more than 12 virtual functions. Prints one line for each, then the numbers. Ends with 1 if there is any.
# usage: tests/architecture/sizes.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

sources() { find kernels rpc ps trainer examples tests -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort; }

found=$(
  sources | sed 's|/[^/]*$||' | sort | uniq -c | awk '$1 > 30 { print "folder     " $1 " sources  " $2 }'
  sources | xargs wc -l | awk '$2 != "total" { limit = $2 ~ /^tests\// ? 700 : 500; if ($1 > limit) print "source     " $1 " lines  " $2 }'
  sources | grep '\.h$' | grep -v '^tests/' | xargs awk '
    /^(class|struct) [A-Za-z]+.*\{$/ { name = $2; functions = 0 }
    /^  virtual / && !/virtual ~/ { ++functions }
    /^};/ { if (functions > 12) print "interface  " functions " functions  " name " in " FILENAME; name = ""; functions = 0 }'
)
[[ -z $found ]] || echo "$found"
for kind in folder source interface; do
  echo "$kind: $(grep -c "^$kind " <<<"$found" || true) over the limit"
done
[[ -z $found ]]
