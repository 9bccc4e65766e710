# Before the first monitor starts: its state is made, or moves from its file to etcd. With `file` the state is in a file.
# /var/lib/ceph/mon/ceph-a/in-etcd tells that the state is in etcd for ever: another one would be another cluster. A key in
# etcd tells the same, also if the volume is lost or an old one is restored.
set -eu
umask 077
d=/var/lib/ceph/mon/ceph-a
make() { belemnite mon -i a --mkfs 2>/tmp/why || { cat /tmp/why >&2; grep -q "holds a cluster already" /tmp/why; }; }
if [ "$1" = file ]; then
  if [ -e $d/in-etcd ]; then
    echo "the monitors' state is in etcd: monitor.replicas cannot become 1 again" >&2
    exit 1
  fi
  make
  exit
fi
etcd() { curl -sS -m 10 --cacert /tls/ca.crt --cert /tls/mon.crt --key /tls/mon.key "$@"; }
if [ ! -e $d/in-etcd ]; then
  mkdir -p $d
  urls=$(sed -n 's/^mon_state_etcd = //p' /etc/ceph/ceph.conf | tr , ' ')
  key='"key": "YmVsZW1uaXRlLXN0YXRl"' # belemnite-state
  # The answer of a member about the key. No answer is not the answer that there is none.
  asked() {
    for url in $urls; do
      if etcd --fail --data "{$key}" "$url/v3/kv/range" >/tmp/found; then return; fi
    done
    return 1
  }
  marked() { grep -q '"count":' /tmp/found; }
  # Without the key, all members must be there: the state is written once.
  healthy() {
    for url in $urls; do
      etcd "$url/health" | grep -q '"health":"true"' || { echo "$url is not healthy yet" >&2; return 1; }
    done
  }
  until asked && { marked || healthy; }; do sleep 1; done
  if marked; then
    echo "etcd has the state already"
  elif [ -e $d/state.redb ]; then
    grep -v '^mon_state_etcd' /etc/ceph/ceph.conf >/tmp/file.conf
    rm -f /tmp/state /tmp/have
    belemnite --conf /tmp/file.conf state export -i a /tmp/state
    into() { belemnite state import -i a /tmp/state >/tmp/why 2>&1; }
    if ! into; then
      grep -q "holds a cluster already" /tmp/why || { cat /tmp/why >&2; exit 1; }
      # An earlier try has left it. Until the key is written, the file is what the cluster goes on with.
      belemnite state export -i a /tmp/have
      if ! cmp -s /tmp/state /tmp/have; then
        cp /tmp/have $d/replaced.state
        all='{"key": "YmVsZW1uaXRlLw==", "range_end": "YmVsZW1uaXRlMA=="}'   # belemnite/ to belemnite0
        etcd --fail --data "$all" "$url/v3/kv/deleterange" >/dev/null
        into || { cat /tmp/why >&2; exit 1; }
      fi
    fi
  else
    make
  fi
  etcd --fail --data "{$key, \"value\": \"\"}" "$url/v3/kv/put" >/dev/null
  : >$d/in-etcd
  sync $d/in-etcd $d
fi
if [ -e $d/state.redb ]; then mv $d/state.redb $d/state.redb.moved; fi
