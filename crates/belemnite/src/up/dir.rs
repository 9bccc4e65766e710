//! The description of a cluster in its directory: how it is found, and how it changes.
//!
//! `cluster.json` describes the cluster. A change that makes stores (a new cluster, more OSDs, another store for an
//! OSD) is a [`Change`]: it is written to `cluster.json.new`, carried out, and then renamed to `cluster.json`.
//! Invariants:
//!  1. No daemon of a store runs before `cluster.json` names that store.
//!  2. `up` removes a store or a monitor's state only if `cluster.json.new` names it as one that is being made. So
//!     nothing was ever served from it.
//!  3. Each of the two files is whole or absent, whenever the machine stops: a file is written beside its place, flushed,
//!     renamed, and its directory is flushed.
//!
//! Tests: `interop/tests/osd_add.sh` (1), `tests/does_up_keep_a_cluster_through_a_week.rs` (2,
//! `an_interrupted_creation_begins_anew_and_a_left_over_store_stays`), below (3, `a_write_that_fails_leaves_the_file`).

use super::Error;
use super::layout::Layout;
use super::plan::{self, Plan};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A change of the cluster that makes stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// True if the cluster itself is being made.
    pub(crate) creates: bool,
    /// Ids of the OSDs whose stores are being made.
    pub(crate) makes: Vec<u32>,
    /// The cluster after the change.
    pub(crate) plan: Plan,
}

/// The content of a directory.
#[derive(Debug)]
pub(crate) enum Holds {
    /// No cluster. The creation of one may have been interrupted.
    Nothing(Option<Box<Change>>),
    /// A cluster, and a change of it that was interrupted.
    Cluster(Box<Plan>, Option<Box<Change>>),
}

/// Writes a file that only its owner can read, so that the file is whole or unchanged after a crash. A file that has
/// this text already is left alone.
///
/// # Errors
/// The file system refuses a step; the file is then unchanged.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let private = |m: fs::Metadata| m.is_file() && m.permissions().mode() & 0o077 == 0;
    if fs::symlink_metadata(path).is_ok_and(private) && fs::read(path).is_ok_and(|have| have == text.as_bytes()) {
        return Ok(());
    }
    let tmp = path.with_extension("tmp");
    // A file of an earlier run may be readable by other users, or be a link.
    match fs::remove_file(&tmp) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let write = || {
        let mut f = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
        f.write_all(text.as_bytes())?;
        f.sync_all()?;
        fs::rename(&tmp, path)
    };
    if let Err(e) = write() {
        let _ = fs::remove_file(&tmp);
        return Err(e);
    }
    sync_parent(path)
}

/// Makes renames and removals in the directory of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |d| fs::File::open(d)?.sync_all())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(t) => t,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", path.display()).into()),
    };
    let parsed = serde_json::from_str(&text);
    Ok(Some(parsed.map_err(|e| {
        format!("{} is damaged ({e}); `belemnite up --recover` makes it anew from what else is there", path.display())
    })?))
}

/// The description of a cluster; `None` if there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(crate) fn description(l: &Layout) -> Result<Option<Plan>, Error> {
    read(&l.plan())
}

/// Writes the description.
///
/// # Errors
/// As of [`write_private`], with the path.
pub(crate) fn store(p: &Plan, l: &Layout) -> Result<(), Error> {
    let path = l.plan();
    write_private(&path, &serde_json::to_string_pretty(p)?).map_err(|e| format!("{}: {e}", path.display()).into())
}

impl Change {
    /// Notes that the change begins.
    ///
    /// # Errors
    /// As of [`write_private`], with the path.
    pub(crate) fn begin(&self, l: &Layout) -> Result<(), Error> {
        let path = l.change();
        write_private(&path, &serde_json::to_string_pretty(self)?).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(())
    }

    /// True if the description names the stores that the change makes.
    fn is_in(&self, p: &Plan) -> bool {
        let uuid = |p: &Plan, id: u32| p.osds.iter().find(|o| o.id == id).map(|o| o.uuid.clone());
        self.makes.iter().all(|id| uuid(p, *id).is_some_and(|u| Some(u) == uuid(&self.plan, *id)))
    }

    /// Makes the changed description that of the cluster, and forgets the change.
    ///
    /// # Errors
    /// The file system refuses a step.
    pub(crate) fn finish(&self, l: &Layout) -> Result<(), Error> {
        store(&self.plan, l)?;
        forget(l)
    }
}

/// Removes the note of an interrupted change.
///
/// # Errors
/// The file system refuses it.
pub(crate) fn forget(l: &Layout) -> Result<(), Error> {
    let path = l.change();
    match fs::remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(format!("{}: {e}", path.display()).into()),
        _ => {}
    }
    Ok(sync_parent(&path)?)
}

/// Parts of a cluster in a directory: monitor states, stores and keyrings, by their names in it.
pub(crate) fn parts(l: &Layout) -> Vec<String> {
    let mut out = Vec::new();
    for e in fs::read_dir(&l.dir).into_iter().flatten().flatten() {
        let name = e.file_name().to_string_lossy().into_owned();
        if name == "ceph.client.admin.keyring" {
            out.push(name);
            continue;
        }
        let kind = name.split_once('.').map(|(kind, _)| kind);
        let files: &[&str] = match kind {
            Some("mon") => &[mon::host::STATE_FILE, "keyring"],
            Some("osd") => &["block", "keyring"],
            Some("etcd") => &["member"],
            Some("mds" | "mgr" | "rgw") => &["keyring"],
            _ => continue,
        };
        out.extend(files.iter().filter(|f| e.path().join(f).symlink_metadata().is_ok()).map(|f| format!("{name}/{f}")));
    }
    out.sort();
    out
}

