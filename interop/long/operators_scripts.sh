# Public scripts that operators use on Ceph, unmodified, by their paths: UPMAP_REMAPPED (`tools/upmap/upmap-remapped.py` of
# cernceph/ceph-scripts), PLACEMENTOPTIMIZER (`placementoptimizer.py` of TheJJ/ceph-balancer) and PGREMAPPER (the program of
# digitalocean/pgremapper, by `go build`). Those without a path are left out. Root; three minutes.
source "$(dirname "$0")/../lib.sh"
: "${UPMAP_REMAPPED:=}" "${PLACEMENTOPTIMIZER:=}" "${PGREMAPPER:=}"
[ -n "$UPMAP_REMAPPED$PLACEMENTOPTIMIZER$PGREMAPPER" ] || { echo "no script is named, see the first lines" >&2; exit 1; }
cluster_up --osds 8 --osd-size 1G
# The scripts alone move PGs, and new OSDs are not held.
ceph balancer off
ceph config set mgr mgr/balancer/hold_growth false
ceph config set global osd_pool_default_pg_autoscale_mode off
# Short logs: PGs are filled by backfill, during which they are remapped.
for o in osd_target_pg_log_entries_per_osd:0 osd_min_pg_log_entries:20 osd_max_pg_log_entries:40 osd_pg_log_dups_tracked:20 \
  osd_pg_log_trim_min:5; do ceph config set osd "${o%:*}" "${o#*:}"; done
for o in 0 1 2 3 4 5 6 7; do ceph osd crush set "osd.$o" 1 root=default "host=h$((o / 2))"; done
ceph osd crush rule create-replicated hosts default host
ceph osd pool create test 64 64 replicated hosts
ceph osd pool set test size 2
ceph osd erasure-code-profile set small k=2 m=1 crush-failure-domain=host
ceph osd pool create coded 32 32 erasure small
for p in test coded; do
  ceph osd pool application enable $p rados
  rados -p $p bench 60 write -b 4096 -t 64 --no-cleanup --max-objects 6000 >/dev/null
done
pool_clean test 64
pool_clean coded 32

places() { ceph pg dump pgs_brief -f json 2>/dev/null | jq -cS '.pg_stats | map({key: .pgid, value: (.up | sort)}) | from_entries'; }
remapped() { ceph pg ls remapped -f json | jq '.pg_stats | length'; }
states() { ceph status -f json | jq -c '.pgmap.pgs_by_state'; }
all_clean() {
  ceph pg dump pgs -f json 2>/dev/null | jq -e '.pg_stats | length > 0 and all(.state == "active+clean" and .up == .acting)' >/dev/null
}
# Upmaps cannot make two shards of a coded PG change places; such PGs move once they may.
in_place() {
  ceph pg dump pgs -f json 2>/dev/null | jq -e '.pg_stats | length > 0 and all((.up | sort) == (.acting | sort))' >/dev/null
}
shards_on() { ceph pg dump pgs_brief -f json 2>/dev/null | jq "[.pg_stats[] | select(.up | index($1))] | length"; }
# grown: two OSDs join on a host of their own, and the PGs that go there wait.
NEXT=8
grown() {
  local o
  for o in $NEXT $((NEXT + 1)); do belemnite --conf "$CEPH_CONF" osd add >/dev/null; done
  for o in $NEXT $((NEXT + 1)); do ceph osd crush set "osd.$o" 1 root=default "host=h$((o / 2))"; done
  NEXT=$((NEXT + 2))
  some_remapped() { [ "$(remapped)" -ge 10 ]; }
  wait_for 30 some_remapped || { states; return 1; }
}
# It reads /etc/ceph/ceph.conf, which is the cluster's in a mount namespace of its own. It can use the command instead, whose
# library makes the standard error of all non-blocking; long lists are then cut off, here and with Ceph.
upmap_remapped() {
  unshare -m sh -c 'mount --bind "$1" /etc/ceph && exec /usr/bin/python3 "$2"' sh "$W/etc" "$UPMAP_REMAPPED" 2>"$W/err" ||
    { cat "$W/err"; return 1; }
}
mkdir -p "$W/etc" /etc/ceph
cp "$CEPH_CONF" "$W/etc/ceph.conf"

if [ -n "$UPMAP_REMAPPED" ]; then
  ceph osd set norebalance
  places >"$W/before"
  grown
  was=$(remapped) n=0
  for _ in 1 2 3; do
    upmap_remapped >"$W/commands"
    n=$((n + $(grep -c '^ceph osd' "$W/commands" || true)))
    bash "$W/commands" >/dev/null 2>"$W/err" || { cat "$W/err"; exit 1; }
  done
  wait_for 30 in_place || { states; exit 1; }
  places | diff "$W/before" -
  echo "== upmap-remapped.py: $was remapped PGs are where they were, by $n commands"
  ceph osd unset norebalance
  wait_for 180 all_clean || { states; exit 1; }
