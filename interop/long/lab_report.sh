# Reports of the laboratory in a headless browser (Debian: chromium), and its tables in pandas (python3-pandas): plots
# are drawn, no request leaves the page. RUNS names directories of runs to look at as well.
source "$(dirname "$0")/../lib.sh"
command -v chromium >/dev/null || { echo "chromium is not installed"; exit 1; }
/usr/bin/python3 -c 'import pandas' || { echo "python3-pandas is not installed"; exit 1; }
cat >"$W/plan.toml" <<'P'
name = "shown"
repetitions = 2
[cluster]
devices = 3
osd_size = "2G"
[pool]
redundancy = 2
pg_num = 8
[[load]]
name = "reads, \"quoted\" & <marked>"
job = "randread"
depth = [1, 8]
objects = 8
object_size = "64K"
seconds = 3
warm_up = 0
[[load]]
name = "archive"
tool = "objects"
job = "archive"
sizes = "archive"
object_size = "3K"
objects = 50
seconds = 3
warm_up = 0
P
belemnite lab run "$W/plan.toml" --name shown --dir "$W/lab" --port $((PORT + 700)) >"$W/out" || { cat "$W/out"; exit 1; }
for run in "$W/lab/shown" ${RUNS:-}; do
  # Every request of the browser is in its log of the network; none is for another page than the report.
  timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$W/browser" --disable-background-networking \
    --disable-component-update --no-first-run --host-resolver-rules='MAP * ~NOTFOUND' --log-net-log="$W/net.json" \
    --window-size=1200,3000 --screenshot="$W/page.png" --dump-dom "file://$run/report.html" >"$W/dom.html" 2>"$W/browser.err" ||
    { tail "$W/browser.err"; exit 1; }
  /usr/bin/python3 - "$run" "$W" <<'PY'
import json, re, struct, sys, zlib
import pandas
run, w = sys.argv[1], sys.argv[2]
dom = open(w + '/dom.html').read()
assert len(re.findall(r'<svg', dom)) >= 3 and re.search('<polyline|<rect', dom), 'no plots'
assert '<marked>' not in dom and ('&lt;marked&gt;' in dom or 'shown' not in run)
# What the page itself asks for: an initiator that is the report. The browser's own requests have none.
net = open(w + '/net.json').read()
asked = set(re.findall(r'"url":"([^"]+)"', net))
foreign = {u for u in asked if u.startswith(('http:', 'https:')) and not re.search(r'google|gvt1|chromium', u)}
assert not foreign, foreign
# The page is drawn: the picture has many colours, not one.
b = open(w + '/page.png', 'rb').read()
assert b[:8] == b'\x89PNG\r\n\x1a\n'
width, height = struct.unpack('>II', b[16:24])
data, at = b'', 8
while at < len(b):
    n, kind = struct.unpack('>I4s', b[at:at + 8])
    if kind == b'IDAT':
        data += b[at + 8:at + 8 + n]
    at += 12 + n
raw = zlib.decompress(data)
assert width >= 800 and len(set(raw)) > 20, (width, height)
rows = pandas.read_csv(run + '/results.csv')
done = json.load(open(run + '/results.json'))['results']
assert len(rows) == len(done) > 0 and rows['iops'].min() > 0 and rows['load'].notna().all()
means = rows.groupby(['system', 'load'])['iops'].median()
seconds = pandas.read_csv(run + '/series.csv')
assert set(seconds['id']) <= set(rows['id'])
first = rows['first_byte_p50_us'].dropna()
print(f'== {run.rsplit("/", 1)[1]}: {len(rows)} rows, {len(means)} medians, {len(seconds)} seconds, '
      f'{dom.count("<svg")} plots, {len(first)} with first bytes, no foreign request')
PY
done
