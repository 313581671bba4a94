#!/usr/bin/env bash
# The GPU tests and benchmarks in one go, in under ten minutes, from the folder that bundle.sh made; prints one table and ends with 1 if
# anything failed. PyTorch, where python3 has it, is measured in the same call.
# usage: tests/gpu/run.sh [FOLDER]   default: build/gpu-bundle. TEXT=FILE: also trains nanoGPT's GPU configuration on it (some minutes).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(realpath -m "${1:-$here/../../build/gpu-bundle}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

[[ -x $folder/tandem_gpu ]] || { echo "run.sh: no $folder/tandem_gpu; make it with tests/gpu/bundle.sh" >&2; exit 2; }
# cuBLASLt and NCCL where the loader does not look by itself: beside the toolkit, or in Python's packages.
packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
paths=$(ls -d /usr/local/cuda/lib64 "$packages/cu13/lib" "$packages/nccl/lib" 2>/dev/null | paste -sd:)
export LD_LIBRARY_PATH="$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

rows=()
# row NAME VALUE REMARK: shown at once, and in the table at the end.
row() { rows+=("$(printf '%-58s %-26s %s' "$1" "$2" "$3")"); printf '%s\n' "${rows[-1]}"; [[ $3 == FAILED* ]] && failed=1; }
# passes NAME SECONDS COMMAND...: a row of whether it ends with 0 in time; the end of its output if not.
passes() {
  local name=$1 seconds=$2 begin=$SECONDS result
  shift 2
  timeout "$seconds" "$@" >"$work/log" 2>&1
  result=$?
  if ((result == 0)); then
    row "$name" "$((SECONDS - begin)) s" "passed: $(grep -E '^\[  (PASSED|SKIPPED)' "$work/log" | tr -s ' ' | paste -sd' ')"
  else
    row "$name" "$((SECONDS - begin)) s" "FAILED with $result"
    grep -E 'FAILED|Failure|error|ERROR|check failed' "$work/log" | head -n 40
    tail -n 15 "$work/log"
  fi
}

nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || echo "no nvidia-smi"
passes "tests of kernels and of whole runs" 240 "$folder/tandem_gpu" --gtest_brief=1
# Processes of one card: the losses of two trainers beside one's.
"$folder/tandem_gpu" synthesize --out "$work/log.txt" --users 800 --items 200 >/dev/null
losses() { grep -oP '"loss":\K[-0-9.e]+' "$work/$1/metrics.jsonl" | tail -n 20; }
for trainers in 1 2; do
  timeout 120 "$folder/tandem_gpu" launch "$here/../../examples/sequence_rec/synthetic.textproto" --ps 1 --trainers $trainers --out "$work/dp$trainers" \
    --set data.path="$work/log.txt" --set device=CUDA --set train.max_steps=60 --set train.log_every_steps=1 >"$work/log" 2>&1 || tail -n 15 "$work/log"
done
largest=$(paste <(losses dp1) <(losses dp2) | awk '{ d = $1 > 0 ? $2 / $1 - 1 : 9; d = d < 0 ? -d : d; if (d > m) m = d; ++n } END { print n == 20 ? m : "none" }')
if awk -v d="$largest" 'BEGIN { exit !(d != "none" && d < 1e-4) }'; then
  row "2 trainers beside 1, processes of one card, losses differ by" "$largest" "passed: $(grep -o 'gradients are summed.*' "$work/log" | head -n 1)"
else
  row "2 trainers beside 1, processes of one card, losses differ by" "$largest" "FAILED"
fi
if compute-sanitizer --version >/dev/null 2>&1; then
  # Every kernel once; the large sizes would take an hour. Racecheck, far slower, leaves the library's products out.
  quick='-*EverySize*:*EveryDepth*:*Many*:*Long*:CudaRunTest*:CudaReplicas*:Groups/*:*OneCard*:*Die*'
  sanitizer() {  # TOOL SECONDS FILTER
    passes "compute-sanitizer $1" "$2" compute-sanitizer --tool "$1" --error-exitcode 9 "$folder/tandem_gpu" --gtest_brief=1 --gtest_filter="$3"
  }
  sanitizer memcheck 120 "$quick"
  sanitizer racecheck 200 "$quick:CudaGemm*"
else
  row "compute-sanitizer" "" "skipped: not installed"
fi

for dtype in bf16 f32; do
  if timeout 120 "$folder/tandem_gpu" bench step --preset gpt2 --dtype $dtype --steps 20 --set device=CUDA >"$work/log" 2>&1; then
    row "GPT-2 124M, batch 16 x 1,024, $dtype, tokens/s" "$(awk '/tokens\/s/ { print $5; exit }' "$work/log")" "tandem"
    cat "$work/log"  # the kernels, beside the device's own rates
  else
    row "GPT-2 124M, $dtype" "" "FAILED"
    tail -n 15 "$work/log"
  fi
done
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  for peer in peer_gpt2.py peer_ops.py; do
    timeout 180 python3 "$here/$peer" >"$work/log" 2>&1 || { row "$peer" "" "FAILED"; tail -n 15 "$work/log"; }
    while IFS=$'\t' read -r name value; do row "$name" "$value" "PyTorch"; done < <(grep -P '\t' "$work/log")
  done
else
  row "GPT-2 124M, PyTorch" "" "skipped: no torch with CUDA"
fi

if [[ -n ${TEXT:-} ]]; then
  if timeout 300 "$folder/tandem_gpu" launch "$here/../../examples/char_lm/nano_gpt_gpu.textproto" --local --set data.path="$TEXT" --set device=CUDA --out "$work/nano" >"$work/log" 2>&1; then
    row "nanoGPT GPU, validation loss (wanted 1.47)" "$(grep -oP '"valid/loss":\K[0-9.]+' "$work/nano/summary.json")" \
      "$(grep -oP '"seconds":\K[0-9.]+' "$work/nano/summary.json") s"
  else
    row "nanoGPT GPU" "" "FAILED"
    tail -n 15 "$work/log"
  fi
fi

printf '%s\n' "" "${rows[@]}"
exit $failed
