# `belemnite rehearse`: what it says of changes is compared with what then happens, and it changes nothing itself.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 6 --osd-size 1G
# The autoscaler and the balancer move nothing meanwhile; the balancer not while it is on, either.
ceph balancer off
ceph config set mgr mgr/balancer/end_time 0000
ceph config set global osd_pool_default_pg_autoscale_mode off
# Three hosts of two OSDs, so that an OSD's data goes to its neighbour.
for o in 0 1 2 3 4 5; do
  ceph osd crush set "osd.$o" 1 root=default "host=h$((o / 2))"
done
ceph osd crush rule create-replicated hosts default host
ceph osd pool create test 32 32 replicated hosts
ceph osd pool set test size 3
ceph osd pool application enable test rados
ceph osd erasure-code-profile set small k=2 m=1 crush-failure-domain=host
ceph osd pool create coded 16 16 erasure small
CODED=$(ceph osd pool ls detail -f json | jq -r '.[] | select(.pool_name == "coded") | .pool_id')
rados -p test bench 60 write -b 1M -t 8 --no-cleanup --max-objects 96 >/dev/null
all_clean() {
  ceph pg dump pgs -f json 2>/dev/null |
    jq -e '.pg_stats | length > 0 and all(.state == "active+clean" and .up == .acting)' >/dev/null
}
wait_for 60 all_clean
reported() { ceph df -f json | jq -e '.pools[] | select(.name == "test") | .stats.objects >= 96' >/dev/null; }
wait_for 60 reported
epoch() { ceph osd dump -f json | jq .epoch; }
places() { ceph pg dump pgs_brief -f json 2>/dev/null | jq -c '.pg_stats | map({key: .pgid, value: .up}) | from_entries'; }
# PGs whose up set has an OSD that it had not in the file; shards have their places.
moved() {
  places | jq --slurpfile was "$1" --arg coded "$CODED." '
    [to_entries[] | . as {key: $pg, value: $up} | $was[0][$pg] as $old
     | select(if $pg | startswith($coded) then $up != $old else ($up - $old) != [] end)] | length'
}
rehearse() { local s=0; "$BIN" rehearse --json "$@" >"$W/said" || s=$?; echo "$s"; }

# What is said equals what happens: osd out, in, a weight, a host that moves to a rack, more PGs.
foretold() {
  local before settled
  # The end of an earlier change may still make an epoch.
  changes_nothing() {
    before=$(epoch)
    case $(rehearse "$@") in 0 | 4) ;; *) cat "$W/said" >&2; return 1 ;; esac
    [ "$(epoch)" = "$before" ]
  }
  wait_for 20 changes_nothing "$@" || { echo "epoch $(epoch) after rehearsing $*"; cat "$W/said"; return 1; }
  places >"$W/places"
  ceph "$@"
  settled() { all_clean && [ "$(moved "$W/places")" = "$(jq .pgs_moved "$W/said")" ]; }
  wait_for 60 settled || {
    echo "said: $(jq -c 'del(.osds)' "$W/said"); moved: $(moved "$W/places")"
    ceph pg dump pgs_brief; return 1
  }
  echo "== $*: $(jq -c '[.verdict, .pgs_moved, .bytes, .rate.source]' "$W/said")"
}
# All objects of an OSD that is out are elsewhere: its bytes are those that were said to move.
ON_0=$(ceph pg dump pgs -f json 2>/dev/null |
  jq '[.pg_stats[] | select(.up | index(0)) | .stat_sum.num_bytes] | add')
foretold osd out 0
expect "bytes of osd.0" "$(jq .bytes "$W/said")" "$ON_0"
jq -e '(([.osds[].bytes_in] | add) - .bytes) | fabs < 10' "$W/said" >/dev/null
jq -e '.osds[] | select(.osd == 0) | .bytes_in == 0 and .bytes_out > 0' "$W/said" >/dev/null
foretold osd in 0
foretold osd reweight 3 0.6
foretold osd crush reweight osd.4 0.5
ceph osd crush add-bucket r1 rack root=default
foretold osd crush move h1 rack=r1

