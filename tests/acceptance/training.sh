# hashes, losses, lastfm: what a run computes. Sourced by run.sh.

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

# lastfm_row WHAT KEY LOW HIGH: the mean over the seeds.
lastfm_row() {
  local value
  value=$(cat "$work"/lastfm-*/summary.json | json_field "$2" | mean 5)
  row "LastFM $1, mean of 5 seeds" "$3 - $4" "$value" "$(verdict within "$value" "$3" "$4")"
}

accept_lastfm() {
  local folder=$data/data/lastfm seed seconds=()
  [[ -f $folder/LastFM.txt ]] || folder=$data/lastfm
  if [[ ! -f $folder/LastFM.txt ]]; then
    row "LastFM" "" "no data/lastfm/LastFM.txt below $data: set TANDEM_TEST_DATA" skipped
    return
  fi
  rm -rf "$work"/lastfm-*
  for seed in 1 2 3 4 5; do
    "$tandem" launch examples/sequence_rec/lastfm.textproto --ps 2 --trainers 2 --set seed=$seed --out "$work/lastfm-$seed" \
      --set data.path="$folder/LastFM.txt" --set data.negatives_path="$folder/LastFM_sample.txt" >"$work/lastfm.txt" 2>&1 ||
      row "LastFM, seed $seed" "exit code 0" "$(tail -1 "$work/lastfm.txt")" MISS
    seconds+=("$(field "$work/lastfm-$seed" seconds | awk '{ printf "%.0f", $1 }')")
    printf '   seed %s: %s s\n' "$seed" "${seconds[-1]}" >&2
  done
  lastfm_row "HR@10, 99 negatives" test/sampled_hr@10 .44 .50
  lastfm_row "NDCG@10, 99 negatives" test/sampled_ndcg@10 .245 .295
  lastfm_row "HR@10, full ranking" test/hr@10 .055 .085
  lastfm_rows_by_epoch
  row "LastFM seconds of each seed, 2 PS x 2 trainers" "" "${seconds[*]}" -
}
