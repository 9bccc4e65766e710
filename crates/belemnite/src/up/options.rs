//! The arguments of `up` against the cluster that a directory holds.
//!
//! Invariant: no argument is ignored. It takes effect, equals what the cluster has, or is refused with the reason.
//!
//! Tests: below (`arguments_that_contradict_the_cluster_are_refused`).

use super::layout::{self, Layout};
use super::plan::{self, OsdPlan, Plan};
use super::{Args, Error};
use crate::admin;
use base::size;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

const DEFAULT_PORT: u16 = 3300;
const DEFAULT_OSDS: u32 = 3;
const OSD_SIZE_MAX: u64 = 64 << 30;
const OSD_SIZE_MIN: u64 = 1 << 30;

/// The cluster that `up` runs, and the ids of the OSDs that it has to make: `have`, the cluster in the directory with the
/// ids whose making was interrupted, or a new one.
///
/// The file system, the manager and the gateway are decided by their own modules.
///
/// # Errors
/// An argument that is not valid, or that contradicts the cluster in the directory.
pub(super) fn decide(a: &Args, l: &Layout, have: Option<(Plan, Vec<u32>)>) -> Result<(Plan, Vec<u32>), Error> {
    if !a.device.is_empty() && a.osd_size.is_some() {
        return Err("--osd-size goes with OSDs on files: an OSD on a device uses all of it".into());
    }
    let devices = devices(a)?;
    match have {
        Some((plan, unfinished)) => old_plan(a, devices, l, plan, unfinished),
        None => new_plan(a, devices, l),
    }
}

/// Checks that clients and daemons can connect to an address.
pub(super) fn check_address(ip: IpAddr) -> Result<(), Error> {
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(format!(
            "--ip {ip}: OSDs and clients connect to this address, so it must be one of this machine's own (`ip address` \
             lists them), such as 127.0.0.1 for clients on this machine only"
        )
        .into());
    }
    Ok(())
}

/// Absolute paths of the devices.
fn devices(a: &Args) -> Result<Vec<PathBuf>, Error> {
    let mut out: Vec<PathBuf> = Vec::new();
    for d in &a.device {
        let d = layout::absolute(d)?;
        if let Some(other) = out.iter().find(|o| is_same(o, &d)) {
            return Err(format!("--device {} is the same device as {}", d.display(), other.display()).into());
        }
        out.push(d);
    }
    Ok(out)
}

/// True if both paths lead to one device, by whatever links.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || fs::canonicalize(a).ok().zip(fs::canonicalize(b).ok()).is_some_and(|(a, b)| a == b)
}

/// `--osd-size` in bytes.
fn given_size(a: &Args) -> Result<Option<u64>, Error> {
    let Some(s) = &a.osd_size else { return Ok(None) };
    let size = size::parse(s).filter(|n| *n >= OSD_SIZE_MIN);
    let wrong = || format!("--osd-size {s}: not a size of at least {}", size::show(OSD_SIZE_MIN));
    Ok(Some(size.ok_or_else(wrong)?))
}

/// Size of new OSDs' files.
fn wanted_size(a: &Args, l: &Layout) -> Result<u64, Error> {
    given_size(a)?.map_or_else(|| default_osd_size(l), Ok)
}

/// Checks that the ports of so many OSDs exist.
fn check_range(port: u16, osds: u32) -> Result<(), Error> {
    let per = layout::ports_per_osd(plan::reactors_here(osds as usize));
    if u64::from(port) + 10 + u64::from(osds) * u64::from(per) > 65_535 {
        return Err(format!("port {port} of the monitor has no room for the ports of {osds} OSDs above it").into());
    }
    Ok(())
}

fn check_pool_size(pool_size: u32, osds: u32) -> Result<(), Error> {
    if pool_size == 0 || pool_size > osds.min(10) {
        return Err(
            format!("--pool-size {pool_size} with {osds} OSDs: from 1 to the number of OSDs, at most 10").into()
        );
    }
    Ok(())
}

