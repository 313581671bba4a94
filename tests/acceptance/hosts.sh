# hosts: trainers on two hosts, made of network namespaces with host names of their own. Sourced by run.sh.

# on HOST COMMAND...: runs a command on host a or b, under that host's name. In the background, its process is $!.
on() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # of the inner shell
  set -- ip netns exec "tandem-$host" unshare --uts sh -c 'hostname host-$0; exec "$@"' "$host" "$@"
  [[ $BASHPID == "$$" ]] || exec "$@"
  "$@"
}

hosts_down() {
  ip netns del tandem-a 2>/dev/null
  ip netns del tandem-b 2>/dev/null
}

# hosts_up: two hosts joined by a link of 1 Gb/s. Fails where namespaces are not allowed.
hosts_up() {
  hosts_down
  ip netns add tandem-a 2>/dev/null && ip netns add tandem-b || return 1
  ip link add link-a netns tandem-a type veth peer name link-b netns tandem-b || return 1
  local host number=1
  for host in a b; do
    ip -n tandem-$host addr add 10.99.0.$((number++))/24 dev link-$host && ip -n tandem-$host link set lo up &&
      ip -n tandem-$host link set link-$host up || return 1
    tc -n tandem-$host qdisc add dev link-$host root tbf rate 1gbit burst 128kb latency 50ms 2>/dev/null || return 1
  done
  on a true
}

link_bytes() { ip netns exec tandem-a cat /sys/class/net/link-a/statistics/tx_bytes; }

# hosts_run NAME ARGUMENTS...: hosts_trainers trainers, the first hosts_on_a of them on host a with master and server, the others on
# host b. Starts all and waits for the first log line; hosts_end waits for the end.
hosts_trainers=4
hosts_on_a=2
hosts_run() {
  local name=$1 arguments role
  shift
  rm -rf "${work:?}/$name"
  arguments=(examples/char_lm/tiny_llama.textproto --ps 1 --secret-file "$work/hosts.secret" --out "$work/$name"
    --set data.path="$layout_text" --set train.max_steps=50 --set train.log_every_steps=1 --set train.eval_every_steps=50
    --set train.precision=F32 --set optimizer.schedule=CONSTANT "$@")
  on a "$tandem" master "${arguments[@]}" --listen 10.99.0.1:7000 >"$work/$name.master" 2>&1 &
  hosts_master=$!
  on a "$tandem" ps "${arguments[@]}" --master 10.99.0.1:7000 --listen 10.99.0.1:0 >"$work/$name.ps" 2>&1 &
  hosts_roles=($!)
  for ((role = 0; role < hosts_trainers; ++role)); do
    on "$( ((role < hosts_on_a)) && echo a || echo b)" "$tandem" trainer "${arguments[@]}" --master 10.99.0.1:7000 --index $role \
      >"$work/$name.trainer$role" 2>&1 &
    hosts_roles+=($!)
  done
  for ((i = 0; i < 200; ++i)); do
    [[ -s $work/$name/metrics.jsonl ]] && break
    sleep 0.05
  done
}

hosts_end() {
  wait "$hosts_master"
  hosts_code=$?
  wait "${hosts_roles[@]}" 2>/dev/null
}

hosts_layout() {
  local name=$1 before worst_loss gradients
  shift
  before=$(link_bytes)
  hosts_run "hosts-$name" "$@"
  hosts_end
  layout_run hosts-local tiny_llama --local --set train.max_steps=50 --set train.eval_every_steps=50 "$@"
  worst_loss=$(worst loss "$work/hosts-$name" "$work/hosts-local" metrics.jsonl 50)
  row "two hosts, $*: 50 losses beside --local" "<= 1e-5" "$worst_loss" "$(verdict within "$worst_loss" 0 1e-5)"
  gradients=$(awk -v bytes=$(($(link_bytes) - before)) -v numbers="$(field "$work/hosts-$name" dense_parameters)" \
    'BEGIN { printf "%.2f", bytes / 50 / (4 * numbers) }')
  [[ $name == dp ]] && row "bytes from host a to host b per step / gradients" "1.0 to 1.1" "$gradients" \
    "$(verdict within "$gradients" 1.0 1.1)"
  [[ $name == tp ]] && row "warning of tp over hosts" "names ranks and hosts" "$(grep -o 'trainers 0 to 3 stand on several hosts ([^)]*)' \
    "$work/hosts-$name.trainer0" | head -1)" "$(verdict grep -q 'host-a, host-b' "$work/hosts-$name.trainer0")"
}

# The part of communication that training waits for, with one trainer on each host. "-": an aim (issue 50: 25 %), which holds where
# the backward pass takes as long as communication, because nothing else can run beside sums of gradients.
hosts_exposed() {
  local before bytes
  before=$(link_bytes)
  hosts_trainers=2 hosts_on_a=1
  hosts_run hosts-exposed --dp 2 --set model.llama.dim=256 --set model.llama.ffn_dim=768 --set train.batch_size=24 \
    --set data.path="$layout_text" --set trace.first_step=30 --set trace.steps=4
  hosts_end
  hosts_trainers=4 hosts_on_a=2
  bytes=$(($(link_bytes) - before))
  row "dp 2 over the link: exposed, backward, forward / communication" "exposed <= .25 where backward >= 1" \
    "$(/usr/bin/python3 tests/acceptance/exposed.py "$work/hosts-exposed" "$bytes")" -
}

