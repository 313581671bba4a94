#!/usr/bin/env bash
# Builds the image of deploy/docker/Dockerfile around a program that is built already, and trains the quickstart's job in it.
# The base is made by debootstrap, so nothing but Debian's packages is fetched. Ends with 1 if anything misses.
# usage: tests/deploy/image.sh   TANDEM: the program, default build/tandem
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/acceptance/table.sh

skip() {
  echo "[  SKIPPED ] image: $1"
  exit 0
}
((EUID == 0)) || skip "not root: debootstrap and runc need it"
for tool in buildah debootstrap runc; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
unshare --mount --pid --fork true 2>/dev/null || skip "this machine allows no new namespaces"
tandem=$(realpath "${TANDEM:-build/tandem}")
[[ -x $tandem ]] || { echo "image.sh: there is no program $tandem: build it, or set TANDEM" >&2; exit 2; }

work=$(mktemp -d -p "${TMPDIR:-/tmp}" tandem-image-XXXXXX)
container=tandem-image-$$
# All that buildah keeps lies in the work folder.
buildah=(buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run-storage")
remove_all() {
  runc --root "$work/runc" delete --force "$container" 2>/dev/null || true
  if [[ -d $work/storage ]]; then "${buildah[@]}" umount --all >/dev/null 2>&1 || true; fi
  findmnt --noheadings --list --output TARGET | grep "^$work/" | sort -r | xargs -r umount || true
  rm -rf "$work"
}
trap remove_all EXIT
trap 'exit 130' INT TERM

say() { printf '== %s\n' "$1" >&2; }

say "base: Debian 12 by debootstrap"
# A developer's program is linked with gloo too, which `tandem bench` compares with. Users' programs are not.
gloo=()
if ldd "$tandem" | grep -q libgloo; then gloo=(--include=libgloo0); fi
debootstrap --variant=minbase "${gloo[@]}" bookworm "$work/base" >"$work/debootstrap.log" 2>&1 ||
  { tail -5 "$work/debootstrap.log" >&2; skip "debootstrap fetched no Debian 12"; }
rm -rf "$work/base/var/cache/apt/archives" "$work/base/var/lib/apt/lists"
mkdir -p "$work/base/var/cache/apt/archives/partial" "$work/base/var/lib/apt/lists/partial"
"${buildah[@]}" from --name base scratch >/dev/null
"${buildah[@]}" copy --quiet base "$work/base" / >/dev/null
"${buildah[@]}" commit --quiet base tandem-base >/dev/null
"${buildah[@]}" rm base >/dev/null
rm -rf "$work/base"

say "image: the Dockerfile's last stage, with the program from here instead of that of its first stage"
mkdir "$work/context"
install -m 755 "$tandem" "$work/context/tandem"
awk '/^FROM/ { ++stage } stage != 1' deploy/docker/Dockerfile |
  sed 's|^COPY --from=build [^ ]*|COPY tandem|' >"$work/context/Dockerfile"
"${buildah[@]}" build --isolation chroot --build-arg BASE=localhost/tandem-base --tag tandem:test \
  "$work/context" >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; exit 1; }

say "container: uid 65532, read-only root, no capabilities"
"${buildah[@]}" from --name run localhost/tandem:test >/dev/null
root=$("${buildah[@]}" mount run)
size=$(du -sm "$root" | cut -f1)
user=$("${buildah[@]}" inspect --format '{{.OCIv1.Config.User}}' run)
mkdir -p "$work/bundle" "$work/out"
chown 65532:65532 "$work/out"
cp deploy/k8s/overlays/local/job.textproto "$work/bundle/job.textproto"
# The arguments are those of examples/quickstart.sh.
cat >"$work/bundle/run.sh" <<'END'
set -e
id -u
touch /nobody-writes-here 2>/dev/null && echo "the root can be written to"
tandem synthesize --out /out/log.txt --users 16000 --items 200 --min-length 6 --max-length 14
tandem launch /job/job.textproto --ps 2 --trainers 2 --set data.path=/out/log.txt --out /out/run
END
/usr/bin/python3 -B - "$root" "$work/bundle" "$work/out" <<'END'
import json, sys
root, bundle, out = sys.argv[1:]
bind = lambda source, at, mode: {"type": "bind", "source": source, "destination": at,
                                 "options": ["rbind", mode, "nosuid", "nodev"]}
kinds = [("proc", "/proc", []), ("tmpfs", "/dev", ["mode=755"]), ("tmpfs", "/tmp", ["mode=1777"]),
         ("tmpfs", "/dev/shm", ["mode=1777"])]
config = {
    "ociVersion": "1.0.2", "hostname": "image", "root": {"path": root, "readonly": True},
    "process": {"user": {"uid": 65532, "gid": 65532}, "cwd": "/", "noNewPrivileges": True,
                "args": ["sh", "/job/run.sh"], "capabilities": {},
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
    "mounts": [{"type": kind, "source": kind, "destination": at, "options": options}
               for kind, at, options in kinds] + [bind(bundle, "/job", "ro"), bind(out, "/out", "rw")],
    # A network namespace of its own has no loopback address until somebody sets it up.
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]}}
json.dump(config, open(f"{bundle}/config.json", "w"))
END
code=0
runc --root "$work/runc" run --bundle "$work/bundle" "$container" >"$work/log" 2>&1 </dev/null || code=$?
tail -12 "$work/log" >&2

say "the same job on this machine"
"$tandem" launch deploy/k8s/overlays/local/job.textproto --ps 2 --trainers 2 --set data.path="$work/out/log.txt" \
  --out "$work/host" >"$work/host.log" 2>&1 || tail -5 "$work/host.log" >&2

row "user of the image" "65532:65532" "$user" "$(verdict test "$user" = 65532:65532)"
row "uid in the container" 65532 "$(head -1 "$work/log")" "$(verdict test "$(head -1 "$work/log")" = 65532)"
written=$(grep -c "the root can be written to" "$work/log" || true)
row "files written to the root" 0 "$written" "$(verdict test "$written" = 0)"
row "exit code of the quickstart's job" 0 "$code" "$(verdict test "$code" = 0)"
wanted=$(field "$work/host" params_hash)
row "params_hash as on this machine" "$wanted" "$(field "$work/out/run" params_hash)" \
  "$(verdict test "$wanted" != none -a "$(field "$work/out/run" params_hash)" = "$wanted")"
row "hr@10 of the test split" "as on this machine" "$(field "$work/out/run" test/hr@10)" \
  "$(verdict test "$(field "$work/out/run" test/hr@10)" = "$(field "$work/host" test/hr@10)")"
row "size of the image" "" "$size MiB" -
print_table
