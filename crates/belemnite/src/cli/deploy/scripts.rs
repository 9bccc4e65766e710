//! Scripts that hosts run as root. Names and paths in them were checked by the inventory and by the parser of facts; texts
//! of files are quoted.

use deploy::conf::{ETCD_PORT, TLS, at};
use std::net::IpAddr;

/// Start of every script: one `deploy` works on a host at a time, and files appear whole.
const HEAD: &str = r#"set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077
exec 9>/run/belemnite-deploy.lock
flock -w 120 9 || { echo "another deployment works on this host" >&2; exit 1; }
# put MODE OWNER FILE: standard input becomes a file.
put() {
  mkdir -p "$(dirname "$3")"
  cat >"$3.new"
  chmod "$1" "$3.new"
  chown "$2" "$3.new"
  mv "$3.new" "$3"
}
"#;

/// Word that ends a text in a script.
const END: &str = "END-OF-BELEMNITE-FILE";

/// A script from its commands.
pub(super) fn script(commands: &str) -> String {
    format!("{HEAD}{commands}\n")
}

/// Commands that write a file.
pub(super) fn put(mode: &str, owner: &str, path: &str, text: &str) -> String {
    // A text that has the last line itself is cut there; those that are written here have none.
    let text = text.trim_end().replace(END, "");
    format!("put {mode} {owner} {path} <<'{END}'\n{text}\n{END}\n")
}

/// Commands that write a file in a directory that others may read.
pub(super) fn put_public(path: &str, text: &str) -> String {
    let dir = path.rsplit_once('/').map_or("/", |(d, _)| d);
    format!("(umask 022; mkdir -p {dir})\n{}", put("644", "root:root", path, text))
}

/// Path of the package on a host.
pub(super) const PACKAGE: &str = "/var/tmp/belemnite-deploy.deb";
/// Path of the program on a host, before it is in its place.
pub(super) const PROGRAM: &str = "/var/tmp/belemnite-deploy";

/// Units and accounts, for hosts that get a program without a package.
const UNITS: [(&str, &str); 6] = [
    (
        "/etc/systemd/system/belemnite-mon@.service",
        include_str!("../../../../../packaging/systemd/belemnite-mon@.service"),
    ),
    (
        "/etc/systemd/system/belemnite-osd@.service",
        include_str!("../../../../../packaging/systemd/belemnite-osd@.service"),
    ),
    (
        "/etc/systemd/system/belemnite-etcd@.service",
        include_str!("../../../../../packaging/systemd/belemnite-etcd@.service"),
    ),
    ("/etc/systemd/system/belemnite.target", include_str!("../../../../../packaging/systemd/belemnite.target")),
    ("/etc/sysusers.d/belemnite.conf", include_str!("../../../../../packaging/sysusers.conf")),
    ("/etc/tmpfiles.d/belemnite.conf", include_str!("../../../../../packaging/tmpfiles.conf")),
];

/// Installs packages of the distribution, and files of packages that are already there.
fn get(packages: &[String], file: Option<&str>) -> String {
    let mut s = String::from("dpkg --configure -a >/dev/null 2>&1 || true\n");
    if packages.iter().any(|p| p == "etcd-server") {
        // The package starts a member of its own at the ports of ours.
        s += "[ -e /usr/bin/etcd ] || systemctl mask etcd.service >/dev/null 2>&1\n";
    }
    if !packages.is_empty() {
        s += "apt-get -qq update || true\n";
    }
    let wanted: Vec<&str> = file.into_iter().chain(packages.iter().map(String::as_str)).collect();
    if !wanted.is_empty() {
        let get =
            "apt-get -qq -y -o Dpkg::Options::=--force-confold -o APT::Sandbox::User=root --no-install-recommends";
        s += &format!("(umask 022; {get} --allow-downgrades install {} >/dev/null)\n", wanted.join(" "));
    }
    s
}

/// Installs packages of the distribution on a host that has the release.
pub(super) fn install_others(packages: &[String]) -> String {
    get(packages, None)
}

/// Installs the copied package or program, and packages of the distribution.
pub(super) fn install(is_package: bool, packages: &[String]) -> String {
    let mut s = get(packages, is_package.then_some(PACKAGE));
    if is_package {
        return s + &format!("rm -f {PACKAGE}");
    }
    for (path, text) in UNITS {
        s += &put_public(path, text);
    }
    s + &format!(
        "chmod 755 {PROGRAM}\nmv {PROGRAM} /usr/bin/belemnite\nsystemd-sysusers\nsystemd-tmpfiles --create belemnite.conf\n\
         systemctl daemon-reload\nsystemctl -q enable --now belemnite.target"
    )
}

fn etcdctl(address: IpAddr) -> String {
    format!(
        "ETCDCTL_API=3 etcdctl --cacert={TLS}/ca.crt --cert={TLS}/etcd.crt --key={TLS}/etcd.key \
         --endpoints=https://{} --command-timeout=8s --dial-timeout=4s",
        at(address, ETCD_PORT)
    )
}