fi

if [ -n "$PGREMAPPER" ]; then
  # The same by the other program, then it lets PGs go, evens out a bucket, drains an OSD, and moves single PGs.
  ceph osd set norebalance
  places >"$W/before"
  grown
  was=$(remapped)
  # It leaves out PGs with upmaps that have lost their sense; the monitor removes these within seconds.
  cancelled() { "$PGREMAPPER" cancel-backfill --yes >"$W/out" 2>&1 || { cat "$W/out"; exit 1; }; in_place; }
  wait_for 180 cancelled || { states; cat "$W/out"; exit 1; }
  places | diff "$W/before" -
  echo "== pgremapper cancel-backfill: $was remapped PGs are where they were"
  ceph osd unset norebalance
  wait_for 180 all_clean || { states; exit 1; }
  new=$((NEXT - 2))
  expect "PGs on the new OSD" "$(shards_on $new)" 0
  "$PGREMAPPER" undo-upmaps --target $new $((new + 1)) --max-source-backfills 2 --yes >"$W/out" 2>&1 || { cat "$W/out"; exit 1; }
  [ "$(shards_on $new)" -gt 0 ] || { cat "$W/out"; exit 1; }
  wait_for 180 all_clean || { states; exit 1; }
  echo "== pgremapper undo-upmaps: $(shards_on $new) PGs on osd.$new"
  spread() { ceph osd df -f json | jq '[.nodes[].pgs] | max - min'; }
  wide=$(spread)
  for _ in $(seq 30); do
    "$PGREMAPPER" balance-bucket "h$((new / 2))" --max-backfills 10 --target-spread 1 --yes >"$W/out" 2>&1 || { cat "$W/out"; exit 1; }
    wait_for 180 all_clean || { states; exit 1; }
    [ "$(remapped)" != 0 ] || break
  done
  echo "== pgremapper balance-bucket: a spread of $wide PGs is $(spread)"
  was=$(shards_on 0)
  for _ in $(seq 40); do
    [ "$(shards_on 0)" != 0 ] || break
    "$PGREMAPPER" drain 0 --target-osds 1 --max-backfill-reservations 20 --max-source-backfills 20 --yes >"$W/out" 2>&1 ||
      { cat "$W/out"; exit 1; }
    wait_for 180 all_clean || { states; exit 1; }
  done
  [ "$(shards_on 0)" -lt $((was / 4)) ] || { cat "$W/out"; exit 1; }
  echo "== pgremapper drain: $was PGs on osd.0 are $(shards_on 0)"
  "$PGREMAPPER" export-mappings 1 >"$W/mappings"
  jq -e 'length > 0' "$W/mappings" >/dev/null
  places >"$W/before"
  pg=$(jq -r '.[0].pgid' "$W/mappings")
  ceph osd rm-pg-upmap-items "$pg"
  wait_for 180 all_clean || { states; exit 1; }
  "$PGREMAPPER" import-mappings "$W/mappings" --yes >"$W/out" 2>&1 || { cat "$W/out"; exit 1; }
  wait_for 180 all_clean || { states; exit 1; }
  echo "== pgremapper: exported and imported $(jq length "$W/mappings") mappings, $(places | diff "$W/before" - | grep -c '^>' || true) differ"
  "$PGREMAPPER" undo-upmaps 1 --max-source-backfills 50 --yes >"$W/out" 2>&1 || { cat "$W/out"; exit 1; }
  wait_for 180 all_clean || { states; exit 1; }
fi

if [ -n "$PLACEMENTOPTIMIZER" ]; then
  optimizer() { /usr/bin/python3 "$PLACEMENTOPTIMIZER" "$@"; }
  spread() { ceph osd df -f json | jq '[.nodes[].pgs] | max - min'; }
  wide=$(spread)
  all=0
  for _ in 1 2 3 4 5 6; do
    optimizer -v balance --max-pg-moves 20 >"$W/commands" 2>"$W/err" || { cat "$W/err"; exit 1; }
    [ -s "$W/commands" ] || break
    all=$((all + $(grep -c '^ceph osd' "$W/commands")))
    bash -e "$W/commands" >/dev/null 2>"$W/err" || { cat "$W/err"; exit 1; }
    ! grep -i error "$W/err"
    wait_for 180 all_clean || { states; exit 1; }
  done
  [ "$all" -gt 0 ]
  echo "== placementoptimizer.py balance: $all commands, a spread of $wide PGs is $(spread)"
  optimizer show --osds >"$W/out"
  grep -q "^sum" "$W/out"
  optimizer gather "$W/state.xz" 2>/dev/null
  optimizer show --osds --only-crushclass hdd >/dev/null
  optimizer repairstats >/dev/null
  optimizer poolosddiff test coded >/dev/null
fi
for p in test coded; do expect "objects of $p" "$(rados -p $p ls | grep -c benchmark_data)" 6000; done
cluster_down
