# The kernel client of CephFS: Debian's kernel in QEMU mounts a file system with ms_mode=prefer-crc, secure and
# prefer-secure at once. It unpacks and builds a program, each mount sees the other's changes, snapshots show the former
# contents, and everything fsync'ed is there after the active MDS was killed twice and an OSD once. Then two mounts are
# evicted: one gets errors from then on, one recovers (recover_session=clean), and the third goes on undisturbed.
# MSGR1=yes: without ms_mode in place of prefer-crc, so by msgr1 beside mounts by msgr2.
#
# Needs what guest.sh needs, ceph-mds, libc6-dev, and the package tcc, which is only unpacked. The program is Lua, in
# the sources of the crate lua-src that cargo has fetched for the build (LUA names another directory of .c files).
source "$(dirname "$0")/../lib.sh"
source "$(dirname "$0")/../guest.sh"
# With AES-GCM for ms_mode=secure.
guest_root ceph aes_generic ctr ghash_generic gcm
guest_copy flock
LUA=${LUA:-$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/lua-src-*/lua-5.4* | tail -n 1)}
command -v tcc >/dev/null || (
  cd "$W" && apt-get download -o APT::Sandbox::User=root tcc >/dev/null && dpkg-deb -x tcc_*.deb "$G"
)
[ -x "$G/usr/bin/tcc" ] || { guest_copy tcc; mkdir -p "$G/usr/bin" "$G/usr/lib/x86_64-linux-gnu"; cp "$(command -v tcc)" "$G/usr/bin/"; cp -r /usr/lib/x86_64-linux-gnu/tcc "$G/usr/lib/x86_64-linux-gnu/"; }
mkdir -p "$G/lib64" "$G/lib/x86_64-linux-gnu" "$G/usr/lib/x86_64-linux-gnu"
(cd / && cp -rL --parents usr/include/*.h usr/include/linux usr/include/asm-generic usr/include/x86_64-linux-gnu/{asm,bits,gnu,sys} "$G")
(cd / && cp -L --parents lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/{libc,libm,libdl,libpthread}.so.? lib/x86_64-linux-gnu/libmvec.so.1 \
  usr/lib/x86_64-linux-gnu/{crt1.o,crti.o,crtn.o,libc.so,libm.so,libc_nonshared.a,ld-linux-x86-64.so.2} "$G" 2>/dev/null) || true
mkdir "$W/src"
cp "$LUA"/*.[ch] "$W/src/"
cat >"$W/src/main.c" <<'C'
#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"
int main(int n, char **v) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  return luaL_dostring(L, v[1]);
}
C
tar -C "$W" -czf "$G/src.tar.gz" src

cat >"$G/job" <<'I'
mkdir -p /one /two /three /four
on() {
  local at=$MON
  [ "${3%%,*}" != "$MODE" ] || at=$AT
  mount -t ceph "$at:$1" "$2" -o "name=admin,secret=$KEY,noshare,$3" || fail "mount $2 $3"
}
on / /one $MODE
mkdir -p /one/cut/off /one/cut/back
on / /two ms_mode=secure
on /cut/off /three ms_mode=prefer-secure

# Written here, seen there; holes, truncation, hard and symbolic links, attributes of files.
dd if=/dev/urandom of=/one/big bs=1M count=24 conv=fsync 2>/dev/null || fail write
[ "$(md5sum </one/big)" = "$(md5sum </two/big)" ] || fail "big differs"
sum=$(md5sum </one/big)
echo end | dd of=/one/hole bs=1M seek=9 2>/dev/null && sync
[ "$(stat -c %s /two/hole)" = 9437188 ] && [ "$(tail -c 4 /two/hole)" = end ] || fail "hole differs"
truncate -s 5 /two/hole; [ "$(stat -c %s /one/hole)" = 5 ] || fail "truncated elsewhere"
ln /one/hole /one/hard; ln -s hole /one/soft; chmod 640 /one/hard; touch -d '2020-02-03 04:05:06' /one/hard
[ "$(stat -c %h,%a,%Y /two/hole)" = "2,640,$(stat -c %Y /one/hard)" ] && [ "$(readlink /two/soft)" = hole ] || fail links
echo a >>/one/shared; echo b >>/two/shared; echo c >>/one/shared
# Linux 6.1 reads bytes twice where a file has grown since it last heard of its size, so it hears first.
stat /two/shared >/dev/null
[ "$(cat /two/shared)" = "$(printf 'a\nb\nc')" ] || fail "appends: $(cat /two/shared)"
exec 8>/one/lock; /e2/flock 8 || fail lock
/e2/flock -n /two/lock true && fail "a lock was given twice"
exec 8>&-; /e2/flock /two/lock true || fail "the lock is still taken"
mkdir /one/many; i=0; while [ $i -lt 1000 ]; do : >/one/many/f$i; i=$((i + 1)); done
[ "$(ls /two/many | wc -l)" = 1000 ] || fail "entries"
mv /one/many /one/moved; rm -r /two/moved; [ ! -e /one/moved ] || fail "removed elsewhere"

# A program: unpacked and built in one mount, run in the other.
tar -C /one -xzf /src.tar.gz || fail unpack
(cd /one/src && for f in *.c; do /usr/bin/tcc -c $f || exit 1; done && /usr/bin/tcc -o lua *.o -lm) || fail build
[ "$(/two/src/lua 'print(6 * 7)')" = 42 ] || fail "the program"
echo "built $(ls /one/src/*.o | wc -l) files"

# A snapshot.
mkdir /one/src/.snap/s || fail snapshot
echo new >/one/src/main.c; rm /one/src/l*.c
grep -q luaL_newstate /two/src/.snap/s/main.c && [ -e /one/src/.snap/s/lapi.c ] && [ ! -e /two/src/lapi.c ] || fail "the snapshot"
(cd /one/src/.snap/s && for f in l*.c; do echo "$f $(md5sum <$f)"; done) >/tmp/of_snapshot
tar -xzf /src.tar.gz -C /tmp
(cd /tmp/src && for f in l*.c; do echo "$f $(md5sum <$f)"; done) | cmp - /tmp/of_snapshot || fail "files of the snapshot"
rmdir /one/src/.snap/s || fail "removal of the snapshot"

# Each file is fsync'ed while the active MDS is killed, and an OSD.
mkdir /one/load
load() { dd if=/dev/urandom of=/one/load/$1 bs=64K count=2 conv=fsync 2>/dev/null || fail "load $1"; echo "$1 $(md5sum </one/load/$1)" >>/tmp/synced; }
(i=0; while [ ! -e /tmp/enough ]; do load f$i; mv /one/load/f$i /one/load/g$i; i=$((i + 1)); done; : >/tmp/loaded) &
ask KILL-MDS
ask KILL-OSD
ask KILL-MDS-AGAIN
: >/tmp/enough; while [ ! -e /tmp/loaded ]; do sleep 0.2; done
sync
while read -r f s; do [ "$(md5sum </two/load/g${f#f})" = "$s" ] || fail "$f is lost or differs"; done </tmp/synced
echo "synced during takeovers: $(wc -l </tmp/synced)"
[ "$(md5sum </one/big)" = "$sum" ] || fail "big differs after the takeovers"

# Evicted while it has unwritten data: errors from then on.
echo kept >/three/kept; sync
exec 7>/three/open; echo held >&7
ask EVICT
i=0; while (echo more >&7 && sync && ls /three && echo x >/three/later) >/dev/null 2>&1; do
  i=$((i + 1)); [ $i -lt 60 ] || fail "an evicted client works on"; sleep 0.5
done
echo "evicted: $(ls /three 2>&1 | head -n 1)"
exec 7>&-
[ "$(cat /one/cut/off/kept)" = kept ] && echo other >/one/cut/off/other && [ "$(cat /two/cut/off/other)" = other ] || fail "the others"
# The evicted mount stays: Linux 6.1 may stop with "busy inodes" when it is unmounted with data that it could not write.
on /cut/off /four ms_mode=crc
[ "$(cat /four/other)" = other ] && echo again >/four/again && sync || fail "a new mount after the eviction"
umount /four
# The same with a mount that recovers by itself.
on /cut/back /four $MODE,recover_session=clean
echo kept >/four/kept; sync
ask EVICT-AGAIN
i=0; until (cat /four/kept && echo again >/four/again && cat /one/cut/back/again) >/dev/null 2>&1; do
  i=$((i + 1)); [ $i -lt 120 ] || fail "a client that was to recover did not"; sleep 0.5
done
echo recovered
umount /four || fail umount; umount /two || fail umount; umount /one || fail umount
on / /one ms_mode=secure
[ "$(md5sum </one/big)" = "$sum" ] && rm -r /one/load /one/src /one/cut || fail "mounted again"
umount /one || fail "the last umount"
I

guest_network
cluster_up --osds 3 --osd-size 2G --fs home --mds 2 --ip "$GUEST_HOST"
active() { ceph fs get home -f json | jq -r '.mdsmap.info[] | select(.rank == 0 and .state == "up:active").name'; }
whole() { ceph mds stat | grep -Eq '\{0=.=up:active\} 1 up:standby'; }
wait_for 60 whole
kill_active() {
  local was
  was=$(gid)
  kill -KILL "$(cat "$W/c/run/mds.$(active).pid")"
  other() { whole && [ "$(gid)" != "$was" ]; }
  wait_for 60 other
}
gid() { ceph fs get home -f json | jq -r '.mdsmap.info[] | select(.rank == 0).gid'; }
# evict ROOT: the client that mounted this directory.
evict() {
  local id
  id=$(ceph tell mds.home:0 session ls 2>/dev/null | jq -r --arg r "$1" '.[] | select(.client_metadata.root == $r).id')
  ceph tell mds.home:0 session evict "id=$id" 2>/dev/null
  [ "$(ceph osd blocklist ls 2>/dev/null | grep -c /)" -ge 1 ]
}
three_up() { ceph osd stat | grep -q "3 up"; }
guest_start
if asks KILL-MDS; then
  [ "$(ceph tell mds.home:0 session ls 2>/dev/null | jq '[.[] | select(.client_metadata.kernel_version)] | length')" = 3 ]
  kill_active
  answer
fi
if asks KILL-OSD; then
  kill -KILL "$(cat "$W"/c/run/osd.0.pid)"
  wait_for 60 three_up
  answer
fi
if asks KILL-MDS-AGAIN; then kill_active; answer; fi
if asks 'EVICT\b'; then evict /cut/off; answer; fi
if asks EVICT-AGAIN; then evict /cut/back; answer; fi
guest_ends
cluster_down