# Danger: a PG has copies on three hosts, min_size is 2.
expect "one OSD down" "$(rehearse osd down 2)" 4
jq -e '.at_min_size.count > 0 and .inactive.count == 0' "$W/said" >/dev/null
expect "two OSDs down" "$(rehearse osd down 2 4)" 5
jq -e '.inactive.count > 0 and .verdict == "refused"' "$W/said" >/dev/null
expect "a removed pool" "$(rehearse osd pool rm test test --yes-i-really-really-mean-it)" 5
expect "what the monitors refuse" "$(rehearse osd crush move none root=default)" 5
grep -q ENOENT "$W/said"
expect "no command" "$(rehearse make it so 2>/dev/null)" 1
expect "no change of the map" "$(rehearse config-key set a b 2>/dev/null)" 1

# A reader may not rehearse what it may not do.
ceph auth get-or-create client.reader mon 'allow r' mgr 'allow r' -o "$W/reader.keyring"
expect "a reader" "$(rehearse --user reader --keyring "$W/reader.keyring" osd out 1 2>/dev/null)" 5
grep -q EACCES "$W/said"

# In steps. What has no exact way back is refused, with the command that makes it.
maps() {
  ceph osd dump -f json | jq -cS '[[.osds[].weight], .pg_upmap_items, [.pools[] | [.pool, .size, .min_size, .crush_rule]]]'
  ceph osd crush dump | jq -cS .
}
let_go() { [ "$(belemnite rehearse status --json | jq '.let_go // 0')" -ge "$1" ]; }
back() { all_clean && [ "$(moved "$W/start")" = 0 ]; }
places >"$W/start"
maps >"$W/maps"
expect "a split in steps" "$(rehearse --apply osd pool set test pg_num 64)" 5
grep -q 'made by `ceph osd pool set test pg_num 64`' "$W/said"
expect "what endangers" "$(rehearse --apply osd pool rm test test --yes-i-really-really-mean-it)" 5
# Killed in the middle: the others stay held, another program goes on, and a second one at that time is refused.
"$BIN" rehearse --apply --step 1 osd out 0 >"$W/apply.out" 2>&1 & A=$!
PIDS+=("$A")
wait_for 30 let_go 2
expect "another change" "$(rehearse --apply osd out 1)" 5
grep -q "'osd out 0', applied by" "$W/said"
expect "the same at the same time" "$(rehearse --apply 2>"$W/err")" 1
grep -q "carries out 'osd out 0'" "$W/err"
kill -KILL "$A"
wait "$A" || true
belemnite rehearse status | grep -Eq '^held +[1-9]' || { belemnite rehearse status; cat "$W/apply.out"; false; }
belemnite rehearse --apply --step 8 osd out 0 | tee "$W/apply.out" | tail -n 2
grep -q "^goes on with 'osd out 0'" "$W/apply.out"
expect "weight at the end" "$(ceph osd dump -f json | jq '.osds[] | select(.osd == 0) | .weight')" 0
belemnite rehearse undo
wait_for 60 back
maps | diff "$W/maps" -
# Killed and undone, though someone else has changed the same meanwhile.
"$BIN" rehearse --apply --step 1 osd crush reweight osd.4 1 >"$W/apply.out" 2>&1 & A=$!
PIDS+=("$A")
wait_for 30 let_go 1
kill -KILL "$A"
wait "$A" || true
ceph osd crush reweight osd.5 0.9
expect "an undo against others" "$(rehearse undo)" 5
grep -q 'osd.5 is in h2 with weight 0.9' "$W/said"
belemnite rehearse undo --force
wait_for 60 back
maps | diff "$W/maps" -
expect "nothing to commit" "$(rehearse commit)" 5
belemnite rehearse --apply osd primary-affinity 2 0.5 >/dev/null
belemnite rehearse commit
belemnite rehearse status | grep -q '^no change is applied'

# New hosts: with the balancer's hold their PGs stay, without it they move at once.
expect "hosts without a hold" "$(rehearse add 2 hosts like h0)" 0
jq -e '.held == null and .pgs_moved > 0 and ([.osds[] | select(.osd > 5)] | length) == 4' "$W/said" >/dev/null
ceph balancer on
expect "hosts with a hold" "$(rehearse add 2 hosts like h0)" 0
jq -e '.held.pgs > 0 and .held.bytes_later > 0' "$W/said" >/dev/null
belemnite rehearse --rate 100M osd out 5 | grep -q '100 MiB/s as given'
belemnite rehearse osd out 5 | tail -n 1 | grep -qx safe
cluster_down
