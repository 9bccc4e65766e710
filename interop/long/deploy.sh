# `belemnite deploy` on hosts that are containers with systemd and an sshd: a cluster from nothing, with `apply` killed in
# the middle again and again; problems in clear words; a host added and removed while clients write (LARGE: three); one
# monitor instead of three and back; an upgrade under load; all of it removed. Three hosts with three OSDs each, or LARGE=1:
# twelve hosts in three racks, three monitors, two OSDs on each other host, two metadata servers, a gateway. KILLS is the
# largest number of kills. BASE is a root of Debian with the packages below; without it debootstrap makes one (RELEASE,
# MIRROR). Needs root, debootstrap, systemd-container, openssh-client, iproute2. Five minutes.
source "$(dirname "$0")/../lib.sh"
: "${RELEASE:=bookworm}" "${MIRROR:=http://deb.debian.org/debian}" "${LARGE:=}" "${KILLS:=40}"
PACKAGES=systemd,systemd-sysv,dbus,openssh-server,iproute2,openssl,etcd-server,etcd-client,ceph-common,ceph-mds,radosgw
NS=bd$$
CONTAINERS=()
leave() {
  local h
  for h in "${CONTAINERS[@]}"; do halt "$h"; done
  ip netns del "$NS" 2>/dev/null || true
}
trap 'status=$?; [ $status = 0 ] || { tail -n 30 "$W"/*.out 2>/dev/null; journals; }; leave; finish $status' EXIT

# The last lines that daemons of the hosts wrote.
journals() {
  local h
  for h in "${CONTAINERS[@]}"; do
    echo "--- $h"
    there "$h" "systemctl --failed --no-legend; journalctl --no-pager -n 15 -u 'belemnite-*' -u 'ceph-*'" 2>&1 | tail -n 20 || true
  done
}

