# hashes, losses, lastfm, densetables: what a run computes. Sourced by run.sh.

small_log() {
  [[ -f $work/log.txt ]] || "$tandem" synthesize --out "$work/log.txt" --users 1500 --items 300 >/dev/null
}

# train NAME ARGUMENTS...: a run of the generated log into $work/NAME.
train() {
  local name=$1
  shift
  rm -rf "${work:?}/$name"
  "$tandem" launch examples/sequence_rec/synthetic.textproto --set data.path="$work/log.txt" --out "$work/$name" \
    --set train.log_every_steps=1 --set train.eval_every_epochs=1000 "$@" >"$work/$name.txt" 2>&1
}

# hash_of NAME ARGUMENTS...: params_hash of such a run of 60 steps.
hash_of() {
  local name=$1
  shift
  train "$name" --set train.max_steps=60 "$@"
  field "$work/$name" params_hash
}

# hashes_row WHAT equal|different REFERENCE HASH...
hashes_row() {
  local what=$1 wanted=$2 reference=$3 measured hash
  shift 3
  measured=$wanted
  for hash in "$@"; do
    if [[ $hash == none || $reference == none ]]; then
      measured="no hash"
    elif [[ $wanted == equal && $hash != "$reference" ]]; then
      measured=different
    elif [[ $wanted == different && $hash == "$reference" ]]; then
      measured=equal
    fi
  done
  row "params_hash, $what" "$wanted" "$measured" "$(verdict test "$measured" = "$wanted")"
}

accept_hashes() {
  small_log
  local two=(--ps 2 --trainers 2) local1 run22
  local1=$(hash_of local1 --local)
  hashes_row "--local and 1 trainer with 1, 2, 4 PS" equal "$local1" "$(hash_of ps1 --ps 1)" "$(hash_of ps2 --ps 2)" \
    "$(hash_of ps4 --ps 4)"
  run22=$(hash_of run22 "${two[@]}")
  hashes_row "--local --trainers 2 and 2 PS x 2 trainers" equal "$run22" "$(hash_of local2 --local --trainers 2)"
  hashes_row "two runs of a seed" equal "$run22" "$(hash_of again "${two[@]}")"
  hashes_row "1 and 2 threads a process" equal "$run22" \
    "$(hash_of threads "${two[@]}" --set runtime.threads=2 --set ps.threads=2)"
  hashes_row "another seed" different "$run22" "$(hash_of seed "${two[@]}" --set seed=1)"
  hashes_row "one step less" different "$run22" "$(hash_of steps "${two[@]}" --set train.max_steps=59)"
}

