# What an operator looks at without Ceph's packages: doctor, views, and a support bundle that has no secret.
source "$(dirname "$0")/../lib.sh"

cluster_up --osds 3 --osd-size 2G
belemnite pool create p 8 >/dev/null
ceph osd pool application enable p rados >/dev/null
head -c 8388608 /dev/urandom >"$W/data"
belemnite put p o "$W/data"
belemnite get p o - | cmp - "$W/data"
expect "objects as JSON" "$(belemnite ls p --format json)" '["o"]'
expect "pools as JSON" "$(belemnite pool ls --format json)" '["p"]'

# status COMMAND…: the exit status.
status() { local s=0; "$@" >"$W/out" 2>&1 || s=$?; echo $s; }
healthy() { [ "$(status belemnite health)" = 0 ]; }
wait_for 30 healthy
ceph osd set noout >/dev/null
expect "status with a warning" "$(status belemnite health)" 4
grep -q OSDMAP_FLAGS "$W/out"
ceph osd unset noout >/dev/null
expect "OSDs up" "$(belemnite osd status --format json | jq '[.[] | select(.status == "up" and .host != "")] | length')" 3
clean() { belemnite pg status | grep -q 'active+clean'; }
wait_for 20 clean
belemnite df | grep -q '^p '
belemnite top --count 2 --every 0.2 | grep -c '^clients: read' | grep -qx 2

# Doctor: each check has a finding.
s=$(status belemnite doctor --json)
[ "$s" = 0 ] || [ "$s" = 4 ]
jq -e '.hosts[0].findings | map(.check) | unique | length >= 15' "$W/out" >/dev/null

# Drift: the manager's second look tells that an OSD has become unable to open many files; a restart mends it.
ceph config set mgr mgr/doctor/interval 5
known() { ceph config-key ls | grep -q "mgr/doctor/hosts/$(uname -n)"; }
wait_for 30 known
expect "drift at first" "$(ceph health -f json | jq '.checks.HOST_DRIFT')" null
prlimit --pid "$(cat "$W/c/run/osd.0.pid")" --nofile=4096:4096
drifted() { ceph health detail | grep -q 'descriptors: warning since .*, was fine: at most 4096 open files'; }
wait_for 60 drifted
belemnite restart osd.0 >/dev/null
mended() { ! drifted; }
wait_for 60 mended
ceph config set mgr mgr/doctor/interval 0

# The bundle has no key of the cluster, no value of the config-key store, no secret option.
ceph config-key set mgr/some/password 'hunter22 "and-more"' >/dev/null
ceph config-key set plain "$(printf 'a-secret-line\nanother-line')" >/dev/null
ceph config set mgr mgr/prometheus/server_addr 127.0.0.1
ceph auth get-or-create client.stranger mon 'allow r' >/dev/null
for o in 0 1 2; do echo "a stray line with $(ceph auth get-key osd.$o)" >>"$W/c/log/osd.$o.log"; done
belemnite report -o "$W/bundle.tar.gz" >/dev/null
expect "status of a second one" "$(status belemnite report -o "$W/bundle.tar.gz")" 1
expect "mode" "$(stat -c %a "$W/bundle.tar.gz")" 600
mkdir "$W/bundle" && tar -xzf "$W/bundle.tar.gz" -C "$W/bundle" --strip-components 1
for f in cluster/status.json cluster/osd_dump.json cluster/rights.json cluster/health.txt logs/osd.0.log logs/mon.a.log \
  daemons/osd.1/perf_dump.json host/doctor.json ceph.conf version.txt missing.txt; do
  [ -s "$W/bundle/$f" ] || { echo "no $f in the bundle"; cat "$W/bundle/missing.txt"; exit 1; }
done
ceph auth ls -f json | jq -r '.auth_dump[].key' >"$W/secrets"
grep -rhoP '^\s*key = \K\S+' "$W/c" --include='*keyring' >>"$W/secrets"
printf '%s\n' hunter22 and-more a-secret-line another-line >>"$W/secrets"
[ "$(wc -l <"$W/secrets")" -ge 10 ]
if grep -rlFf "$W/secrets" "$W/bundle"; then echo "the bundle has a secret"; exit 1; fi
grep -q '(removed)' "$W/bundle/logs/osd.0.log"

# It is made without a cluster, too.
belemnite stop >/dev/null
belemnite report --data "$W/c" -o "$W/dead.tar.gz" >/dev/null
tar -xzOf "$W/dead.tar.gz" --wildcards '*/missing.txt' | grep -q '^cluster: no monitor listens'
