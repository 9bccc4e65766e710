# Writes the pod's ceph.conf: the template with the addresses of the monitor and of the pod.
set -eu
mon=$MON_ADDRESS
while [ -z "$mon" ]; do
  mon=$(getent ahosts "$MON_SERVICE" | sed -n '1s/ .*//p')
  [ -n "$mon" ] || { echo "no address of $MON_SERVICE yet" >&2; sleep 1; }
done
case $mon in *:*) mon="[$mon]" ;; esac
sed "s|@FSID@|$(cat /keys/fsid)|; s|@MON@|$mon|; s|@NODE@|$NODE|; s|@POD@|$POD|; s|@POD_IP@|$POD_IP|" \
  /files/ceph.conf >/etc/ceph/ceph.conf
