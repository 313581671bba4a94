# speed: whole training steps beside PyTorch's, in one sitting: three rounds of ours, then the peer with each of its settings, for
# the machine's speed changes from minute to minute. Medians are compared. Sourced by run.sh.

# The peer's programs and the Python that has PyTorch.
peer_folder() { [[ -f $data/anchors/torch_gpt.py ]] && echo "$data/anchors"; }
peer_python() {
  local python
  for python in /usr/bin/python3 python3; do "$python" -c 'import torch' 2>/dev/null && echo "$python" && return; done
}

# With the reference BLAS, which Debian puts under it unless another is installed, PyTorch is no opponent.
peer_is_fast() { "$(peer_python)" -c 'import torch, sys; sys.exit(not any(b in open("/proc/self/maps").read() for b in ("openblas", "mkl")))' 2>/dev/null; }

# peer PROGRAM THREADS fair|installed ARGUMENTS...: what it prints, with the settings that make it fast or as they come.
peer() {
  local program=$1 threads=$2 settings=() python folder
  python=$(peer_python)
  folder=$(peer_folder)
  if [[ $3 == fair ]]; then
    settings=(OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512 OPENBLAS_NUM_THREADS="$threads")
    ((threads > 1)) && settings+=(OMP_WAIT_POLICY=passive)
  fi
  shift 3
  env ANCHOR_THREADS="$threads" "${settings[@]}" "$python" "$folder/$program" "$@" 2>/dev/null
}

# figure PATTERN: the "med" column of the first line that has it, if any.
figure() { awk -v pattern="$1" 'index($0, pattern) && !found { for (i = 1; i < NF; ++i) if ($i == "med") { print $(i + 1); found = 1 } }'; }

# keep CASE WHO < FIGURES: the figures of a round.
keep() { cat >>"$work/speed/$1.$2"; }
# middle CASE WHO: their median over the rounds; nothing unless every round gave one.
middle() { sort -g "$work/speed/$1.$2" | awk -v rounds="$speed_rounds" '{ value[NR] = $1 } END { if (NR == rounds) print value[int((NR + 1) / 2)] }'; }

# ours PRESET THREADS DTYPE KEY
ours() {
  rm -f "$work/bench.json"
  "$tandem" bench step --preset "$1" --threads "$2" --dtype "$3" --json "$work/bench.json" >"$work/bench-$1-$2-$3.txt" 2>&1
  [[ -f $work/bench.json ]] && json_field "$4" <"$work/bench.json" | keep "$1-$3-$2" ours
}

# speed_round THREADS
speed_round() {
  local settings printed
  ours gpt "$1" f32 tokens_per_second
  ours gpt "$1" bf16 tokens_per_second
  ours sasrec "$1" f32 samples_per_second
  for settings in fair installed; do
    printed=$(peer torch_gpt.py "$1" $settings gpt)
    figure fp32 <<<"$printed" | keep "gpt-f32-$1" $settings
    figure bf16 <<<"$printed" | keep "gpt-bf16-$1" $settings
    peer torch_sasrec.py "$1" $settings | figure 'items 3416' | keep "sasrec-f32-$1" $settings
  done
  if (($1 == 2)); then
    printed=$(peer torch_gpt.py 1 fair ddp)
    figure "world 2 batch 8" <<<"$printed" | keep gpt-f32-2 ddp8
    figure "world 2 batch 4" <<<"$printed" | keep gpt-f32-2 ddp4
  fi
}

# speed_row CASE WHAT AIM: ours beside the fastest of the peer's settings.
speed_row() {
  local mine best ratio settings
  mine=$(middle "$1" ours)
  for settings in "$work/speed/$1".*; do
    settings=${settings##*.}
    [[ $settings == ours ]] || printf '%s %s\n' "$(middle "$1" "$settings")" "$settings"
  done >"$work/speed/peers.txt"
  best=$(sort -g "$work/speed/peers.txt" | tail -1)
  ratio=$(awk -v a="$mine" -v b="${best% *}" 'BEGIN { if (a > 0 && b > 0) printf "%.2f", a / b; else print "none" }')
  row "$2" ">= $3 x PyTorch" "$ratio x ($mine and $best)" "$(verdict within "$ratio" "$3" 1000)"
}

accept_speed() {
  if [[ -z $(peer_folder) || -z $(peer_python) ]]; then
    row "speed beside PyTorch" "" "no anchors/torch_gpt.py below $data, or no python3 with torch" skipped
    return
  fi
  if ! peer_is_fast; then
    row "speed beside PyTorch" "" "PyTorch has the reference BLAS: apt-get install libopenblas0-pthread" skipped
    return
  fi
  local threads round speed_rounds=3
  rm -rf "$work/speed" && mkdir -p "$work/speed"
  for ((round = 0; round < speed_rounds; ++round)); do
    for threads in 1 2; do speed_round $threads; done
  done
  speed_row gpt-f32-1 "gpt f32, 1 thread, tokens/s" 1.4
  speed_row gpt-f32-2 "gpt f32, 2 threads, tokens/s" 1.5
  for threads in 1 2; do
    speed_row gpt-bf16-$threads "gpt bf16, $threads threads, tokens/s" 2.5
    speed_row sasrec-f32-$threads "sasrec f32, $threads threads, sequences/s" 3
  done
}
