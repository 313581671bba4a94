# text: language models against their published figures. Sourced by run.sh.

# The text of the published figures; "" if it is not here.
text_file() {
  local path
  for path in "$data/data/tinyshakespeare/input.txt" "$data/tinyshakespeare/input.txt"; do
    [[ -f $path ]] && echo "$path" && return
  done
}

# text_run JOB NAME ARGUMENTS...: into $work/NAME.
text_run() {
  local job=$1 name=$2
  shift 2
  "$tandem" launch "examples/char_lm/$job.textproto" --set data.path="$(text_file)" --set train.log_every_steps=100 \
    --out "$work/$name" --overwrite "$@" >"$work/$name.txt" 2>&1 || row "$job, $name" "exit code 0" "$(tail -1 "$work/$name.txt")" MISS
}

# valid_loss NAME STEP: nats per character of the run's evaluation after that step.
valid_loss() {
  awk -v step="\"step\":$2," 'index($0, step)' "$work/$1/evaluations.jsonl" 2>/dev/null | json_field valid/loss
}

# text_row WHAT JOB STEP LOW HIGH NAME...: the mean over the runs.
text_row() {
  local what=$1 job=$2 step=$3 low=$4 high=$5 value name
  shift 5
  value=$(for name in "$@"; do valid_loss "$name" "$step"; done | mean $#)
  row "$job, $what, loss at step $step" "$low - $high" "$value" "$(verdict within "$value" "$low" "$high")"
}

accept_text() {
  if [[ -z $(text_file) ]]; then
    row "language models" "" "no data/tinyshakespeare/input.txt below $data: set TANDEM_TEST_DATA" skipped
    return
  fi
  local layouts=(local trainers served) arguments layout seed names
  for layout in "${layouts[@]}"; do
    case $layout in
      local) arguments=(--local) ;;
      trainers) arguments=(--ps 1 --trainers 2) ;;
      served) arguments=(--ps 2 --trainers 2 --set placement=PS) ;;
    esac
    names=()
    for seed in 1 2 3; do
      names+=("mini-$layout-$seed")
      text_run mini_gpt "${names[-1]}" "${arguments[@]}" --set seed=$seed
    done
    text_row "3 seeds, ${arguments[*]}" mini_gpt 1000 2.10 2.16 "${names[@]}"
    text_row "3 seeds, ${arguments[*]}" mini_gpt 5000 1.80 1.85 "${names[@]}"
    text_run nano_gpt_cpu "nano-$layout" "${arguments[@]}" --set seed=1
    text_row "${arguments[*]}" nano_gpt_cpu 2000 1.80 1.92 "nano-$layout"
  done
}
