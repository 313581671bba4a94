#!/usr/bin/env bash
# Prints the picture of the rooms, made from the #include lines, as README.md has it: an arrow leads from a room to a room that it includes,
# unless a longer way leads there too. All of kernels, and all of rpc, is one room here, and every room sees proto.
# usage: tests/architecture/rooms.sh [--check]   --check: compares with README.md instead, and ends with 1 if they differ
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

picture() {
  echo '```mermaid'
  echo 'flowchart TD'
  find kernels rpc ps trainer -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
    xargs -0 grep -H -oE '^#include "(kernels|rpc|ps|trainer)/[^"]+"' |
    sed -E 's/^([^:]+):#include "([^"]+)"$/\1 \2/' |
    awk '
      function room(path,   parts) {
        split(path, parts, "/")
        if (parts[1] == "kernels" || parts[1] == "rpc") return parts[1]
        return parts[2] ~ /\./ ? parts[1] : parts[1] "/" parts[2]
      }
      { from = room($1); to = room($2); if (from != to && from != "trainer") { arrow[from, to] = 1; rooms[from]; rooms[to] } }
      # Whether a way of two arrows or more leads from a to b.
      function leads(a, b,   c) {
        for (c in rooms) if (c != b && (a, c) in arrow && reaches(c, b)) return 1
        return 0
      }
      function reaches(a, b,   c) {
        if (a SUBSEP b in known) return known[a, b]
        known[a, b] = 0
        for (c in rooms) if ((a, c) in arrow && (c == b || reaches(c, b))) { known[a, b] = 1; break }
        return known[a, b]
      }
      END { for (pair in arrow) { split(pair, ends, SUBSEP); if (!leads(ends[1], ends[2])) print "  " ends[1] " --> " ends[2] } }' |
    LC_ALL=C sort
  echo '```'
}

if [[ ${1:-} != --check ]]; then
  picture
elif ! diff <(sed -n '/^```mermaid$/,/^```$/p' README.md) <(picture); then
  echo "README.md's picture of the rooms is not what the includes say: put in its place what tests/architecture/rooms.sh prints" >&2
  exit 1
fi
