//! `belemnite osd zap`, `destroy`, `remove` and `replace`: stores of this host that go.
//!
//! Invariants:
//!  1. A store whose OSD the map has is erased only after the monitors have agreed or the operator has overruled them.
//!  2. A store that a daemon has open is not erased.
//!  3. Of a LUKS container all key slots are overwritten: its key, if it is known, opens nothing any more.
//!
//! Tests: `interop/tests/osd_create.sh` (1, 2).

use super::Error;
use super::create::{How, Make};
use super::crypt;
use super::host::{Host, is_in_use, labels_at, real_path};
use super::note::Notes;
use super::store;
use crate::admin::StoreLabels;
use crate::cli::Target;
use crate::cli::operate::{Risk, must, print};
use crate::cli::osds::{ReplaceArgs, check_safe, is_destroyed, let_go, osd};
use crate::up::make::remove_dir;
use bytes::Bytes;
use client::Client;
use reactor::disk::DiskFile;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that are overwritten at the start and at the end of a device, and of the store on it. File systems, partition
/// tables and stores have their labels there.
const WIPED: u64 = 4 << 20;
/// Alignment of writes.
const BLOCK: u64 = 4096;

/// Arguments of `belemnite osd zap`.
#[derive(Debug, clap::Args)]
pub(crate) struct ZapArgs {
    /// Block devices or files
    #[arg(required = true, value_name = "DEVICE|FILE")]
    targets: Vec<PathBuf>,
    /// Erase contents that are of no OSD of this cluster: a partition table, a file system, another cluster's store
    #[arg(long)]
    force: bool,
    /// Erase the store without asking the monitors. Data that is nowhere else is lost
    #[arg(long)]
    yes_i_really_mean_it: bool,
}

/// Arguments of `belemnite osd destroy`.
#[derive(Debug, clap::Args)]
pub(crate) struct DestroyArgs {
    /// Id of the OSD
    id: u32,
    /// First move all data to other OSDs, which must have room for it
    #[arg(long, conflicts_with_all = ["degraded", "yes_i_really_mean_it"])]
    drain: bool,
    #[command(flatten)]
    risk: Risk,
}

/// Overwrites what names the contents of a device or file.
///
/// # Errors
/// The device fails.
fn wipe(file: &DiskFile, path: &Path) -> Result<(), Error> {
    let bytes = file.bytes() / BLOCK * BLOCK;
    let mut ends = vec![bytes];
    // A store on a device that has grown has copies of its label where it ends.
    if let Some(size) = store::size(path) {
        ends.insert(0, size / BLOCK * BLOCK);
    }
    let zeros = Bytes::from(vec![0; WIPED as usize]);
    let shown = |e| format!("{}: {}", path.display(), base::errno::name(e));
    for end in ends.into_iter().filter(|e| *e <= bytes) {
        let from = end.saturating_sub(WIPED);
        file.write(from, &[zeros.slice(..(end - from) as usize)]).map_err(shown)?;
    }
    let head = if crypt::is_container(path) { crypt::HEADER } else { WIPED }.min(bytes);
    // The magic at the start goes last: until then a wipe that was cut short is known as one.
    for part in (0..head.div_ceil(WIPED)).rev() {
        let from = part * WIPED;
        file.write(from, &[zeros.slice(..WIPED.min(head - from) as usize)]).map_err(shown)?;
    }
    // Devices and file systems without it refuse.
    let _ = file.discard(0, bytes);
    Ok(file.sync().map_err(shown)?)
}

/// True if the map has the OSD of a store, and it is not destroyed.
fn is_needed(o: Option<&Value>, l: &StoreLabels) -> bool {
    o.is_some_and(|o| o["uuid"] == l.uuid.as_str() && !is_destroyed(o))
}

