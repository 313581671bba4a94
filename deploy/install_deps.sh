#!/usr/bin/env bash
# Installs what the build needs from Debian 12's own packages; with --tests also what the tests need. Asks nothing, uses sudo
# only when it is not root, and does nothing at all (no network either) when everything is there.
# Exit codes: 0 everything is installed; 2 wrong argument; 1 anything else, with the reason.
set -euo pipefail

packages=(
  g++ cmake ninja-build
  protobuf-compiler libprotobuf-dev
  libgrpc++-dev protobuf-compiler-grpc  # Debian's gRPCConfig.cmake insists on the plugins
  libabsl-dev libdnnl-dev libcli11-dev libisal-dev libutf8proc-dev nlohmann-json3-dev
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev clang-14
  python3-grpcio python3-protobuf python3-yaml python3-jsonschema
  iproute2  # links of a given rate, for bench sync
)

fail() {
  echo "install_deps: $1" >&2
  exit "${2:-1}"
}

for argument in "$@"; do
  case "$argument" in
    --tests) packages+=("${test_packages[@]}") ;;
    -h | --help)
      echo "usage: deploy/install_deps.sh [--tests]"
      exit 0
      ;;
    *) fail "unknown argument \"$argument\"; usage: deploy/install_deps.sh [--tests]" 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this system has no apt. Tandem is built on Debian 12; elsewhere install the counterparts of: ${packages[*]}"
fi

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      echo "$package"
    fi
  done
}

# No process substitution: it needs /dev/fd, which a bare chroot does not have.
read -r -a missing <<<"$(missing_packages | tr '\n' ' ')"
if ((${#missing[@]} == 0)); then
  exit 0
fi

release=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || release=unknown
if [[ $release != "debian 12" ]]; then
  echo "install_deps: this is $release, not debian 12: the versions of the libraries may not fit" >&2
fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "not root and no sudo. As root, run: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo "${as_root[@]}")
fi

echo "install_deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q || fail "apt-get update failed: is there a network, and is /etc/apt/sources.list right?"
# Several machines share slow mirrors, and another apt may be at work: wait for it and try a broken download again.
"${as_root[@]}" apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "${missing[@]}" ||
  fail "apt-get install failed; its message is above"

read -r -a missing <<<"$(missing_packages | tr '\n' ' ')"
((${#missing[@]} == 0)) || fail "still missing after apt-get: ${missing[*]}"
