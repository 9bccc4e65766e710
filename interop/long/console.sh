# The console in a headless Chromium: signs in, changes something, signs out; rights, certificate, hostile requests.
# PICTURE=FILE keeps the picture of the page.
source "$(dirname "$0")/../lib.sh"

cluster_up --osds 3 --osd-size 2G
belemnite pool create load 8 >/dev/null
ceph config set mgr mgr/dashboard/ssl_server_port $((PORT + 500))
ceph mgr module enable dashboard
served() { ceph mgr services | jq -er .dashboard; }
wait_for 10 served
URL=$(served)
[[ $URL = https://* ]]
ceph config-key get mgr/dashboard/crt | openssl x509 -noout -text | grep -q 'TLS Web Server Authentication'
ceph config-key get mgr/dashboard/crt >"$W/crt"
# The certificate is that of the store, and of this address.
get() { curl -s --cacert "$W/crt" -o "$W/body" -w '%{http_code}' "$@"; }
expect "the page" "$(get "$URL")" 200
expect "without a session" "$(get "${URL}api/overview")" 401
curl -sD - -o /dev/null --cacert "$W/crt" "$URL" | grep -qi "^content-security-policy: default-src 'none'"

# Signing in by hand: other origins are refused, keys are checked, rights are those of the key.
origin=${URL%/}
post() { # post PATH JSON [curl options]
  local path=$1 body=$2; shift 2
  get -X POST -H 'Content-Type: application/json' -d "$body" -b "$W/jar" -c "$W/jar" "$@" "${URL}api/$path"
}
ceph auth get-or-create client.reader mon 'allow r' mgr 'allow r' >/dev/null
key=$(ceph auth get-key client.reader)
expect "another origin" "$(post sign-in "{\"user\":\"reader\",\"key\":\"$key\"}" -H 'Origin: https://evil')" 403
expect "another's key" "$(post sign-in "{\"user\":\"admin\",\"key\":\"$key\"}" -H "Origin: $origin")" 401
expect "sign in" "$(post sign-in "{\"user\":\"reader\",\"key\":\"$key\"}" -H "Origin: $origin")" 200
token=$(jq -r .token "$W/body")
out='{"change":"osd-out","values":{"osd":"1"}}'
expect "without the token" "$(post apply "$out" -H "Origin: $origin")" 401
expect "a change" "$(post apply "$out" -H "Origin: $origin" -H "X-Console-Token: $token")" 200
jq -e '.done == false and (.text | test("EACCES"))' "$W/body" >/dev/null
ceph osd dump -f json | jq -e '[.osds[].in] | add == 3' >/dev/null
expect "a preview" "$(post preview "$out" -H "Origin: $origin" -H "X-Console-Token: $token")" 200
jq -e '.command == "ceph osd out 1" and (.effect | length > 1)' "$W/body" >/dev/null
# A key that is taken away ends what its session may do.
ceph auth rm client.reader >/dev/null
gone() { [ "$(get -b "$W/jar" "${URL}api/history")" != 200 ]; }
wait_for 40 gone

# Clicks, with load for the charts.
belemnite bench load randwrite --secs 60 --objects 16 >/dev/null 2>&1 & PIDS+=($!)
DRIVER=$((PORT + 501))
chromedriver --port=$DRIVER --log-path="$W/driver.log" >/dev/null 2>&1 & PIDS+=($!)
ready() { curl -sf "http://127.0.0.1:$DRIVER/status"; }
wait_for 20 ready
python3 "$ROOT/interop/py/console_clicks.py" $DRIVER "$URL" admin "$(ceph auth get-key client.admin)" "$W/console.png" 30
expect "the pool" "$(ceph osd pool get clicked pg_num | cut -d' ' -f2)" 8
[ -z "${PICTURE:-}" ] || cp "$W/console.png" "$PICTURE"

# Another certificate, and the end of the module.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout "$W/k" -out "$W/c2" 2>/dev/null
ceph dashboard set-ssl-certificate -i "$W/c2" >/dev/null
ceph dashboard set-ssl-certificate-key -i "$W/k" >/dev/null
other() { openssl s_client -connect "${URL#https://}" </dev/null 2>/dev/null | openssl x509 -noout -subject | grep -q other; }
URL=${URL%/}
wait_for 10 other
ceph mgr module disable dashboard
closed() { ! curl -sk "$URL"; }
wait_for 10 closed
