#!/usr/bin/env bash
# Models cut over ranks that share one GPU, in under five minutes, from the folder that bundle.sh made; prints one table and ends with 1 if
# anything failed. Ranks are threads, whose arrays meet in host memory; in one row they are processes over NCCL.
# TEXT: a file of text (default: one made here).
# usage: tests/gpu/layouts.sh FOLDER mesh|pipelines
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# == 2 && ($2 == mesh || $2 == pipelines) ]] || { sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
program=$(realpath -m "$1")/tandem_gpu
[[ -x $program ]] || { echo "layouts.sh: no $program; make it with tests/gpu/bundle.sh" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
paths=$(ls -d /usr/local/cuda/lib64 "$packages/cu13/lib" "$packages/nccl/lib" 2>/dev/null | paste -sd:)
export LD_LIBRARY_PATH="$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
failed=0
rows=()
row() { rows+=("$(printf '%-64s %-28s %s' "$1" "$2" "$3")"); printf '%s\n' "${rows[-1]}"; [[ $3 == FAILED* ]] && failed=1; }

text=${TEXT:-$work/text}
[[ -s $text ]] || awk 'BEGIN { srand(7); for (i = 0; i < 60000; ++i) printf "%c", 97 + int(13 * rand() * rand()) }' >"$text"

# train NAME SECONDS JOB ARGUMENTS...: 20 steps in f32 into $work/NAME.
train() {
  local name=$1 seconds=$2 job=$3
  shift 3
  rm -rf "${work:?}/$name"
  timeout "$seconds" "$program" launch "$here/../../examples/char_lm/$job.textproto" --local --out "$work/$name" --set data.path="$text" \
    --set device=CUDA --set parallel.transport=HOST --set train.precision=F32 --set train.max_steps=20 --set train.eval_every_steps=20 \
    --set train.log_every_steps=1 --set optimizer.schedule=CONSTANT "$@" >"$work/$name.log" 2>&1
}
losses() { grep -oP '"loss":\K[-0-9.e]+' "$work/$1/metrics.jsonl" 2>/dev/null; }
# furthest A B: the largest relative difference of the losses of two runs.
furthest() {
  paste <(losses "$1") <(losses "$2") | awk '{ d = $2 > 0 ? $1 / $2 - 1 : 9; d = d < 0 ? -d : d; if (d > m) m = d; ++n }
    END { if (n == 20) printf "%.1e", m; else print "none" }'
}
# near NAME VALUE LIMIT
near() { row "$1" "$2" "$(awk -v d="$2" -v l="$3" 'BEGIN { print d != "none" && d + 0 <= l ? "passed" : "FAILED" }')"; }

# GPT-2 124M's shape in bf16: two ranks beside one, and the time of a step.
gpt2=(--set model.gpt.dim=768 --set model.gpt.heads=12 --set model.gpt.layers=12 --set model.gpt.ffn_dim=3072 --set model.gpt.max_length=1024
  --set train.batch_size=8 --set train.precision=BF16)
# gpt2_rows WHAT ARGUMENTS...
gpt2_rows() {
  local what=$1 name
  shift
  train gpt1 90 nano_gpt_cpu "${gpt2[@]}" --trainers 1 || tail -n 5 "$work/gpt1.log"
  train gpt2 90 nano_gpt_cpu "${gpt2[@]}" "$@" || tail -n 5 "$work/gpt2.log"
  near "GPT of GPT-2's size, bf16, $what: losses beside one rank's (1e-2)" "$(furthest gpt2 gpt1)" 1e-2
  for name in gpt1 gpt2; do
    row "  tokens/s, $([[ $name == gpt1 ]] && echo "one rank" || echo "$what")" \
      "$(grep -oP '"tokens_per_second":\K[0-9.]+' "$work/$name/summary.json" 2>/dev/null)" "through host memory"
  done
}

# tests WHAT FILTER: tests of the program.
tests() {
  if timeout 120 "$program" --gtest_brief=1 --gtest_filter="$2" >"$work/log" 2>&1; then
    row "$1" "" passed
  else
    row "$1" "" FAILED
    tail -n 15 "$work/log"
  fi
}

mesh() {
  tests "kernels and small layouts beside the CPU" 'CudaLossTest.*:CudaRotaryTest.*:*Attention*:CudaLayoutsTest.*:EmbeddingDeviceTest.*'

  train one 60 tiny_llama --trainers 1 || tail -n 5 "$work/one.log"
  for layout in "--tp 2" "--tp 4" "--tp 8" "--dp 2" "--dp 3 --zero 1" "--dp 4 --zero 2" "--dp 4 --zero 3" "--dp 2 --tp 2" "--dp 2 --tp 2 --zero 1" \
    "--dp 2 --tp 2 --zero 3" "--dp 2 --tp 4 --zero 1" "--tp 2 --set parallel.sequence_parallel=false"; do
    # shellcheck disable=SC2086  # words
    train cut 60 tiny_llama $layout || tail -n 5 "$work/cut.log"
    near "tiny Llama, $layout: losses beside one rank's (1e-5)" "$(furthest cut one)" 1e-5
    [[ $layout == "--dp 4 --zero 3" ]] &&
      row "model_state_bytes, parameters, $layout" \
        "$(grep -oP '"(model_state_bytes|dense_parameters)":\K[0-9]+' "$work/cut/summary.json" 2>/dev/null | paste -sd' ')" "4 bytes each expected"
  done
  gpt2_rows "tp 2" --tp 2
}

pipelines() {
  local layout schedule
  tests "GPT over four processes and NCCL, messages of 8 MB" 'NcclOneCardPipelineTest.*'
  train one 60 tiny_llama --trainers 1 || tail -n 5 "$work/one.log"
  for layout in "--pp 2" "--pp 2 --tp 2"; do
    for schedule in GPIPE ONE_F_ONE_B INTERLEAVED ZB_H1; do
      # shellcheck disable=SC2086  # words
      train cut 60 tiny_llama $layout --set parallel.schedule=$schedule || tail -n 5 "$work/cut.log"
      near "tiny Llama, $layout, $schedule: losses beside one rank's (1e-5)" "$(furthest cut one)" 1e-5
    done
  done
  train one 90 tiny_llama --trainers 1 --set model.llama.dim=512 --set model.llama.heads=8 --set train.batch_size=64 || tail -n 5 "$work/one.log"
  train cut 90 tiny_llama --pp 4 --set model.llama.dim=512 --set model.llama.heads=8 --set train.batch_size=64 \
    --set parallel.microbatches=8 || tail -n 5 "$work/cut.log"
  near "Llama of width 512, --pp 4, large messages: losses beside one rank's (1e-5)" "$(furthest cut one)" 1e-5
  gpt2_rows "pp 2, recompute FULL" --pp 2 --set parallel.recompute=FULL
}

"$2"
printf '%s\n' "" "${rows[@]}"
exit $failed
