# Figures of the laboratory against those of fio run by hand with the same arguments, within 5 %, and of our generator
# against fio's, within 10 %, at a rate that neither client nor server is limited by and as fast as they are answered.
# CPU of the OSDs is compared with what the kernel accounts to their processes. SECONDS_EACH is the time of a run (15),
# TURNS the number of turns (3), of which the medians count. Needs a quiet machine, and fio with its rbd engine.
source "$(dirname "$0")/../lib.sh"
: "${SECONDS_EACH:=15}" "${TURNS:=3}"
cluster_up --osds 3 --osd-size 6G
ceph osd pool create lab 32 >/dev/null
ceph osd pool application enable lab rbd >/dev/null
pool_clean lab 32
rbd create --size 512M --image-feature layering lab/lab0
osds() { cat "$W"/c/run/osd.*.pid | paste -sd,; }
fio_line() {
  fio --output-format=json --group_reporting --ioengine=rbd --clientname=admin --pool=lab --rbdname=lab0 --norandommap \
    --randrepeat=0 --bs=4K "$@" --name=hand
}
fio_line --rw=write --bs=4M --iodepth=8 >/dev/null
# cpu PIDS: CPU seconds of processes, as the kernel accounts them.
cpu() { /usr/bin/python3 -c 'import sys,os
t = os.sysconf("SC_CLK_TCK")
print(sum(sum(map(int, open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[11:13])) for p in sys.argv[1].split(",")) / t)' "$1"; }
conf=$W/c/ceph.conf
for job in randread randwrite; do
  for turn in $(seq "$TURNS"); do
    for rate in 0 400; do
      limit=(); [ $rate = 0 ] || limit=(--rate_iops=$rate)
      before=$(cpu "$(osds)")
      fio_line --rw=$job --iodepth=32 --time_based --runtime="$SECONDS_EACH" "${limit[@]}" >"$W/hand.$job.$rate.$turn"
      echo "$before $(cpu "$(osds)")" >"$W/handcpu.$job.$rate.$turn"
      args=(); [ $rate = 0 ] || args=(--rate $rate)
      belemnite -c "$conf" bench lab $job --image lab0 --no-fill --depth 32 --block 4K --secs "$SECONDS_EACH" --warm-up 0 \
        --cpu-of "$(osds)" --format json "${args[@]}" >"$W/ours.$job.$rate.$turn"
    done
  done
done
cat >"$W/plan.toml" <<P
name = "agrees"
repetitions = $TURNS
[cluster]
system = "existing:$conf"
[pool]
redundancy = 3
pg_num = 32
[[load]]
tool = "fio"
target = "image"
job = ["randread", "randwrite"]
depth = 32
image_size = "512M"
rate = [0, 400]
seconds = $SECONDS_EACH
warm_up = 0
P
ceph config set mon mon_allow_pool_delete true
belemnite lab run "$W/plan.toml" --name agrees --dir "$W/lab" --port $((PORT + 700)) >"$W/out" || { cat "$W/out"; exit 1; }
/usr/bin/python3 - "$W" "$TURNS" <<'PY'
import csv, json, statistics, sys
w, turns = sys.argv[1], int(sys.argv[2])
failed = 0
rows = list(csv.DictReader(open(w + '/lab/agrees/results.csv')))
for job in ('randread', 'randwrite'):
    for rate in (0, 400):
        side = 'read' if job == 'randread' else 'write'
        hand, hand_cpu, ours, ours_cpu = [], [], [], []
        for t in range(1, turns + 1):
            text = open(f'{w}/hand.{job}.{rate}.{t}').read()
            j = json.loads(text[text.index('{'):])['jobs'][0][side]
            hand.append(j['total_ios'] / (j['runtime'] / 1e3))
            a, b = map(float, open(f'{w}/handcpu.{job}.{rate}.{t}').read().split())
            hand_cpu.append((b - a) / j['total_ios'] * 1e6)
            o = json.load(open(f'{w}/ours.{job}.{rate}.{t}'))
            ours.append(o['iops'])
            ours_cpu.append(sum(o['cpu_seconds'].values()) / o['ops'] * 1e6)
        lab = [float(r['iops']) for r in rows if r['load.job'] == job and float(r['load.rate']) == rate]
        m = statistics.median
        for what, a, b, most in (('laboratory/fio by hand', m(lab), m(hand), .05), ('generator/fio', m(ours), m(hand), .10)):
            # As fast as they are answered, librbd's own CPU limits fio, and the generator may only be the faster one.
            good = abs(a / b - 1) <= most or (what.startswith('generator') and rate == 0 and a > b)
            failed += not good
            print(f'== {job} rate {rate or "none"}: {what} {a:.0f}/{b:.0f} = {a / b:.3f}{"" if good else "  TOO FAR"}')
        print(f'== {job} rate {rate or "none"}: CPU of the OSDs per operation, fio by hand {m(hand_cpu):.1f} us, generator {m(ours_cpu):.1f} us')
sys.exit(failed)
PY
cluster_down