base() {
  [ -z "${BASE:-}" ] || return 0
  BASE=$W/base
  debootstrap --variant=minbase "$RELEASE" "$BASE" "$MIRROR" >"$W/debootstrap.log"
  cp /etc/resolv.conf "$BASE/etc/" 2>/dev/null || true
  mount -t proc proc "$BASE/proc"
  # Nothing starts while packages are installed.
  install -m 755 /dev/stdin "$BASE/usr/sbin/policy-rc.d" <<<'exit 101'
  DEBIAN_FRONTEND=noninteractive chroot "$BASE" apt-get -qq install -y --no-install-recommends ${PACKAGES//,/ } >>"$W/debootstrap.log" 2>&1
  rm "$BASE/usr/sbin/policy-rc.d"
  umount "$BASE/proc"
}

hub() { ip netns exec "$NS" "$@"; }
# there HOST COMMAND: on a host, by ssh.
there() { hub ssh -q -i "$W/id" -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$(address "$1")" "$2"; }
# address HOST: h7 has 10.77.0.7.
address() { echo "10.77.0.${1#h}"; }

# boot HOST: a container with a root of its own above BASE, in a network namespace of its own.
boot() {
  local h=$1 r=$W/$1
  mkdir -p "$r"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$r/upper,workdir=$r/work" "$r/root"
  echo "$h" >"$r/root/etc/hostname"
  rm -f "$r/root/etc/machine-id" "$r/root"/etc/ssh/ssh_host_*
  systemd-machine-id-setup --root="$r/root" >/dev/null 2>&1
  chroot "$r/root" ssh-keygen -A >/dev/null
  systemctl --root="$r/root" -q enable ssh >/dev/null 2>&1
  systemctl --root="$r/root" -q disable etcd >/dev/null 2>&1 || true
  install -D -m 600 "$W/id.pub" "$r/root/root/.ssh/authorized_keys"
  ip netns add "$NS-$h"
  ip -n "$NS" link add "to-$h" type veth peer name eth0 netns "$NS-$h"
  ip -n "$NS" link set "to-$h" master switch up
  ip -n "$NS-$h" addr add "$(address "$h")/24" dev eth0
  ip -n "$NS-$h" link set eth0 up
  ip -n "$NS-$h" link set lo up
  systemd-nspawn -q -D "$r/root" -b --register=no --keep-unit -M "$NS-$h" --network-namespace-path="/run/netns/$NS-$h" \
    >"$r/boot.log" 2>&1 </dev/null &
  echo $! >"$r/pid"
  CONTAINERS+=("$h")
}
halt() {
  local h=$1 r=$W/$1
  kill -KILL "$(pgrep -P "$(cat "$r/pid" 2>/dev/null)" 2>/dev/null)" "$(cat "$r/pid")" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "$(cat "$r/pid")" 2>/dev/null || break; sleep 0.1; done
  ip netns del "$NS-$h" 2>/dev/null || true
  umount -l "$r/root" 2>/dev/null || true
}
boot_all() {
  local h
  for h in "$@"; do boot "$h"; done
  for h in "$@"; do wait_for 60 there "$h" "systemctl is-system-running | grep -Eq 'running|degraded'"; done
}

# inventory HOST…: the inventory of these hosts.
inventory() {
  local h
  if [ -n "$LARGE" ]; then
    cat <<END
package = "belemnite.deb"
public_network = "10.77.0.0/24"
monitors = ["h1", "h2", "h3"]
metadata_servers = ["h1", "h2"]
filesystems = ["files"]
gateways = ["h3"]
devices = [{ label = "disks", files = 2, size = "2G" }]
END
  else
    cat <<END
package = "belemnite.deb"
public_network = "10.77.0.0/24"
monitors = ["h1", "h2", "h3"]
devices = [{ files = 3, size = "2G" }]
END
  fi
  cat <<END
[options.osd]
osd_max_backfills = 4
[ssh]
options = ["-i", "$W/id", "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=$W/known"]
[hosts]
END
  for h in "$@"; do
    if [ -n "$LARGE" ]; then
      [ "${h#h}" -gt 3 ] && echo "$h = { address = \"$(address "$h")\", rack = \"r$((${h#h} % 3))\", labels = [\"disks\"] }" ||
        echo "$h = \"$(address "$h")\""
    else
      echo "$h = \"$(address "$h")\""
    fi
  done
}
deploy() { hub env -u CEPH_CONF "$BIN" deploy "$@"; }
# must COMMAND…: deploy, with its output shown if it fails.
must() { deploy "$@" >"$W/deploy.out" 2>&1 || { cat "$W/deploy.out"; return 1; }; }
# refused WORDS COMMAND…: deploy fails with these words.
refused() {
  local words=$1; shift
  if deploy "$@" >"$W/refused.out" 2>&1; then echo "not refused: $words"; cat "$W/refused.out"; return 1; fi
  grep -qF "$words" "$W/refused.out" || { echo "expected: $words"; cat "$W/refused.out"; return 1; }
}
seconds() { date +%s; }

export DPKG_DEB_COMPRESSOR_TYPE=gzip
for v in 1 2; do
  "$ROOT/scripts/package.sh" --binary "$BIN" --version "0.1.0~test$v" --out "$W/p" deb >/dev/null
  mv "$W"/p/*.deb "$W/$v.deb"
done
cp "$W/1.deb" "$W/belemnite.deb"
base
ip netns add "$NS"
ip -n "$NS" link set lo up
ip -n "$NS" link add switch type bridge
ip -n "$NS" link set switch up
ip -n "$NS" addr add 10.77.0.254/24 dev switch
ssh-keygen -q -t ed25519 -N '' -f "$W/id"
if [ -n "$LARGE" ]; then HOSTS=(h1 h2 h3 h4 h5 h6 h7 h8 h9 h10 h11 h12) OSDS=18 NEW=(h13 h14 h15); else HOSTS=(h1 h2 h3) OSDS=9 NEW=(h13); fi
I=$W/cluster.toml
start=$(seconds)
boot_all "${HOSTS[@]}"
echo "== ${#HOSTS[@]} hosts boot in $(($(seconds) - start)) s"

# Clear words, and nothing done.
inventory "${HOSTS[@]}" h99 >"$I"
refused "h99: does not answer" apply "$I"
inventory "${HOSTS[@]}" >"$I"
D=/var/lib/ceph/files
there h3 "mkdir -p $D; echo mine >$D/disk-1; printf '#!/bin/sh\nexec /usr/bin/date -d \"+1 hour\" \"\$@\"\n' >/usr/local/bin/date; chmod 755 /usr/local/bin/date"
[ -n "$LARGE" ] || refused "h3: $D/disk-1 holds something else" apply "$I"
refused "h3: its clock is 3" apply "$I"
there h3 "rm $D/disk-1 /usr/local/bin/date; ! dpkg-query -W belemnite 2>/dev/null"
deploy plan "$I" >"$W/plan.out"
grep -q "make OSDs on" "$W/plan.out"

# `apply` is killed at one stage after the other, and begun again, until a run has no second stage.
start=$(seconds) kills=0
for k in $(seq "$KILLS"); do
  ip netns exec "$NS" env -u CEPH_CONF "$BIN" deploy apply "$I" >"$W/killed.out" 2>&1 &
  p=$!
  # In its second stage: each run comes one further.
  for _ in $(seq 3000); do
    [ "$(grep -c '^[a-zA-Z].*:$' "$W/killed.out")" -ge 2 ] && break
    kill -0 $p 2>/dev/null || break
    sleep 0.02
  done
  kill -0 $p 2>/dev/null || { wait $p || { cat "$W/killed.out"; exit 1; }; break; }
  sleep "0.$((RANDOM % 10))"
  kill -KILL $p 2>/dev/null || true
  wait $p 2>/dev/null || true
  kills=$k
  echo "killed at: $(tail -n 1 "$W/killed.out")"
done
must apply "$I"
export CEPH_CONF=$W/cluster.deploy/ceph.conf
ceph() { hub timeout 60 ceph "$@"; }
wait_for 60 bash -c "$(declare -f hub ceph); NS=$NS; ceph health | grep -qx HEALTH_OK"
echo "== ${#HOSTS[@]} hosts, $OSDS OSDs: HEALTH_OK after $(($(seconds) - start)) s, with $kills kills of apply"
expect "OSDs" "$(ceph osd stat -f json | jq -c '[.num_osds, .num_up_osds, .num_in_osds]')" "[$OSDS,$OSDS,$OSDS]"
expect "monitors" "$(ceph quorum_status | jq '.quorum_names | length')" 3
expect "option" "$(ceph config get osd osd_max_backfills)" 4
must apply "$I"
grep -q "nothing is to be done" "$W/deploy.out" || { cat "$W/deploy.out"; exit 1; }
if [ -n "$LARGE" ]; then
  expect "racks" "$(ceph osd tree -f json | jq '[.nodes[] | select(.type == "rack")] | length')" 3
  wait_for 60 bash -c "$(declare -f hub ceph); NS=$NS; ceph fs status -f json | jq -e '[.mdsmap[].state] | index(\"active\")'"
  hub curl -s "http://$(address h3):7480/" | grep -q ListAllMyBuckets
fi

# Hosts come and go, while clients write and compare every answer.
ceph osd pool create p 32 >/dev/null
ceph osd pool application enable p rados >/dev/null
wait_for 60 bash -c "$(declare -f hub ceph); NS=$NS; ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[].name] == [\"active+clean\"]'"
load() { ip netns exec "$NS" /usr/bin/python3 "$ROOT/interop/py/model_load.py" p "$1" 4 >"$W/load.$1" 2>&1 & LOAD=$!; PIDS+=("$LOAD"); }
end_load() { kill -TERM "$LOAD"; wait "$LOAD" || { cat "$W/load.$1"; return 1; }; sed 's/^/== /' "$W/load.$1"; }
load 1
start=$(seconds)
boot_all "${NEW[@]}"
inventory "${HOSTS[@]}" "${NEW[@]}" >"$I"
must apply "$I"
echo "== hosts added: ${#NEW[@]} in $(($(seconds) - start)) s"
end_load 1
load 2
start=$(seconds)
inventory "${HOSTS[@]}" >"$I"
must apply "$I"
echo "== hosts removed: ${#NEW[@]} in $(($(seconds) - start)) s"
expect "OSDs" "$(ceph osd stat -f json | jq .num_osds)" "$OSDS"
for h in "${NEW[@]}"; do there "$h" "! ls /var/lib/ceph/osd/ceph-* $D/disk-* /etc/ceph/ceph.conf 2>/dev/null"; done
# Hosts that pools need stay.
if [ -z "$LARGE" ]; then
  inventory h1 h2 h3 | sed '/^h3 =/d; s/"h1", "h2", "h3"/"h1"/' >"$I"
  refused "the hosts cannot be removed: pool" apply "$I"
  inventory "${HOSTS[@]}" >"$I"
fi
end_load 2

# The monitors' state moves to a file on one host, and back to etcd, while clients write. Killed in the middle: the script
# on the host, with the monitor stopped, or the run.
killed_move() { # HOST script|run
  local p watch=
  if [ "$2" = script ]; then
    there "$1" "timeout 120 sh -c 'while systemctl -q is-active belemnite-mon@$1; do sleep 0.02; done
      sleep 0.$((RANDOM % 6)); pkill -KILL -f \"^sh -s\"; true'" & watch=$!
  fi
  ip netns exec "$NS" env -u CEPH_CONF "$BIN" deploy apply "$I" >"$W/move.out" 2>&1 & p=$!
  # A script that was killed after its last change leaves nothing to move.
  wait_for 120 bash -c "grep -q \"^move the monitors' state\" $W/move.out || ! kill -0 $p" || { cat "$W/move.out"; return 1; }
  if [ -z "$watch" ]; then sleep "0.$((RANDOM % 10))"; kill -KILL $p 2>/dev/null || true; else wait $watch || true; fi
  wait $p || true
  echo "killed at: $(tail -n 1 "$W/move.out")"
}
load 4
start=$(seconds)
inventory "${HOSTS[@]}" | sed 's/^monitors = .*/monitors = ["h2"]/' >"$I"
killed_move h2 script
must apply "$I"
expect "monitors" "$(ceph quorum_status | jq -c '[.monmap.mons[].name]')" '["h2"]'
there h2 "[ -e /var/lib/ceph/mon/ceph-h2/state.redb ]"
for h in "${HOSTS[@]}"; do there "$h" "! ls -d /var/lib/belemnite/etcd/* 2>/dev/null"; done
inventory "${HOSTS[@]}" >"$I"
killed_move h2 script
killed_move h2 run
must apply "$I"
expect "monitors" "$(ceph quorum_status | jq -c '[.quorum_names[]] | sort')" '["h1","h2","h3"]'
there h2 "[ ! -e /var/lib/ceph/mon/ceph-h2/state.redb ]"
echo "== three monitors, one, and three again in $(($(seconds) - start)) s"
end_load 4

# The next release, while clients write. The operator's own noout stays.
cp "$W/2.deb" "$W/belemnite.deb"
load 3
start=$(seconds)
deploy upgrade "$I" >"$W/upgrade.out" 2>&1 & p=$!
wait_for 120 grep -q "restart OSDs" "$W/upgrade.out"
must upgrade "$I" --pause
wait $p || { cat "$W/upgrade.out"; exit 1; }
grep -q "^paused" "$W/upgrade.out" || { cat "$W/upgrade.out"; exit 1; }
expect "noout after the pause" "$(ceph osd dump -f json | jq -r '.flags_set | index("noout")')" null
ceph osd set noout >/dev/null
must upgrade "$I"
echo "== upgraded in $(($(seconds) - start)) s"
expect "noout after the upgrade" "$(ceph osd dump -f json | jq -r '.flags_set | index("noout") != null')" true
ceph osd unset noout >/dev/null
end_load 3
for h in "${HOSTS[@]}"; do
  there "$h" 'for u in $(systemctl list-units --plain --no-legend "belemnite-mon@*" "belemnite-osd@*" | cut -d" " -f1); do
    [ /proc/$(systemctl show -P MainPID $u)/exe -ef /usr/bin/belemnite ] || { echo "$u runs an earlier program"; exit 1; }; done'
done
must apply "$I"
must status "$I"
grep -q "apply: nothing is to be done" "$W/deploy.out" || { cat "$W/deploy.out"; exit 1; }

refused "this destroys the cluster" remove "$I"
must remove "$I" --yes-i-really-mean-it
for h in "${HOSTS[@]}"; do
  there "$h" "! ls -d /etc/ceph/ceph.conf /var/lib/ceph/osd/ceph-* /var/lib/ceph/mon/ceph-* /var/lib/belemnite/etcd/* $D/disk-* 2>/dev/null
    ! systemctl list-units --plain --no-legend --state=active 'belemnite-*@*' 'ceph-mds@*' 'ceph-radosgw@*' | grep ."
done
[ ! -e "$W/cluster.deploy" ]
echo "deployed, changed, upgraded and removed"
