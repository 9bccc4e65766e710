# Three monitors on three members of etcd, each in a network namespace of its own, under load for SECS seconds (1200): monitors and members
# are killed, paused and cut off in turn, disks of members stop (a frozen file system: fdatasync does not return) or take a second for each
# request, also that of etcd's leader, and clocks of monitors are wrong by 2 s. Clients go on within MOST seconds (10), no epoch forks or goes
# back, no monitor tells an older epoch than any client knew before it asked, nothing acknowledged is lost, no OSD is marked
# down. Then all members are killed and started again: the same state. Needs root, loop devices, `etcd-server`, `openssl`, `iproute2`, `curl`. ROOTS names directories with Ceph of other releases, whose clients work besides those installed.
#
#     LIMIT=2400 ROOTS="/DIR/18 /DIR/20" interop/run.sh several_monitors
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }
secs=${SECS:-1200} most=${MOST:-10} T=bel$$
hub() { ip netns exec "$T"h "$@"; }
roots=("")
for r in ${ROOTS:-}; do roots+=("$r"); done

cleanup() {
  local status=$? n r
  touch "$W/stop" "$W/end"
  for n in "$W"/e?; do fsfreeze -u "$n" 2>/dev/null || true; done
  for n in $(ls "$W"/run/*.pid 2>/dev/null); do kill -CONT "$(cat "$n")" 2>/dev/null && kill -KILL "$(cat "$n")" 2>/dev/null || true; done
  for n in h m1 m2 m3 e1 e2 e3; do ip netns del "$T$n" 2>/dev/null || true; done
  for n in "$W"/e?; do umount -l "$n" 2>/dev/null || true; done
  for r in "${roots[@]:1}"; do rm -rf "${r:?}$W"; done
  [ $status = 0 ] || tail -n 5 "$W"/log/[mo]*
  finish $status
}
trap cleanup EXIT
trap 'exit 143' TERM

# Namespaces: h has OSDs and clients and the bridge; m1 to m3 the monitors, e1 to e3 the members.
mkdir -p "$W"/{log,run,tls,osd.0,osd.1}
ip netns add "$T"h
hub ip link add name bridge0 type bridge
hub ip addr add 10.77.0.1/24 dev bridge0
hub ip link set bridge0 up
hub ip link set lo up
for i in 1 2 3; do
  for k in m e; do
    n=$T$k$i addr=10.77.0.$([ $k = m ] && echo 1 || echo 2)$i
    ip netns add "$n"
    hub ip link add "$n" type veth peer name eth
    hub ip link set eth netns "$n"
    hub ip link set "$n" master bridge0 up
    ip -n "$n" addr add "$addr/24" dev eth
    ip -n "$n" link set eth up
    ip -n "$n" link set lo up
  done
done

# Certificates: one authority, one certificate for all.
(
  cd "$W/tls"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
  openssl req -newkey rsa:2048 -nodes -subj /CN=mon -keyout all.key -out all.csr
  printf 'subjectAltName=IP:10.77.0.21,IP:10.77.0.22,IP:10.77.0.23\nextendedKeyUsage=serverAuth,clientAuth\n' >ext
  openssl x509 -req -in all.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out all.pem
) >"$W/log/openssl" 2>&1

# keep NAME COMMAND…: runs it again a second after it has ended, unless $W/run/NAME.hold is there; its pid is in $W/run/NAME.pid.
keep() {
  local name=$1; shift
  while [ ! -e "$W/end" ]; do
    if [ -e "$W/run/$name.hold" ]; then sleep 0.2; continue; fi
    "$@" >>"$W/log/$name" 2>&1 &
    echo $! >"$W/run/$name.pid"
    wait $! 2>/dev/null || true
    sleep 1
  done
}
pid() { cat "$W/run/$1.pid"; }

for i in 1 2 3; do
  # The disk of a member.
  disk "$W/disk$i" 1G "$W/e$i"
  u=https://10.77.0.2$i
  keep e$i ip netns exec "$T"e$i etcd --name=e$i --data-dir="$W/e$i/data" --listen-client-urls=$u:2379 --advertise-client-urls=$u:2379 \
    --listen-peer-urls=$u:2380 --initial-advertise-peer-urls=$u:2380 --initial-cluster-token="$T" --logger=zap \
    --initial-cluster=e1=https://10.77.0.21:2380,e2=https://10.77.0.22:2380,e3=https://10.77.0.23:2380 \
    --cert-file="$W/tls/all.pem" --key-file="$W/tls/all.key" --trusted-ca-file="$W/tls/ca.pem" --client-cert-auth \
    --peer-cert-file="$W/tls/all.pem" --peer-key-file="$W/tls/all.key" --peer-trusted-ca-file="$W/tls/ca.pem" --peer-client-cert-auth \
    --pre-vote --auto-compaction-mode=periodic --auto-compaction-retention=10m &
  PIDS+=($!)
done

key=$(ceph-authtool --gen-print-key)
printf '[client.admin]\n\tkey = %s\n\tcaps mon = "allow *"\n\tcaps osd = "allow *"\n\tcaps mgr = "allow *"\n\tcaps mds = "allow *"\n' "$key" >"$W/keyring"
export CEPH_CONF=$W/ceph.conf
cat >"$CEPH_CONF" <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:10.77.0.11:3300/0],[v2:10.77.0.12:3300/0],[v2:10.77.0.13:3300/0]
osd_pool_default_size = 2
osd_crush_chooseleaf_type = 0
mon_max_pg_per_osd = 4000
# Whose monitor hangs looks for another one after so long; Ceph's own 30 s would be waited for.
mon_client_ping_interval = 1
mon_client_ping_timeout = 3
[client.admin]
keyring = $W/keyring
[mon]
keyring = $W/keyring
mon_data = $W/mon.\$id
mon_allow_pool_delete = true
mon_state_etcd = https://10.77.0.21:2379,https://10.77.0.22:2379,https://10.77.0.23:2379
mon_state_etcd_ca = $W/tls/ca.pem
mon_state_etcd_cert = $W/tls/all.pem
mon_state_etcd_key = $W/tls/all.key
$(for i in 1 2 3; do printf '[mon.%s]\npublic_addr = [v2:10.77.0.1%s:3300/0]\nmgr_port = 6800\n' $i $i; done)
[osd]
osd_data = $W/osd.\$id
keyring = $W/osd.\$id/keyring
public_addr = 10.77.0.1
cluster_addr = 10.77.0.1
C
for r in "${roots[@]:1}"; do mkdir -p "$r$W"; cp "$CEPH_CONF" "$W/keyring" "$r$W"; done

# ceph_of ROOT PROGRAM…: a program of the Ceph in a root, or of that which is installed.
ceph_of() {
  local r=$1; shift
  if [ -z "$r" ]; then hub timeout 120 "$@"; else hub timeout 120 chroot "$r" env CEPH_CONF="$CEPH_CONF" "$@"; fi
}
ceph() { ceph_of "" ceph "$@"; }
quorum() { ceph quorum_status -f json 2>/dev/null | jq -r '.quorum_names | join(" ")'; }
leader() { ceph quorum_status -f json 2>/dev/null | jq -r .quorum_leader_name; }
all_there() { [ "$(quorum)" = "1 2 3" ]; }

hub "$BIN" mon --id 1 --mkfs
for i in 1 2 3; do
  # The first one makes the cluster, the others are added.
  [ $i = 1 ] || wait_for 60 ceph mon add $i 10.77.0.1$i:3300
  keep m$i ip netns exec "$T"m$i "$BIN" mon --id $i &
  PIDS+=($!)
done
wait_for 60 all_there
for o in 0 1; do
  uuid=$(cat /proc/sys/kernel/random/uuid) okey=$(ceph-authtool --gen-print-key)
  printf '{"cephx_secret": "%s"}' "$okey" >"$W/secret"
  expect "number of the OSD" "$(ceph osd new "$uuid" -i "$W/secret")" $o
  printf '[osd.%s]\n\tkey = %s\n' $o "$okey" >"$W/osd.$o/keyring"
  "$BIN" osd --id $o --mkfs --osd-uuid "$uuid" --size 6G
  ip netns exec "$T"h "$BIN" osd --id $o --reactors 1 >"$W/log/osd.$o" 2>&1 &
  PIDS+=($!)
  echo $! >"$W/run/osd.$o.pid"
done
ceph osd pool create p 8 >/dev/null
ceph osd pool create images 8 >/dev/null
ceph osd pool application enable images rbd 2>/dev/null
wait_for 60 sh -c "ip netns exec ${T}h ceph pg stat -f json | jq -e '.pg_summary | .num_pgs == 16 and .num_pg_by_state == [{\"name\": \"active+clean\", \"num\": 16}]'"
ups() { ceph osd dump -f json | jq -c '[.osds[] | [.osd, .up, .up_from, .down_at]]'; }
before=$(ups)

# One client of each release: keys, images, snapshots and pools, whose acknowledgement is written down, and epochs.
client() {
  local r=$1 n=0 last=0 tag=c$2 t d e what
  while [ ! -e "$W/stop" ]; do
    n=$((n + 1))
    for what in key image snap pool gone epoch map; do
      [ ! -e "$W/stop" ] || break
      t=$(date +%s%N)
      case $what in
        key) ceph_of "$r" ceph config-key set "k/$tag/$n" "$n" >/dev/null 2>>"$W/log/$tag" && echo "k/$tag/$n" >>"$W/has.keys" ;;
        image) ceph_of "$r" rbd create --size 8M images/$tag.$n 2>>"$W/log/$tag" && echo $tag.$n >>"$W/has.images" ;;
        snap) ceph_of "$r" rbd snap create --no-progress images/$tag.$n@s 2>>"$W/log/$tag" && echo $tag.$n >>"$W/has.snaps" ;;
        pool) ceph_of "$r" ceph osd pool create $tag.$n 1 >/dev/null 2>>"$W/log/$tag" && echo $tag.$n >>"$W/has.pools" ;;
        gone) if [ $((n % 2)) = 0 ]; then
            echo $tag.$n >>"$W/rm.pools"
            ceph_of "$r" ceph osd pool rm $tag.$n $tag.$n --yes-i-really-really-mean-it 2>>"$W/log/$tag"
          fi ;;
        epoch)
          e=$(ceph_of "$r" ceph osd dump -f json 2>>"$W/log/$tag" | jq .epoch)
          [ "${e:-0}" -ge $last ] || echo "$tag: epoch $e after $last" >>"$W/back"
          last=${e:-$last} ;;
        map) [ -n "$r" ] || { e=$(ceph osd getmap -o "$W/$tag.map" 2>&1 | grep -o '[0-9]*$') && echo "$e $(md5sum <"$W/$tag.map")" >>"$W/maps"; } ;;
      esac || echo "$tag $what $n failed" >>"$W/failed"
      d=$((($(date +%s%N) - t) / 1000000))
      # Who looks at a slow command wants to know what had happened, and how busy the machine was.
      echo "$d $tag $what $n $(date +%T), after: $(tail -n 1 "$W/faults" 2>/dev/null), load $(cut -d " " -f 1 /proc/loadavg)" >>"$W/times"
    done
  done
}
bench() {
  while [ ! -e "$W/stop" ]; do
    hub timeout 120 rados -p p bench 20 write -b 4096 -t 2 --run-name b >"$W/bench.last" 2>&1 || cat "$W/bench.last" >>"$W/bench.failed"
    awk '/^Total writes made/ { print $4 }' "$W/bench.last" >>"$W/bench.writes"
    awk '/^Max latency/ { print $3 }' "$W/bench.last" >>"$W/bench.latency"
  done
}
loads=()
for i in "${!roots[@]}"; do
  client "${roots[$i]}" "$i" & loads+=($!)
done
bench & loads+=($!)
ip netns exec "$T"h python3 "$ROOT/interop/py/newest_epoch.py" 10.77.0.11:3300 10.77.0.12:3300 10.77.0.13:3300 >"$W/newest" 2>&1 & newest=$!
PIDS+=("$newest")
PIDS+=("${loads[@]}")

# The member that leads, by its own word.
member() {
  local i s
  for i in 1 2 3; do
    s=$(hub curl -s -m 2 --cacert "$W/tls/ca.pem" --cert "$W/tls/all.pem" --key "$W/tls/all.key" -d '{}' https://10.77.0.2$i:2379/v3/maintenance/status) || continue
    [ "$(jq '.leader == .header.member_id' <<<"$s")" != true ] || echo e$i
  done | head -n 1
}

# Faults: kind and victim. A victim that stands still or is cut off stays so for longer than a lease lasts.
say() { echo "$(date +%T) $*" >>"$W/faults"; }
fault() {
  local kind=$1 x=$2
  say "$kind $x"
  case $kind in
    kill) kill -KILL "$(pid "$x")"; sleep 8 ;;
    keep_down) touch "$W/run/$x.hold"; kill -KILL "$(pid "$x")"; sleep 12; rm "$W/run/$x.hold" ;;
    stop) kill -TERM "$(pid "$x")"; sleep 4 ;;
    pause) kill -STOP "$(pid "$x")"; sleep 9; kill -CONT "$(pid "$x")" ;;
    freeze) fsfreeze -f "$W/$x"; sleep 12; fsfreeze -u "$W/$x" ;;
    slow) for _ in $(seq 8); do fsfreeze -f "$W/$x"; sleep 1; fsfreeze -u "$W/$x"; sleep 0.2; done ;;
    cut) hub ip link set "$T$x" down; sleep 9; hub ip link set "$T$x" up ;;
    shift)
      sed -i "/^test_clock_shift/d; s/^\[mon\.${x#m}\]/&\ntest_clock_shift = $3/" "$CEPH_CONF"
      kill -KILL "$(pid "$x")"; sleep 8 ;;
  esac
  # The next fault meets a whole cluster.
  wait_for 60 all_there || { say "not all there after $kind $x"; echo "$kind $x" >>"$W/unwell"; }
}
end=$(($(date +%s) + secs)) round=0
while [ "$(date +%s)" -lt $end ]; do
  round=$((round + 1)) v=$((round % 3 + 1))
  for f in "kill L" "pause e$v" "cut m$v" "freeze E" "kill e$v" "pause L" "shift m$v $([ $((round % 2)) = 0 ] && echo -2 || echo 2)" "cut e$v" "keep_down L" \
    "pause E" "pause m$v" "slow E" "cut L" "stop L" "freeze e$v" "keep_down e$v"; do
    [ "$(date +%s)" -lt $end ] || break
    if [[ $f == *L* ]]; then l=$(leader); f=${f/L/m${l:-1}}; fi
    if [[ $f == *E ]]; then l=$(member); f=${f%E}${l:-e1}; fi
    # shellcheck disable=SC2086
    fault $f
  done
done
sed -i '/^test_clock_shift/d' "$CEPH_CONF"
touch "$W/stop"
for p in "${loads[@]}"; do wait "$p" || true; done
bad=0
kill -TERM "$newest"
wait "$newest" || bad=1
sed 's/^/== /' "$W/newest"
wait_for 60 all_there

sort -n "$W/times" | awk -v most="$most" '{ t[NR] = $1; last = $0; if ($1 > most * 1000) over = over "\n   " $0 }
  END { p99 = int(NR * 0.99) + 1; if (p99 > NR) p99 = NR
        printf("== %d commands of clients: median %d ms, 99 %% within %d ms, the slowest (ms, client, what, number, when, the last fault, load): %s\n", NR, t[int((NR + 1) / 2)], t[p99], last)
        if (over) print "== longer than " most " s:" over; exit over != "" }' >"$W/summary" && slow=0 || slow=1
cat "$W/summary"
echo "== faults: $(awk '{ print $2 }' "$W/faults" | sort | uniq -c | awk '{ printf "%s%s %s", sep, $1, $2; sep = ", " }')"
echo "== rados bench: $(awk '{ n += $1 } END { print n }' "$W/bench.writes") writes; the longest took $(sort -n "$W/bench.latency" | tail -n 1) s"
[ $slow = 0 ] || bad=1
for f in back unwell failed bench.failed; do
  [ ! -e "$W/$f" ] || { echo "$f:"; tail -n 20 "$W/$f"; bad=1; }
done

# Nothing acknowledged is lost.
have() { # have WHAT NAMES…: reads what there is
  touch "$W/has.$1" "$W/rm.$1"
  comm -23 <(sort -u "$W/has.$1") <(sort -u - "$W/rm.$1") >"$W/lost"
  [ ! -s "$W/lost" ] || { echo "$1 that were acknowledged and are lost:"; cat "$W/lost"; return 1; }
  echo "== $(wc -l <"$W/has.$1") $1 acknowledged, none lost"
}
ceph config-key dump >"$W/keys.json"
jq -r 'to_entries[] | select(.key | startswith("k/")) | .key' "$W/keys.json" | have keys || bad=1
ceph_of "" rbd ls images | have images || bad=1
while read -r i; do [ "$(ceph_of "" rbd snap ls images/"$i" | wc -l)" = 2 ] && echo "$i"; done <"$W/has.snaps" | have snaps || bad=1
ceph osd pool ls | have pools || bad=1
# An epoch has one content.
sort -u "$W/maps" | awk '{ n[$1]++ } END { for (e in n) if (n[e] > 1) { print "epoch " e " has two contents"; bad = 1 }; print "== " length(n) " epochs were looked at, each had one content"; exit bad }' || bad=1
expect "OSDs: number, up, since, down at" "$(ups)" "$before" || bad=1

# All members at once: everything is as it was.
state() { ceph config-key dump; ceph auth ls -f json; ceph osd pool ls; ceph_of "" rbd ls images; ceph osd getmap "$1" | md5sum; } 2>/dev/null
e=$(ceph osd dump -f json | jq .epoch)
state "$e" | md5sum >"$W/state.before"
for i in 1 2 3; do touch "$W/run/e$i.hold"; kill -KILL "$(pid e$i)"; done
sleep 5
rm "$W"/run/e?.hold
start=$(date +%s)
wait_for 120 all_there
echo "== all members of etcd killed and started: all monitors there after $(($(date +%s) - start)) s"
state "$e" | md5sum >"$W/state.after"
cmp "$W/state.before" "$W/state.after" || { echo "the state differs"; bad=1; }
[ "$(ceph osd dump -f json | jq .epoch)" -ge "$e" ] || bad=1
[ $bad = 0 ]