/// Prints the members of etcd and their health.
pub(super) fn members(address: IpAddr) -> String {
    let ctl = etcdctl(address);
    format!(
        "{ctl} member list -w json || exit 1\necho\n{ctl} endpoint health --cluster -w json 2>/dev/null || true\necho\n"
    )
}

/// Adds a member to etcd.
pub(super) fn add_member(through: IpAddr, name: &str, url: &str) -> String {
    script(&format!("{} member add {name} --peer-urls={url} >/dev/null", etcdctl(through)))
}

/// Removes a member from etcd.
pub(super) fn remove_member(through: IpAddr, id: &str) -> String {
    script(&format!("{} member remove {id} >/dev/null", etcdctl(through)))
}

/// Starts the member of a host. With a new environment, if there is one.
pub(super) fn start_etcd(host: &str, env: Option<&str>) -> String {
    let write = env.map(|e| put("640", "root:ceph", &format!("/etc/belemnite/etcd-{host}.env"), e)).unwrap_or_default();
    script(&format!(
        "{write}etcd --version | grep -q 'Version: 3\\.[4-9]' || {{ echo 'etcd 3.4 or later is needed' >&2; exit 1; }}\n\
         systemctl -q enable belemnite-etcd@{host}\nsystemctl reset-failed belemnite-etcd@{host} 2>/dev/null || true\n\
         systemctl start --no-block belemnite-etcd@{host}"
    ))
}

/// Stops the member of a host and removes its data.
pub(super) fn clear_etcd(host: &str) -> String {
    script(&format!(
        "systemctl -q disable --now belemnite-etcd@{host} || true\n\
         rm -rf /var/lib/belemnite/etcd/{host} /etc/belemnite/etcd-{host}.env"
    ))
}

/// Waits until etcd answers, then makes the cluster's state. One that exists is left as it is.
pub(super) fn make_state(host: &str, etcd: Option<IpAddr>) -> String {
    let wait = etcd.map_or(String::new(), |a| {
        let ctl = etcdctl(a);
        format!(
            "n=0\nuntil {ctl} endpoint health >/dev/null 2>&1; do\n  n=$((n + 1))\n  \
             [ $n -lt 20 ] || {{ {ctl} endpoint health >&2; exit 1; }}\n  sleep 1\ndone\n"
        )
    });
    script(&format!(
        "{wait}out=$(belemnite mon -i {host} --mkfs 2>&1) || case $out in\n  *'holds a cluster already'*) ;;\n  \
         *) echo \"$out\" >&2; exit 1 ;;\nesac"
    ))
}

/// Start of a script that moves the state of the only monitor. The monitor starts again however it ends: with the
/// configuration that is there then.
fn move_head(host: &str, conf: &str) -> String {
    let conf = put("644", "root:root", "$next/ceph.conf", conf);
    format!(
        "u=belemnite-mon@{host} d=/var/lib/ceph/mon/ceph-{host} c=/etc/ceph/ceph.conf stopped=\n\
         next=$(mktemp -d /run/belemnite.XXXXXX)\n\
         leave() {{\n  r=$?\n  rm -rf \"$next\"\n  if [ -n \"$stopped\" ]; then systemctl reset-failed $u 2>/dev/null || true\n    \
         systemctl -q enable --now $u || true; fi\n  exit $r\n}}\ntrap leave EXIT\n\
         in_etcd() {{ grep -Eq '^[[:space:]]*mon_state_etcd[[:space:]]*=' $c; }}\n\
         stop() {{ stopped=1; systemctl -q disable --now $u; }}\n{conf}"
    )
}

/// Moves the state of the only monitor from its file to etcd, all members of which answer. What an earlier try has left
/// in etcd is used if it is the same; else it is kept beside the state, and replaced. The configuration is written last.
pub(super) fn state_to_etcd(host: &str, address: IpAddr, conf: &str) -> String {
    let (ctl, head) = (etcdctl(address), move_head(host, conf));
    script(&format!(
        "{head}stopped=1\nif ! in_etcd; then\n  stopped= n=0\n  until {ctl} endpoint health --cluster >/dev/null 2>&1; do\n    \
         n=$((n + 1))\n    [ $n -lt 30 ] || {{ {ctl} endpoint health --cluster >&2; exit 1; }}\n    sleep 1\n  done\n  stop\n  \
         belemnite state export -i {host} $next/state >/dev/null\n  \
         into() {{ belemnite --conf $next/ceph.conf state import -i {host} $next/state >$next/out 2>&1; }}\n  \
         if ! into; then\n    grep -q 'holds a cluster already' $next/out || {{ cat $next/out >&2; exit 1; }}\n    \
         belemnite --conf $next/ceph.conf state export -i {host} $next/have >/dev/null\n    \
         if ! cmp -s $next/state $next/have; then\n      cp $next/have $d/replaced.state\n      \
         {ctl} del --prefix belemnite/ >/dev/null\n      into || {{ cat $next/out >&2; exit 1; }}\n    fi\n  fi\n  \
         put 644 root:root $c <$next/ceph.conf\n  sync $c /etc/ceph\nfi\n\
         if [ -e $d/state.redb ]; then mv $d/state.redb $d/state.redb.moved; fi"
    ))
}

