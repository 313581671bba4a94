#!/usr/bin/env bash
# Installs, builds and runs every test that this machine can run, but for those with many seeds (label stress, tests/acceptance);
# `tests/run.sh fast` runs the label fast only. Tests that need
# real data look for it in TANDEM_TEST_DATA (default: ../shared, where it exists) and are skipped without it.
# Ends with ctest's summary and its exit code.
set -euo pipefail

usage="usage: tests/run.sh [fast]"
selection=(--label-exclude '^stress$')
case "${1:-}" in
  "") ;;
  fast) selection=(--label-regex '^fast$') ;;
  -h | --help)
    echo "$usage"
    exit 0
    ;;
  *)
    echo "run.sh: unknown argument \"$1\"; $usage" >&2
    exit 2
    ;;
esac

# Relative to where the user is, not to the repository.
if [[ -n ${TANDEM_TEST_DATA:-} ]]; then
  TANDEM_TEST_DATA=$(realpath -m "$TANDEM_TEST_DATA")
  export TANDEM_TEST_DATA
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z ${TANDEM_TEST_DATA:-} && -d ../shared ]]; then
  TANDEM_TEST_DATA=$(realpath ../shared)
  export TANDEM_TEST_DATA
fi

deploy/install_deps.sh --tests
# Said outright, because the quickstart may have configured the same folder without tests.
cmake --preset default -DTANDEM_TESTS=ON -DTANDEM_CUDA=AUTO
cmake --build --preset default --parallel "$(nproc)"
# Some tests start processes and threads of their own: two at a time are enough for two cores.
exec ctest --test-dir build --output-on-failure --no-tests=error --parallel 2 "${selection[@]}"
