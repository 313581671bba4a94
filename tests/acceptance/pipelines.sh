# pipeline, timeline: a model cut into stages trains like one process, and shows when its ranks work. Sourced by run.sh.

# pipeline_run NAME STEPS ARGUMENTS...: nanoGPT with its tokens on one server.
pipeline_run() {
  local name=$1 steps=$2
  shift 2
  timeout 300 "$tandem" launch examples/char_lm/nano_gpt_cpu.textproto --ps 1 --out "$work/$name" --set data.path="$layout_text" \
    --set placement=PS --set train.precision=F32 --set train.log_every_steps=1 --set train.max_steps="$steps" \
    --set train.eval_every_steps="$steps" "$@" >"$work/$name.txt" 2>&1
}

# last_of KEY NAME FILE: the last number of a run.
last_of() { json_field "$1" <"$work/$2/$3" | tail -1; }

# apart A B: the difference of two numbers.
apart() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; printf "%.1e", d < 0 ? -d : d }'; }

accept_pipeline() {
  layout_data
  [[ -s $layout_text ]] || { row "pipeline" "" "no tinyshakespeare" skipped && return; }
  local layout="--pp 3 --tp 2" first last valid schedule
  pipeline_run pipeline-whole 300 --trainers 1 --overwrite
  # shellcheck disable=SC2086  # words
  pipeline_run pipeline-cut 300 $layout --overwrite
  head -20 "$work/pipeline-whole/metrics.jsonl" >"$work/pipeline-whole/first.jsonl"
  head -20 "$work/pipeline-cut/metrics.jsonl" >"$work/pipeline-cut/first.jsonl"
  first="$(worst loss "$work/pipeline-cut" "$work/pipeline-whole" first.jsonl 20), $(worst grad_norm "$work/pipeline-cut" "$work/pipeline-whole" first.jsonl 20)"
  row "nanoGPT, tokens on a server, $layout: 20 losses, norms" "1e-5, 1e-4" "$first" \
    "$(verdict eval "within ${first%,*} 0 1e-5 && within ${first#*, } 0 1e-4")"
  last=$(apart "$(last_of loss pipeline-cut metrics.jsonl)" "$(last_of loss pipeline-whole metrics.jsonl)")
  valid=$(apart "$(last_of valid/loss pipeline-cut evaluations.jsonl)" "$(last_of valid/loss pipeline-whole evaluations.jsonl)")
  row "loss of step 300, valid/loss" ".005, .005" "$last, $valid" "$(verdict eval "within $last 0 .005 && within $valid 0 .005")"
  pipeline_run pipeline-whole 320 --trainers 1 --resume
  pipeline_run pipeline-cut 320 --dp 2 --resume
  last=$(apart "$(last_of loss pipeline-cut metrics.jsonl)" "$(last_of loss pipeline-whole metrics.jsonl)")
  row "the checkpoint goes on under dp 2: loss of step 320" ".005" "$last" "$(verdict within "$last" 0 .005)"
  pipeline_run pipeline-whole 20 --trainers 1 --overwrite --set optimizer.kind=SGD --set optimizer.learning_rate=0.1 --set optimizer.weight_decay=0
  for schedule in GPIPE ONE_F_ONE_B INTERLEAVED ZB_H1; do
    layout="--pp 3 --tp 2"
    [[ $schedule == INTERLEAVED ]] && layout="--pp 2 --tp 2"  # 4 layers
    # shellcheck disable=SC2086
    pipeline_run pipeline-cut 20 $layout --overwrite --set optimizer.kind=SGD --set optimizer.learning_rate=0.1 --set optimizer.weight_decay=0 \
      --set parallel.schedule=$schedule --set parallel.recompute="$([[ $schedule == GPIPE ]] && echo FULL || echo NONE)"
    layout_row pipeline-cut pipeline-whole "SGD, $layout, $schedule: losses, valid/loss, norms"
  done
}

accept_timeline() {
  layout_data
  [[ -s $layout_text ]] || { row "timeline" "" "no tinyshakespeare" skipped && return; }
  local schedule found steps right bubble waits messages measured
  for schedule in ONE_F_ONE_B ZB_H1; do
    layout_run timeline nano_gpt_cpu --pp 4 --set parallel.schedule=$schedule --set train.batch_size=16 --set parallel.microbatches=8 \
      --set train.max_steps=24 --set train.eval_every_steps=24 --set trace.first_step=3 --set trace.steps=20
    found=$(python3 tests/acceptance/timeline.py "$work/timeline/trace.json" $schedule 4 8)
    read -r steps right bubble waits messages <<<"$found"
    measured=$(sed 's/.*"bubble":{[^}]*"measured":\([0-9.]*\).*/\1/' "$work/timeline/summary.json")
    row "$schedule, 4 stages: lists of a rank in the verified order" "80 of 20 steps" "$right of $steps steps" "$(verdict test "$right $steps" = "80 20")"
    row "waits and messages in the trace" "both" "$waits, $messages" "$(verdict test "${waits:-0}" -gt 0 -a "${messages:-0}" -gt 0)"
    row "bubble by the trace / by the summary ($measured)" ".9 to 1.1" "$(awk -v a="$bubble" -v b="$measured" 'BEGIN { printf "%.3f", a / b }')" \
      "$(verdict within "$(awk -v a="$bubble" -v b="$measured" 'BEGIN { print a / b }')" .9 1.1)"
  done
}
