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

accept_modes() {
  local line mode words settings word
  lastfm_is_there || return
  for line in "${consistency_modes[@]}"; do
    read -ra words <<<"$line"
    mode=${words[0]}
    settings=()
    for word in "${words[@]:1}"; do settings+=(--set "$word"); done
    lastfm_seeds "mode-$mode" "${settings[@]}"
    lastfm_bands "mode-$mode" "LastFM with $mode"
    row "LastFM with $mode: epochs; most steps missed by a pull" "" "$(lastfm_of_seeds "mode-$mode" epochs | xargs); $(
      cat "$work/mode-$mode"-*/metrics.jsonl | json_field staleness | sort -n | tail -1)" -
  done
}
