# The Debian package in a clean root: installed, started by the lines of its units, upgraded while the daemons run,
# removed, installed again, started by systemd as the root's init where systemd-nspawn is, purged. RELEASE is the root's
# (bookworm), MIRROR its source, BASE a directory that holds such a root already. The program is $BELEMNITE. Needs root,
# debootstrap, dpkg-dev, ceph-common; lintian and systemd-container if there. Two to five minutes.
source "$(dirname "$0")/../lib.sh"
: "${RELEASE:=bookworm}" "${MIRROR:=http://deb.debian.org/debian}"
R=$W/root
leave() {
  local p
  for p in "${DAEMONS[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
  umount "$R/proc" 2>/dev/null || true
}
DAEMONS=()
trap 'status=$?; [ $status = 0 ] || tail -n 5 "$W"/*.log 2>/dev/null || true; leave; finish $status' EXIT

export DPKG_DEB_COMPRESSOR_TYPE=gzip
for v in 1 2; do
  "$ROOT/scripts/package.sh" --binary "$BIN" --version "0.1.0~test$v" --out "$W/p" deb
done
NAME=_$(dpkg --print-architecture).deb
dpkg-deb --contents "$W/p/belemnite_0.1.0~test1$NAME" >"$W/contents"
grep -q ' root/root .*usr/bin/belemnite$' "$W/contents"
# The units are part of a target of their own.
if [ -n "$(type -P lintian)" ]; then
  lintian --fail-on error,warning --allow-root --suppress-tags systemd-service-file-refers-to-unusual-wantedby-target \
    "$W/p/belemnite_0.1.0~test1$NAME"
fi

if [ -n "${BASE:-}" ]; then cp -a "$BASE" "$R"; else debootstrap --variant=minbase "$RELEASE" "$R" "$MIRROR" >"$W/debootstrap.log"; fi
mount -t proc proc "$R/proc"
mkdir -p "$R/packages"
cp "$W"/p/*.deb "$R/packages"
in_root() { chroot "$R" env -u CEPH_CONF DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
in_root apt-get -qq update >"$W/apt.log"
in_root apt-get -qq install -y --no-install-recommends "/packages/belemnite_0.1.0~test1$NAME" >>"$W/apt.log" 2>&1
expect "the account" "$(in_root id -u ceph)" 64045
for d in /etc/ceph /etc/belemnite /var/lib/ceph/mon /var/lib/ceph/osd /var/lib/ceph/bootstrap-osd; do [ -d "$R$d" ]; done
expect "owner of the stores' directories" "$(in_root stat -c '%U %a' /var/lib/ceph/osd)" "ceph 750"
for f in man/man1/belemnite-osd.1.gz bash-completion/completions/belemnite doc/belemnite/copyright; do
  # Roots for containers may leave out documents.
  [ -s "$R/usr/share/$f" ] || grep -qr "path-exclude" "$R/etc/dpkg/dpkg.cfg.d"
done
in_root systemd-analyze verify --man=no --recursive-errors=no belemnite-mon@a.service belemnite-osd@0.service belemnite.target
in_root bash -n /usr/share/bash-completion/completions/belemnite
expect "the program" "$(in_root belemnite --version | cut -d' ' -f1)" belemnite

# A cluster with one OSD on a file.
install -m 644 /dev/stdin "$R/etc/ceph/ceph.conf" <<END
[global]
fsid = 6d0c1e02-53f2-4f6a-9b7e-7f0a1a6d6f3b
mon_host = [v2:127.0.0.1:$PORT/0]
ms_bind_port_min = $((PORT + 10))
ms_bind_port_max = $((PORT + 40))
osd_pool_default_size = 1
mgr_port = $((PORT + 1))
[osd]
admin_socket = /run/ceph/\$name.asok
[client.admin]
keyring = /etc/ceph/ceph.client.admin.keyring
END
ceph-authtool -C "$R/etc/ceph/ceph.client.admin.keyring" --gen-key -n client.admin
in_root belemnite mon -i a --mkfs

# unit NAME ID WORD: the lines of a unit that begin with WORD=, with its instance.
unit() { sed -n "s/^$3=//p" "$R/usr/lib/systemd/system/belemnite-$1@.service" | sed "s/%i/$2/g"; }
# serve NAME ID: does what systemd does with the unit, except for its confinement: the directory below /run, the
# commands before the start as root (+), and the daemon as the unit's account. Sets PID.
serve() {
  local before account
  account=$(unit "$1" "$2" User)
  in_root install -d -o "$account" -g "$account" -m "$(unit "$1" "$2" RuntimeDirectoryMode)" "/run/$(unit "$1" "$2" RuntimeDirectory)"
  unit "$1" "$2" ExecStartPre | sed 's/^[+-]*//' | while read -r before; do in_root $before; done
  chroot --userspec="$account:$(unit "$1" "$2" Group)" "$R" env -u CEPH_CONF sh -c "umask $(unit "$1" "$2" UMask); exec $(unit "$1" "$2" ExecStart)" \
    >>"$W/$1.$2.log" 2>&1 &
  PID=$!
  DAEMONS+=("$PID")
}
status() { in_root timeout 20 belemnite status --format json; }
is_up() { [ "$(status | jq .osdmap.num_up_osds)" = 1 ]; }
# end PID: stops a daemon as systemd does.
end() { kill -TERM "$1"; wait_for 20 bash -c "! kill -0 $1"; }
start_all() {
  serve mon a; MON=$PID
  wait_for 30 status
  serve osd 0; OSD=$PID
  wait_for 60 is_up
}

