# A cluster on three machines, by the commands of docs/operate/several-machines.md as they are printed. The machines are
# network namespaces with host names, /etc/ceph, /var/lib/ceph and /var/run/ceph of their own; the device of an OSD is a
# loop device. Then a machine is lost, clients continue, and it comes back. Needs root. About a minute.
source "$(dirname "$0")/../lib.sh"
DOC=$ROOT/docs/operate/several-machines.md
NS=belemnite-$$
MACHINES=(one two three)
LOOPS=()

leave() {
  local m l
  for m in net "${MACHINES[@]}"; do ip netns del "$NS-$m" 2>/dev/null || true; done
  for l in "${LOOPS[@]}"; do losetup -d "$l" 2>/dev/null || true; done
}
trap 'status=$?; for p in $(cat "$W"/*/pids 2>/dev/null); do kill -KILL "$p" 2>/dev/null || true; done; leave; finish $status' EXIT

ip netns add "$NS-net"
ip -n "$NS-net" link add switch type bridge
ip -n "$NS-net" link set switch up
for i in 0 1 2; do
  m=${MACHINES[$i]}
  ip netns add "$NS-$m"
  ip -n "$NS-net" link add "to-$m" type veth peer name eth0 netns "$NS-$m"
  ip -n "$NS-net" link set "to-$m" master switch up
  ip -n "$NS-$m" addr add "10.0.0.$((i + 1))/24" dev eth0
  ip -n "$NS-$m" link set eth0 up
  ip -n "$NS-$m" link set lo up
  # Directories that the package makes.
  mkdir -p "$W/$m"/{etc,run,bin} "$W/$m"/lib/{bootstrap-osd,mon,osd}
  ln -s "$(readlink -f "$BIN")" "$W/$m/bin/belemnite"
done
mkdir -p /etc/ceph /var/lib/ceph /var/run/ceph

# on MACHINE: runs the script of standard input there. A daemon, also one that a unit is to start, goes to the background
# with its log and pid in the machine's directory. No systemd runs there, so `osd create` starts the daemons.
on() {
  local m=$1
  ip netns exec "$NS-$m" unshare --uts --mount bash -c "
    set -e
    hostname $m
    mount --bind '$W/$m/etc' /etc/ceph
    mount --bind '$W/$m/lib' /var/lib/ceph
    mount --bind '$W/$m/run' /var/run/ceph
    export PATH='$W/$m/bin':\$PATH
    unset CEPH_CONF
    $(sed -E "s|^systemctl enable --now belemnite-(mon\|osd)@(.*)|belemnite \1 -i \2|
      s|^belemnite (mon\|osd) -i [^ ]+\$|setsid & >>'$W/$m/log' 2>\&1 </dev/null \& echo \$! >>'$W/$m/pids'|
      s|^belemnite osd create .*|& --start >'$W/$m/created'; sed -n 's/.*runs as process //p' '$W/$m/created' >>'$W/$m/pids'|")"
}
# part HEADING: the indented lines below a heading of the document
part() { awk -v h="## $1" '$0 ~ /^## / {in_part = $0 == h} in_part && sub(/^    /, "")' "$DOC"; }
# on_one COMMAND: a client's command
on_one() { echo "$*" | on one; }

part "The monitor" | on one
wait_for 30 on_one timeout 10 ceph -s
for m in two three; do
  cp "$W/one/etc/ceph.conf" "$W/$m/etc/"
  cp "$W/one/lib/bootstrap-osd/ceph.keyring" "$W/$m/lib/bootstrap-osd/"
done
for m in "${MACHINES[@]}"; do
  truncate -s 4G "$W/$m/device"
  LOOPS+=("$(losetup -f --show "$W/$m/device")")
  # Some kernels keep a device that was used before read-only.
  blockdev --setrw "${LOOPS[-1]}"
  part "The OSDs" | sed "s|/dev/nvme0n1|${LOOPS[-1]}|" | on "$m"
done
are_up() { [ "$(on_one ceph osd stat -f json | jq .num_up_osds)" = "$1" ]; }
wait_for 60 are_up 3
expect "machines in the CRUSH map" "$(on_one ceph osd tree -f json | jq -r '[.nodes[] | select(.type == "host").name] | sort | join(" ")')" \
  "one three two"
[ -z "$(find "$W"/*/etc "$W"/*/lib -name '*keyring' -perm /077)" ] || { echo "others can read a keyring"; exit 1; }
on_one ceph daemon mon.a mon_status >/dev/null
on_one ceph osd pool create data 16
head -c 5000000 /dev/urandom >"$W/f"
on_one rados -p data put first "$W/f"
is_clean() { on_one ceph pg stat | grep -q "16 active+clean;"; }
wait_for 60 is_clean

# The machine `three` is lost.
for p in $(cat "$W/three/pids"); do kill -KILL "$p"; done
wait_for 60 are_up 2
on_one rados -p data put second "$W/f"
echo "belemnite osd -i 2" | on three
wait_for 60 are_up 3
wait_for 60 is_clean
for o in first second; do on_one rados -p data get $o - | cmp - "$W/f"; done
echo "the commands of the document made a cluster of three machines"
