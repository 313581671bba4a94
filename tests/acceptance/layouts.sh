# layouts, reshard, memory, bytes, hybrid: a model cut over ranks trains like one process, and takes what it should. Sourced by run.sh.

# layout_data: the head of a text, a log, and titles for its items.
layout_data() {
  layout_text=$work/head.txt
  head -c 60000 "$data/data/tinyshakespeare/input.txt" >"$layout_text" 2>/dev/null
  layout_log=$work/layouts.txt
  "$tandem" synthesize --out "$layout_log" --users 1500 --items 40 --min-length 10 --max-length 20 >/dev/null
  awk 'BEGIN { split("RED BLUE GREEN WHITE PINK", c); split("MUG CUP TIN LAMP BAG PEN BELL CLOCK JAR", t)
               for (i = 1; i <= 40; ++i) print i "\tC" i "\t" c[1 + i % 5] " " t[1 + int(i / 5)] }' >"$work/titles.tsv"
}

# layout_run NAME MODEL ARGUMENTS...: 20 steps into $work/NAME.
layout_run() {
  local name=$1 model=$2 sets job
  shift 2
  sets=(train.max_steps=20 train.log_every_steps=1 train.precision=F32 optimizer.schedule=CONSTANT)
  case $model in
    tiny_llama | nano_gpt_cpu)
      job=char_lm/$model
      sets+=(data.path="$layout_text" train.eval_every_steps=20)
      ;;
    synthetic)
      job=sequence_rec/$model
      sets+=(data.path="$layout_log" train.max_epochs=1000 train.eval_every_epochs=1000)
      ;;
    retail)
      job=rec_llm/$model
      sets+=(data.path="$layout_log" data.items_path="$work/titles.tsv" train.max_epochs=1000 train.eval_every_epochs=1000)
      ;;
  esac
  rm -rf "${work:?}/$name"
  timeout 120 "$tandem" launch "examples/$job.textproto" --out "$work/$name" "${sets[@]/#/--set=}" "$@" >"$work/$name.txt" 2>&1
}

# worst KEY FILE REFERENCE FILE: the largest relative difference of two runs' numbers, line by line.
worst() {
  paste <(json_field "$1" <"$2/$4") <(json_field "$1" <"$3/$4") | awk -v steps="${5:-0}" '
    { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; if (NF != 2) wrong = 1 }
    END { if (NR == 0 || wrong || (steps && NR != steps)) print "none"; else printf "%.1e", worst }'
}

# layout_row NAME REFERENCE WHAT: compares two runs of 20 steps.
layout_row() {
  local run=$work/$1 reference=$work/$2 loss norm valid=0
  loss=$(worst loss "$run" "$reference" metrics.jsonl 20)
  norm=$(worst grad_norm "$run" "$reference" metrics.jsonl 20)
  [[ -n $(json_field valid/loss <"$reference/evaluations.jsonl") ]] &&
    valid=$(worst valid/loss "$run" "$reference" evaluations.jsonl)
  row "$3" "1e-5, 1e-5, 1e-4" "$loss, $valid, $norm" \
    "$(verdict eval "within $loss 0 1e-5 && within $valid 0 1e-5 && within $norm 0 1e-4")"
}

# fall NAME: by which part the loss of a run falls.
fall() { json_field loss <"$work/$1/metrics.jsonl" | awk 'NR == 1 { first = $1 } { last = $1 } END { printf "%.3f", 1 - last / first }'; }

