//! `belemnite store`: offline operations on object stores: create, inspect, check, repair, export, import, measure.
//!
//! Exit codes of `fsck`, `repair` and `export`: 0 success; 1 something is damaged, lost, removed or left out, and is
//! listed. 2, of all commands: the command failed. A device in use is refused by its lock. All commands use the same
//! library as the OSD.
//!
//! | module | contents |
//! | --- | --- |
//! | `archive` | archive files with one collection: a header and records with lengths and checksums |
//! | `bench` | benchmark of the store alone on a file, with one reactor: CPU per operation and device traffic |
//! | `show` | properties of a store as JSON |

mod archive;
mod bench;
mod show;

use crate::cli::views::Form;
use crate::size;
use ::store::engine::device::{Overlay, drive, submit};
use ::store::engine::{self, Config, FormatError, FormatOptions, OpenError, Store};
use ::store::{Cid, ObjectName, ObjectStore, Oid, ReadError, Tag, Transaction};
use base::device::Device;
use base::errno::Errno;
use base::{HObject, SpgId};
use bytes::Bytes;
use clap::Subcommand;
use reactor::disk::{self, DiskFile};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) type Error = Box<dyn std::error::Error>;

/// Objects per page of a listing.
const LIST_MAX: usize = 256;
/// Tag of all reads and transactions; only one is active at a time.
const TAG: Tag = Tag(1);

/// Subcommands of `belemnite store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Make an empty store
    Create {
        /// File or block device
        device: PathBuf,
        /// Size of the file to make
        #[arg(long)]
        size: Option<String>,
        /// Overwrite existing contents
        #[arg(long)]
        force: bool,
    },
    /// Show the properties and collections of a store, or the objects of a collection
    Inspect {
        /// File or block device
        device: PathBuf,
        /// Collection to list: a PG such as 1.2f, or meta
        #[arg(long)]
        pg: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Check a store: all metadata pages, and with --deep all data
    Fsck {
        /// File or block device
        device: PathBuf,
        /// Read all data and verify its checksums
        #[arg(long)]
        deep: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Rewrite all copies of superblock and roots, and list objects with unreadable blocks. PGs replace such objects
    /// from other copies when they find them
    Repair {
        /// File or block device
        device: PathBuf,
        /// Remove these objects, for which no other copy exists: clients then get ENOENT. If other copies exist, run
        /// `ceph pg repair PGID` afterwards
        #[arg(long)]
        remove: bool,
        /// First rebuild the metadata if pages of it are unreadable. An object that lost metadata stays, and reading it
        /// fails, so that its PG replaces it. A PG whose object list or log lost a page is removed from this store, and
        /// recovers from other copies
        #[arg(long)]
        metadata: bool,
    },
    /// Use all space of a device that has been enlarged. While an OSD runs on it, enlarge the file or device and then
    /// run `ceph tell osd.N grow`
    Grow {
        /// File or block device
        device: PathBuf,
        /// Enlarge the file to this size first
        #[arg(long)]
        size: Option<String>,
    },
    /// Write a collection to a file
    Export {
        /// File or block device
        device: PathBuf,
        /// PG such as 1.2f, or meta
        pg: String,
        /// File to write
        file: PathBuf,
        /// Leave out unreadable objects, and list them. They do not exist after an import; if the PG has other copies,
        /// run `ceph pg repair PGID` then
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Read a collection from a file written by `export`; the store must not have it
    Import {
        /// File or block device
        device: PathBuf,
        /// File to read
        file: PathBuf,
    },
    /// Measure a store alone, without network, on a new or empty file
    Bench(bench::BenchArgs),
}

/// A file or block device without asynchronous I/O.
pub(crate) struct Plain(pub(crate) Arc<DiskFile>);

/// The device of an open store: writes reach it, or stay in memory.
pub(crate) enum Access {
    Change(Plain),
    Read(Overlay<Plain>),
}

impl Device for Access {
    fn bytes(&self) -> u64 {
        match self {
            Self::Change(d) => d.bytes(),
            Self::Read(d) => d.bytes(),
        }
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        match self {
            Self::Change(d) => d.read_many(ranges),
            Self::Read(d) => d.read_many(ranges),
        }
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        match self {
            Self::Change(d) => d.write(off, data),
            Self::Read(d) => d.write(off, data),
        }
    }
    fn flush(&mut self) -> Result<(), Errno> {
        match self {
            Self::Change(d) => d.flush(),
            Self::Read(d) => d.flush(),
        }
    }
}

impl Device for Plain {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        self.0.read_many(ranges)
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        self.0.write(off, data)
    }
    fn flush(&mut self) -> Result<(), Errno> {
        self.0.sync()
    }
}

/// An open store with its device.
pub(crate) struct Offline {
    pub(crate) store: Store,
    pub(crate) dev: Access,
}

impl Offline {
    /// Opens a store to change it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut dev = Plain(disk::open(path).map_err(|e| format!("{}: {e}", path.display()))?);
        let stores = engine::open(&mut dev, &Config::default());
        Self::of(stores, Access::Change(dev), path)
    }

    /// Opens a store to read it. Of a store that this version must not change, nothing is written to the device.
    fn open_to_read(path: &Path) -> Result<Self, Error> {
        let mut dev = Plain(disk::open(path).map_err(|e| format!("{}: {e}", path.display()))?);
        match engine::open(&mut dev, &Config::default()) {
            Err(OpenError::Format(FormatError::Newer(n))) if n.readable => {
                let mut over = Overlay::new(dev);
                let stores = engine::open_read_only(&mut over, &Config::default());
                Self::of(stores, Access::Read(over), path)
            }
            stores => Self::of(stores, Access::Change(dev), path),
        }
    }

    fn of(stores: Result<Vec<Store>, OpenError>, dev: Access, path: &Path) -> Result<Self, Error> {
        let mut stores = stores.map_err(|e| {
            let hint = if e.is_rot() { "; `belemnite store repair --metadata` keeps what can be read" } else { "" };
            format!("{}: {e}{hint}", path.display())
        })?;
        let store = stores.pop().ok_or("the store opens to nothing")?;
        Ok(Self { store, dev })
    }

    /// Runs a read to completion.
    pub(crate) fn read<T>(&mut self, f: impl Fn(&mut Store, Tag) -> Result<T, ReadError>) -> Result<T, ReadError> {
        loop {
            match f(&mut self.store, TAG) {
                Err(ReadError::Wait) => drive(&mut self.store, &mut self.dev),
                r => {
                    self.store.release(TAG);
                    return r;
                }
            }
        }
    }

    /// Runs a transaction to completion.
    pub(crate) fn submit(&mut self, t: Transaction) -> Result<(), Error> {
        Ok(submit(&mut self.store, &mut self.dev, TAG, t)?)
    }

    /// Takes a checkpoint, so that the log to replay is short.
    fn close(mut self) {
        self.store.request_checkpoint();
        drive(&mut self.store, &mut self.dev);
    }

    /// Calls `f` for every object of a collection.
    pub(crate) fn each_object(
        &mut self,
        cid: Cid,
        mut f: impl FnMut(&mut Self, &Oid) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut from = Some(Oid::new(HObject::min()));
        while let Some(start) = from {
            let (part, next) = self.read(|s, t| s.list(t, cid, &start, None, LIST_MAX))?;
            for o in &part {
                f(self, o)?;
            }
            from = next;
        }
        Ok(())
    }
}

