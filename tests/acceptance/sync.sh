# bytes, sync, plan: a ring beside parameter servers, and the model of what both cost. Sourced by run.sh.

# sync_rows KIND FILE: the rows that sync.py makes of a sweep.
sync_rows() {
  local what wanted measured verdict
  if ! python3 tests/acceptance/sync.py "$1" "$2" >"$work/sync-rows.txt"; then
    row "sync.py $1" "exit code 0" "another" MISS
    return
  fi
  while IFS='|' read -r what wanted measured verdict; do row "$what" "$wanted" "$measured" "$verdict"; done <"$work/sync-rows.txt"
}

# sync_sweep NAME SECONDS ARGUMENTS...: bench sync into $work/sync-NAME.json, in at most SECONDS.
sync_sweep() {
  local name=$1 most=$2 begin seconds
  shift 2
  begin=$(now)
  if ! "$tandem" bench sync "$@" --json "$work/sync-$name.json" >"$work/sync-$name.txt" 2>&1; then
    row "bench sync $*" "exit code 0" "$(tail -1 "$work/sync-$name.txt")" MISS
    return 1
  fi
  seconds=$(since "$begin")
  row "bench sync $*: seconds" "<= $most" "$seconds" "$(verdict within "$seconds" 0 "$most")"
}

sync_bytes() {
  sync_sweep bytes 180 --bytes 1048576 && sync_rows bytes "$work/sync-bytes.json"
}

accept_sync() {
  sync_sweep quick 240 --quick --report "$work/sync-quick.html"
  sync_sweep whole 900 --report "$work/sync-whole.html" || return
  sync_rows choices "$work/sync-whole.json"
  sync_rows bytes "$work/sync-whole.json"
}

# plan_choice FILE: the name of the way (ways.sh) that a plan prefers for tables and for dense parameters.
plan_choice() {
  python3 - "$1" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    parameters = json.load(file)["parameters"]
cheaper = {parameter["kind"]: parameter["cheaper"] for parameter in parameters}
print({("ps", "ring"): "hybrid", ("ps", "ps"): "ps", ("ring", "ring"): "ring", ("ring", "ps"): "whole"}[
    cheaper["table"], cheaper["dense"]])
PYTHON
}

# plan_rows WHAT: plans ways_job, and compares the step time of the plan's choice with the best of the three fixed ones.
plan_rows() {
  local what=$1 choice name steps best="" of_choice begin seconds
  begin=$(now)
  "$tandem" plan "$ways_job" --ps 2 --trainers 2 --measure --set data.path="$ways_data" "${ways_more[@]}" \
    --json "$work/plan.json" >"$work/plan-$ways_prefix.txt" 2>&1 ||
    { row "$what: plan" "exit code 0" "$(tail -1 "$work/plan-$ways_prefix.txt")" MISS && return; }
  seconds=$(since "$begin")
  row "$what: seconds of plan --measure" "<= 35" "$seconds" "$(verdict within "$seconds" 0 35)"
  choice=$(plan_choice "$work/plan.json")
  [[ -f $work/$ways_prefix-steps/hybrid ]] || ways_measure 30
  for name in hybrid ps ring whole; do
    steps=$(median "$ways_rounds" <"$work/$ways_prefix-steps/$name")
    row "$what: $name: ms a step, median of $ways_rounds" "" "$steps" -
    [[ $name == "$choice" ]] && of_choice=$steps
    [[ $name == whole ]] || best=$(printf '%s\n' "$best" "$steps" | sort -g | grep . | head -1)
  done
  row "$what: the plan's choice ($choice) over the best of hybrid, ps and ring" "<= 1.25 x $best" "$of_choice" \
    "$(verdict within "$of_choice" 0 "$(awk -v best="$best" 'BEGIN { print 1.25 * best }')")"
}

accept_plan() {
  local ways_prefix=ways
  ways_log
  plan_rows "mixed job"
  local folder
  folder=$(lastfm_folder)
  [[ -n $folder ]] || { row "LastFM: plan" "" "no LastFM.txt" skipped && return; }
  local ways_prefix=plan ways_job=$work/lastfm.textproto ways_data=$folder/LastFM.txt
  local ways_more=(--set data.negatives_path="$folder/LastFM_sample.txt")
  { cat examples/sequence_rec/lastfm.textproto && echo 'parameters { match: "*" placement: REPLICATED }'; } >"$ways_job"
  rm -rf "$work"/plan-{hybrid,ps,ring,whole,steps}*
  plan_rows LastFM
}
