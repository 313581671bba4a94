# faults, badinput: how a run ends that cannot go well. Sourced by run.sh.

# Lines "PID COMMAND LINE" of running processes with TEXT in their command line, but for this shell's own.
processes_with() {
  local folder line
  for folder in /proc/[0-9]*; do
    line=$(tr '\0' ' ' 2>/dev/null <"$folder/cmdline") || continue
    [[ $line == "tandem "*"$1"* || $line == "$tandem "*"$1"* ]] && echo "${folder#/proc/} $line"
  done
}

# pid_of_role ROLE-RANK OUT
pid_of_role() {
  local role=${1%-*} rank=${1##*-}
  processes_with "$2" | while read -r pid line; do
    [[ $line == "tandem $role "* ]] || continue
    [[ $role == master || $line == *" --index $rank "* ]] && echo "$pid" && break
  done
}

memory_files() { find /dev/shm -maxdepth 1 -name 'tandem-*' 2>/dev/null | sort; }

# what_is_left OUT: "nothing left", or what is.
what_is_left() {
  local left
  left=$(processes_with "$1" | cut -d' ' -f3 | tr '\n' ' ')$(memory_files | tr '\n' ' ')
  echo "${left:-nothing left}"
}

# fault SIGNAL ROLE-RANK CODE: a job in mid-training whose role gets the signal.
fault() {
  local out=$work/fault launch began code measured named=unnamed left i
  rm -rf "$out"
  "$tandem" launch examples/sequence_rec/synthetic.textproto --ps 2 --trainers 2 --set data.path="$work/log.txt" --out "$out" \
    --set train.max_epochs=1000000 --set train.eval_every_epochs=1000000 >"$out.out" 2>"$out.err" &
  launch=$!
  for ((i = 0; i < 300; ++i)); do
    [[ -s $out/metrics.jsonl ]] && break
    sleep 0.1
  done
  sleep 0.5
  kill -s "$1" "$(pid_of_role "$2" "$out")"
  began=$(now)
  for ((i = 0; i < 600; ++i)); do
    [[ -d /proc/$launch ]] || break
    sleep 0.05
  done
  measured=$(since "$began")
  kill -KILL $launch 2>/dev/null
  wait $launch 2>/dev/null
  code=$?
  left=$(what_is_left "$out")
  grep -q "$2" "$out.err" && named=named
  printf '      %s\n' "$(cat "$out.err")" >&2
  row "SIG$1 to $2" "$3, named, <= 15 s, nothing left" "$code, $named, $measured s, $left" \
    "$(verdict test "$code $named $left $(verdict within "$measured" 0 15)" = "$3 named nothing left pass")"
}

accept_faults() {
  if [[ ! -d /proc/self ]]; then
    row "faults" "" "no /proc to find a role's process in" skipped
    return
  fi
  small_log
  local role
  for role in master-0 ps-1 trainer-0 trainer-1; do
    fault KILL $role 137
    fault STOP $role 75
  done
}

# refused WHAT CODE TEXT COMMAND...: ends with CODE and less than a screen that has TEXT in it.
refused() {
  local what=$1 wanted=$2 text=$3 code lines said=silent left
  shift 3
  timeout 60 "$tandem" "$@" --out "$work/refused" >"$work/refused.out" 2>"$work/refused.err"
  code=$?
  lines=$(wc -l <"$work/refused.err")
  grep -qF -- "$text" "$work/refused.err" && said=named
  left=$(what_is_left "$work/refused")
  sed 's/^/      /' "$work/refused.err" >&2
  row "$what" "$wanted, named, < 24 lines, nothing left" "$code, $said, $lines lines, $left" \
    "$(verdict test "$code $said $left $(verdict within "$lines" 1 23)" = "$wanted named nothing left pass")"
}

accept_badinput() {
  small_log
  local job=examples/sequence_rec/synthetic.textproto two=(--ps 2 --trainers 2) log=(--set "data.path=$work/log.txt") pid i
  rm -rf "$work/refused"
  refused "missing job file" 2 "none.textproto" launch "$work/none.textproto"
  refused "missing data file" 3 "none.txt: No such file" launch $job "${two[@]}" --set data.path="$work/none.txt"
  printf '1 2 3 4\n2 3 x4 5\n' >"$work/bad.txt"
  refused "malformed line" 3 "bad.txt:2: " launch $job "${two[@]}" --set data.path="$work/bad.txt"
  printf '1 2 3 4\n2 3 0 5\n' >"$work/bad.txt"
  refused "id 0" 3 "bad.txt:2: item id 0" launch $job "${two[@]}" --set data.path="$work/bad.txt"
  printf '1 2 3 4\n2 3 -4 5\n' >"$work/bad.txt"
  refused "negative id" 3 "bad.txt:2: item id -4" launch $job "${two[@]}" --set data.path="$work/bad.txt"
  refused "id above the catalogue" 3 "log.txt:" launch $job "${two[@]}" "${log[@]}" --set data.num_items=2
  refused "unknown field" 2 'did you mean "batch_size"' launch $job "${log[@]}" --set train.batchsize=3
  refused "impossible layout" 2 "parallel.dp is 3 with 2 trainers" launch $job "${two[@]}" "${log[@]}" --set parallel.dp=3
  local port=$((20000 + RANDOM % 10000))
  "$tandem" master $job --listen 127.0.0.1:$port "${log[@]}" >/dev/null 2>&1 &
  pid=$!
  for ((i = 0; i < 100; ++i)); do
    (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break
    sleep 0.1
  done
  refused "port in use" 75 "port in use: 127.0.0.1:$port" launch $job "${two[@]}" "${log[@]}" --master 127.0.0.1:$port
  kill -KILL $pid
  wait $pid 2>/dev/null
  refused "unreachable master (30 s)" 75 "master-0 at 127.0.0.1:1 unreachable for 30 s" trainer $job "${log[@]}" --master 127.0.0.1:1
  row "output folder of refused runs" "not made" "$(if [[ -e $work/refused ]]; then echo made; else echo "not made"; fi)" \
    "$(verdict test ! -e "$work/refused")"
}