/// The collection of that name. A PG that moved between reactors may be in its second collection, shown as `1.5s101`.
fn cid(s: &mut Offline, name: &str) -> Result<Cid, Error> {
    if name == "meta" {
        return Ok(Cid::Meta);
    }
    let wrong = || format!("{name}: not a PG");
    let (pool, rest) = name.split_once('.').ok_or_else(wrong)?;
    let (seed, shard) = rest.split_once('s').map_or((rest, None), |(s, n)| (s, Some(n)));
    let pool = pool.parse::<u32>().map_err(|_| wrong())?;
    let seed = u32::from_str_radix(seed, 16).map_err(|_| wrong())?;
    let spg = SpgId::from(base::PgId::new(i64::from(pool), seed));
    if let Some(n) = shard {
        let shard = base::ShardId(n.parse().map_err(|_| wrong())?);
        return Ok(Cid::Pg(SpgId { shard, ..spg }));
    }
    let both = [Cid::Pg(spg), pg::staging_cid(Cid::Pg(spg))];
    let counts = |c: &Cid| s.read(|s, t| s.pg_info(t, *c)).is_ok_and(|i| i.is_some_and(|i| !i.is_empty()));
    Ok(both.into_iter().find(counts).unwrap_or(both[0]))
}

fn name(c: Cid) -> String {
    match c {
        Cid::Meta => "meta".into(),
        Cid::Pg(p) => p.to_string(),
    }
}

