# OSDs that join a cluster with data while clients work. Its PGs stay where they are, and the balancer fills the new OSDs at
# its pace: no PG is ever degraded or inactive, never is more on its way than target_max_misplaced_ratio and one run of the
# balancer, and in the end each OSD has its share. Every answer to the clients is that of a model. NEW OSDs join; three minutes.
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
placement() { ceph pg dump pgs_brief -f json 2>/dev/null | jq -c '[.pg_stats[] | {pgid, up}] | sort_by(.pgid)'; }

echo "== $NEW OSDs join"
model_begins
placement >"$W/before"
for _ in $(seq "$NEW"); do
  belemnite --conf "$CEPH_CONF" osd add >/dev/null
  placement >"$W/after"
  cmp "$W/before" "$W/after" || { ceph -s; diff <(jq . "$W/before") <(jq . "$W/after") | head -n 40; exit 1; }
done
expect "upmap items" "$(ceph osd dump -f json | jq '.pg_upmap_items | length > 0')" true

most=0
# filled: looks at the PGs, and is true once every OSD has its share.
filled() {
  local s misplaced
  s=$(ceph status -f json)
  misplaced=$(jq '(.pgmap.misplaced_ratio // 0) * 1000 | ceil' <<<"$s")
  [ "$misplaced" -le "$most" ] || most=$misplaced
  jq -e '(.pgmap.degraded_objects // 0) == 0 and (.pgmap.inactive_pgs_ratio // 0) == 0' <<<"$s" >/dev/null ||
    { echo "degraded or inactive:"; jq .pgmap <<<"$s"; touch "$W/bad"; }
  even $((4 + NEW))
}
wait_for 400 filled || { shards; ceph balancer status; exit 1; }
[ ! -e "$W/bad" ]
echo "== never more than $most of 1,000 on their way, then $(shards)"
# 5 %, and one run of four of the 224 shards.
[ "$most" -gt 0 ] && [ "$most" -le 80 ]
pool_clean test 64
pool_clean coded 32
model_ends
for p in test coded; do expect "objects of $p" "$(rados -p $p ls | grep -c benchmark_data)" 800; done
cluster_down
