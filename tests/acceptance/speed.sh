# speed: whole training steps beside PyTorch's, in one sitting: rounds of ours, then the peer with each of its settings. The machine's
# speed changes from minute to minute, so a round gives a ratio, and their median counts. Sourced by run.sh.

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

# speed_row CASE WHAT AIM: of each round, ours over the fastest of the peer's settings; a round that lacks a figure spoils the row.
speed_row() {
  local figures median
  for figures in "$work/speed/$1".*; do
    [[ $(wc -l <"$figures") -eq $speed_rounds ]] || : >"$work/speed/$1.ours"
  done
  median=$(paste -d' ' "$work/speed/$1.ours" $(ls "$work/speed/$1".* | grep -v '\.ours$') | awk '
    NF > 1 && $1 > 0 { best = 0; for (i = 2; i <= NF; ++i) if ($i > best) best = $i; if (best > 0) printf "%.2f %.0f %.0f\n", $1 / best, $1, best }' |
    sort -g | sed -n "$(((speed_rounds + 1) / 2))p")
  row "$2" ">= $3 x PyTorch" "${median:-none} (ratio, ours, PyTorch)" "$(verdict within "${median%% *}" "$3" 1000)"
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
