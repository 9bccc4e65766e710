# The container image: packaging/Containerfile built by buildah from `scripts/package.sh tree`, and run: its parts, its
# account, a cluster with one OSD as a container without root, capabilities and a writable root, a stop by SIGTERM.
#
# No registry is asked: the base image is a root of Debian that debootstrap makes, or the directory BASE (MIRROR). RUN=chroot
# runs the image's files without a runtime, where podman cannot start containers. Needs root, buildah, podman,
# debootstrap, binutils. Two minutes.
if [ -e /sys/fs/cgroup/unified ] && [ "$(id -u)" = 0 ] && [ -z "${IN_MOUNTS:-}" ]; then
  # crun starts nothing where both versions of control groups are mounted.
  exec env IN_MOUNTS=1 unshare --mount bash -c 'umount -l /sys/fs/cgroup/unified; exec bash "$0" "$@"' "$0" "$@"
fi
source "$(dirname "$0")/../lib.sh"
: "${MIRROR:=http://deb.debian.org/debian}" "${RUN:=podman}"
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
for p in buildah podman debootstrap; do type -P $p >/dev/null || { echo "needs $p"; exit 77; }; done
STORE=(--root "$W/store" --runroot "$W/run" --storage-driver vfs)
NAME=belemnite-$$
M=
leave() {
  [ -z "$M" ] || { umount "$M/proc" "$M/dev" 2>/dev/null; buildah "${STORE[@]}" umount "$CONTAINER" >/dev/null; } || true
  podman "${STORE[@]}" rm -f -t 5 $NAME >/dev/null 2>&1 || true
}
trap 'status=$?; [ $status = 0 ] || tail -n 20 "$W"/*.log 2>/dev/null; leave; finish $status' EXIT

"$ROOT/scripts/package.sh" --binary "$BIN" --out "$W/p" tree
if [ -z "${BASE:-}" ]; then
  BASE=$W/base
  debootstrap --variant=minbase bookworm "$BASE" "$MIRROR" >"$W/debootstrap.log"
fi
tar -C "$BASE" -c --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* . |
  podman "${STORE[@]}" import -q - docker.io/library/debian:12-slim >"$W/import.log" 2>&1
buildah "${STORE[@]}" bud --isolation chroot --pull-never -t belemnite:test -f "$ROOT/packaging/Containerfile" "$W/p" >"$W/build.log" 2>&1
podman "${STORE[@]}" image inspect belemnite:test >"$W/inspect.json"
expect "user, signal, program" "$(jq -c '.[0].Config | [.User, .StopSignal, .Entrypoint]' "$W/inspect.json")" '["ceph","SIGTERM",["/usr/bin/belemnite"]]'
echo "== image of $(($(jq '.[0].Size' "$W/inspect.json") >> 20)) MiB, the base $(($(du -sm "$BASE" | cut -f1))) MiB"

CONTAINER=$(buildah "${STORE[@]}" from --pull-never belemnite:test)
M=$(buildah "${STORE[@]}" mount "$CONTAINER")
expect "owner of the stores' directories" "$(stat -c '%u:%g %a' "$M/var/lib/ceph" "$M/run/ceph" | sort -u)" "64045:64045 770"
cmp "$M/usr/bin/belemnite" "$W/p/tree/usr/bin/belemnite"
[ -s "$M/usr/share/doc/belemnite/copyright" ]
# What the chart's scripts call.
for p in curl openssl getent sed grep tr paste base64 sync; do
  [ -n "$(chroot "$M" sh -c "command -v $p")" ] || { echo "the image has no $p"; exit 1; }
done

mkdir "$W/data"
UP=(up --osds 1 --osd-size 2G --data /var/lib/ceph/c --port "$PORT")
if [ "$RUN" = podman ]; then
  # Not more than this shell may give: a container may have fewer rights than its builder.
  limits=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit "nproc=4096:4096")
  run() { podman "${STORE[@]}" run --cgroups=disabled --network host --log-driver k8s-file "${limits[@]}" "$@"; }
  expect "the program" "$(run --rm belemnite:test --version | cut -d' ' -f1)" belemnite
  run -d --name $NAME --read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /run/ceph \
    -v "$W/data:/var/lib/ceph:U" belemnite:test "${UP[@]}" >"$W/run.log" 2>&1 || { cat "$W/run.log"; exit 1; }
  inside() { podman "${STORE[@]}" exec -i $NAME "$@"; }
  stopped() { podman "${STORE[@]}" stop -t 30 $NAME >/dev/null; expect "exit status" "$(podman "${STORE[@]}" inspect -f '{{.State.ExitCode}}' $NAME)" 0; }
else
  mount -t proc proc "$M/proc"
  mount --bind /dev "$M/dev"
  inside() { chroot --userspec=64045:64045 "$M" env -i PATH=/usr/bin:/bin HOME=/var/lib/ceph "$@"; }
  expect "the program" "$(inside belemnite --version | cut -d' ' -f1)" belemnite
  inside belemnite "${UP[@]}" >"$W/run.log" 2>&1 & P=$!
  PIDS+=("$P")
  stopped() { kill -TERM $P; wait $P; }
fi
there() { inside belemnite --conf /var/lib/ceph/c/ceph.conf "$@"; }
is_one_up() { there status -f json | jq -e '.osdmap.num_up_osds == 1'; }
wait_for 60 is_one_up
there pool create p 8
head -c 5000000 /dev/urandom >"$W/object"
there put p one - <"$W/object"
there get p one - | cmp - "$W/object"
stopped
echo "the image serves a cluster by $RUN"