# layout_rows MODEL RATE COMMON LAYOUT...: runs of SGD at a rate, every second layout with AdamW and clipping too. COMMON and a
# layout are words of the command line; COMMON is for the run of one process too.
layout_rows() {
  local model=$1 rate=$2 common=$3 number=0 layout sgd adam
  shift 3
  sgd=(--set optimizer.kind=SGD --set optimizer.learning_rate="$rate" --set optimizer.weight_decay=0 --set optimizer.max_grad_norm=0)
  adam=(--set optimizer.kind=ADAMW --set optimizer.weight_decay=.1 --set optimizer.max_grad_norm=.5)
  # shellcheck disable=SC2086  # words
  layout_run "$model-1" "$model" --local --trainers 1 "${sgd[@]}" $common
  # shellcheck disable=SC2086
  layout_run "$model-1-adam" "$model" --local --trainers 1 "${adam[@]}" $common
  row "$model $common: fall of the loss, SGD at $rate" "at least .1" "$(fall "$model-1")" "$(verdict within "$(fall "$model-1")" .1 1)"
  for layout in "$@"; do
    # shellcheck disable=SC2086
    layout_run "$model-n" "$model" $layout "${sgd[@]}" $common
    layout_row "$model-n" "$model-1" "$model $common, SGD, $layout: losses, valid/loss, norms"
    ((number++ % 2)) && continue
    # shellcheck disable=SC2086
    layout_run "$model-n" "$model" $layout "${adam[@]}" $common
    layout_row "$model-n" "$model-1-adam" "$model $common, AdamW clipped, $layout: losses, valid/loss, norms"
  done
}

accept_layouts() {
  layout_data
  layout_rows synthetic 1 "--set optimizer.warmup_steps=0" "--dp 2 --tp 2 --ps 2" "--tp 2 --local" "--dp 3 --ps 1" "--dp 4 --zero 3 --ps 1"
  layout_rows retail .5 "" "--dp 2 --tp 2 --zero 1 --ps 2" "--tp 2 --local" "--dp 3 --zero 2 --ps 1" "--dp 2 --tp 2 --zero 3 --local"
  [[ -s $layout_text ]] || { row "layouts of language models" "" "no tinyshakespeare" skipped && return; }
  layout_rows tiny_llama .3 "" "--dp 2 --tp 2 --zero 1" "--tp 2 --local" "--tp 4" "--tp 8 --local" "--dp 3 --local" "--dp 3 --zero 1" \
    "--dp 2 --tp 4 --zero 1 --local" "--dp 2 --tp 2 --set parallel.sequence_parallel=false" "--dp 4 --zero 3" \
    "--tp 4 --local --set parallel.sequence_parallel=false" "--dp 2 --tp 2 --zero 3" "--dp 3 --tp 2 --zero 2 --local --set train.accumulate=2"
  layout_rows nano_gpt_cpu .3 "" "--dp 2 --tp 2 --zero 1" "--tp 4 --local" "--dp 3 --zero 3 --local" "--dp 2 --tp 4 --local"
  layout_rows nano_gpt_cpu .3 "--set placement=PS" "--dp 2 --tp 2 --ps 2" "--tp 4 --ps 1" "--dp 4 --zero 3 --ps 2" \
    "--dp 2 --tp 2 --zero 2 --ps 2"
}

# hash_saved NAME: of the newest checkpoint.
hash_saved() { "$tandem" inspect "$work/$1/checkpoints" 2>/dev/null | awk '$1 == "params_hash" { print $2 }'; }

# layout_resume NAME ARGUMENTS...: goes on in $work/NAME.
layout_resume() {
  local name=$1
  shift
  timeout 120 "$tandem" launch examples/char_lm/tiny_llama.textproto --out "$work/$name" --resume --set data.path="$layout_text" \
    --set train.log_every_steps=1 --set train.precision=F32 --set optimizer.schedule=CONSTANT "$@" >"$work/$name.txt" 2>&1
}

