# Limits of restricted keys at an OSD, and connection modes that both ends enforce.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 2G --osds 1
ceph osd pool create a 8
ceph osd pool create b 8
echo hello >"$W/h"
rados -p a put h "$W/h"
rados -p b put h "$W/h"
[ "$(find "$W/c" -name '*keyring*' -o -name state.redb | xargs stat -c %a | sort -u)" = 600 ] || { echo "keys readable by others"; exit 1; }

key() { ceph auth get-or-create "$@" >"$W/k"; ceph auth get-or-create "$@" -o "$W/$1.keyring"; }
as() { local who=$1; shift; "$@" -n "$who" -k "$W/$who.keyring"; }
refused() { local want=$1; shift; local out; if out=$("$@" 2>&1); then echo "allowed: $*" >&2; return 1; fi; grep -q "$want" <<<"$out" || { echo "$*: $out" >&2; return 1; }; }

key client.r mon 'allow r'
key client.a mon 'allow r' osd 'allow rw pool=a'
key client.net mon 'allow r' osd 'allow rw network 10.99.0.0/16'
key client.ops mon 'allow r' osd 'allow *'
# Commands need allow *, and so does the list of commands, as in Ceph.
for c in "version" "bench" "config show" "config set debug_osd 1" "dump_ops_in_flight"; do
  refused "EACCES" as client.r ceph tell osd.0 $c
  refused "EACCES" as client.a ceph tell osd.0 $c
done
as client.ops ceph tell osd.0 version | grep -q 16.2
# Pools and networks.
as client.a rados -p a put x "$W/h"
refused "not permitted" as client.a rados -p b get h -
refused "not permitted" as client.net rados -p a get h -
refused "not permitted" as client.r rados -p a get h -

# Modes: after the OSD's restart a client must offer an allowed mode.
ceph config set osd ms_service_mode secure
cluster_down
cluster_up
rados -p a get h - | grep -q hello
# A client without an allowed mode hangs at the OSD, as in Ceph; the OSD's log names the option to set.
timeout 5 rados -p a get h - --ms_client_mode=crc && { echo "crc allowed"; exit 1; }
grep -q "ms_service_mode here allows secure" "$W"/c/log/osd.0.log
rados -p a get h - --ms_client_mode=secure | grep -q hello
cluster_down