/// The content of a directory.
///
/// # Errors
/// A description that cannot be read, is damaged, or was written by a later version; parts of a cluster without a
/// description.
pub(crate) fn look(l: &Layout) -> Result<Holds, Error> {
    let change = read::<Change>(&l.change())?.map(Box::new);
    let known = |p: &Plan| p.version <= plan::VERSION;
    let later = |path: &Path| -> Error { format!("{}: written by a newer belemnite", path.display()).into() };
    if change.as_ref().is_some_and(|c| !known(&c.plan)) {
        return Err(later(&l.change()));
    }
    match read::<Plan>(&l.plan())? {
        Some(p) if !known(&p) => Err(later(&l.plan())),
        Some(p) => {
            // A crash between the two steps of `finish` leaves a note of what is done.
            let done = change.as_ref().is_some_and(|c| c.creates || c.is_in(&p));
            if done {
                forget(l)?;
            }
            Ok(Holds::Cluster(Box::new(p), change.filter(|_| !done)))
        }
        None if change.as_ref().is_some_and(|c| c.creates) => Ok(Holds::Nothing(change)),
        None => match &parts(l)[..] {
            [] if change.is_none() => Ok(Holds::Nothing(None)),
            found => Err(lost(l, found).into()),
        },
    }
}

fn lost(l: &Layout, found: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = found.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let names = found.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "{} holds parts of a cluster ({names}{more}), but its description cluster.json is missing; nothing was changed. \
         `belemnite up --recover` makes the description anew. For a new cluster name another directory with --data",
        l.dir.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(Layout);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("belemnite-dir-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(Layout { dir })
        }

        fn put(&self, path: &str) {
            let path = self.0.dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }

        fn change(&self, creates: bool) -> Change {
            let mut plan = plan::tests::plan();
            plan.osds = vec![plan::tests::osd(0, "one")];
            Change { creates, makes: vec![0], plan }
        }

        #[track_caller]
        fn refuses(&self, reason: &str) {
            let e = look(&self.0).unwrap_err().to_string();
            assert!(e.contains(reason), "{e}");
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.dir);
        }
    }

    #[test]
    fn parts_of_a_cluster_without_a_description_are_refused() {
        for part in [
            "mon.a/state.redb",
            "mon.a/keyring",
            "osd.7/block",
            "osd.7/keyring",
            "ceph.client.admin.keyring",
            "etcd.a/member/wal",
            "rgw.a/keyring",
        ] {
            let d = Dir::new("parts");
            d.put("log/osd.0.log");
            d.put("run/osd.0.pid");
            d.put("lock");
            assert!(matches!(look(&d.0), Ok(Holds::Nothing(None))));
            d.put(part);
            d.refuses("--recover");
            // The note of another change than a creation says that there was a cluster.
            d.change(false).begin(&d.0).unwrap();
            d.refuses("--recover");
        }
        let d = Dir::new("note");
        d.change(false).begin(&d.0).unwrap();
        d.refuses("--recover");
    }

    #[test]
    fn an_interrupted_creation_is_told_from_a_lost_description() {
        let d = Dir::new("creation");
        let c = d.change(true);
        c.begin(&d.0).unwrap();
        d.put("mon.a/state.redb");
        d.put("osd.0/block");
        assert!(matches!(look(&d.0), Ok(Holds::Nothing(Some(_)))));
        c.finish(&d.0).unwrap();
        assert!(matches!(look(&d.0), Ok(Holds::Cluster(_, None))));
        // A crash after the description was written and before the note was removed.
        c.begin(&d.0).unwrap();
        assert!(matches!(look(&d.0), Ok(Holds::Cluster(_, None))));
        assert!(!d.0.change().exists());
        // The same of a change: its stores are served from already.
        d.change(false).begin(&d.0).unwrap();
        assert!(matches!(look(&d.0), Ok(Holds::Cluster(_, None))));
        let mut c = d.change(false);
        c.plan.osds[0].uuid = "other".into();
        c.begin(&d.0).unwrap();
        assert!(matches!(look(&d.0), Ok(Holds::Cluster(_, Some(_)))));
        forget(&d.0).unwrap();
        fs::remove_file(d.0.plan()).unwrap();
        d.refuses("--recover");
    }

    #[test]
    fn a_damaged_or_later_description_is_refused() {
        for text in ["", "{", "{}", "[1]"] {
            let d = Dir::new("damaged");
            fs::write(d.0.plan(), text).unwrap();
            d.refuses("is damaged");
            fs::remove_file(d.0.plan()).unwrap();
            fs::write(d.0.change(), text).unwrap();
            d.refuses("is damaged");
        }
        let d = Dir::new("later");
        let mut p = plan::tests::plan();
        p.version = plan::VERSION + 1;
        store(&p, &d.0).unwrap();
        d.refuses("newer belemnite");
    }

    #[test]
    fn a_write_that_fails_leaves_the_file() {
        let d = Dir::new("full");
        let path = d.0.plan();
        write_private(&path, "old").unwrap();
        // Neither the file beside it can be made nor, therefore, the rename happen.
        fs::create_dir_all(path.with_extension("tmp").join("x")).unwrap();
        write_private(&path, "new").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write_private(&path, "old").unwrap();
    }
}
