#!/usr/bin/env bash
# Builds the image of the Dockerfile beside this script, with buildah, podman or docker, whichever comes first in this order.
# With --archive it also writes the image to FILE, which kind, minikube and docker can load.
# Exit codes: 0 done; 2 wrong argument or no tool; otherwise the tool's.
set -euo pipefail

usage="usage: deploy/docker/build.sh [IMAGE] [--archive FILE]   IMAGE: name and tag, default tandem:local"
fail() {
  echo "build.sh: $1" >&2
  exit 2
}

image= archive=
while (($#)); do
  case "$1" in
    -h | --help) echo "$usage" && exit 0 ;;
    --archive)
      (($# > 1)) || fail "--archive needs a file; $usage"
      archive=$(realpath -m "$2")
      shift
      ;;
    -*) fail "unknown argument \"$1\"; $usage" ;;
    *)
      [[ -z $image ]] || fail "two images, \"$image\" and \"$1\"; $usage"
      image=$1
      ;;
  esac
  shift
done
image=${image:-tandem:local}

tool=
for candidate in buildah podman docker; do
  command -v "$candidate" >/dev/null && tool=$candidate && break
done
[[ -n $tool ]] || fail "there is no buildah, podman or docker. On Debian 12: apt-get install buildah"

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Known only outside the image, whose sources come without git's folder.
commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
echo "build.sh: building $image with $tool"
"$tool" build --file deploy/docker/Dockerfile --tag "$image" --label "org.opencontainers.image.revision=$commit" .

if [[ -n $archive ]]; then
  rm -f "$archive"  # buildah and podman refuse one that is there
  case "$tool" in
    docker) docker save --output "$archive" "$image" ;;
    # They would name an image without a registry localhost/NAME, which no manifest asks for.
    *) "$tool" push "$image" "docker-archive:$archive:$image" ;;
  esac
  echo "build.sh: wrote $archive"
fi