accept_losses() {
  small_log
  train losses1 --local --set train.max_steps=100
  train losses22 --ps 2 --trainers 2 --set train.max_steps=100
  local worst
  worst=$(paste <(json_field loss <"$work/losses1/metrics.jsonl") <(json_field loss <"$work/losses22/metrics.jsonl") | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
    END { if (NR == 100) printf "%.1e", worst; else printf "%d steps", NR }')
  row "100 losses, --local and 2 x 2, largest difference" "<= 1e-5 relative" "$worst" "$(verdict within "$worst" 0 1e-5)"
}

# Values of one key of the evaluations at an epoch, of the seeds that reach it.
lastfm_at_epoch() {
  cat "$work"/lastfm-*/evaluations.jsonl | awk -v epoch="\"epoch\":$1," 'index($0, epoch)' | json_field "$2"
}

lastfm_rows_by_epoch() {
  local epochs=(1 10 30 60 96) losses=(1.393 1.197 .962 .721 .537) hits=(.117 .328 .370 .457 .504) i values value
  for i in "${!epochs[@]}"; do
    values=$(lastfm_at_epoch "${epochs[i]}" train/loss)
    [[ -z $values ]] && row "LastFM epoch ${epochs[i]}" "" "no seed reaches it" skipped && continue
    value=$(mean <<<"$values")
    row "LastFM training loss, epoch ${epochs[i]} ($(wc -l <<<"$values") seeds)" "${losses[i]} +- .03" "$value" \
      "$(verdict within "$value" "$(awk "BEGIN { print ${losses[i]} - .03 }")" "$(awk "BEGIN { print ${losses[i]} + .03 }")")"
    value=$(lastfm_at_epoch "${epochs[i]}" valid/sampled_hr@10 | mean "$(wc -l <<<"$values")")
    row "LastFM validation HR@10, epoch ${epochs[i]}" "${hits[i]} +- .04" "$value" \
      "$(verdict within "$value" "$(awk "BEGIN { print ${hits[i]} - .04 }")" "$(awk "BEGIN { print ${hits[i]} + .04 }")")"
  done
}

# The folder of LastFM's files; nothing without them, which a row says.
lastfm_folder() {
  local folder
  for folder in "$data/data/lastfm" "$data/lastfm"; do [[ -f $folder/LastFM.txt ]] && echo "$folder" && return; done
}

# lastfm_run JOB NAME ARGUMENTS...: a run of LastFM by 2 PS x 2 trainers into $work/NAME.
lastfm_run() {
  local job=$1 name=$2 folder
  shift 2
  folder=$(lastfm_folder)
  "$tandem" launch "$job" --ps 2 --trainers 2 --out "$work/$name" --overwrite --set data.path="$folder/LastFM.txt" \
    --set data.negatives_path="$folder/LastFM_sample.txt" "$@" >"$work/lastfm.txt" 2>&1 ||
    row "LastFM, $name" "exit code 0" "$(tail -1 "$work/lastfm.txt")" MISS
}

# lastfm_seeds NAME ARGUMENTS...: the runs of seeds 1 to 5, into $work/NAME-SEED.
lastfm_seeds() {
  local name=$1 seed seconds
  shift
  rm -rf "$work/$name"-*
  for seed in 1 2 3 4 5; do
    lastfm_run examples/sequence_rec/lastfm.textproto "$name-$seed" --set seed=$seed "$@"
    seconds=$(field "$work/$name-$seed" seconds)
    printf '   %s, seed %s: %s s\n' "$name" "$seed" "${seconds%.*}" >&2
  done
}

# lastfm_of_seeds NAME KEY: of the summary of each run of lastfm_seeds NAME.
lastfm_of_seeds() { cat "$work/$1"-*/summary.json | json_field "$2"; }

# lastfm_bands NAME WHAT: the means over the runs of lastfm_seeds NAME in the published bands, which are of five seeds.
lastfm_bands() {
  local figures=("HR@10, 99 negatives|test/sampled_hr@10|.44|.50" "NDCG@10, 99 negatives|test/sampled_ndcg@10|.245|.295"
    "HR@10, full ranking|test/hr@10|.055|.085") figure what key low high value
  for figure in "${figures[@]}"; do
    IFS='|' read -r what key low high <<<"$figure"
    value=$(lastfm_of_seeds "$1" "$key" | mean 5)
    row "$2, $what, mean of 5 seeds" "$low - $high" "$value" "$(verdict within "$value" "$low" "$high")"
  done
}

# Whether LastFM is there; a row says that it is not.
lastfm_is_there() {
  [[ -n $(lastfm_folder) ]] && return
  row "LastFM" "" "no data/lastfm/LastFM.txt below $data: set TANDEM_TEST_DATA" skipped
  return 1
}

# All parameters on the servers, items as rows and the rest in chunks, beside the same run by collectives.
accept_densetables() {
  lastfm_is_there || return
  rm -rf "$work"/densetables-*
  { cat examples/sequence_rec/lastfm.textproto && echo 'parameters { match: "*" placement: PS }'; } >"$work/densetables.textproto"
  lastfm_run examples/sequence_rec/lastfm.textproto densetables-ddp --set seed=1
  lastfm_run "$work/densetables.textproto" densetables-served --set seed=1
  local ddp=$work/densetables-ddp served=$work/densetables-served worst value steps
  steps=$(awk 'index($0, "\"epoch\":4,") { exit } { ++n } END { print n }' "$ddp/metrics.jsonl")
  worst=$(paste <(json_field loss <"$ddp/metrics.jsonl") <(json_field loss <"$served/metrics.jsonl") | head -"$steps" | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "%.1e", worst }')
  row "LastFM on servers alone and by DDP, $steps losses of 3 epochs, largest difference" "<= 1e-5 relative" "$worst" \
    "$(verdict within "$worst" 0 1e-5)"
  hashes_row "LastFM on servers alone and by DDP" equal "$(field "$ddp" params_hash)" "$(field "$served" params_hash)"
  value=$(field "$served" test/sampled_hr@10)
  row "LastFM on servers alone, HR@10, 99 negatives" ".42 - .52" "$value" "$(verdict within "$value" .42 .52)"
  value=$(field "$served" test/sampled_ndcg@10)
  row "LastFM on servers alone, NDCG@10, 99 negatives" ".23 - .31" "$value" "$(verdict within "$value" .23 .31)"
  row "LastFM seconds, by DDP and on servers alone" "" "$(field "$ddp" seconds) $(field "$served" seconds)" -
}

accept_lastfm() {
  lastfm_is_there || return
  lastfm_seeds lastfm
  lastfm_bands lastfm LastFM
  lastfm_rows_by_epoch
  row "LastFM seconds of each seed, 2 PS x 2 trainers" "" "$(lastfm_of_seeds lastfm seconds | xargs printf '%.0f\n' | xargs)" -
}