# stranger PORT: connects to a trainer's port with garbage, with a wrong token and with silence. Prints how often it was sent away.
stranger() {
  ip netns exec tandem-b /usr/bin/python3 - "$1" <<'PYTHON'
import socket, struct, sys
away = 0
greeting = struct.pack("<IIIIiB3x", 0x474D4454, 1, 5, 8, 1, 0) + b"wrong" + b"trainers"
for hello in (b"GET / HTTP/1.0\r\n\r\n" * 9, greeting, b""):
    with socket.create_connection(("10.99.0.1", int(sys.argv[1])), 10) as s:
        s.sendall(hello)
        s.settimeout(10)
        try:
            away += s.recv(1) == b""
        except ConnectionResetError:
            away += 1
print(away)
PYTHON
}

accept_hosts() {
  layout_data
  [[ -s $layout_text ]] || { row "hosts" "" "no tinyshakespeare" skipped && return; }
  if ! hosts_up; then
    hosts_down
    row "hosts" "" "no network namespaces here" skipped
    return
  fi
  (umask 077 && head -c 32 /dev/urandom | base64 >"$work/hosts.secret")
  hosts_layout dp --dp 4
  hosts_layout mixed --dp 2 --tp 2
  hosts_layout tp --tp 4
  hosts_layout pp --pp 4 --set parallel.microbatches=6
  hosts_layout stages --dp 2 --pp 2 --zero 1 --set parallel.schedule=ZB_H1
  hosts_exposed
  local port away began took said
  hosts_run hosts-stranger --dp 4 --set train.max_steps=100000
  port=$(ip netns exec tandem-a ss -ltnHp | awk '/10.99.0.1:/ && !/:7000 / && /tandem/ { sub(/.*:/, "", $4); print $4 }' | sort -u)
  away=0
  for p in $port; do away=$((away + $(stranger "$p" 2>/dev/null || echo 0))); done
  row "a stranger at the ports of host a's server and trainers" "sent away, training goes on" "$away times, $(wc -l <<<"$port") ports" \
    "$(verdict test "$away" -ge 6 -a "$(kill -0 "$hosts_master" 2>/dev/null && echo alive)" = alive)"
  began=$(now)
  ip -n tandem-b link set link-b down
  hosts_end
  took=$(since "$began")
  said=$(cat "$work"/hosts-stranger.trainer? "$work/hosts-stranger.master" | grep -o 'trainer-[0-3] (host-[ab] [^)]*)' | head -1)
  row "a cut link: time to the end, timeout 60 s" "<= 75 s, with host and rank" "$took s, $said" \
    "$(verdict test "$(awk -v t="$took" 'BEGIN { print t < 75 }')" = 1 -a -n "$said")"
  hosts_down
  row "left behind by roles on two hosts" "no process, nothing in /dev/shm" "$(pgrep -fc 'tandem (trainer|ps|master) .*hosts' || true) processes" \
    "$(verdict test -z "$(pgrep -f 'tandem (trainer|ps|master) .*hosts')" -a -z "$(ls /dev/shm | grep tandem)")"
}

# lost SIGNAL VICTIM WHERE ARGUMENTS...: four trainers in mid-training, of which VICTIM gets the signal. WHERE: "one host" or "two hosts".
lost() {
  local signal=$1 victim=$2 where=$3 began measured pid role code codes="" named=0 left
  shift 3
  hosts_on_a=$([[ $where == "one host" ]] && echo 4 || echo 2)
  hosts_run lost --set train.max_steps=1000000 --set train.eval_every_steps=1000000 "$@"
  hosts_on_a=2
  sleep 0.3
  kill -s "$signal" "${hosts_roles[$((victim + 1))]}"
  [[ $signal == KILL ]] && wait "${hosts_roles[$((victim + 1))]}" 2>/dev/null
  began=$(now)
  for ((role = 0; role < 4; ++role)); do
    ((role == victim)) && continue
    pid=${hosts_roles[$((role + 1))]}
    for ((i = 0; i < 900; ++i)); do
      [[ -d /proc/$pid ]] || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null  # who is still there has missed
    wait "$pid" 2>/dev/null
    code=$?
    codes+="$code "
    grep -q "trainer-$victim\\|rank $victim" "$work/lost.trainer$role" && named=$((named + 1))
  done
  measured=$(since "$began")
  wait "$hosts_master" 2>/dev/null
  [[ $signal == STOP ]] && sleep 1 && kill -KILL "${hosts_roles[$((victim + 1))]}" 2>/dev/null
  hosts_end
  left=$(pgrep -fc 'tandem (trainer|ps|master) .*lost'; ls /dev/shm | grep tandem; ip netns exec tandem-a ss -ltnH; ip netns exec tandem-b ss -ltnH)
  [[ $left == 0 ]] && left="nothing left"
  cat "$work"/lost.trainer[0-3] | sed 's/^/      /' >&2
  row "SIG$signal to trainer-$victim of $where, $*" "75 75 75, 3 name it, <= 62 s, nothing left" "$codes, $named, $measured s, $left" \
    "$(verdict test "$codes $named $left $(verdict within "$measured" 0 62)" = "75 75 75  3 nothing left pass")"
}

accept_lost() {
  layout_data
  if [[ ! -s $layout_text ]] || ! hosts_up; then
    hosts_down
    row "lost" "" "no network namespaces here, or no tinyshakespeare" skipped
    return
  fi
  (umask 077 && head -c 32 /dev/urandom | base64 >"$work/hosts.secret")
  local signal where
  for signal in KILL STOP; do
    for where in "one host" "two hosts"; do
      lost $signal 3 "$where" --dp 4
      lost $signal 3 "$where" --tp 4
      lost $signal 3 "$where" --dp 4 --zero 3
      lost $signal 3 "$where" --dp 2 --tp 2 --zero 1
      lost $signal 1 "$where" --pp 4
      lost $signal 0 "$where" --pp 4 --set parallel.schedule=ZB_H1
      lost $signal 3 "$where" --pp 2 --tp 2 --set parallel.schedule=INTERLEAVED
    done
  done
  hosts_down
}
