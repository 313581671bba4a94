#!/usr/bin/env bash
# Trains a recommender from nothing: installs missing packages, builds `tandem`, generates an
# interaction log, and trains on this machine with one master, two parameter servers and two trainers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=out/quickstart-log.txt
run=out/quickstart
say() { printf '\n== %s\n' "$1"; }

say "Installing what is missing"
deploy/install_deps.sh

say "Building tandem (some minutes the first time)"
# A configured folder keeps its choices, so that a developer's build stays complete. CUDA kernels
# take minutes to build, so they are built only for a GPU.
if [[ -f build/build.ninja ]]; then
  cmake --preset default >/dev/null
else
  cuda=(--preset default -DTANDEM_CUDA=OFF)
  [[ -e /dev/nvidiactl ]] && cuda=(--preset cuda -DTANDEM_CUDA=AUTO)
  cmake "${cuda[@]}" -DTANDEM_TESTS=OFF >/dev/null
fi
cmake --build --preset default --target tandem --parallel "$(nproc)"

say "Generating an interaction log"
mkdir -p out
# The log trains in a minute, and has structure that counting transitions cannot find.
build/tandem synthesize --out "$log" --users 16000 --items 200 --min-length 6 --max-length 14

say "Training: 1 master, 2 parameter servers, 2 trainers"
build/tandem launch examples/sequence_rec/synthetic.textproto --ps 2 --trainers 2 --set data.path="$log" --out "$run" --overwrite

say "Written"
printf '  %s\n' "$PWD/$log  the generated log" "$PWD/$run/report.html  the run in charts, for a browser" "$PWD/$run/metrics.jsonl  one line per logged step" \
  "$PWD/$run/summary.json  the result" "$PWD/$run/checkpoints/  the trained model"
printf '\nNext: examples/sequence_rec/README.md shows how to train on your own log.\n'