fn new_plan(a: &Args, devices: Vec<PathBuf>, l: &Layout) -> Result<(Plan, Vec<u32>), Error> {
    let n = match (a.osds, devices.len() as u32) {
        (None, 0) => DEFAULT_OSDS,
        (None, d) => d,
        (Some(n), d) if d == 0 || d == n => n,
        (Some(n), d) => return Err(format!("--osds {n} with {d} devices: one device per OSD").into()),
    };
    if n == 0 {
        return Err("--osds 0: a cluster needs an OSD".into());
    }
    let pool_size = a.pool_size.unwrap_or(if n >= 3 { 3 } else { 1 });
    check_pool_size(pool_size, n)?;
    let ip = a.ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    check_address(ip)?;
    let port = a.port.unwrap_or(DEFAULT_PORT);
    if port == 0 {
        return Err("--port 0: clients must know the monitor's port; name one".into());
    }
    check_range(port, n)?;
    let size = if devices.is_empty() { wanted_size(a, l)? } else { 0 };
    let mut osds = Vec::new();
    for id in 0..n {
        osds.push(new_osd(id, devices.get(id as usize).cloned(), size)?);
    }
    let mons = a.mons.as_ref().and_then(|n| n.parse().ok()).unwrap_or(1);
    if mons > 1 && port <= layout::ETCD_PORTS {
        return Err(format!("--port {port}: no room for the ports of etcd below it").into());
    }
    let plan = Plan {
        version: plan::VERSION,
        mons,
        msgr1: !a.no_msgr1,
        fsid: admin::new_uuid()?.to_string(),
        ip,
        port,
        auth: a.auth.clone().unwrap_or_else(|| "cephx".into()),
        pool_size,
        osds,
        s3: None,
        fs: None,
        mgr: None,
    };
    Ok((plan, (0..n).collect()))
}

fn old_plan(
    a: &Args,
    mut devices: Vec<PathBuf>,
    l: &Layout,
    mut p: Plan,
    unfinished: Vec<u32>,
) -> Result<(Plan, Vec<u32>), Error> {
    let differs = |what: &str, have: &dyn std::fmt::Display| -> Error {
        format!(
            "{} holds a cluster with {what} {have}; it cannot be changed by `up`. Leave the option out, or name another \
             directory with --data for another cluster",
            l.dir.display()
        )
        .into()
    };
    if a.auth.as_ref().is_some_and(|x| *x != p.auth) {
        return Err(differs("--auth", &p.auth));
    }
    if a.port.is_some_and(|x| x != p.port) {
        return Err(differs("--port", &p.port));
    }
    if a.mons.as_ref().is_some_and(|n| *n != p.mons.to_string()) {
        return Err(differs("--mons", &p.mons));
    }
    p.msgr1 = (p.msgr1 || a.msgr1) && !a.no_msgr1;
    if a.ip.is_some_and(|x| x != p.ip) {
        return Err(differs("--ip", &p.ip));
    }
    check_address(p.ip)?;
    let have = p.osds.len() as u32;
    devices.retain(|d| !p.osds.iter().filter_map(|o| o.device.as_ref()).any(|o| is_same(o, d)));
    let want = a.osds.unwrap_or(have + devices.len() as u32);
    if want < have {
        return Err(format!(
            "{} holds {have} OSDs; `belemnite osd remove N` removes one while the cluster runs",
            l.dir.display()
        )
        .into());
    }
    if !devices.is_empty() && devices.len() as u32 != want - have {
        return Err(format!("{} more OSDs with {} new devices: one device per OSD", want - have, devices.len()).into());
    }
    if let Some(n) = a.pool_size {
        check_pool_size(n, want)?;
        p.pool_size = n;
    }
    if want == have
        && let Some(size) = given_size(a)?
    {
        check_size(&p, size, l)?;
    }
    let size = if want > have && devices.is_empty() { wanted_size(a, l)? } else { 0 };
    check_range(p.port, want)?;
    let mut makes = unfinished;
    for i in 0..want - have {
        let id = free_id(&p);
        p.osds.push(new_osd(id, devices.get(i as usize).cloned(), size)?);
        makes.push(id);
    }
    sort(&mut p)?;
    Ok((p, makes))
}

/// The lowest id that no OSD of the cluster has.
fn free_id(p: &Plan) -> u32 {
    (0..).find(|id| p.osds.iter().all(|o| o.id != *id)).unwrap_or_default()
}

