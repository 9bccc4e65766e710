# Writes the configuration of a member of etcd. A member without data founds a new etcd with the others, soon after the
# certificates were made. Later it has lost its data, and with it what it has voted for: then the others take it off their
# list and add it again.
set -eu
url() { echo "https://$1.$SERVICE.$NAMESPACE.svc:$2"; }
# ask MEMBER WHAT JSON: of the list of members, by the HTTP interface of a member. The answer has the list.
ask() {
  curl -sS -m 10 --cacert /tls/ca.crt --cert /tls/etcd.crt --key /tls/etcd.key --data "$3" \
    "$(url "$1" 2379)/v3/cluster/member/$2" >/tmp/answer && grep -q '"members":' /tmp/answer
}
# entry MEMBER: its line of the list.
entry() { tr '{' '\n' </tmp/answer | grep -F "\"$(url "$1" 2380)\""; }
# The list as the option of etcd has it.
listed() {
  tr '{' '\n' </tmp/answer | sed -n 's|.*"peerURLs":\["https://\([^.]*\)\.\([^"]*\)".*|\1=https://\1.\2|p' | sort -u | paste -sd, -
}
# rejoin MEMBER: by that one. Members join in their order, because one that starts must know the whole list.
rejoin() {
  for k in $members; do
    [ "$k" != "$POD" ] || break
    entry "$k" | grep -q '"clientURLs":' || { echo "waits until $k has started" >&2; return 1; }
  done
  own=$(entry "$POD" | sed -n 's/.*"ID":"\([0-9]*\)".*/\1/p')
  [ -z "$own" ] || ask "$1" remove "{\"ID\": \"$own\"}" || return 1
  ask "$1" add "{\"peerURLs\": [\"$(url "$POD" 2380)\"]}" && ask "$1" list '{}'
}
members='' founders='' k=0
while [ $k -lt "$MEMBERS" ]; do
  m=$SERVICE-$k k=$((k + 1))
  members="$members $m" founders="$founders${founders:+,}$m=$(url "$m" 2380)"
done
state='' cluster=$founders
if [ -d /var/lib/etcd/data/member ]; then state=existing; fi
while [ -z "$state" ]; do
  found=
  for m in $members; do
    [ "$m" != "$POD" ] && ask "$m" list '{}' 2>/dev/null || continue
    found=$m
    if rejoin "$m"; then state=existing cluster=$(listed); fi
    break
  done
  [ -z "$state" ] || break
  if [ -n "$found" ]; then
    echo "$found does not let $POD join yet: $(cat /tmp/answer)" >&2
  elif age=$(($(date +%s) - $(cat /tls/made))) && [ "$age" -ge 0 ] && [ "$age" -lt 3600 ]; then
    state=new
    break
  else
    echo "$POD has no data, and no member answers that could take it in. If etcd never ran, delete the Secret $SERVICE" \
      "and run helm upgrade" >&2
  fi
  sleep 2
done
case $POD_IP in *:*) at="[$POD_IP]" ;; *) at=$POD_IP ;; esac
cat >/etc/etcd/etcd.yaml <<END
name: $POD
data-dir: /var/lib/etcd/data
listen-client-urls: https://$at:2379
advertise-client-urls: $(url "$POD" 2379)
listen-peer-urls: https://$at:2380
initial-advertise-peer-urls: $(url "$POD" 2380)
listen-metrics-urls: http://$at:2381
initial-cluster: $cluster
initial-cluster-state: $state
initial-cluster-token: $SERVICE.$NAMESPACE
enable-grpc-gateway: true
pre-vote: true
auto-compaction-mode: periodic
auto-compaction-retention: 10m
quota-backend-bytes: 4294967296
client-transport-security: { client-cert-auth: true, trusted-ca-file: /tls/ca.crt, cert-file: /tls/etcd.crt, key-file: /tls/etcd.key }
peer-transport-security: { client-cert-auth: true, trusted-ca-file: /tls/peer-ca.crt, cert-file: /tls/peer.crt, key-file: /tls/peer.key }
END
