# A guest with Debian's kernel in QEMU, for clients inside the kernel; sourced after lib.sh.
#
# Provides: guest_root MODULE… makes its root directory $G; guest_copy PROGRAM… copies programs with their libraries to
# $G/e2; guest_network makes a namespace with a tap device, in which belemnite, ceph, rbd and in_ns run, at $GUEST_HOST;
# job_on_host WORD…: the job of a guest that runs this command on the host's files, read-only, under a layer in the guest's
# memory. The guest's shell expands the words. It needs the modules 9p, 9pnet_virtio and overlay, and a share named host.
job_on_host() {
  cat <<I
mkdir -p /host /layer /root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || fail "mount of the host's files"
mount -t tmpfs -o size=75%,mode=755 layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /root || fail overlay
for d in proc sys dev; do mount --move /\$d /root/\$d || fail "move \$d"; done
exec switch_root /root $*
I
}

# guest_start [QEMU ARGS…] and asks WORD, ended, answer TEXT, guest_ends talk to the guest, whose job is $G/job, a shell
# script.
#
# Needs root (network namespace and tap device) and the packages qemu-system-x86, busybox-static, kmod, iproute2, cpio.
# The kernel is the one that is installed, or that of the package file KERNEL_DEB, or else of a package that is
# downloaded and unpacked. ACCEL=kvm uses the processor's virtualisation where it works; nested it often does not.
[ "$(id -u)" = 0 ] || { echo "needs root for a network namespace"; exit 77; }
GUEST_HOST=10.99.7.1
G=$W/guest

guest_root() {
  local deb=${KERNEL_DEB:-} kernel name m f
  if [ -z "$deb" ] && f=$(ls /boot/vmlinuz-* 2>/dev/null | tail -n 1) && [ -d "/lib/modules/${f#/boot/vmlinuz-}" ]; then
    kernel=/ GUEST_KERNEL=$f version=${f#/boot/vmlinuz-}
  else
    if [ -z "$deb" ]; then
      name=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/{print $2; exit}')
      (cd "$W" && apt-get download -o APT::Sandbox::User=root "$name" >/dev/null)
      deb=$(ls "$W"/linux-image-*.deb)
    fi
    kernel=$W/kernel
    dpkg-deb -x "$deb" "$kernel"
    version=$(ls "$kernel/lib/modules")
    depmod -b "$kernel" "$version"
    GUEST_KERNEL=$kernel/boot/vmlinuz-$version
  fi
  mkdir -p "$G"/{bin,e2,proc,sys,dev,mnt,mod,run,tmp,etc/ceph,var/log/ceph,var/run/ceph}
  cp "$(command -v busybox)" "$G/bin/busybox"
  : >"$G/mod/order"
  for m in virtio_pci virtio_net libcrc32c "$@"; do
    modprobe -d "$kernel" -S "$version" --show-depends "$m" 2>/dev/null | awk '$1 == "insmod" {print $2}' |
      while read -r f; do
        grep -qx "$(basename "$f")" "$G/mod/order" || { cp "$f" "$G/mod/"; basename "$f" >>"$G/mod/order"; }
      done
  done
  cat >"$G/init" <<'I'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
while read -r m; do insmod /mod/$m || echo "insmod $m failed"; done </mod/order
ip link set lo up; ip link set eth0 up; ip addr add 10.99.7.2/24 dev eth0
fail() { echo "GUEST FAILED: $*"; dmesg | tail -n 30; poweroff -f; }
ask() { echo "$1"; read -r go; }
. /settings
. /job
echo "GUEST PASSED"
poweroff -f
I
  chmod +x "$G/init"
}

guest_copy() {
  local t l
  for t in "$@"; do
    cp "$(command -v "$t" || echo "/sbin/$t")" "$G/e2/"
    ldd "$G/e2/$(basename "$t")" | grep -o '/[^ ]*' | sort -u | while read -r l; do
      mkdir -p "$G$(dirname "$l")"; cp -L "$l" "$G$l"
    done
  done
}

guest_network() {
  local real=$BIN
  ns=belemnite-guest-$$
  ip netns add "$ns"
  trap 'status=$?; set +e; ip netns del "$ns" 2>/dev/null; (exit $status); finish' EXIT
  trap 'echo "ended from outside at: $BASH_COMMAND"; ip netns del "$ns"; finish 143' TERM
  in_ns ip link set lo up
  in_ns ip tuntap add tap0 mode tap
  in_ns ip addr add "$GUEST_HOST/24" dev tap0
  in_ns ip link set tap0 up
  printf '#!/bin/sh\nexec ip netns exec %s %s "$@"\n' "$ns" "$real" >"$W/bin"; chmod +x "$W/bin"; BIN=$W/bin
}
in_ns() { ip netns exec "$ns" "$@"; }
ceph() { in_ns timeout 180 ceph "$@"; }
rbd() { in_ns rbd "$@"; }

# Where and how the guest's kernel gets to the monitor. It needs some option in place of ms_mode.
way_in() {
  if [ -n "${MSGR1:-}" ]; then echo "AT=$GUEST_HOST:$((PORT + 4)) MODE=rw"
  else echo "AT=$GUEST_HOST:$PORT MODE=ms_mode=prefer-crc"; fi
}

# guest_start [QEMU ARGS…]: the guest gets the monitor's address as MON and the administrator's key as KEY; for its
# kernel AT and MODE are address and option. MSGR1=yes leaves ms_mode out, which is the kernel's default: msgr1.
# GUEST_MEMORY is the guest's memory in MiB, GUEST_CPUS the number of its processors, GUEST_OPTIONS are words for its
# kernel.
guest_start() {
  local accel=${ACCEL:-tcg} cpu=max
  [ "$accel" != kvm ] || cpu=host,-arch-capabilities
  { echo "MON=$GUEST_HOST:$PORT"; way_in; echo "KEY=$(ceph auth print-key client.admin)"; } >"$G/settings"
  (cd "$G" && find . | cpio -o -H newc --quiet | gzip -1) >"$W/initrd"
  mkfifo "$W/in"
  ip netns exec "$ns" qemu-system-x86_64 -machine q35,accel="$accel" -cpu "$cpu" -m "${GUEST_MEMORY:-1024}" \
    -smp "${GUEST_CPUS:-1}" -nographic -no-reboot \
    -kernel "$GUEST_KERNEL" -initrd "$W/initrd" \
    -append "console=ttyS0 panic=-1 quiet no_timer_check ${GUEST_OPTIONS:-}" \
    -netdev tap,id=n,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n "$@" \
    <"$W/in" >"$W/guest.out" 2>&1 &
  Q=$!
  PIDS+=("$Q")
  exec 9>"$W/in"
}
ended() { ! kill -0 "$Q" 2>/dev/null; }
has_asked() { grep -q "^$1" "$W/guest.out" || ended; }

# asks WORD: waits until the guest asks for something; false if it ended before.
asks() {
  wait_for 400 has_asked "$1" || { cat "$W/guest.out"; exit 1; }
  ! ended
}
answer() { echo "${1:-go}" >&9; }

# guest_ends: waits for the guest's end; an error if it has not passed.
guest_ends() {
  wait_for 400 ended || { cat "$W/guest.out"; exit 1; }
  tr -d '\r' <"$W/guest.out" | grep -v '^$' | tail -n "${1:-40}"
  grep -q "GUEST PASSED" "$W/guest.out"
}