accept_reshard() {
  layout_data
  [[ -s $layout_text ]] || { row "reshard" "" "no tinyshakespeare" skipped && return; }
  local first="--dp 2 --tp 2 --zero 1" layout hash whole more=(--set train.max_steps=40 --set train.eval_every_steps=40)
  layout_run reshard-1 tiny_llama --local --trainers 1 "${more[@]}"
  # shellcheck disable=SC2086  # words
  layout_run reshard-20 tiny_llama $first
  # shellcheck disable=SC2086
  layout_run reshard-saved tiny_llama $first --set train.max_steps=21 --set train.eval_every_steps=1000 --set checkpoint.every_steps=20 --set checkpoint.keep=3
  rm -rf "$work/reshard-saved/checkpoints/step-00000021"
  hash=$(hash_saved reshard-saved)
  for layout in "--dp 4 --zero 3" "--tp 4" "--local --trainers 1"; do
    rm -rf "$work/reshard-n"
    cp -r "$work/reshard-20" "$work/reshard-n"
    # shellcheck disable=SC2086
    layout_resume reshard-n "${more[@]}" $layout
    whole=$(worst loss "$work/reshard-n" "$work/reshard-1" metrics.jsonl 40)
    row "20 steps under $first, 20 under $layout: losses" "<= 1e-5" "$whole" "$(verdict within "$whole" 0 1e-5)"
  done
  # A run that goes on from step 20 and ends there makes the evaluation that is due now, and saves again.
  for layout in "$first" "--dp 4 --zero 3" "--dp 2 --zero 2 --local" "--tp 4" "--local --trainers 1"; do
    rm -rf "$work/reshard-n"
    cp -r "$work/reshard-saved" "$work/reshard-n"
    touch -d 2000-01-01 "$work/reshard-n/checkpoints"/step-*/*
    # shellcheck disable=SC2086
    layout_resume reshard-n --set train.max_steps=20 --set train.eval_every_steps=20 $layout
    whole=$(find "$work/reshard-n/checkpoints" -name dense.safetensors -newermt 2001-01-01 | wc -l)
    row "loaded and saved again under $layout: params_hash, files anew" "$hash, 1" "$(hash_saved reshard-n), $whole" \
      "$(verdict test -n "$hash" -a "$(hash_saved reshard-n), $whole" = "$hash, 1")"
  done
}

# state_row WHAT MODEL WANTED ARGUMENTS...: model_state_bytes of a run beside WANTED, an expression of n, the number of parameters.
state_row() {
  local what=$1 model=$2 wanted=$3 ratio
  shift 3
  layout_run memory "$model" --local --set optimizer.kind=ADAM --set optimizer.weight_decay=0 --set train.max_steps=2 \
    --set train.eval_every_steps=2 "$@"
  ratio=$(awk -v state="$(field "$work/memory" model_state_bytes)" -v n="$(field "$work/memory" dense_parameters)" \
    "BEGIN { printf \"%.4f\", state / ($wanted) }")
  row "model_state_bytes, $what: measured / formula" ".98 to 1.02" "$ratio" "$(verdict within "$ratio" .98 1.02)"
}

# peak_of ZERO: the largest VmHWM of a trainer of a GPT of 41 M parameters under dp 4, in bytes; evaluation and checkpoint included.
peak_of() {
  local peak=0 run process now
  layout_run peak nano_gpt_cpu --dp 4 --zero "$1" --set model.gpt.dim=512 --set model.gpt.heads=8 --set model.gpt.ffn_dim=2048 \
    --set model.gpt.layers=13 --set train.batch_size=4 --set train.max_steps=3 --set train.eval_every_steps=3 \
    --set optimizer.kind=ADAM --set optimizer.weight_decay=0 &
  run=$!
  while kill -0 $run 2>/dev/null; do
    for process in $(pgrep -f "^tandem trainer"); do
      now=$(awk '$1 == "VmHWM:" { print $2 * 1024 }' "/proc/$process/status" 2>/dev/null)
      ((${now:-0} > peak)) && peak=$now
    done
    sleep .05
  done
  wait $run && echo "$peak" || echo none
}

# A tied nanoGPT in 4 stages: b parameters in each of 4 blocks, a table of symbols at both ends, positions first, a norm last.
stage_rows() {
  local wanted measured limit code n symbols
  layout_run memory nano_gpt_cpu --pp 4 --set optimizer.kind=ADAM --set optimizer.weight_decay=0 --set train.max_steps=2 --set train.eval_every_steps=2 \
    --set train.batch_size=16 --set parallel.microbatches=8 --set optimizer.max_grad_norm=0
  n=$(field "$work/memory" dense_parameters)
  symbols=$(grep -o 'vocabulary of [0-9]*' "$work/memory.txt" | grep -o '[0-9]*')
  wanted=$(awk -v n="$n" -v v="$symbols" 'BEGIN { t = v * 128; p = 64 * 128; f = 128; b = (n - t - p - f) / 4
                                  printf "%d,%d,%d,%d", 16 * (b + t + p), 16 * b, 16 * b, 16 * (b + t + f) }')
  measured=$(sed 's/.*"model_state_bytes_by_rank":\[\([0-9,]*\)\].*/\1/' "$work/memory/summary.json")
  row "model_state_bytes by rank, pp 4: 16 bytes a parameter of the stage" "$wanted" "$measured" \
    "$(verdict test "$(awk -v a="$wanted" -v b="$measured" 'BEGIN { split(a, x, ","); split(b, y, ",")
      for (i = 1; i <= 4; ++i) wrong += y[i] / x[i] < .98 || y[i] / x[i] > 1.02; print wrong + 0 }')" = 0)"
  layout_run memory nano_gpt_cpu --pp 4 --set train.batch_size=16 --set parallel.microbatches=8 --set parallel.schedule=GPIPE --set parallel.memory_bytes=4000000
  code=$?
  limit=$(grep -o 'allowed: at least [0-9]*' "$work/memory.txt" | grep -o '[0-9]*$')
  row "a pipeline above parallel.memory_bytes" "exit 2, 4 ranks' peaks" "exit $code, $(grep -c 'rank [0-3] needs [0-9]*: .* live' "$work/memory.txt")" \
    "$(verdict test "$code" = 2 -a "$(grep -c 'rank [0-3] needs [0-9]*: .* live' "$work/memory.txt")" = 4)"
  local schedule recompute
  for schedule in "GPIPE NONE 2" "ONE_F_ONE_B NONE 0" "GPIPE FULL 0"; do
    read -r schedule recompute code <<<"$schedule"
    layout_run memory nano_gpt_cpu --pp 4 --set train.batch_size=16 --set parallel.microbatches=8 --set parallel.schedule=$schedule \
      --set parallel.recompute=$recompute --set parallel.memory_bytes=$((${limit:-1} - 1))
    wanted=$?
    row "a byte below GPIPE's peak: $schedule, recompute $recompute" "exit $code" "exit $wanted" "$(verdict test "$wanted" = "$code")"
  done
}