/// Sorts the OSDs by id, and checks that the ports of the highest exist.
fn sort(p: &mut Plan) -> Result<(), Error> {
    p.osds.sort_by_key(|o| o.id);
    check_range(p.port, p.osds.last().map_or(0, |o| o.id + 1))
}

/// The cluster with one more OSD, or with another store for OSD `id`, and the id.
///
/// # Errors
/// A size that is too small, a device that another OSD has, or no room for a file of the usual size.
pub(super) fn with_osd(
    p: &Plan,
    id: Option<u32>,
    device: Option<PathBuf>,
    size: Option<u64>,
    l: &Layout,
) -> Result<(Plan, u32), Error> {
    let mut p = p.clone();
    let old = id.and_then(|id| p.osds.iter().find(|o| o.id == id).cloned());
    if id.is_some() && old.is_none() {
        return Err("no such OSD here".into());
    }
    let device = match (device, size) {
        (Some(_), Some(_)) => return Err("a size goes with an OSD on a file: an OSD on a device uses all of it".into()),
        (None, None) => old.as_ref().and_then(|o| o.device.clone()),
        (d, _) => d,
    };
    let id = id.unwrap_or_else(|| free_id(&p));
    p.osds.retain(|o| o.id != id);
    if let Some(d) = &device
        && let Some(o) = p.osds.iter().find(|o| o.device.as_ref().is_some_and(|x| is_same(x, d)))
    {
        return Err(format!("{} is the device of osd.{}", d.display(), o.id).into());
    }
    let size = match (&device, size, old.filter(|o| o.device.is_none())) {
        (Some(_), ..) => 0,
        (None, Some(s), _) if s < OSD_SIZE_MIN => {
            return Err(format!("a size of at least {} is needed", size::show(OSD_SIZE_MIN)).into());
        }
        (None, Some(s), _) => s,
        (None, None, Some(o)) => o.size,
        // That of the other OSDs' files, the smallest if they differ.
        (None, None, None) => match p.osds.iter().filter(|o| o.device.is_none()).map(|o| o.size).min() {
            Some(size) => size,
            None => default_osd_size(l)?,
        },
    };
    p.osds.push(new_osd(id, device, size)?);
    sort(&mut p)?;
    Ok((p, id))
}

