# resume, killed, elastic, damage, stops: runs that are broken off and go on. Sourced by run.sh.

# begin_run NAME ARGUMENTS...: starts `launch` in the background, pid in $launch, and waits for its first step.
begin_run() {
  local name=$1 i
  shift
  "$tandem" launch "$@" --out "$work/$name" >"$work/$name.txt" 2>&1 &
  launch=$!
  for ((i = 0; i < 600; ++i)); do
    [[ -s $work/$name/metrics.jsonl ]] && return
    kill -0 "$launch" 2>/dev/null || return
    sleep 0.05
  done
}

# pause SECONDS: a random time below it.
pause() { sleep "$(awk -v most="$1" -v seed="$RANDOM" 'BEGIN { srand(seed); printf "%.3f", rand() * most }')"; }

# resumed_rows WHAT ARGUMENTS...: ten runs stopped by SIGTERM somewhere and resumed end with the unbroken run's params_hash. A run
# that was over before its signal says nothing and is begun again.
resumed_rows() {
  local what=$1 wanted seconds launch began code status tries kept equal=0 stopped=0 failed=0
  shift
  rm -rf "$work/unbroken"
  begin_run unbroken "$@"
  began=$(now)
  wait "$launch"
  seconds=$(since "$began")
  wanted=$(field "$work/unbroken" params_hash)
  for ((tries = 0; tries < 30 && stopped < 10; ++tries)); do
    rm -rf "$work/broken"
    begin_run broken "$@"
    pause "$seconds"
    kill -TERM "$launch" 2>/dev/null
    wait "$launch"
    code=$?
    status=$(field "$work/broken" status)
    [[ $status == completed ]] && continue
    [[ $code != 143 || $status != stopped ]] && failed=$((failed + 1)) && continue
    stopped=$((stopped + 1))
    "$tandem" launch "$@" --out "$work/broken" --resume >"$work/resumed.txt" 2>&1
    if [[ $wanted != none && $(field "$work/broken" params_hash) == "$wanted" && $(field "$work/broken" status) == completed ]]; then
      equal=$((equal + 1))
    else  # what there is to find out why
      kept=$work/kept-$(date +%s)
      mkdir -p "$kept" && cp -r "$work"/{unbroken,broken,broken.txt,resumed.txt} "$kept" && echo "   differs: kept in $kept" >&2
    fi
  done
  row "SIGTERM and --resume, $what: unbroken params_hash ($stopped of $tries runs were stopped, $failed failed)" "10 of 10" \
    "$equal of $stopped" "$(verdict test "$stopped $equal $failed" = "10 10 0")"
}

lastfm_arguments() {
  local folder
  folder=$(lastfm_folder)
  [[ -n $folder ]] || return
  echo "examples/sequence_rec/lastfm.textproto --set data.path=$folder/LastFM.txt --set data.negatives_path=$folder/LastFM_sample.txt"
}

