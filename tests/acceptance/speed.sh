# speed: whole training steps beside PyTorch's, in one sitting. Sourced by run.sh.

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

# median PATTERN: the "med" column of the first line that has it; 0 without one.
median() { awk -v pattern="$1" 'index($0, pattern) && !found { for (i = 1; i < NF; ++i) if ($i == "med") { print $(i + 1); found = 1 } } END { if (!found) print 0 }'; }

# best_of NUMBER...
best_of() { printf '%s\n' "$@" | sort -g | tail -1; }

# ours PRESET THREADS DTYPE KEY: "none" without a figure, which is no pass.
ours() {
  local figure=""
  rm -f "$work/bench.json"
  "$tandem" bench step --preset "$1" --threads "$2" --dtype "$3" --json "$work/bench.json" >"$work/bench-$1-$2-$3.txt" 2>&1
  [[ -f $work/bench.json ]] && figure=$(json_field "$4" <"$work/bench.json")
  echo "${figure:-none}"
}

# speed_row WHAT AIM OURS PEERS
speed_row() {
  local ratio
  ratio=$(awk -v a="$3" -v b="$4" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "none" }')
  row "$1" ">= $2 x PyTorch" "$ratio x ($3 and $4)" "$(verdict within "$ratio" "$2" 1000)"
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
  local threads fair installed ddp f32 bf16 mine aim
  for threads in 1 2; do
    mine=$(ours gpt $threads f32 tokens_per_second)
    fair=$(peer torch_gpt.py $threads fair gpt)
    installed=$(peer torch_gpt.py $threads installed gpt)
    bf16=$(best_of "$(median bf16 <<<"$fair")" "$(median bf16 <<<"$installed")")
    f32=$(best_of "$(median fp32 <<<"$fair")" "$(median fp32 <<<"$installed")")
    aim=1.4
    if ((threads == 2)); then
      ddp=$(peer torch_gpt.py 1 fair ddp)
      f32=$(best_of "$f32" "$(median "world 2 batch 8" <<<"$ddp")" "$(median "world 2 batch 4" <<<"$ddp")")
      aim=1.5
    fi
    mine=$(printf '%s\n' "$mine" "$(ours gpt $threads f32 tokens_per_second)" | mean)  # before and after the peer
    speed_row "gpt f32, $threads threads, tokens/s" $aim "$mine" "$f32"
    speed_row "gpt bf16, $threads threads, tokens/s" 2.5 "$(ours gpt $threads bf16 tokens_per_second)" "$bf16"
    mine=$(ours sasrec $threads f32 samples_per_second)
    f32=$(best_of "$(peer torch_sasrec.py $threads fair | median 'items 3416')" \
      "$(peer torch_sasrec.py $threads installed | median 'items 3416')")
    speed_row "sasrec f32, $threads threads, sequences/s" 3 "$mine" "$f32"
  done
}