/// Runs a command.
pub(crate) fn run(c: StoreCommand) -> Result<ExitCode, Error> {
    match c {
        StoreCommand::Create { device, size, force } => create(&device, size.as_deref(), force)?,
        StoreCommand::Inspect { device, pg, form } => inspect(&device, pg.as_deref(), &form)?,
        StoreCommand::Fsck { device, deep, form } => return Ok(fsck(&device, deep, &form)),
        StoreCommand::Repair { device, remove, metadata } => {
            let lost = metadata && rebuild(&device)?;
            let code = repair(&device, remove)?;
            return Ok(if lost { ExitCode::from(1) } else { code });
        }
        StoreCommand::Grow { device, size } => grow(&device, size.as_deref())?,
        StoreCommand::Export { device, pg, file, skip_damaged } => {
            let mut s = Offline::open_to_read(&device)?;
            let c = cid(&mut s, &pg)?;
            let done = archive::export(&mut s, c, &file, skip_damaged)?;
            for (o, why) in &done.left_out {
                println!("left out: {o}: {why}");
            }
            println!("{} objects of {pg} written to {}", done.objects, file.display());
            if !done.left_out.is_empty() {
                println!("{} objects cannot be read and were left out", done.left_out.len());
                return Ok(ExitCode::from(1));
            }
        }
        StoreCommand::Import { device, file } => {
            let mut s = Offline::open(&device)?;
            let (c, n) = archive::import(&mut s, &file)?;
            s.close();
            println!("{n} objects of {} read from {}", name(c), file.display());
        }
        StoreCommand::Bench(a) => bench::run(&a)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn create(path: &Path, size: Option<&str>, force: bool) -> Result<(), Error> {
    let bytes = match size {
        Some(s) => Some(size::parse(s).ok_or_else(|| format!("--size {s}: not a size"))?),
        None => None,
    };
    let file = disk::prepare(path, bytes, force).map_err(|e| format!("{}: {e}", path.display()))?;
    let uuid = crate::admin::new_uuid()?;
    let o = FormatOptions { uuid, reactors: 1, labels: Default::default() };
    let sb = engine::format(&mut Plain(file), &o)?;
    println!("store {} of {} bytes on {}", sb.uuid, sb.bytes, path.display());
    Ok(())
}

fn grow(path: &Path, size: Option<&str>) -> Result<(), Error> {
    let open = || {
        disk::open(path).map_err(|e| match e {
            disk::DiskError::InUse => {
                format!(
                    "{}: {e}; if that is an OSD: make the file or device larger, then `ceph tell osd.N grow`",
                    path.display()
                )
            }
            e => format!("{}: {e}", path.display()),
        })
    };
    if let Some(s) = size {
        let bytes = size::parse(s).ok_or_else(|| format!("--size {s}: not a size"))?;
        // The lock is held while the file changes, so that no daemon opens it.
        let held = open()?;
        if bytes < held.bytes() {
            return Err(format!("{} has {} bytes; a store cannot shrink", path.display(), held.bytes()).into());
        }
        std::fs::OpenOptions::new().write(true).open(path)?.set_len(bytes)?;
    }
    let mut dev = Plain(open()?);
    let before = engine::probe(&mut dev)?.size();
    let sb = engine::grow(&mut dev)?;
    println!("store {} has {} bytes, {} before", sb.uuid, sb.size(), before);
    Ok(())
}

fn inspect(path: &Path, pg: Option<&str>, form: &Form) -> Result<(), Error> {
    let mut s = Offline::open_to_read(path)?;
    if let Some(pg) = pg {
        let c = cid(&mut s, pg)?;
        // A list that may be long is written while it is read.
        let mut between = "[";
        s.each_object(c, |s, o| {
            let st = s.read(|s, t| s.stat(t, c, o))?;
            let info = s.read(|s, t| s.attr(t, c, o, pg::object::OI_ATTR))?;
            let cut = match info.and_then(|i| pg::object::ObjectInfo::as_stored(&i).ok()) {
                Some(i) if i.truncate_seq > 0 => {
                    format!(" truncation {} at {}", i.truncate_seq, i.truncate_size as i64)
                }
                _ => String::new(),
            };
            if form.is_plain() {
                println!("{:12} {:12} {}{cut}", st.size, st.allocated, o.hobj);
            } else {
                let object = o.hobj.to_string();
                println!("{between}{}", json!({ "object": object, "size": st.size, "allocated": st.allocated }));
                between = ",";
            }
            Ok(())
        })?;
        if !form.is_plain() {
            println!("{}]", if between == "[" { "[" } else { "" });
        }
        return Ok(());
    }
    if !form.is_plain() {
        form.show(&show::properties(&s), String::new);
        return Ok(());
    }
    let (sb, fs) = (s.store.superblock().clone(), s.store.statfs());
    println!("uuid {}\nformat {}\nbytes {}\nreactors {}", sb.uuid, sb.version, sb.size(), sb.rings);
    if sb.features.any() {
        println!("features {}", sb.features);
    }
    for (k, v) in &sb.labels {
        println!("label {k} {}", show::label(k, v));
    }
    println!("total {}\navailable {}\nallocated {}", fs.total, fs.available, fs.allocated);
    println!("stored {}\nomap {}\nmetadata {}", fs.stored, fs.omap, fs.metadata);
    println!("log to replay {}", s.store.replay_bytes());
    for (c, bits) in s.store.collections() {
        let (objects, bytes, omap) = s.store.collection_usage(c);
        let kept = match s.store.kept_usage(c) {
            (0, _) => String::new(),
            (records, bytes) => format!(" kept records {records} bytes {bytes}"),
        };
        println!("collection {} bits {bits} objects {objects} bytes {bytes} omap {omap}{kept}", name(c));
    }
    Ok(())
}

fn fsck(path: &Path, deep: bool, form: &Form) -> ExitCode {
    let mut s = match Offline::open_to_read(path) {
        Ok(s) => s,
        Err(e) => {
            crate::complain(e.as_ref());
            return ExitCode::from(2);
        }
    };
    let r = s.store.fsck(&mut s.dev, deep);
    if !form.is_plain() {
        let object = |c: &Cid, o: &Oid| json!({ "collection": name(*c), "object": o.hobj.to_string() });
        let block = |(c, o, b): &(Cid, Oid, u64)| json!({ "in": object(c, o), "block": b });
        let v = json!({
            "clean": r.clean(),
            "errors": r.errors,
            "more_errors": r.more,
            "bad_blocks": r.bad_data.iter().map(block).collect::<Vec<_>>(),
            "bad_undo_records": r.bad_kept.iter().map(|(c, v)| format!("{v} in {}", name(*c))).collect::<Vec<_>>(),
            "damaged_objects": r.damaged.iter().map(|(c, o)| object(c, o)).collect::<Vec<_>>(),
            "pages": r.pages,
            "collections": r.collections,
            "objects": r.objects,
            "data_blocks": r.data_blocks,
            "verified_blocks": r.verified,
        });
        form.show(&v, String::new);
        return if r.clean() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    for e in &r.errors {
        println!("error: {e}");
    }
    if r.more > 0 {
        println!("and {} more", r.more);
    }
    for (c, o, b) in &r.bad_data {
        println!("error: block {b} of {} in {} fails its checksum", o.hobj, name(*c));
    }
    for (c, v) in &r.bad_kept {
        println!("error: the undo record {v} in the log of {} fails its checksum", name(*c));
    }
    for (c, o) in &r.damaged {
        println!("error: {} in {} has lost metadata of its own", o.hobj, name(*c));
    }
    println!(
        "{} pages of metadata, {} collections, {} objects, {} blocks of data, {} compared with their checksums: {}",
        r.pages,
        r.collections,
        r.objects,
        r.data_blocks,
        r.verified,
        if r.clean() { "clean" } else { "damaged" }
    );
    if r.clean() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// True for a PG's own metadata object in its collection, which no other copy has.
fn is_own(oid: &ObjectName) -> bool {
    oid.hobj.oid.is_empty()
}

/// Rebuilds the metadata from its readable pages and prints the losses; true if there are any.
fn rebuild(path: &Path) -> Result<bool, Error> {
    let mut dev = Plain(disk::open(path).map_err(|e| format!("{}: {e}", path.display()))?);
    let lacks =
        engine::rebuild(&mut dev, &Config::default(), is_own).map_err(|e| format!("{}: {e}", path.display()))?;
    for p in &lacks.pages {
        println!("unreadable: {p}");
    }
    println!(
        "metadata rebuilt: {} of its pages and {} pages of the allocation map were unreadable",
        lacks.pages.len(),
        lacks.map_pages
    );
    if lacks.moved > 0 {
        println!("{} omap keys were stored in the wrong place and have been moved", lacks.moved);
    }
    for c in &lacks.collections {
        println!("lost: all of {}", name(*c));
    }
    if lacks.nameless > 0 {
        println!("lost: collections whose names cannot be read ({} pages of their records)", lacks.nameless);
    }
    drop(dev);
    let meta = Offline::open(path)?.store.collections().iter().any(|c| c.0 == Cid::Meta);
    if !meta || lacks.objects.iter().any(|o| o.0 == Cid::Meta) {
        println!(
            "the OSD cannot start without the lost parts of meta: export its PGs, create a new store and import them"
        );
    }
    if lacks.undo_records > 0 {
        println!("lost: undo records of {} log entries", lacks.undo_records);
    }
    let more = lacks.nameless > 0 || lacks.undo_records > 0;
    Ok(!lacks.collections.is_empty() || !lacks.objects.is_empty() || more)
}

fn repair(path: &Path, remove: bool) -> Result<ExitCode, Error> {
    let mut s = Offline::open(path)?;
    let r = s.store.fsck(&mut s.dev, true);
    let mut bad: Vec<(Cid, Oid)> = r.bad_data.iter().map(|(c, o, _)| (*c, o.clone())).collect();
    bad.extend(r.damaged.iter().cloned());
    bad.sort_unstable();
    bad.dedup();
    for (c, o) in &bad {
        println!("{} in {}", o.hobj, name(*c));
        if remove && !is_own(o) {
            s.submit(Transaction { ops: vec![::store::Op::Remove { cid: *c, oid: o.clone() }] })?;
        }
    }
    for (c, v) in &r.bad_kept {
        println!("undo record {v} in the log of {}", name(*c));
        if remove {
            s.submit(Transaction { ops: vec![::store::Op::DropKept { cid: *c, to: *v }] })?;
        }
    }
    println!("{} objects cannot be read completely{}", bad.len(), if remove { ", removed" } else { "" });
    if remove && !bad.is_empty() {
        println!("clients now get ENOENT for them; if the PG has other copies, run `ceph pg repair` on it");
    }
    if !r.errors.is_empty() {
        println!(
            "{} metadata errors: `belemnite store repair --metadata` rebuilds the metadata from its readable pages",
            r.errors.len()
        );
        return Ok(ExitCode::from(1));
    }
    s.close();
    renew_copies(path)?;
    Ok(if bad.is_empty() && r.bad_kept.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Rewrites all copies of superblock and roots of a sound store. There is a pair for odd versions and one for even
/// versions.
fn renew_copies(path: &Path) -> Result<(), Error> {
    for _ in 0..2 {
        Offline::open(path)?.close();
        let mut dev = Plain(disk::open(path)?);
        let labels = engine::probe(&mut dev)?.labels;
        engine::relabel(&mut dev, labels)?;
    }
    println!("all copies of superblock and roots written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::store::Op;
    use ::store::layout::Layout;
    use base::{PgId, Uuid};
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_repair_rewrites_damaged_copies_of_superblock_and_roots() {
        let path = std::env::temp_dir().join(format!("belemnite-repair-{}", std::process::id()));
        let bytes = 64 << 20;
        let o = FormatOptions { uuid: Uuid([4; 16]), reactors: 1, labels: Default::default() };
        engine::format(&mut Plain(disk::prepare(&path, Some(bytes), false).unwrap()), &o).unwrap();
        let mut s = Offline::open(&path).unwrap();
        let pg = Cid::Pg(PgId::new(1, 0).into());
        s.submit(Transaction { ops: vec![Op::MakeCollection { cid: pg, bits: 0 }] }).unwrap();
        s.close();
        let layout = Layout::of(bytes).unwrap();
        let rot = |copy: u64| {
            let blocks = [layout.super_slot(2 * copy), layout.super_slot(2 * copy + 1)];
            let roots = [0, 1].map(|parity| layout.root_slot(0, parity, copy));
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            for b in blocks.into_iter().chain(roots) {
                file.write_all_at(&[0xff; 64], b * 4096 + 8).unwrap();
            }
        };
        // Damage all first copies or all second copies: the others repair them.
        for copy in [0, 1, 0] {
            rot(copy);
            assert_eq!(repair(&path, false).unwrap(), ExitCode::SUCCESS);
        }
        assert_eq!(Offline::open(&path).unwrap().store.collections(), [(pg, 0)]);
        rot(0);
        rot(1);
        assert!(Offline::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
