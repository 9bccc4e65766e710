# Prints the answers of `ceph auth …` and `ceph-authtool` to a fixed list of requests, with keys and stamps masked: the
# same on every cluster that answers as Ceph does. usage: auth_transcript.sh DIR [newer]; CEPH_CONF names the cluster;
# DIR is empty; `ceph` and `ceph-authtool` may be functions of the caller. With `newer` also the requests of 18.2 and
# later. The answers of a real cluster are in vectors/cli/auth-16.2.15.txt.
T=$1
mask() { sed -E 's#[A-Za-z0-9+/]{38}==#KEY#g; s#(key(=|": ?"| = |>)|^)[A-Za-z0-9+/]{38,62}={0,2}("|<|$|\)| )#\1KEY\3#g; s#key=[A-Za-z0-9+/=]{40,64}#key=KEY#g; s#[0-9-]{10}T[0-9:.+-]+#STAMP#g; s#'"$T"'#DIR#g'; }
run() {
  echo "\$ $*" | mask
  local status=0
  "$@" >"$T/stdout" 2>"$T/stderr" </dev/null || status=$?
  mask <"$T/stdout"; [ ! -s "$T/stdout" ] || [ -z "$(tail -c 1 "$T/stdout")" ] || echo
  mask <"$T/stderr" | sed 's/^/! /'
  echo "-> $status"
}
a() { run ceph auth "$@"; }
K=AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==
ring() { printf '[%s]\n\tkey = %s\n' "$1" "$K"; shift; for c; do printf '\tcaps %s\n' "$c"; done; }

a add client.t1 mon 'allow r'
a add client.t1 mon 'allow r'
a add client.t1 mon 'allow rw'
a get-or-create client.t2 mon 'allow r' osd 'allow rw pool=x'
a get-or-create client.t2 mon 'allow r' osd 'allow rw pool=x'
a get-or-create client.t2 mon 'allow r'
a get-or-create client.t2
a get-or-create-key client.t2
a get-or-create-key client.t3 mon 'allow r' mgr 'allow r' mds 'allow rw path=/a, allow r fsname=b' osd 'allow class-read object_prefix p'
for f in plain json json-pretty xml; do
  a get client.t3 -f $f
  a get-key client.t3 -f $f
  a get-or-create client.t3 -f $f
  a get-or-create client.t4$f mon 'profile rbd' -f $f
done
for c in get get-key print-key print_key rm del export rotate; do [ "$c" = rotate ] || a $c client.nosuch; done
a caps client.nosuch mon 'allow r'
a caps client.t1
a caps client.t1 mon 'allow rw' osd 'allow *'
a get client.t1
a caps client.t1 mon 'allow bogus'
for s in mon mgr osd mds; do a get-or-create client.bad $s 'allow bogus'; a get-or-create client.bad $s 'profile bogus'; done
a get-or-create client.bad nosuch 'allow r'
a get-or-create client.bad mon
a get-or-create badname mon 'allow r'
a get-or-create foo.bar mon 'allow r'
a get-or-create mon.x mon 'allow *'
a print-key client.t1
a print_key client.t1
a export client.t1
a export client.t1 -o "$T/t1.keyring"
run cat "$T/t1.keyring"
ring client.t5 'mon = "allow r"' >"$T/t5.keyring"
a import -i "$T/t5.keyring"
a get client.t5
a add client.t6 -i "$T/t5.keyring"
a add client.t5 -i "$T/t5.keyring"
ring client.t5 'mon = "allow rw"' >"$T/t5.keyring"
a add client.t5 -i "$T/t5.keyring"
a import -i "$T/t5.keyring"
a get client.t5
a add client.t7 osd 'allow r' -i "$T/t5.keyring"
echo garbage >"$T/garbage"
a import -i "$T/garbage"
a import -i "$T/nosuch"
a import
a get client.t5 -o "$T/out.keyring"
run cat "$T/out.keyring"
echo '$ auth ls'
ceph auth ls -f json | jq -c '.auth_dump[] | select(.entity | test("^client.t[0-9]"))' | mask
ceph auth ls 2>/dev/null | awk '/^[^\t]/ {show = /^client\.t[0-9]/} show' | mask
a rm client.t1
a rm client.t1
a del client.t2
a bogus
a get
if [ "${2:-}" = newer ]; then
  a get-or-create-pending client.nosuch
  a get-or-create-pending client.t5
  a get-or-create-pending client.t5 -f json
  a get client.t5
  a get client.t5 -f json
  a clear-pending client.t5
  a clear-pending client.t5
  a commit-pending client.t5
  a get-or-create-pending client.t5
  a commit-pending client.t5
  a get client.t5
  a rotate client.nosuch
  a rotate client.t5
  a rotate client.t5 -f json
  a get client.t5
fi

t() { run ceph-authtool "$@"; }
t --create-keyring "$T/k" --gen-key -n client.u1 --cap mon 'allow r' --cap osd 'allow rw pool=x'
t -l "$T/k"
t -p -n client.u1 "$T/k"
t -p -n client.nosuch "$T/k"
t "$T/k" -n client.u2 --add-key $K --caps /dev/null
t "$T/k" --import-keyring "$T/t5.keyring"
t -l "$T/k"
run cat "$T/k"
a import -i "$T/k"
a get client.u1
a export client.u1 -o "$T/k2"
t -l "$T/k2"
t -l "$T/nosuch"
