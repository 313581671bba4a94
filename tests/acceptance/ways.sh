# ways: the mixed job of examples/ps_vs_allreduce, dense half by ring and by servers, table on servers and replicated. Sourced by run.sh.

# A way a line: its name, its words, then settings. The hybrid comes first, because losses and times are compared with its own.
ways=(
  "hybrid|table by PS, dense by ring"
  "ps|all by PS|parameters[0].placement=PS"
  "ring|all by ring|placement=REPLICATED"
  "whole|all by PS, table whole|placement=REPLICATED parameters[0].placement=PS"
)
ways_rounds=5
# The job whose ways are compared; plan compares those of another job too.
ways_prefix=ways
ways_job=examples/ps_vs_allreduce/mixed.textproto
ways_data=$work/ways.txt
ways_more=()

ways_log() {
  [[ -f $work/ways.txt ]] || "$tandem" synthesize --out "$work/ways.txt" --users 300 --items 200000 >/dev/null
}

# ways_run NAME STEPS SETTINGS...: a run of 2 servers and 2 trainers into $work/PREFIX-NAME.
ways_run() {
  local name=$1 steps=$2 settings=() setting
  shift 2
  for setting in "$@"; do settings+=(--set "$setting"); done
  rm -rf "${work:?}/$ways_prefix-$name"
  "$tandem" launch "$ways_job" --ps 2 --trainers 2 --set data.path="$ways_data" "${ways_more[@]}" \
    --out "$work/$ways_prefix-$name" --set train.max_steps="$steps" --set train.eval_every_steps="$steps" --set trace.steps=0 "${settings[@]}" \
    >"$work/$ways_prefix-$name.txt" 2>&1
}

# median [COUNT]: of the lines; "none" if one is no number, or if they are not COUNT.
median() {
  sort -g | awk -v count="${1:-0}" '
    $1 !~ /^[-+.0-9e]+$/ { wrong = 1 }
    { value[NR] = $1 }
    END { if (NR && !wrong && (!count || NR == count)) printf "%.4g\n", (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2; else print "none" }'
}

# ways_step RUN: milliseconds from a step's end to the next one's, the median of the run.
ways_step() {
  json_field elapsed_seconds <"$1/metrics.jsonl" | awk 'NR > 1 { print 1000 * ($1 - before) } { before = $1 }' | median
}

# ways_measure STEPS: each round runs all ways, because the speed of the machine changes from minute to minute. The first round has STEPS
# steps. Later rounds have 20 steps, which are enough for a median.
ways_measure() {
  local round line name what settings steps=$1
  rm -rf "${work:?}/$ways_prefix-steps" && mkdir -p "$work/$ways_prefix-steps"
  for ((round = 1; round <= ways_rounds; ++round)); do
    for line in "${ways[@]}"; do
      IFS='|' read -r name what settings <<<"$line"
      # shellcheck disable=SC2086  # settings are words
      ways_run "$name-$round" "$steps" $settings
      ways_step "$work/$ways_prefix-$name-$round" >>"$work/$ways_prefix-steps/$name"
    done
    steps=20
  done
}

# ways_losses NAME WHAT: beside the hybrid's, those of the first round and the worst of the later ones.
ways_losses() {
  local first again="" round
  first=$(worst loss "$work/ways-$1-1" "$work/ways-hybrid-1" metrics.jsonl 50)
  for ((round = 2; round <= ways_rounds; ++round)); do
    again+=$(worst loss "$work/ways-$1-$round" "$work/ways-hybrid-$round" metrics.jsonl 20)$'\n'
  done
  again=$(sort -g <<<"${again%$'\n'}" | tail -1)
  row "$2: 50 losses beside the hybrid's; 20 of each later round" "<= 1e-5 relative" "$first; $again" \
    "$(verdict test "$(verdict within "$first" 0 1e-5)$(verdict within "$again" 0 1e-5)" = passpass)"
}

accept_ways() {
  local line name what settings ratio
  rm -rf "$work"/ways-*
  ways_log
  ways_measure 50  # whose losses count
  for line in "${ways[@]:1}"; do
    IFS='|' read -r name what settings <<<"$line"
    ways_losses "$name" "$what"
  done
  hashes_row "dense half by ring and by PS, table by PS" equal "$(field "$work/ways-hybrid-1" params_hash)" \
    "$(field "$work/ways-ps-1" params_hash)"
  hashes_row "dense half by ring and by PS, table replicated" equal "$(field "$work/ways-ring-1" params_hash)" \
    "$(field "$work/ways-whole-1" params_hash)"
  for line in "${ways[@]}"; do
    IFS='|' read -r name what settings <<<"$line"
    ratio=$(paste "$work/ways-steps/$name" "$work/ways-steps/hybrid" | awk '$1 > 0 && $2 > 0 { print $1 / $2 }' | median $ways_rounds)
    row "$what: ms a step, median of $ways_rounds; times the hybrid's" "" "$(median $ways_rounds <"$work/ways-steps/$name"); $ratio" -
  done
}