peak_rows() {
  local zero0 zero3 n part
  zero0=$(peak_of 0)
  zero3=$(peak_of 3)
  n=$(field "$work/peak" dense_parameters)
  part=$(awk -v a="$zero0" -v b="$zero3" -v n="$n" 'BEGIN { printf "%.2f", (a - b) / (12 * n) }')
  row "VmHWM, GPT of $n parameters, dp 4, from zero 0 to 3: fall / formula" "at least .7" \
    "$part ($((zero0 >> 20)) to $((zero3 >> 20)) MB)" "$(verdict within "$part" .7 100)"
}

accept_memory() {
  layout_data
  [[ -s $layout_text ]] || { row "memory" "" "no tinyshakespeare" skipped && return; }
  local d whole=$((64 * 128 + 9 * 128))  # positions and norms of nanoGPT, which no rank cuts
  for d in 2 4; do
    state_row "zero 0, dp $d" tiny_llama "16 * n" --dp $d
    state_row "zero 1, dp $d" tiny_llama "(8 + 8 / $d) * n" --dp $d --zero 1
    state_row "zero 2, dp $d" tiny_llama "(4 + 12 / $d) * n" --dp $d --zero 2
    state_row "zero 3, dp $d" tiny_llama "16 / $d * n" --dp $d --zero 3
    state_row "tp $d" nano_gpt_cpu "16 * ((n - $whole) / $d + $whole)" --tp $d
  done
  local limit=$((13 * $(field "$work/memory" dense_parameters))) code
  layout_run memory tiny_llama --local --dp 2 --set parallel.memory_bytes=$limit --set optimizer.kind=ADAM --set optimizer.weight_decay=0
  code=$?
  row "zero 0 above parallel.memory_bytes" "exit 2, named" "exit $code, $(grep -o 'needs [0-9]*' "$work/memory.txt" | head -1)" \
    "$(verdict test "$code" = 2 -a -n "$(grep 'needs [0-9]*: weights' "$work/memory.txt")")"
  layout_run memory tiny_llama --local --dp 2 --zero 3 --set parallel.memory_bytes=$limit --set optimizer.kind=ADAM \
    --set optimizer.weight_decay=0
  code=$?
  row "zero 3 below it" "exit 0" "exit $code" "$(verdict test "$code" = 0)"
  stage_rows
  peak_rows
}

