# newitems, retail, movies: the recommender that reads, on real data. Sourced by run.sh.

# read_train NAME JOB ARGUMENTS...: trains a job of examples/rec_llm into $work/NAME with 2 servers and 2 trainers.
read_train() {
  local name=$1 job=$2 began
  shift 2
  rm -rf "${work:?}/$name"
  began=$(now)
  "$tandem" launch "examples/rec_llm/$job.textproto" --ps 2 --trainers 2 --out "$work/$name" "$@" >"$work/$name.txt" 2>&1
  row "$name, seconds" - "$(since "$began")" -
}

# read_dump NAME JOB ARGUMENTS...: writes $work/NAME.tsv, the ranks of the test split.
read_dump() {
  local name=$1 job=$2
  shift 2
  "$tandem" eval "examples/rec_llm/$job.textproto" --checkpoint "$work/$name/checkpoints" --dump "$work/$name.tsv" "$@" \
    >"$work/$name.eval.txt" 2>&1
}

# floor NAME METRIC COLUMN: of the table that NAME's run printed.
floor() { awk -v metric="$2" -v column="$3" '$1 == metric { print $column }' "$work/$1.txt"; }

# read_pair WHAT SETS...: trains the job that reads and the one of ids alone, and dumps both.
read_pair() {
  local what=$1 job=$2
  shift 2
  read_train "$what-ids" id_only "$@"
  read_train "$what" "$job" "$@"
  read_dump "$what-ids" id_only "$@"
  read_dump "$what" "$job" "$@"
}

accept_newitems() {
  local log=$data/data/online-retail/sequences_new_items.txt sets cold compared
  [[ -f $log ]] || { row "newitems" "online-retail" none skipped && return; }
  sets=(--set data.path="$log" --set data.items_path="$data/data/online-retail/items.tsv" --set data.num_items=3655)
  read_pair newitems retail "${sets[@]}"
  local ids=$work/newitems-ids run=$work/newitems warm
  row "ids alone, HR@10" "at least .0727" "$(field "$ids" test/hr@10)" "$(verdict within "$(field "$ids" test/hr@10)" .0727 1)"
  row "ids alone, cold HR@10" "at most .01" "$(field "$ids" test/cold_hr@10)" \
    "$(verdict within "$(field "$ids" test/cold_hr@10)" 0 .01)"
  cold=$(field "$run" test/cold_hr@10)
  row "with titles, cold HR@10" "at least .05" "$cold" "$(verdict within "$cold" .05 1)"
  compared=$(python3 tests/acceptance/paired_bootstrap.py "$log" 1 cold "$run.tsv" "$ids.tsv")
  row "cold HR@10, with titles less ids alone, 95 %" "above 0" "$(cut -d' ' -f4-6 <<<"$compared")" \
    "$(verdict within "$(cut -d' ' -f5 <<<"$compared")" .000001 1)"
  warm=$(awk -v a="$(field "$run" test/warm_hr@10)" -v b="$(field "$ids" test/warm_hr@10)" 'BEGIN { printf "%.3f", a / b }')
  row "warm HR@10, with titles / ids alone" "at least .95" "$warm" "$(verdict within "$warm" .95 99)"
  row "warm HR@10 of both" - "$(field "$run" test/warm_hr@10) $(field "$ids" test/warm_hr@10)" -
  row "text loss" "below the bigram's $(floor newitems text_loss 3)" "$(field "$run" test/text_loss)" \
    "$(verdict within "$(field "$run" test/text_loss)" 0 "$(floor newitems text_loss 3)")"
}

accept_retail() {
  local log=$data/data/online-retail/sequences.txt
  [[ -f $log ]] || { row "retail" "online-retail" none skipped && return; }
  read_train retail retail --set data.path="$log" --set data.items_path="$data/data/online-retail/items.tsv"
  row "retail, HR@10" "above .12" "$(field "$work/retail" test/hr@10)" "$(verdict within "$(field "$work/retail" test/hr@10)" .12 1)"
  row "retail, NDCG@10" "above .06" "$(field "$work/retail" test/ndcg@10)" \
    "$(verdict within "$(field "$work/retail" test/ndcg@10)" .06 1)"
}

accept_movies() {
  local source=$data/data/movielens-latest-small files=$work/movielens sets compared group
  [[ -f $source/ratings.csv ]] || { row "movies" "movielens-latest-small" none skipped && return; }
  examples/rec_llm/from_movielens.py "$source/ratings.csv" "$source/movies.csv" "$files" >/dev/null
  sets=(--set data.path="$files/sequences.txt" --set data.items_path="$files/items.tsv" --set data.ids=MAP
        --set eval.cold_below=5 --set train.batch_size=32)
  read_pair movies movies "${sets[@]}"
  for group in all cold warm; do
    compared=$(python3 tests/acceptance/paired_bootstrap.py "$files/sequences.txt" 5 "$group" "$work/movies.tsv" "$work/movies-ids.tsv")
    row "movies, $group: users, HR@10 with titles, of ids, difference, its 95 %" - "$compared" -
  done
}
