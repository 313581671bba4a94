#!/usr/bin/env bash
# LastFM, mini GPT and nanoGPT CPU on a GPU, held against the same bands as on CPUs: the acceptance's own runs (tests/acceptance), of some
# ten minutes, with the program of bundle.sh. Prints the acceptance's table and ends with 1 if a figure misses.
# usage: tests/gpu/bands.sh FOLDER DATA [NAME...]   DATA: has lastfm/ and tinyshakespeare/; NAME: lastfm, text; default: both
set -euo pipefail
(($# >= 2)) || { echo "usage: tests/gpu/bands.sh FOLDER DATA [lastfm|text...]" >&2; exit 2; }
folder=$(realpath "$1")
data=$(realpath "$2")
shift 2
[[ -x $folder/tandem_gpu ]] || { echo "bands.sh: no $folder/tandem_gpu; make it with tests/gpu/bundle.sh" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/tandem" <<END
#!/usr/bin/env bash
[[ \$1 == launch ]] && set -- "\$@" --set device=CUDA
exec "$folder/tandem_gpu" "\$@"
END
chmod +x "$work/tandem"
(($#)) || set -- lastfm text
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
TANDEM=$work/tandem TANDEM_TEST_DATA=$data tests/acceptance/run.sh "$@"
