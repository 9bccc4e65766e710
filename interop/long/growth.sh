# OSDs that join a cluster with data while clients work. Its PGs stay where they are, and the balancer fills the new OSDs at
# its pace; in the end each OSD has its share. Every answer to the clients is that of a model. NEW OSDs join; three minutes.
source "$(dirname "$0")/../lib.sh"
: "${NEW:=2}"
cluster_up --osds 4 --osd-size 3G --pool-size 2
ceph config set mgr mgr/balancer/sleep_interval 3
ceph config set mgr mgr/balancer/upmap_max_optimizations 4
ceph osd pool create test 64
ceph osd erasure-code-profile set coded k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 32 32 erasure coded
pool_clean test 64
pool_clean coded 32
for p in test coded; do rados -p $p bench 60 write -b 262144 --max-objects 800 --no-cleanup >/dev/null; done

shards() { ceph osd df -f json | jq -c '[.nodes[] | .pgs] | sort'; }
# The shares differ by at most one PG in each pool.
even() { [ "$(shards | jq "length == $1 and .[-1] - .[0] <= 4")" = true ]; }
wait_for 240 even 4 || { shards; exit 1; }
rests() { ceph balancer status -f json | jq -e '.optimize_result | test("already perfect|nable to find")'; }
wait_for 120 rests || { ceph balancer status; exit 1; }
# Number of PGs that are to be on an OSD.
wanted_on() { ceph pg dump pgs_brief -f json 2>/dev/null | jq "[.pg_stats[] | select(.up | index($1))] | length"; }

echo "== $NEW OSDs join"
model_begins
for id in $(seq 4 $((3 + NEW))); do
  belemnite --conf "$CEPH_CONF" osd add >/dev/null
  expect "PGs that are to be on osd.$id at once" "$(wanted_on "$id")" 0
done
expect "upmap items" "$(ceph osd dump -f json | jq '.pg_upmap_items | length > 0')" true

most=0
before=0
# filled: counts what moved since the last look, and is true once every OSD has its share.
filled() {
  local now=0 id
  for id in $(seq 4 $((3 + NEW))); do now=$((now + $(wanted_on "$id"))); done
  [ $((now - before)) -le "$most" ] || most=$((now - before))
  before=$now
  even $((4 + NEW))
}
wait_for 400 filled || { shards; ceph balancer status; exit 1; }
echo "== $before shards moved, at most $most between two looks, then $(shards)"
# Runs of the balancer with four shards each, 3 s apart; a look takes a second or two.
[ "$before" -ge 40 ] && [ "$most" -le 8 ] || exit 1
pool_clean test 64
pool_clean coded 32
model_ends
for p in test coded; do expect "objects of $p" "$(rados -p $p ls | grep -c benchmark_data)" 800; done
cluster_down
