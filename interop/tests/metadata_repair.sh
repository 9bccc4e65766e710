# Metadata pages on one OSD's disk are damaged: a repair keeps the readable part, the PGs recover the rest from other
# copies, and clients read what they wrote. With a single copy clients get an error where data is lost, and read the
# rest.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 1G
ceph osd pool create test 8
ceph osd pool create single 8
ceph osd pool set single size 1 --yes-i-really-mean-it
for p in test single; do ceph osd pool application enable $p rados; done
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
wait_for 60 clean
head -c 3000000 /dev/urandom >"$W/big"
head -c 9000 /dev/urandom >"$W/small"
for p in test single; do
  for i in $(seq 12); do
    rados -p $p put "big$i" "$W/big"
    rados -p $p put "small$i" "$W/small"
    rados -p $p setxattr "big$i" colour blue
  done
  rados -p $p mksnap before
  for i in $(seq 4); do rados -p $p put "big$i" "$W/small"; done
done
for i in $(seq 400); do echo "key$i"; head -c 60 "$W/small" | base64 -w0; echo; done >"$W/kv"
/usr/bin/python3 - <<'PY'
import rados
with rados.Rados(conffile="") as r:
    for pool in ("test", "single"):
        io = r.open_ioctx(pool)
        with rados.WriteOpCtx() as op:
            io.set_omap(op, tuple(f"key{i:04}" for i in range(400)), tuple(b"v" * 90 for i in range(400)))
            io.operate_write_op(op, "index")
PY

# rot KIND…: damages every page of these kinds on osd.1's disk, with its older versions. Kinds are those of
# store-format.md, in a page's first byte.
rot() {
  /usr/bin/python3 - "$W/c/osd.1/block" "$@" <<'PY'
import mmap, sys
kinds = {int(k) for k in sys.argv[2:]}
n = 0
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    for at in range(0, len(m), 4096):
        if m[at] in kinds and m[at + 8] == m[at]:
            m[at + 100] ^= 1
            n += 1
print(n, "pages spoiled")
assert n
PY
}
read_all() { # read_all POOL: reads every object of the pool
  for i in $(seq 12); do
    local want=$W/big
    [ "$i" -gt 4 ] || want=$W/small
    rados -p "$1" get "big$i" "$W/back" && cmp "$want" "$W/back"
    rados -p "$1" get "small$i" "$W/back" && cmp "$W/small" "$W/back"
    expect "attribute" "$(rados -p "$1" getxattr "big$i" colour)" blue
    rados -p "$1" -s before get "big$i" "$W/back" && cmp "$W/big" "$W/back"
  done
  expect "keys" "$(rados -p "$1" listomapkeys index | wc -l)" 400
}
read_all test
read_all single
cluster_down

echo "== maps, omaps and counts of references"
rot 3 4 6
if belemnite store fsck "$W/c/osd.1/block" >"$W/said"; then cat "$W/said"; exit 1; fi
if belemnite store repair "$W/c/osd.1/block" >"$W/said" 2>&1; then cat "$W/said"; exit 1; fi
# Incompletely readable objects are listed, and the exit code tells.
code=0; belemnite store repair --metadata "$W/c/osd.1/block" >"$W/said" || code=$?
cat "$W/said"
expect "exit code" $code 1
if grep -q '^lost' "$W/said"; then exit 1; fi
grep -q 'big12' "$W/said"
if belemnite store fsck "$W/c/osd.1/block" >"$W/said"; then exit 1; fi
grep -q 'has lost metadata of its own' "$W/said"
expect "other errors" "$(grep -c 'error:' "$W/said")" "$(grep -c 'has lost metadata of its own' "$W/said")"
cluster_up
wait_for 60 clean
# Partial writes to copies with other parts lost, on primaries and on replicas.
/usr/bin/python3 - "$W/big" <<'PY'
import rados, sys
new = open(sys.argv[1], "rb").read()
with rados.Rados(conffile="") as r:
    io = r.open_ioctx("test")
    for i in range(5, 13):
        io.write(f"big{i}", new[1000001:1000101], 1000001)
        io.write(f"big{i}", new[2000000:2000100], 2000000)
    single = r.open_ioctx("single")
    errors = 0
    for i in range(5, 13):
        try:
            single.write(f"big{i}", new[1000001:1000101], 1000001)
        except rados.Error as e:
            assert "errno 5" in str(e).lower(), e
            errors += 1
    print(errors, "partial writes to objects of one copy were refused")
    assert 0 < errors < 8
PY
read_all test
# Objects with a single copy on that disk give an error and never other data.
ok=0 bad=0
for i in $(seq 12); do
  rados -p single get "small$i" "$W/back" && cmp "$W/small" "$W/back"
  if rados -p single -s before get "big$i" "$W/back" 2>"$W/err"; then cmp "$W/big" "$W/back"; ok=$((ok + 1)); else
    grep -q 'Input/output error' "$W/err"; bad=$((bad + 1)); fi
done
echo "$ok objects of one copy read, $bad are an error"
[ "$ok" -gt 0 ] && [ "$bad" -gt 0 ]
# A write of the whole object repairs it, even if it ends within a block.
[ $(($(stat -c %s "$W/big") % 4096)) -gt 0 ]
for i in $(seq 5 12); do
  rados -p single put "big$i" "$W/big" && rados -p single get "big$i" "$W/back" && cmp "$W/big" "$W/back"
done
ceph config set osd osd_scrub_auto_repair true
for o in 0 1 2; do ceph osd deep-scrub $o; done
mended() {
  rados list-inconsistent-pg test | grep -q '\[\]' && clean && ! ceph health detail | grep -q 'PG_DAMAGED'
}
wait_for 60 mended
read_all test
cluster_down

echo "== logs"
rot 5
code=0; belemnite store repair --metadata "$W/c/osd.1/block" >"$W/said" || code=$?
expect "exit code" $code 1
grep '^lost' "$W/said"
expect "copies lost" "$(grep -c '^lost: all of 1' "$W/said")" 8
cluster_up
recovered() { ceph pg ls-by-pool test -f json | jq -e '[.pg_stats[].state == "active+clean"] | all'; }
wait_for 60 recovered
read_all test
# PGs that lost their only copy are not created again as if they were new.
single() { ceph pg ls-by-pool single -f json | jq -r "[.pg_stats[] | select(.state $1 \"active+clean\")] | length"; }
expect "PGs of one copy that went" "$(single !=)" "$(grep -c '^lost: all of 2' "$W/said")"
[ "$(single ==)" -gt 0 ]
expect "their state" "$(ceph pg ls-by-pool single -f json | jq -r '[.pg_stats[].state] | unique | join(" ")')" "active+clean unknown"
cluster_down
belemnite store fsck --deep "$W/c/osd.1/block"
