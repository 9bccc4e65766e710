# OSDs on hosts over ssh: an sshd of our own on loopback, twice as two hosts. A run ends with a report; a killed run
# leaves neither daemons nor files on the hosts.
source "$(dirname "$0")/../lib.sh"
sshd=$(type -P sshd || ls /usr/sbin/sshd 2>/dev/null) || { echo "== skipped: no sshd (Debian: openssh-server)"; exit 0; }
mkdir -p "$W/ssh" "$W/hosts" /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$W/ssh/host"
ssh-keygen -q -t ed25519 -N '' -f "$W/ssh/user"
cp "$W/ssh/user.pub" "$W/ssh/authorized"
chmod 700 "$W/ssh"; chmod 600 "$W/ssh/authorized"
cat >"$W/ssh/sshd.conf" <<C
Port $((PORT + 690))
ListenAddress 127.0.0.1
HostKey $W/ssh/host
AuthorizedKeysFile $W/ssh/authorized
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
C
"$sshd" -D -e -f "$W/ssh/sshd.conf" 2>"$W/ssh/log" & PIDS+=("$!")
cat >"$W/ssh/client.conf" <<C
Host lab-a lab-b
HostName 127.0.0.1
Port $((PORT + 690))
User $(id -un)
IdentityFile $W/ssh/user
StrictHostKeyChecking accept-new
UserKnownHostsFile $W/ssh/known
BatchMode yes
C
reached() { ssh -F "$W/ssh/client.conf" lab-a true; }
wait_for 20 reached || { cat "$W/ssh/log"; exit 1; }
cat >"$W/plan.toml" <<P
name = "hosts"
repetitions = 1
[cluster]
hosts = "lab-a,lab-b"
ssh = "ssh -F $W/ssh/client.conf"
host_dir = "$W/hosts"
devices = 2
osd_size = "2G"
[pool]
redundancy = 2
pg_num = 8
[[load]]
name = "checked"
job = "randrw"
verify = true
objects = 8
object_size = "64K"
depth = 4
seconds = 3
warm_up = 0
P
port=$((PORT + 700))
belemnite lab run "$W/plan.toml" --name one --dir "$W/lab" --port $port >"$W/one.out" || { cat "$W/one.out"; exit 1; }
grep -q ' 0 failed' "$W/one.out"
/usr/bin/python3 - "$W/lab/one" <<'PY'
import csv, json, sys
r = json.load(open(sys.argv[1] + '/results.json'))['results'][0]
osds = [p for p in r['processes'] if p['name'].startswith('osd')]
assert len(osds) == 4 and all(p['rss_mib'] > 1 for p in osds), osds
assert r['metrics']['osd_us_per_op'] > 0, r['metrics']
print('== four OSDs on two hosts:', round(r['metrics']['iops']), 'operations per second,',
      round(r['metrics']['osd_us_per_op']), 'us of the OSDs for each')
PY
expect "files left on the hosts" "$(ls "$W/hosts")" ""
"$BIN" lab run "$W/plan.toml" --name two --dir "$W/lab" --port $port --set load.seconds=60 >"$W/two.out" 2>&1 & LAB=$!; PIDS+=("$LAB")
up() { grep -q 'is up' "$W/two.out"; }
wait_for 120 up || { cat "$W/two.out"; exit 1; }
kill -KILL $LAB
wait $LAB || true
nothing() { [ -z "$(ls "$W/hosts")" ] && ! pgrep -f "$W/hosts/" >/dev/null; }
wait_for 30 nothing || { ls "$W/hosts"; pgrep -af "$W/hosts/"; exit 1; }
