#!/usr/bin/env bash
# What takes longer than a test may: measures and prints one table of what, wanted, measured, pass or not. Ends with 1 if any
# figure misses. Names choose what is run; all by default. Real data is looked for in TANDEM_TEST_DATA (default ../shared). TANDEM: another
# program than the build's (tests/gpu/bands.sh).
set -uo pipefail

names=(hashes losses layouts reshard memory bytes hybrid pipeline timeline hosts lost lastfm modes densetables ways sync plan text newitems retail movies resume killed elastic damage stops speed faults badinput strangers stress quickstart kubernetes sanitizers)
usage="usage: tests/acceptance/run.sh [NAME...]   names: ${names[*]}; a number after stops: how many, default 200"

num_stops=200
chosen=("$@")
((${#chosen[@]})) || chosen=("${names[@]}")
for name in "${chosen[@]}"; do
  case "$name" in
    hashes | losses | layouts | reshard | memory | bytes | hybrid | pipeline | timeline | hosts | lost | lastfm | modes | densetables | ways | sync | plan | text | resume | killed | elastic | damage | stops | speed) ;;
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9]) num_stops=$name ;;
    newitems | retail | movies) ;;
    faults | badinput | strangers | stress | quickstart | kubernetes | sanitizers) ;;
    -h | --help) echo "$usage" && exit 0 ;;
    *) echo "run.sh: unknown name \"$name\"; $usage" >&2 && exit 2 ;;
  esac
done

data=$(realpath -m "${TANDEM_TEST_DATA:-$(dirname "${BASH_SOURCE[0]}")/../../../shared}")  # relative to where the user is
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=out/acceptance
tandem=${TANDEM:-build/tandem}
mkdir -p "$work"
[[ -n ${TANDEM:-} ]] || export CUDA_VISIBLE_DEVICES=  # figures, bits and rounding of CPUs, also where the only trainer would take a GPU
source tests/acceptance/table.sh
source tests/acceptance/training.sh
source tests/acceptance/layouts.sh
source tests/acceptance/pipelines.sh
source tests/acceptance/hosts.sh
source tests/acceptance/modes.sh
source tests/acceptance/ways.sh
source tests/acceptance/sync.sh
source tests/acceptance/language.sh
source tests/acceptance/reading.sh
source tests/acceptance/interruption.sh
source tests/acceptance/speed.sh
source tests/acceptance/failures.sh
source tests/acceptance/strangers.sh
source tests/acceptance/commands.sh

if [[ ! -x $tandem ]]; then
  cmake --preset default -DTANDEM_TESTS=ON >/dev/null && cmake --build --preset default --target tandem || exit 1
fi
for name in "${chosen[@]}"; do
  [[ $name == [1-9]* ]] && continue
  printf '== %s\n' "$name" >&2
  "accept_$name"
done
print_table