/// Moves the state of the only monitor from etcd to a file. The configuration is written last.
pub(super) fn state_to_file(host: &str, conf: &str) -> String {
    let new = format!("/var/lib/ceph/mon/ceph-{host}.new");
    let own = format!("[mon.{host}]\n");
    let staged = conf.replacen(&own, &format!("{own}mon_data = {new}\n"), 1);
    let (head, staged) = (move_head(host, conf), put("644", "root:root", "$next/staged.conf", &staged));
    script(&format!(
        "{head}{staged}stopped=1\nif in_etcd; then\n  stop\n  rm -rf {new}\n  \
         belemnite state export -i {host} $next/state >/dev/null\n  \
         belemnite --conf $next/staged.conf state import -i {host} $next/state >/dev/null\n  \
         sync {new}/state.redb\n  mkdir -p $d\n  mv {new}/state.redb $d/state.redb\n  rm -rf {new}\n  sync $d\n  \
         put 644 root:root $c <$next/ceph.conf\n  sync $c /etc/ceph\nfi"
    ))
}

/// Reads the monitors' state with the installed program, which refuses features that it does not know.
pub(super) fn check_state(host: &str) -> String {
    script(&format!(
        "d=$(mktemp -d /run/belemnite.XXXXXX)\nr=0\nbelemnite state export -i {host} \"$d/state\" >/dev/null || r=$?\n\
         rm -rf \"$d\"\nexit $r"
    ))
}

/// Prints what the installed program finds in the stores of a host, as JSON.
pub(super) const LIST_STORES: &str = "belemnite osd list -f json";

/// Starts a unit and enables it.
pub(super) fn start(unit: &str) -> String {
    script(&format!("systemctl reset-failed {unit} 2>/dev/null || true\nsystemctl -q enable --now {unit}"))
}

/// Stops a unit, if there is one, and removes what belongs to it.
pub(super) fn stop(unit: &str, paths: &str) -> String {
    let rest = if paths.is_empty() { String::new() } else { format!("\nrm -rf {paths}") };
    script(&format!(
        "systemctl -q disable --now {unit} || true\nsystemctl reset-failed {unit} 2>/dev/null || true{rest}"
    ))
}

/// Starts a daemon of Ceph's with its key.
pub(super) fn start_foreign(unit: &str, dir: &str, keyring: &str) -> String {
    let key = put("600", "ceph:ceph", &format!("{dir}/keyring"), keyring);
    let parent = dir.rsplit_once('/').map_or("/", |(d, _)| d);
    script(&format!(
        "install -d -o ceph -g ceph -m 750 {parent} {dir}\n{key}systemctl reset-failed {unit} 2>/dev/null || true\n\
         systemctl -q enable --now {unit}"
    ))
}

/// Erases the store of an OSD that is out of the map; `force` also one that is in it.
pub(super) fn erase(id: u32, path: Option<&str>, force: bool) -> String {
    let how = if force { " --yes-i-really-mean-it" } else { "" };
    let zap = path.map_or(String::new(), |p| {
        format!("if [ -e {p} ]; then belemnite osd zap{how} {p} >/dev/null; fi\nif [ -f {p} ]; then rm -f {p}; fi\n")
    });
    format!("systemctl -q disable --now belemnite-osd@{id} || true\n{zap}rm -rf /var/lib/ceph/osd/ceph-{id}\n")
}

/// Removes configuration and keys of a cluster.
pub(super) const LEAVE: &str = "rm -rf /etc/ceph/ceph.conf /etc/ceph/ceph.client.admin.keyring /var/lib/ceph/bootstrap-osd/ceph.keyring \
     /etc/belemnite/tls /etc/belemnite/etcd-*.env /var/lib/ceph/osd/.new";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every script is valid for `sh`.
    #[test]
    fn scripts_are_valid() {
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let packages = ["etcd-server".to_owned()];
        let all = [
            deploy::facts::PROBE.to_owned(),
            script(&install(true, &packages)),
            script(&install(false, &[])),
            members(a),
            add_member(a, "n", "https://10.0.0.2:2380"),
            remove_member(a, "ab"),
            start_etcd("n", Some("A=b\n")),
            clear_etcd("n"),
            make_state("n", Some(a)),
            start("u"),
            check_state("n"),
            state_to_etcd("n", a, "[mon.n]\nx = $y\n"),
            state_to_file("n", "[mon.n]\nx = $y\n"),
            stop("u", "/x"),
            start_foreign("u", "/a/b", "[x]\n\tkey = y\n"),
            script(&(erase(1, Some("/dev/x"), false) + LEAVE)),
        ];
        for s in all {
            use std::io::Write as _;
            use std::process::{Command, Stdio};
            let mut c = Command::new("sh").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            c.stdin.take().unwrap().write_all(s.as_bytes()).unwrap();
            let out = c.wait_with_output().unwrap();
            assert!(out.status.success(), "{}\n{s}", String::from_utf8_lossy(&out.stderr));
        }
    }
}
