# The commands of docs/start/first-cluster.md, in order and as printed, with this build's `belemnite` on a port of the test.
# Left out are what builds and installs; /mnt/home is a directory of the test.
source "$(dirname "$0")/../lib.sh"
cd "$W"
: >up.out

end_up() {
  [ -z "${UP:-}" ] || { kill -TERM "$UP"; wait "$UP" || true; UP=; }
}

# start_up ARGS…: `belemnite up` in the background, as in a terminal of its own.
start_up() {
  end_up
  : >up.out
  "$BIN" up --port "$PORT" "$@" >up.out 2>&1 & UP=$!
  PIDS+=("$UP")
  wait_for 60 is_up || { cat up.out; return 1; }
}

run() { # run COMMAND: one line of the document
  echo "\$ $1"
  case $1 in
    "cargo build"* | "export PATH="* | "apt install"*) ;;
    "belemnite up"*) eval "start_up ${1#belemnite up}" ;;
    *) eval "$1" >out 2>&1 || { cat out; return 1; } ;;
  esac
  case $1 in
    "belemnite get "* | "rados "*" get "*) cmp out /etc/hostname ;;
  esac
}

unmount() { ! mountpoint -q "$W/home" || umount "$W/home" || fusermount -u "$W/home"; }
trap 'status=$?; unmount; end_up; finish $status' EXIT

n=0
while read -r -u 3 line; do
  run "$line"
  n=$((n + 1))
done 3< <(sed -n 's/^    //p' "$ROOT/docs/start/first-cluster.md" | sed "s|/mnt/home|$W/home|g")
[ "$n" -gt 20 ] || { echo "only $n commands were found in the document"; exit 1; }
expect "the greeting" "$(cat "$W/home/greeting")" hello
healthy() { [ "$(ceph health)" = HEALTH_OK ]; }
wait_for 60 healthy || { ceph health detail; exit 1; }
# The gateway's pools have room beside those that the document has made.
printed() { grep -q '^S3: ' "$W/up.out"; }
wait_for 120 printed || { cat up.out; tail -n 30 belemnite-data/log/rgw.a.log; exit 1; }
curl -fs "$(sed -n 's/^S3: *//p' up.out)" | grep -q ListAllMyBuckets
echo "$n commands of the document did what they say"

# The service of docs/operate/one-machine.md, with this build's program.
if command -v systemd-analyze >/dev/null; then
  sed -n '/^    # .*\/belemnite.service$/,/^[^ ]/s/^    //p' "$ROOT/docs/operate/one-machine.md" |
    sed "s|^ExecStart=[^ ]*|ExecStart=$BIN|" >"$W/belemnite.service"
  grep -q "^ExecStart=$BIN up" "$W/belemnite.service"
  systemd-analyze verify "$W/belemnite.service"
fi