# bytes_of AXIS: of the run's collective_bytes.
bytes_of() { sed 's/.*"collective_bytes":{\([^}]*\)}.*/\1/' "$work/bytes/summary.json" | tr ',' '\n' | sed -n "s/\"$1\"://p"; }

# bytes_row DP TP ZERO CUT [PASSES]: bytes of a step of tiny Llama beside the terms of its layers. T tokens of width 128 in 4 layers; n
# parameters, of which 1,152 in norms and 8,192 a layer in heads of keys and values.
bytes_row() {
  local dp=$1 tp=$2 zero=$3 cut=$4 passes=${5:-1} what wanted
  layout_run bytes tiny_llama --local --dp "$dp" --tp "$tp" --zero "$zero" --set train.max_steps=5 --set train.eval_every_steps=5 \
    --set optimizer.max_grad_norm=0 --set train.accumulate="$passes" $([[ $tp -gt 1 ]] && echo "--set parallel.sequence_parallel=$cut")
  wanted=$(awk -v dp="$dp" -v tp="$tp" -v zero="$zero" -v passes="$passes" -v cut="$cut" -v n="$(field "$work/bytes" dense_parameters)" 'BEGIN {
    T = 12 * 64 / dp; rows = T * 128 * 4; norms = 1152
    if (tp > 1) {
      layers = 4 * (cut == "true" ? 10 : 8) * rows   # 4 gathers and scatters each way and 2 again, or 4 sums
      ends = 4 * rows                                # embedding and head
      losses = 6 * T * 4                             # a maximum, and two numbers of each row
      small = cut == "true" ? 2 * norms * 4 : 0      # gradients of norms
      copies = tp > 2 ? 2 * 4 * 8192 / 2 * 4 : 0     # two ranks hold each head of keys and values
    }
    held = tp == 1 ? n : (n - norms) / tp + norms + (tp > 2 ? 4 * 8192 * (1 / 2 - 1 / tp) : 0)
    if (dp > 1) {
      gradients = (zero == 0 ? 2 : zero == 1 ? 1 : passes) * held * 4  # an all-reduce, or reduce-scatters
      weights = (zero == 0 ? 0 : zero < 3 ? 1 : 2 * passes) * held * 4 # gathers
    }
    votes = dp * tp > 1 ? 2 * 24 + (tp > 1 ? 16 : 0) : 0
    printf "%d layers %d ends %d losses %d norms %d copies %d gradients %d weights %d votes %d",
      layers + ends + losses + small + copies + gradients + weights + votes, layers, ends, losses, small, copies, gradients, weights, votes
  }')
  what=$(($(bytes_of tp) + $(bytes_of dp) + $(bytes_of all)))
  row "bytes a step, dp $dp tp $tp zero $zero cut rows $cut passes $passes: $wanted" ".98 to 1.02" \
    "$(awk -v a="$what" -v b="${wanted%% *}" 'BEGIN { printf "%.4f", a / b }')" \
    "$(verdict within "$(awk -v a="$what" -v b="${wanted%% *}" 'BEGIN { print a / b }')" .98 1.02)"
}

accept_bytes() {
  sync_bytes
  layout_data
  [[ -s $layout_text ]] || { row "bytes of layouts" "" "no tinyshakespeare" skipped && return; }
  local layout
  for layout in "2 1 0 false" "4 1 1 false" "3 1 1 false" "1 2 0 true" "1 2 0 false" "1 4 0 true" "1 4 0 false" "2 2 0 true" "2 2 1 true" \
    "2 2 1 false" "2 4 1 true" "3 2 1 true" "4 1 2 false" "2 1 2 false 2" "4 1 3 false" "2 1 3 false 2" "2 2 3 true"; do
    # shellcheck disable=SC2086  # words
    bytes_row $layout
  done
}

