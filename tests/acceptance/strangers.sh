# strangers: who does not know a job's secret gets nothing. Sourced by run.sh.

accept_strangers() {
  local python=/usr/bin/python3 out=$work/strangers secret=$work/strangers.secret wanted launch code i
  if ! $python -c 'import grpc, google.protobuf' 2>/dev/null; then
    row "strangers" "" "no python3-grpcio and python3-protobuf" skipped
    return
  fi
  small_log
  local arguments=(examples/sequence_rec/synthetic.textproto --ps 2 --trainers 2 --workers 1 --set data.path="$work/log.txt"
    --set train.max_epochs=40 --set train.eval_every_epochs=40 --set trace.steps=2)
  rm -rf "$out" "$out.calm" "$secret"
  (umask 077 && head -c 32 /dev/urandom | base64 >"$secret")
  "$tandem" launch "${arguments[@]}" --out "$out.calm" >"$out.calm.out" 2>"$out.calm.err"
  wanted=$(field "$out.calm" params_hash)
  "$tandem" launch "${arguments[@]}" --out "$out" --secret-file "$secret" >"$out.out" 2>"$out.err" &
  launch=$!
  for ((i = 0; i < 300; ++i)); do
    [[ -s $out/metrics.jsonl ]] && break
    sleep 0.1
  done
  $python tests/acceptance/strangers.py proto "$secret" "$launch" "$out" >"$out.txt" 2>&1
  code=$?
  sed 's/^/      /' "$out.txt" >&2
  row "every method of every service without the secret, over gRPC and shared memory" "all refused with UNAUTHENTICATED" \
    "$(grep '^strangers: ' "$out.txt" | head -1 | cut -d' ' -f2-)" "$(verdict test "$(grep -c '^strangers: all ' "$out.txt")" = 2)"
  row "the same calls with the secret" "all served" "$(grep '^members: ' "$out.txt" | cut -d' ' -f2-)" \
    "$(verdict grep -q '^members: all ' "$out.txt")"
  row "every listening port and socket" "all known, all closed to garbage" "$(grep '^ports: ' "$out.txt" | cut -d' ' -f2-)" \
    "$(verdict test $code -eq 0)"
  wait $launch
  code=$?
  row "params_hash of the job that strangers called" "$wanted, exit code 0" "$(field "$out" params_hash), exit code $code" \
    "$(verdict test "$wanted $code" = "$(field "$out" params_hash) 0")"
}
