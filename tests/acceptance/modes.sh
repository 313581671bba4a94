# modes: every consistency of the parameter servers trains Last.FM inside its band. Sourced by run.sh.

# A mode a line: its name, then settings.
consistency_modes=(
  "BSP      ps.consistency=BSP"
  "SSP(3)   ps.consistency=SSP ps.staleness=3"
  "ASP      ps.consistency=ASP"
  "PERMIT(4) ps.consistency=PERMIT ps.staleness=4"
  "ROW_BOUND(8,0) ps.consistency=ROW_BOUND ps.read_bound=8"
  "ROW_BOUND(4,2) ps.consistency=ROW_BOUND ps.read_bound=4 ps.write_bound=2"
  "GEO(8)   ps.consistency=GEO ps.geo_steps=8"
)

# mode_row MODE WHAT KEY LOW HIGH: a figure of the mode's run.
mode_row() {
  local value
  value=$(field "$work/mode-$1" "$3")
  row "LastFM with $1, $2, one seed" "$4 - $5" "$value" "$(verdict within "$value" "$4" "$5")"
}

accept_modes() {
  local arguments line mode words settings word
  read -ra arguments <<<"$(lastfm_arguments)"
  if ((!${#arguments[@]})); then
    row "LastFM in every mode" "" "no data/lastfm/LastFM.txt below $data: set TANDEM_TEST_DATA" skipped
    return
  fi
  for line in "${consistency_modes[@]}"; do
    read -ra words <<<"$line"
    mode=${words[0]}
    settings=()
    for word in "${words[@]:1}"; do settings+=(--set "$word"); done
    rm -rf "$work/mode-$mode"
    "$tandem" launch "${arguments[@]}" --ps 2 --trainers 2 --set seed=1 "${settings[@]}" --out "$work/mode-$mode" \
      >"$work/mode-$mode.txt" 2>&1 || row "LastFM with $mode" "exit code 0" "$(tail -1 "$work/mode-$mode.txt")" MISS
    mode_row "$mode" "HR@10, 99 negatives" test/sampled_hr@10 .44 .50
    mode_row "$mode" "NDCG@10, 99 negatives" test/sampled_ndcg@10 .245 .295
    mode_row "$mode" "HR@10, full ranking" test/hr@10 .055 .085
    row "LastFM with $mode: epochs; most steps missed by a pull" "" "$(field "$work/mode-$mode" epochs); $(
      json_field staleness <"$work/mode-$mode/metrics.jsonl" | sort -n | tail -1)" -
  done
}
