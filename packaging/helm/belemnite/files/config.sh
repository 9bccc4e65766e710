# Writes the pod's ceph.conf: the template, and that of monitors if it is named, with the addresses of the monitors and of
# the pod. The lines of /files/monitors are a monitor's id, its Service, and its address if it is not the Service's.
set -eu
mons= sections=
while read -r id service mon; do
  while [ -z "$mon" ]; do
    mon=$(getent ahosts "$service" | sed -n '1s/ .*//p')
    [ -n "$mon" ] || { echo "no address of $service yet" >&2; sleep 1; }
  done
  case $mon in *:*) mon="[$mon]" ;; esac
  mons="$mons${mons:+,}[v2:$mon:3300/0]"
  sections="$sections[mon.$id]
public_addr = [v2:$mon:3300/0]
"
done </files/monitors
{
  sed "s|@FSID@|$(cat /keys/fsid)|; s|@MONS@|$mons|; s|@NODE@|$NODE|; s|@POD@|$POD|; s|@POD_IP@|$POD_IP|" \
    /files/ceph.conf ${1:+"/files/$1"}
  [ $# = 0 ] || printf '%s' "$sections"
} >/etc/ceph/ceph.conf
