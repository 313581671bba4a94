#!/usr/bin/env bash
# Tests of deploy/k8s and deploy/docker; README.md says what each name proves. Names run in turn.
# Exit codes: 0 all passed, or were skipped with the reason; 2 wrong argument; 1 anything else.
set -uo pipefail

names=(checks mutations readme cluster lost late same_pid badinput image)
usage="usage: tests/deploy/run.sh NAME... [--kubeconfig FILE --image NAME] [--update-golden]   names: ${names[*]}"
fail() {
  echo "run.sh: $1; $usage" >&2
  exit 2
}

chosen=() cluster=() golden=()
while (($#)); do
  case "$1" in
    checks | mutations | readme | cluster | lost | late | same_pid | badinput | image) chosen+=("$1") ;;
    --kubeconfig | --image)
      (($# > 1)) || fail "$1 needs a value"
      value=$2
      [[ $1 == --image ]] || value=$(realpath -m "$2")  # relative to where the user is
      cluster+=("$1" "$value")
      shift
      ;;
    --update-golden) golden=("$1") ;;
    -h | --help) echo "$usage" && exit 0 ;;
    -*) fail "unknown argument \"$1\"" ;;
    *) fail "unknown name \"$1\"" ;;
  esac
  shift
done
# A cluster without names: all that runs on one.
if ((${#chosen[@]} == 0 && ${#cluster[@]})); then
  chosen=(cluster lost late badinput)
fi
((${#chosen[@]})) || fail "no name"

if [[ -n ${TANDEM_TEST_DATA:-} ]]; then
  TANDEM_TEST_DATA=$(realpath -m "$TANDEM_TEST_DATA")
  export TANDEM_TEST_DATA
fi
if [[ -n ${TANDEM:-} ]]; then
  TANDEM=$(realpath -m "$TANDEM")
  export TANDEM
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Debian's Python, whose packages install_deps.sh names. Leaves no cache in the tree.
python=(/usr/bin/python3 -B)
if ! "${python[@]}" -c 'import yaml, jsonschema' 2>/dev/null; then
  echo "[  SKIPPED ] no python3-yaml or python3-jsonschema: deploy/install_deps.sh --tests installs them"
  exit 0
fi

failed=0
for name in "${chosen[@]}"; do
  case "$name" in
    checks) "${python[@]}" tests/deploy/checks.py checks "${golden[@]}" ;;
    mutations | readme) "${python[@]}" tests/deploy/checks.py "$name" ;;
    image) tests/deploy/image.sh ;;
    *) "${python[@]}" tests/deploy/suite.py "$name" "${cluster[@]}" ;;
  esac || failed=1
done
exit "$failed"