accept_resume() {
  local lastfm text trainers
  read -ra lastfm <<<"$(lastfm_arguments)"
  for trainers in 1 2; do
    if ((${#lastfm[@]})); then
      resumed_rows "LastFM, 2 PS x $trainers" "${lastfm[@]}" --set train.max_epochs=15 --ps 2 --trainers $trainers
    else
      row "SIGTERM and --resume, LastFM" "" "no data: set TANDEM_TEST_DATA" skipped
    fi
    if [[ -n $(text_file) ]]; then
      resumed_rows "mini GPT, 2 PS x $trainers" examples/char_lm/mini_gpt.textproto --set data.path="$(text_file)" \
        --set train.max_steps=400 --set train.eval_every_steps=100 --set placement=PS --ps 2 --trainers $trainers
    else
      row "SIGTERM and --resume, mini GPT" "" "no data: set TANDEM_TEST_DATA" skipped
    fi
  done
}

# kill -9 of a run that writes checkpoints all the time, until ten kills came in the midst of one: the newest is always whole, and
# a run that was killed in the midst goes on from it and ends as the unbroken one.
accept_killed() {
  small_log
  local arguments=(examples/sequence_rec/synthetic.textproto --set data.path="$work/log.txt" --set train.max_steps=300
    --set train.eval_every_epochs=1000 --set checkpoint.every_steps=1 --ps 2 --trainers 2)
  local launch wanted kills whole=0 equal=0 midst=0
  rm -rf "$work/unbroken"
  "$tandem" launch "${arguments[@]}" --out "$work/unbroken" >/dev/null 2>&1
  wanted=$(field "$work/unbroken" params_hash)
  for ((kills = 0; kills < 100 && midst < 10; ++kills)); do
    rm -rf "$work/killed"
    begin_run killed "${arguments[@]}"
    pause 0.8
    kill -KILL "$launch" 2>/dev/null
    wait "$launch" 2>/dev/null
    sleep 0.3
    "$tandem" inspect "$work/killed/checkpoints" >/dev/null 2>&1 && whole=$((whole + 1))
    compgen -G "$work/killed/checkpoints/.draft-*" >/dev/null || continue
    midst=$((midst + 1))
    "$tandem" launch "${arguments[@]}" --out "$work/killed" --resume >"$work/resumed.txt" 2>&1
    [[ $wanted != none && $(field "$work/killed" params_hash) == "$wanted" ]] && equal=$((equal + 1))
  done
  row "kill -9 while checkpoints are written: newest whole" "all" "$whole of $kills" "$(verdict test "$whole" = "$kills")"
  row "killed in the midst of one, resumed: unbroken params_hash" "10 of 10" "$equal of $midst" "$(verdict test "$equal-$midst" = 10-10)"
}

# A checkpoint of 2 PS x 2 trainers goes on with 3 PS x 1 trainer.
accept_elastic() {
  small_log
  local arguments=(examples/sequence_rec/synthetic.textproto --set data.path="$work/log.txt" --set train.max_steps=100
    --set train.eval_every_epochs=1000 --set train.log_every_steps=1) worst
  rm -rf "$work/unbroken" "$work/elastic"
  "$tandem" launch "${arguments[@]}" --ps 2 --trainers 2 --out "$work/unbroken" >/dev/null 2>&1
  begin_run elastic "${arguments[@]}" --ps 2 --trainers 2 --set checkpoint.every_steps=50 --set train.max_steps=50
  wait "$launch"
  "$tandem" launch "${arguments[@]}" --ps 3 --trainers 1 --out "$work/elastic" --resume >"$work/elastic.txt" 2>&1
  worst=$(paste <(json_field loss <"$work/unbroken/metrics.jsonl") <(json_field loss <"$work/elastic/metrics.jsonl") | awk '
    NR > 50 { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
    END { if (n == 50) printf "%.1e", worst; else printf "%d steps", n }')
  row "2 PS x 2 trainers resumed on 3 PS x 1 trainer, 50 losses, largest difference" "<= 1e-5 relative" "$worst" \
    "$(verdict within "$worst" 0 1e-5)"
}

# One flipped bit somewhere in each file of a checkpoint, many times.
accept_damage() {
  small_log
  local out=$work/damage what="one bit flipped in a file of a checkpoint: refused with code 4, naming the file"
  local checkpoint file bytes at flips=0 noticed=0 i octal
  rm -rf "$out"
  if ! "$tandem" launch examples/sequence_rec/synthetic.textproto --set data.path="$work/log.txt" --set train.max_steps=20 --ps 2 \
    --out "$out" >"$work/damage.txt" 2>&1; then
    row "$what" "a checkpoint" "$(tail -1 "$work/damage.txt")" MISS
    return
  fi
  checkpoint=$(printf '%s\n' "$out"/checkpoints/step-* | sort -V | tail -1)
  if [[ ! -d $checkpoint ]]; then
    row "$what" "a checkpoint" "none in $out/checkpoints" MISS
    return
  fi
  for file in "$checkpoint"/*; do
    bytes=$(stat -c %s "$file")
    for ((i = 0; i < 40; ++i)); do
      at=$(((RANDOM * 32768 + RANDOM) % bytes))
      octal=$(dd if="$file" bs=1 skip=$at count=1 2>/dev/null | od -An -to1 | tr -d ' ')
      printf "\\$(printf %03o $((8#$octal ^ (1 << RANDOM % 8))))" | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
      "$tandem" inspect "$checkpoint" >"$work/damage.txt" 2>&1
      [[ $? == 4 ]] && grep -q "$(basename "$file")" "$work/damage.txt" && noticed=$((noticed + 1))
      flips=$((flips + 1))
      printf "\\$octal" | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
    done
  done
  row "$what" "$flips of $flips" "$noticed of $flips" "$(verdict test "$flips" -gt 0 -a "$noticed" = "$flips")"
}

# stop_arguments: a run of some seconds of which about half is evaluation.
stop_arguments() {
  small_log
  echo "examples/sequence_rec/synthetic.textproto --set data.path=$work/log.txt --set train.max_steps=60 --set train.eval_every_steps=6"
  echo "--set train.log_every_steps=1 --ps 2 --trainers 2"
}

# one_stop SIGNAL MOMENT: a run that gets the signal (ps: its first server is killed) after so many seconds. Prints over, if the run was over
# before, stopped, or what was wrong with its end.
one_stop() {
  local signal=$1 moment=$2 launch code wanted target
  rm -rf "$work/stopped"
  "$tandem" launch "${stopped_run[@]}" --out "$work/stopped" >"$work/stopped.txt" 2>&1 &
  launch=$!
  sleep "$moment"
  case $signal in
    ps) target=$(pid_of_role ps-0 "$work/stopped") wanted=137 ;;
    *) target=$launch wanted=$((128 + $(kill -l "$signal"))) ;;
  esac
  kill -s "${signal/ps/KILL}" ${target:-$launch} 2>/dev/null
  wait "$launch"
  code=$?
  if [[ $code == 0 ]]; then
    echo over
  elif [[ $code != "$wanted" ]] && [[ -n $target ]] || grep -qE 'SIG(ABRT|SEGV|BUS|FPE)|corrupted|free\(\)' "$work/stopped.txt"; then
    echo "exit $code"
  else
    echo stopped
  fi
}

# Stops of four kinds at random moments of a run, its start and its evaluations included. Each is gone on with by --resume=auto and ends
# with the unbroken run's params_hash. SEED repeats a sitting; ONEDNN_MAX_CPU_ISA=AVX2 takes the kernels that a signal could harm.
accept_stops() {
  local seed=${SEED:-$(date +%s)} wanted seconds began ended kinds=(TERM INT HUP ps) signal moment tries stops=0 equal=0 bad=0 kept left
  read -ra stopped_run <<<"$(stop_arguments | tr '\n' ' ')"
  RANDOM=$seed
  rm -rf "$work/unbroken"
  began=$(now)
  "$tandem" launch "${stopped_run[@]}" --out "$work/unbroken" >"$work/unbroken.txt" 2>&1
  seconds=$(since "$began")
  wanted=$(field "$work/unbroken" params_hash)
  printf '   seed %s, an unbroken run takes %s s\n' "$seed" "$seconds" >&2
  for ((tries = 0; tries < 3 * num_stops && stops < num_stops; ++tries)); do
    signal=${kinds[RANDOM % 4]}
    moment=$(awk -v r=$RANDOM -v s="$seconds" 'BEGIN { printf "%.3f", r / 32768 * s }')
    ended=$(one_stop "$signal" "$moment")
    [[ $ended == over ]] && continue
    stops=$((stops + 1))
    [[ $ended == stopped ]] || bad=$((bad + 1))
    "$tandem" launch "${stopped_run[@]}" --out "$work/stopped" --resume=auto >"$work/resumed.txt" 2>&1
    left=$(what_is_left "$work/stopped")
    if [[ $ended == stopped && $wanted != none && $(field "$work/stopped" params_hash) == "$wanted" && $left == "nothing left" ]]; then
      equal=$((equal + 1))
    else
      kept=$work/kept-$(date +%s)
      mkdir -p "$kept" && cp -r "$work"/{unbroken,stopped,stopped.txt,resumed.txt} "$kept"
      printf '   %s at %s s: %s, %s; kept in %s\n' "$signal" "$moment" "$ended" "$left" "$kept" >&2
    fi
  done
  row "stops at random moments (seed $seed), gone on with by --resume=auto: unbroken params_hash, no abort, nothing left" \
    "$num_stops of $num_stops" "$equal of $stops" "$(verdict test "$equal $stops" = "$num_stops $num_stops")"
}