/// `belemnite osd zap`
pub(crate) async fn zap(t: &Target, a: &ZapArgs) -> Result<(), Error> {
    let host = Host::new(t.conf_file()?)?;
    let notes = Notes::open(&host.osds())?;
    for given in &a.targets {
        let path = real_path(given)?;
        let shown = path.display();
        // An open mapping holds the device of an encrypted OSD.
        let mapped = crypt::labels_at(&path).map(|l| l.uuid).filter(|u| crypt::mapping(u).exists());
        match &mapped {
            Some(u) if is_in_use(&crypt::mapping(u)) => return Err(format!("{shown}: in use by a daemon").into()),
            Some(_) => {}
            None => drop(reactor::disk::open(&path).map_err(|e| format!("{shown}: {e}"))?),
        }
        let noted = notes.find(&path)?;
        let mut why = String::new();
        match (labels_at(&path), store::contents(&path)?) {
            (Ok(l), _) if l.fsid == host.fsid => why = check_store(t, a, &path, &l).await?,
            (Ok(l), _) if !a.force => {
                let text = format!("{shown} holds the store of osd.{} of another cluster, {}", l.whoami, l.fsid);
                return Err(format!("{text}; --force erases it").into());
            }
            (Err(_), Some(c)) if !(a.force || c.is_store && noted.is_some()) => {
                return Err(format!("{shown} holds {}; --force erases it", c.text).into());
            }
            _ => {}
        }
        mapped.map_or(Ok(()), |u| crypt::close(&u))?;
        let file = reactor::disk::open(&path).map_err(|e| format!("{shown}: {e}"))?;
        wipe(&file, &path)?;
        noted.map_or(Ok(()), |n| notes.remove(&n))?;
        print(&format!("{shown}: erased{why}"));
    }
    Ok(())
}

/// Checks that a store of this cluster may be erased; returns a remark about its OSD.
async fn check_store(t: &Target, a: &ZapArgs, path: &Path, l: &StoreLabels) -> Result<String, Error> {
    if a.yes_i_really_mean_it {
        return Ok(String::new());
    }
    let shown = path.display();
    let asked = async {
        let c = t.connect_to_create().await?;
        let o = osd(&c, l.whoami).await?;
        Ok::<_, Error>((c, o))
    };
    let (c, o) = asked.await.map_err(|e| {
        format!("{shown} holds the store of osd.{}, and the monitors cannot be asked about it: {e}", l.whoami)
    })?;
    if !is_needed(o.as_ref(), l) {
        return Ok(String::new());
    }
    let is_up = o.as_ref().is_some_and(|o| o["up"] == 1);
    if is_up {
        return Err(
            format!("{shown} holds the store of osd.{}, which the map shows up; stop it first", l.whoami).into()
        );
    }
    check_safe(&c, l.whoami, "--yes-i-really-mean-it erases its store all the same").await?;
    Ok(format!("; the map still has osd.{0}: `belemnite osd remove {0}` removes it", l.whoami))
}