serve mon a; MON=$PID
wait_for 30 status
D=/var/lib/ceph/osd/ceph-0
in_root belemnite osd create --size 2G /var/lib/ceph/disk
expect "owner before the start" "$(in_root stat -Lc %U $D/block)" root
end "$MON"
start_all
expect "owner after the start" "$(in_root stat -Lc %U $D $D/block $D/keyring | sort -u)" ceph
in_root belemnite pool create data 8
head -c 1000000 /dev/urandom >"$R/packages/f"
in_root belemnite put data first /packages/f

echo "upgraded while the daemons run"
in_root dpkg -i "/packages/belemnite_0.1.0~test2$NAME" >>"$W/apt.log" 2>&1
expect "the version" "$(in_root dpkg-query -Wf '${Version}' belemnite)" 0.1.0~test2
kill -0 "$MON"; kill -0 "$OSD"
in_root belemnite get data first - | cmp - "$R/packages/f"
end "$OSD"; end "$MON"
start_all
in_root belemnite get data first - | cmp - "$R/packages/f"

echo "removed, and installed again"
end "$OSD"; end "$MON"
echo "RUST_LOG=info" >>"$R/etc/default/belemnite"
in_root dpkg -r belemnite >>"$W/apt.log" 2>&1
[ ! -e "$R/usr/bin/belemnite" ] && [ ! -e "$R/usr/lib/systemd/system/belemnite.target" ]
grep -q ^RUST_LOG "$R/etc/default/belemnite"
in_root dpkg -i "/packages/belemnite_0.1.0~test2$NAME" >>"$W/apt.log" 2>&1
grep -q ^RUST_LOG "$R/etc/default/belemnite"
start_all
in_root belemnite get data first - | cmp - "$R/packages/f"
end "$OSD"; end "$MON"

# With systemd as the root's init: the units' own confinement, and `osd create` with a unit.
if [ -n "$(type -P systemd-nspawn)" ]; then
  echo "booted"
  cat >"$R/root/booted" <<'END'
#!/bin/bash
# Does what an operator does; the last line of the output is "fine" if all of it worked.
exec >/packages/booted.log 2>&1
trap 'journalctl -u "belemnite-*" --no-pager | tail -n 20; systemctl poweroff' EXIT
set -ex
up() { for _ in $(seq 120); do timeout 5 belemnite status 2>/dev/null | grep -q "osd: .* $1 up" && return 0; sleep 0.5; done; return 1; }
systemctl is-enabled belemnite.target
systemctl enable --now belemnite-mon@a belemnite-osd@0
up 1
belemnite get data first - | cmp - /packages/f
belemnite osd create --size 1G /var/lib/ceph/another
up 2
systemctl is-enabled belemnite-osd@1
for u in mon@a osd@0 osd@1; do
  pid=$(systemctl show -P MainPID "belemnite-$u")
  [ "$(stat -c %U "/proc/$pid")" = ceph ]
  grep -q "^CapEff:[[:space:]]*0000000000000000$" "/proc/$pid/status"
  grep -q "^Seccomp:[[:space:]]*2$" "/proc/$pid/status"
done
belemnite osd remove 1 --yes-i-really-mean-it
[ "$(systemctl is-enabled belemnite-osd@1)" = disabled ] && [ ! -e /var/lib/ceph/another ]
systemctl stop belemnite.target
! systemctl -q is-active belemnite-osd@0 && ! systemctl -q is-active belemnite-mon@a
systemctl disable belemnite-mon@a belemnite-osd@0
echo fine
END
  chmod 755 "$R/root/booted"
  printf '[Service]\nExecStart=/root/booted\n' >"$R/etc/systemd/system/booted.service"
  mkdir -p "$R/etc/systemd/system/multi-user.target.wants"
  ln -s ../booted.service "$R/etc/systemd/system/multi-user.target.wants/booted.service"
  umount "$R/proc"
  timeout -k 5 240 systemd-nspawn -D "$R" -b --register=no --keep-unit -M "belemnite-$$" >"$W/boot.log" 2>&1 </dev/null || true
  grep -qx fine "$R/packages/booted.log" || { cat "$R/packages/booted.log" >&2; exit 1; }
  mount -t proc proc "$R/proc"
else
  echo "not booted: systemd-nspawn is missing"
fi

in_root dpkg -P belemnite >>"$W/apt.log" 2>&1
while read -r f; do
  [ ! -e "$R$f" ] || { echo "left after the purge: $f" >&2; exit 1; }
done < <(awk '{print substr($NF, 2)}' "$W/contents" | grep '[^/]$' | grep belemnite)
[ -e "$R/var/lib/ceph/disk" ] && [ -e "$R$D/keyring" ] && [ -e "$R/etc/ceph/ceph.conf" ]
echo "the package was installed, started, upgraded, removed, installed again and purged; the stores stayed"
