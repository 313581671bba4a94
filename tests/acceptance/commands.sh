# stress, quickstart, kubernetes, sanitizers: whole commands. Sourced by run.sh.

accept_quickstart() {
  local began code
  examples/quickstart.sh >"$work/quickstart.txt" 2>&1
  code=$?
  began=$(now)
  if ((code == 0)); then
    examples/quickstart.sh >"$work/quickstart.txt" 2>&1
    code=$?
  fi
  local seconds
  seconds=$(since "$began")
  row "quickstart, second run" "< 120 s" "$seconds s, exit code $code" \
    "$(verdict test "$code $(verdict within "$seconds" 0 119.9)" = "0 pass")"
}

# A skipped test says why in its log.
accept_kubernetes() {
  local name code log
  for name in cluster lost late same_pid badinput image; do
    log=$work/kubernetes-$name.txt
    tests/deploy/run.sh "$name" >"$log" 2>&1
    code=$?
    row "Kubernetes manifests: $name" "nothing missed" "$(tail -1 "$log")" "$(verdict test $code -eq 0)"
  done
}

accept_sanitizers() {
  local log=$work/sanitizers.txt code summary
  { cmake --preset asan -DTANDEM_TESTS=ON && cmake --build --preset asan --parallel "$(nproc)" &&
    ctest --test-dir build-asan -L '^fast$' --no-tests=error --parallel 2; } >"$log" 2>&1
  code=$?
  summary=$(grep 'tests passed' "$log" || tail -1 "$log")
  row "label fast under ASan and UBSan" "all pass" "$summary" "$(verdict test $code -eq 0)"
}

accept_stress() {
  local log=$work/stress.txt code summary
  { cmake --preset default -DTANDEM_TESTS=ON && cmake --build --preset default --target process_group_stress_test &&
    ctest --test-dir build -L '^stress$' --no-tests=error --parallel 2; } >"$log" 2>&1
  code=$?
  summary=$(grep 'tests passed' "$log" || tail -1 "$log")
  row "label stress: many seeds" "all pass" "$summary" "$(verdict test $code -eq 0)"
}