accept_hybrid() {
  layout_data
  local whole cut served
  layout_run hybrid-whole synthetic --dp 2 --ps 2
  layout_run hybrid-cut synthetic --dp 2 --tp 2 --ps 2
  whole=$(field "$work/hybrid-whole" pulled_rows)
  cut=$(field "$work/hybrid-cut" pulled_rows)
  served=$(field "$work/hybrid-cut" served_rows)
  row "pulled_rows, dp 2 x tp 2 beside dp 2" "$whole" "$cut" "$(verdict test "$cut" = "$whole" -a "$cut" != none)"
  row "rows that the servers say they served" "$cut" "$served" "$(verdict test "$served" = "$cut")"
  hybrid_stages
}

# both_ends NAME: the rows that the first and the last stage of a run pulled, and what the servers say they served.
both_ends() {
  sed 's/.*"pulled_rows_by_rank":\[\([0-9,]*\)\],"served_rows":\([0-9]*\).*/\1 \2/' "$work/$1/summary.json" |
    awk -v tp="$2" '{ n = split($1, by, ","); half = n / 2
                      for (i = 1; i <= n; ++i) { sum[i > half] += by[i]; wrong += (i - 1) % tp && by[i] }
                      print sum[0] " + " sum[1] (wrong ? " by many ranks" : "") " = " $2 }'
}

# Rows at both ends of a pipeline: those of the first stage's inputs, and those that the last stage's loss reads.
hybrid_stages() {
  [[ -s $layout_text ]] || { row "hybrid with stages" "" "no tinyshakespeare" skipped && return; }
  local model common tied inputs ends cut hash symbols
  for model in nano_gpt_cpu retail; do
    common="--set placement=PS --set optimizer.kind=SGD --set optimizer.learning_rate=$([[ $model == retail ]] && echo .3 || echo .1) --set optimizer.weight_decay=0"
    # shellcheck disable=SC2086  # words
    {
      layout_run hybrid-whole $model --trainers 1 $common
      layout_run hybrid-pp $model --pp 2 --ps 1 $common
      hash=$(field "$work/hybrid-pp" params_hash)
      layout_run hybrid-ps2 $model --pp 2 --ps 2 $common
      layout_run hybrid-cut $model --pp 2 --tp 2 --ps 2 $common
    }
    layout_row hybrid-pp hybrid-whole "$model, rows on servers, pp 2: losses, valid/loss, norms"
    layout_row hybrid-cut hybrid-whole "$model, rows on servers, pp 2 x tp 2"
    row "$model, pp 2: params_hash of 1 and 2 servers" "$hash" "$(field "$work/hybrid-ps2" params_hash)" \
      "$(verdict test "$hash" != none -a "$(field "$work/hybrid-ps2" params_hash)" = "$hash")"
    ends=$(both_ends hybrid-pp 1)
    cut=$(both_ends hybrid-cut 2)
    row "$model: rows of the first stage + of the last = served" "a sum, the same under tp 2" "$ends" \
      "$(verdict eval "test '$ends' = '$cut' && awk -v e='$ends' 'BEGIN { split(e, w, \" \"); exit w[1] + w[3] != w[5] || !w[3] }'")"
    [[ $model == nano_gpt_cpu ]] || continue
    # An untied model reads its inputs alone; a tied head reads all symbols in 20 steps and an evaluation.
    # shellcheck disable=SC2086
    layout_run hybrid-untied $model --trainers 1 $common --set model.gpt.tied_embeddings=false
    inputs=$(field "$work/hybrid-untied" pulled_rows)
    symbols=$(grep -o 'vocabulary of [0-9]*' "$work/hybrid-untied.txt" | grep -o '[0-9]*')
    tied=$((symbols * 21))
    row "the first stage's inputs, and the tied head's rows" "$inputs + $tied" "${ends% =*}" "$(verdict test "${ends% =*}" = "$inputs + $tied")"
  done
}
