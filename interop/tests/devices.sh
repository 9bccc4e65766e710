# Devices as Ceph's tools see them: life expectancy, alerts, OSDs that leave failing drives, and health data from a
# stand-in for smartctl. Health data needs a drive with a serial number below the file system of the test.
source "$(dirname "$0")/../lib.sh"
mkdir "$W/bin"
cat >"$W/bin/smartctl" <<'SH'
#!/bin/sh
cat "$(dirname "$0")/answer"
exit "$(cat "$(dirname "$0")/status")"
SH
chmod +x "$W/bin/smartctl"
echo '{"smart_status": {"passed": true}, "nvme_smart_health_information_log": {"percentage_used": 7}}' >"$W/bin/answer"
echo 0 >"$W/bin/status"
PATH=$W/bin:$PATH cluster_up --osds 4 --osd-size 1G
soon() { date -u -d "+$1 days" +%Y-%m-%d; }

# A drive that nobody uses has a life expectancy, too.
ceph device set-life-expectancy SPARE "$(soon 10)" "$(soon 20)"
ceph device ls | grep -q '^SPARE.* to '
expect "a spare" "$(ceph device info SPARE -f json | jq -r .life_expectancy_min)" "$(soon 10)T00:00:00.000000+0000"
if ceph device set-life-expectancy SPARE soon 2>"$W/err"; then echo "'soon' is no date"; exit 1; fi
grep -q "unable to parse datetime 'soon'" "$W/err"
if ceph device predict-life-expectancy SPARE 2>"$W/err"; then exit 1; fi
grep -q 'unable to enable any disk prediction model' "$W/err"
if ceph device scrape-health-metrics SPARE 2>"$W/err"; then exit 1; fi
grep -q 'not claimed by any active daemons' "$W/err"
expect "samples of a spare" "$(ceph device get-health-metrics SPARE)" '{}'
ceph device rm-life-expectancy SPARE
if ceph device info SPARE 2>"$W/err"; then exit 1; fi

# The manager asks for the first samples by itself, and for the next ones a day later.
scraped() { ceph config-key get mgr/devicehealth/last_scrape; }
wait_for 60 scraped
expect "a scrape of this day" "$(scraped | cut -c 1-4)" "$(date -u +%Y)"
if ceph tell osd.0 light NONE on ident 2>"$W/err"; then exit 1; fi
grep -q 'device NONE not found' "$W/err"
if ceph device light on NONE 2>"$W/err"; then exit 1; fi
grep -q 'device NONE not found' "$W/err"
expect "lights" "$(ceph device ls-lights | jq -c .)" '{"fault":[],"ident":[]}'
dev=$(ceph device ls -f json | jq -r '[.[] | select(.daemons | any(startswith("osd.")))][0].devid // ""')
if [ -z "$dev" ]; then
  echo "== no drive with a serial number below $W: no health data"
else
  ceph tell osd.0 smart | jq -e --arg d "$dev" '.[$d].smart_status.passed' >/dev/null
  ceph device query-daemon-health-metrics osd.1 | jq -e --arg d "$dev" '.[$d].smart_status.passed' >/dev/null
  ceph device get-health-metrics "$dev" | jq -e '[.[].smart_status.passed] == [true]' >/dev/null
  at=$(ceph device get-health-metrics "$dev" | jq -r 'keys[0]')
  expect "one sample" "$(ceph device get-health-metrics "$dev" "$at" | jq length)" 1
  expect "wear" "$(ceph device info "$dev" -f json | jq .wear_level)" 0.07
  # Lights: without a program, and with a stand-in.
  if ceph device light on "$dev" 2>"$W/err"; then exit 1; fi
  grep -q 'neither lsmcli (libstoragemgmt) nor ledctl (ledmon)' "$W/err"
  printf '#!/bin/sh\necho "$*" >>%s/led.log\n' "$W" >"$W/bin/ledctl"
  chmod +x "$W/bin/ledctl"
  ceph device light on "$dev" fault
  grep -q '^failure=/dev/' "$W/led.log"
  ceph device ls-lights | jq -e --arg d "$dev" '.fault == [$d] and .ident == []' >/dev/null
  ceph health detail | grep -q 'DEVICE_FAULT_ON: 1 devices have fault light turned on'
  ceph device light off "$dev" fault
  ceph device ls-lights | jq -e '.fault == []' >/dev/null
  # A failing drive: its status is not 0, and what is said of it is kept.
  echo '{"smart_status": {"passed": false}}' >"$W/bin/answer"; echo 8 >"$W/bin/status"
  second() { [ "$(date -u +%Y%m%d-%H%M%S)" != "$at" ]; }
  wait_for 3 second
  ceph device scrape-daemon-health-metrics osd.0
  expect "samples" "$(ceph device get-health-metrics "$dev" | jq -c '[.[].smart_status.passed]')" '[true,false]'
  # Nothing that can be read is told, and no sample.
  echo 'Permission denied' >"$W/bin/answer"; echo 2 >"$W/bin/status"
  ceph tell osd.0 smart | jq -e --arg d "$dev" '.[$d].error == "smartctl failed"' >/dev/null
  if ceph device scrape-health-metrics "$dev" 2>"$W/err"; then exit 1; fi
  grep -q 'no health data was read' "$W/err"
  # All OSDs are on that drive: it raises alarms, and as many leave it as may.
  ceph config set mgr mgr/devicehealth/sleep_interval 100000
  ceph device set-life-expectancy "$dev" "$(soon 2)" "$(soon 50)"
  ceph health detail | grep -q 'DEVICE_HEALTH: 1 device(s) expected to fail soon'
  expect "OSDs in" "$(ceph osd stat -f json | jq .num_in_osds)" 4
  ceph device set-life-expectancy "$dev" "$(soon 2)" "$(soon 5)"
  ceph device check-health
  expect "OSDs in" "$(ceph osd stat -f json | jq .num_in_osds)" 3
  ceph health detail | grep -q 'DEVICE_HEALTH_TOOMANY'
  ceph device monitoring off
  if ceph health detail | grep -q DEVICE_HEALTH; then echo "an alert of what is not judged"; exit 1; fi
fi
cluster_down
