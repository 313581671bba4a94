#!/usr/bin/env bash
# Holds what a machine can of plain English without clang-format: how comments begin, documents that are named but not there, the length of
# READMEs and the width of lines.
# Prints a line for each violation and ends with 1 if there is any.
# usage: tests/architecture/language.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

folders=()
for folder in proto kernels rpc ps trainer examples tests; do
  [[ -d $folder ]] && folders+=("$folder")
done
sources() {
  find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.proto' \) |
    grep -v '/language_test.cc$' | LC_ALL=C sort
}
readmes() { find . -name '*.md' -not -path './build*' -not -path './out/*' | LC_ALL=C sort; }

# A comment starts with its subject or a verb.
openings() {
  sources | xargs -r awk '
    FNR == 1 { before = 0 }
    {
      whole = match($0, /^[ \t]*\/\//)
      if (match($0, /\/\/ *(Of|What|Whether|Those|Likewise)( |,)/) && !(whole && before)) {
        print FILENAME ":" FNR ": a comment begins with a banned word:" substr($0, RSTART + 2, 60)
      }
      before = whole
    }'
}

# Comments and pages name documents of the project alone.
documents() {
  local file line name
  { sources && readmes; } | xargs -r grep -nHoE '[A-Za-z0-9_][A-Za-z0-9_./-]*\.md\b' | while IFS=: read -r file line name; do
    [[ -e $name || -e $(dirname "$file")/$name ]] || echo "$file:$line: names $name, which does not exist"
  done
}

# Sources have 100 columns (.clang-format). A raw string is as wide as its text.
widths() {
  sources | xargs -r awk '
    FNR == 1 { raw = 0 }
    {
      opens = index($0, "R\"")
      if (length($0) > 100 && !raw && !opens) print FILENAME ":" FNR ": " length($0) " columns; allowed: 100"
      if (opens) raw = 1
      if (raw && index($0, ")\"")) raw = 0
    }'
}

# A README is read in one go: the root one in 150 lines, that of a room in 60. One is a walk through commands.
lengths() {
  local file limit
  readmes | { grep -E '(^|/)README\.md$' || true; } | while read -r file; do
    limit=60
    [[ $file == ./README.md ]] && limit=150
    [[ $file == ./deploy/k8s/README.md ]] && limit=110
    (($(wc -l <"$file") <= limit)) || echo "$file: $(wc -l <"$file") lines; allowed: $limit"
  done
  true
}

found=$(openings; documents; lengths; widths)
[[ -z $found ]] || { echo "$found"; exit 1; }