/// Checks that an `--osd-size` without new OSDs is the size of the OSDs' files, or of some if their sizes differ.
fn check_size(p: &Plan, size: u64, l: &Layout) -> Result<(), Error> {
    let mut sizes: Vec<u64> = p.osds.iter().filter(|o| o.device.is_none()).map(|o| o.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.contains(&size) {
        return Ok(());
    }
    let have = match &sizes[..] {
        [] => "on devices".to_owned(),
        s => format!("with files of {}", s.iter().map(|n| size::show(*n)).collect::<Vec<_>>().join(" and ")),
    };
    Err(format!(
        "{} holds OSDs {have}; --osd-size {} is the size of new OSDs' files only (--osds N adds OSDs; to enlarge a \
         file: `truncate -s`, then `ceph tell osd.N grow`)",
        l.dir.display(),
        size::show(size)
    )
    .into())
}

fn new_osd(id: u32, device: Option<PathBuf>, size: u64) -> Result<OsdPlan, Error> {
    Ok(OsdPlan { id, uuid: admin::new_uuid()?.to_string(), key: admin::new_key()?, device, size, registered: false })
}

/// Size of a new OSD's file: an eighth of the free space, and at least the least size if half of the space is free for it.
fn default_osd_size(l: &Layout) -> Result<u64, Error> {
    let free = reactor::disk::free_space(&l.dir)?;
    default_size(free).ok_or_else(|| {
        format!(
            "{} has {} free. The file of an OSD needs {}, and as much is left for others; name the size with --osd-size to \
             insist, or another directory with --data",
            l.dir.display(),
            size::show(free),
            size::show(OSD_SIZE_MIN)
        )
        .into()
    })
}

fn default_size(free: u64) -> Option<u64> {
    let size = (free / 8).clamp(OSD_SIZE_MIN, OSD_SIZE_MAX) >> 30 << 30;
    (size <= free / 2).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::super::{dir, files, plan::FsPlan};
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Up {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &str) -> Args {
        Up::try_parse_from(std::iter::once("up").chain(words.split_whitespace())).unwrap().args
    }

    /// A directory of a cluster, removed at the end.
    struct Dir(Layout);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("belemnite-options-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(Layout { dir })
        }

        /// Runs the decisions of `up`; their plan is kept in the directory.
        fn up(&self, words: &str) -> Result<(Plan, Vec<u32>), String> {
            let have = match dir::look(&self.0).unwrap() {
                dir::Holds::Cluster(p, None) => Some((*p, Vec::new())),
                _ => None,
            };
            let (p, added) = decide(&args(words), &self.0, have).map_err(|e| e.to_string())?;
            dir::store(&p, &self.0).unwrap();
            Ok((p, added))
        }

        #[track_caller]
        fn refuses(&self, words: &str, reason: &str) {
            let have = fs::read_to_string(self.0.plan()).ok();
            let e = self.up(words).map(|(_, added)| added).expect_err(words);
            assert!(e.contains(reason), "{words}: {e}");
            assert_eq!(fs::read_to_string(self.0.plan()).ok(), have);
        }

        #[track_caller]
        fn adds(&self, words: &str, ids: &[u32]) -> Plan {
            let (p, added) = self.up(words).unwrap_or_else(|e| panic!("{words}: {e}"));
            assert_eq!(added, ids, "{words}");
            p
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.dir);
        }
    }

    #[test]
    fn the_same_command_starts_a_cluster_again() {
        for words in [
            "--osds 3 --osd-size 2G --port 4000 --ip ::1 --pool-size 2 --auth none --mons 3",
            "--device /dev/one --device /dev/two --force",
            "--osds 1 --osd-size 1G --msgr1",
            "--osds 1 --osd-size 1G --no-msgr1",
        ] {
            let d = Dir::new("again");
            let n = args(words).osds.unwrap_or(2);
            let first = d.adds(words, &(0..n).collect::<Vec<_>>());
            for again in [words, ""] {
                let p = d.adds(again, &[]);
                assert_eq!(serde_json::to_value(&p).unwrap(), serde_json::to_value(&first).unwrap());
            }
        }
    }

    #[test]
    fn arguments_that_contradict_the_cluster_are_refused() {
        let d = Dir::new("other");
        d.adds("--osds 3 --osd-size 2G --port 4000", &[0, 1, 2]);
        for (words, reason) in [
            ("--auth none", "a cluster with --auth cephx"),
            ("--pool-size 4", "--pool-size 4 with 3 OSDs"),
            ("--port 4001", "a cluster with --port 4000"),
            ("--mons 3", "a cluster with --mons 1"),
            ("--ip 127.0.0.2", "a cluster with --ip 127.0.0.1"),
            ("--osds 2", "holds 3 OSDs"),
            ("--osds 4 --device /dev/one --device /dev/two", "one device per OSD"),
            ("--osd-size 4G", "holds OSDs with files of 2 GiB; --osd-size 4 GiB"),
            ("--osds 3 --osd-size 4G", "--osd-size 4 GiB"),
            ("--osd-size 1M", "not a size of at least 1 GiB"),
            ("--osd-size 2G --device /dev/one", "an OSD on a device uses all of it"),
            ("--osds 9000 --osd-size 2G", "no room for the ports of 9000 OSDs"),
        ] {
            d.refuses(words, reason);
        }
        for ip in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            Dir::new("address").refuses(&format!("--osd-size 1G --ip {ip}"), "one of this machine's own");
        }
        let d = Dir::new("devices");
        d.refuses("--device /dev/one --device /dev/one", "the same device");
        d.refuses("--device /dev/one --osd-size 2G", "an OSD on a device uses all of it");
        d.adds("--device /dev/one", &[0]);
        d.refuses("--osd-size 2G", "holds OSDs on devices");
    }

    #[test]
    fn a_larger_number_adds_osds_with_files_of_the_given_size() {
        let d = Dir::new("more");
        d.adds("--osds 1 --osd-size 1G", &[0]);
        let p = d.adds("--osds 3 --osd-size 2G", &[1, 2]);
        assert_eq!(p.osds.iter().map(|o| o.size >> 30).collect::<Vec<_>>(), [1, 2, 2]);
        d.adds("--osds 3 --osd-size 2G", &[]);
        d.adds("--osd-size 1G", &[]);
        d.refuses("--osd-size 3G", "files of 1 GiB and 2 GiB");
        let p = d.adds("--device /dev/one", &[3]);
        assert_eq!(p.osds[3].device.as_deref(), Some(Path::new("/dev/one")));
        d.adds("--device /dev/one", &[]);
    }

    #[test]
    fn ids_of_removed_osds_are_used_again() {
        let d = Dir::new("ids");
        let mut p = d.adds("--osds 3 --osd-size 1G", &[0, 1, 2]);
        p.osds.remove(1);
        dir::store(&p, &d.0).unwrap();
        let p = d.adds("--osds 4 --osd-size 1G", &[1, 3]);
        assert_eq!(p.osds.iter().map(|o| o.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let (more, id) = with_osd(&p, None, Some("/dev/one".into()), None, &d.0).unwrap();
        assert_eq!((id, more.osds[4].registered), (4, false));
        assert!(with_osd(&more, Some(4), None, None, &d.0).unwrap().0.osds[4].device.is_some(), "the same device");
        assert!(with_osd(&more, None, Some("/dev/one".into()), None, &d.0).is_err(), "a device of another OSD");
        let (again, _) = with_osd(&p, Some(1), None, None, &d.0).unwrap();
        assert_eq!(again.osds[1].size, 1 << 30);
        assert_ne!(again.osds[1].uuid, p.osds[1].uuid);
        assert!(with_osd(&p, Some(9), None, None, &d.0).is_err());
        assert!(with_osd(&p, None, None, Some(1 << 20), &d.0).is_err());
    }

    #[test]
    fn the_number_of_copies_of_new_pools_may_change() {
        let d = Dir::new("copies");
        assert_eq!(d.adds("--osds 1 --osd-size 1G", &[0]).pool_size, 1);
        d.refuses("--pool-size 2", "--pool-size 2 with 1 OSDs");
        assert_eq!(d.adds("--osds 3 --osd-size 1G --pool-size 2", &[1, 2]).pool_size, 2);
        assert_eq!(d.adds("", &[]).pool_size, 2);
    }

    #[test]
    fn small_disks_get_small_files() {
        let gib = |n: u64| n << 30;
        assert_eq!(default_size(gib(800)), Some(gib(64)));
        assert_eq!(default_size(gib(20)), Some(gib(2)));
        assert_eq!(default_size(gib(5)), Some(gib(1)));
        assert_eq!(default_size(gib(2)), Some(gib(1)));
        assert_eq!(default_size(gib(2) - 1), None);
    }

    #[test]
    fn a_device_is_known_by_each_of_its_names() {
        let d = Dir::new("links");
        let (device, link) = (d.0.dir.join("device"), d.0.dir.join("link"));
        fs::write(&device, "").unwrap();
        std::os::unix::fs::symlink(&device, &link).unwrap();
        d.adds(&format!("--device {}", device.display()), &[0]);
        d.adds(&format!("--device {} --force", link.display()), &[]);
        let both = format!("--device {} --device {}", device.display(), link.display());
        d.refuses(&both, "the same device");
    }

    #[test]
    fn a_file_system_keeps_its_name() {
        let have = |name: &str| Some(FsPlan { name: name.into(), mds: 1, ceph_root: None });
        let name = |words: &str, have| files::decide(&args(words), have).map(|f| f.map(|f| (f.name, f.mds)));
        assert_eq!(name("", None).unwrap(), None);
        assert_eq!(name("--fs", None).unwrap(), Some(("home".into(), 2)));
        assert_eq!(name("--fs work", None).unwrap(), Some(("work".into(), 2)));
        assert_eq!(name("--fs", have("work")).unwrap(), Some(("work".into(), 1)));
        assert_eq!(name("--fs work --mds 3", have("work")).unwrap(), Some(("work".into(), 3)));
        assert!(name("--fs other", have("work")).is_err());
        assert!(name("--fs a/b", None).is_err());
    }
}
