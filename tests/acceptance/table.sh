# The table of figures, and what reads them out of a run's files. Sourced by run.sh.

rows=()
missed=0

# row WHAT WANTED MEASURED VERDICT: pass, MISS, skipped, or - for a figure without a limit.
row() {
  rows+=("$1|$2|$3|$4")
  [[ $4 == MISS ]] && missed=$((missed + 1))
  printf '   %s: %s (%s) %s\n' "$1" "$3" "$2" "$4" >&2
}

# verdict COMMAND...: pass or MISS, as the command says.
verdict() { if "$@"; then echo pass; else echo MISS; fi; }

# within VALUE LOW HIGH; a VALUE that is no number is not within anything.
within() { awk -v v="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(v ~ /^[-+.0-9e]+$/ && v + 0 >= low && v + 0 <= high) }'; }

print_table() {
  printf '%s\n' "what|wanted|measured|" "${rows[@]}" | awk -F'|' '
    { for (i = 1; i <= 4; ++i) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
    END { for (r = 1; r <= NR; ++r) printf "%-*s  %-*s  %-*s  %s\n", width[1], cell[r, 1], width[2], cell[r, 2],
                                           width[3], cell[r, 3], cell[r, 4] }'
  if ((missed)); then echo "$missed of ${#rows[@]} figures missed"; else echo "no figure missed"; fi
  ((missed == 0))
}

# json_field KEY < JSON lines: the value of the key, without quotes, line by line. Values must hold no comma and no brace.
json_field() {
  awk -v key="\"$1\":" '{
    at = index($0, key)
    if (at == 0) next
    value = substr($0, at + length(key))
    sub(/[,}].*/, "", value)
    gsub(/"/, "", value)
    print value
  }'
}

# field FOLDER KEY: of the run's summary.json; "none" without one.
field() {
  local value=""
  [[ -f $1/summary.json ]] && value=$(json_field "$2" <"$1/summary.json")
  echo "${value:-none}"
}

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
# mean [COUNT]: of the lines; "none" if one is no number, or if they are not COUNT.
mean() {
  awk -v count="${1:-0}" '
    $1 !~ /^[-+.0-9e]+$/ { wrong = 1 }
    { sum += $1 }
    END { if (NR && !wrong && (!count || NR == count)) printf "%.4f", sum / NR; else print "none" }'
}