/// Takes the store of an OSD out of service: checks, stops its daemon, tells the monitors with `verb` (`destroy` or
/// `purge`), erases the store, and removes the data directory. True if the OSD was out of the cluster.
async fn retire(h: &Host, c: &Client, id: u32, risk: &Risk, drained: bool, verb: &str) -> Result<bool, Error> {
    let (data, _) = h.places(id);
    if !data.is_dir() {
        return Err(format!("no osd.{id} on this host: {} does not exist", data.display()).into());
    }
    let o = osd(c, id).await?;
    let (device, container) = (h.device(id), h.container(id));
    let labels = h.labels(id).ok();
    if let Some(l) = labels.as_ref().filter(|l| l.whoami != id || l.fsid != h.fsid) {
        let text = format!("{} is the store of osd.{} of cluster {}", device.display(), l.whoami, l.fsid);
        return Err(format!("{text}, not of osd.{id}; nothing was done").into());
    }
    if let (Some(o), Some(l)) = (&o, &labels)
        && o["uuid"] != l.uuid.as_str()
        && !is_destroyed(o)
    {
        let text = format!("the store in {} is not of the osd.{id} that the monitors know", data.display());
        return Err(format!("{text}; `belemnite osd zap` erases it").into());
    }
    let mut out = true;
    if let Some(o) = &o {
        let_go(c, id, o, risk, drained).await?;
        out = o["in"] != 1 || drained;
    }
    h.stop(id)?;
    if o.is_some() {
        must(c, json!({"prefix": "osd down", "ids": [id.to_string()]})).await?;
        let prefix = format!("osd {verb}");
        must(c, json!({"prefix": prefix, "id": id, "yes_i_really_mean_it": true})).await?;
        print(&format!("osd.{id}: the monitors know that its store is gone"));
    }
    container.map_or(Ok(()), |c| c.close())?;
    if labels.is_some() {
        let file = reactor::disk::open(&device).map_err(|e| format!("{}: {e}", device.display()))?;
        wipe(&file, &device)?;
        let target = fs::canonicalize(&device)?;
        if target.is_file() {
            fs::remove_file(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        }
        print(&format!("osd.{id}: {} is erased", target.display()));
    } else {
        print(&format!("osd.{id}: {} cannot be read, and is left as it is", device.display()));
    }
    remove_dir(&data)?;
    Ok(out)
}

/// `belemnite osd destroy`
pub(crate) async fn destroy(t: &Target, a: &DestroyArgs) -> Result<(), Error> {
    let host = Host::new(t.conf_file()?)?;
    let _notes = Notes::open(&host.osds())?;
    let c = t.connect().await?;
    retire(&host, &c, a.id, &a.risk, a.drain, "destroy").await?;
    print(&format!("osd.{} is destroyed; its id waits for `belemnite osd replace {0} --device PATH`", a.id));
    Ok(())
}

/// `belemnite osd remove`, without `up`.
pub(crate) async fn remove(t: &Target, id: u32, risk: &Risk) -> Result<(), Error> {
    let host = Host::new(t.conf_file()?)?;
    let _notes = Notes::open(&host.osds())?;
    let c = t.connect().await?;
    retire(&host, &c, id, risk, true, "purge").await?;
    print(&format!("osd.{id} is removed"));
    Ok(())
}

/// `belemnite osd replace`, without `up`.
pub(crate) async fn replace(t: &Target, id: u32, a: &ReplaceArgs) -> Result<(), Error> {
    let ReplaceArgs { store: s, drain: drained, encrypt, risk, .. } = a;
    let host = Host::new(t.conf_file()?)?;
    // An encrypted OSD stays so.
    let encrypt = *encrypt || host.container(id).is_some();
    let how = How { size: s.size.clone(), class: None, force: s.force, start: false, encrypt };
    let mut bytes = how.check()?;
    let notes = Notes::open(&host.osds())?;
    let c = t.connect().await?;
    let (data, _) = host.places(id);
    let before = real_path(&host.device(id)).ok().filter(|_| data.is_dir());
    let target = match (&s.device, before) {
        (Some(d), _) => real_path(d)?,
        (None, Some(b)) => b,
        (None, None) => return Err(format!("osd.{id} has no store here; name one with --device").into()),
    };
    let mut is_out = false;
    if data.is_dir() && notes.find(&target)?.is_none() {
        if bytes.is_none() {
            bytes = fs::metadata(&target).ok().filter(fs::Metadata::is_file).map(|m| m.len());
        }
        is_out = retire(&host, &c, id, risk, *drained, "destroy").await?;
    } else if !osd(&c, id).await?.is_some_and(|o| is_destroyed(&o)) && notes.find(&target)?.is_none() {
        return Err(format!("osd.{id} is not of this host, and not destroyed").into());
    }
    if let Some(dir) = target.parent() {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let m = Make { host: &host, client: &c, notes: &notes, how: &how, bytes, id: Some(id) };
    m.one(&target).await?;
    if m.start(id).await? {
        m.wait_up(id, None).await?;
        if is_out {
            must(&c, json!({"prefix": "osd in", "ids": [id.to_string()]})).await?;
        }
        print(&format!("osd.{id} is up with an empty store; `ceph -s` shows how its data comes back"));
    }
    Ok(())
}
