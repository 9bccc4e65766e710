//! The stores of an OSD on its device: making, growing and opening them, and what a restart may have to replay.

use super::options::OsdOptions;
use super::{OsdError, about};
use crate::core::mapstore;
use crate::core::room::RoomLimits;
use base::OsdId;
use base::id::Uuid;
use reactor::disk::{self, DiskFile};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::ObjectStore as _;
use store::engine::Store;
use wire::types::OsdSuperblock;

/// Bits of Ceph's on-disk feature set that an OSD of our release announces in its superblock.
const INCOMPAT: u64 = 0x3_fffe;
/// Bytes of file blocks that are allocated ahead of the logs of all reactors at start.
const LOG_FILLED: u64 = 256 << 20;

/// Parameters for creating an OSD.
#[derive(Clone, Debug)]
pub struct Mkfs {
    /// Number of the OSD.
    pub whoami: OsdId,
    /// The cluster.
    pub fsid: Uuid,
    /// Uuid given to `osd new`.
    pub osd_fsid: Uuid,
    /// File or device.
    pub block: PathBuf,
    /// Size of the file to create; `None` for a device or an existing file.
    pub bytes: Option<u64>,
    /// Overwrite a device or file with other contents.
    pub force: bool,
}

pub(super) fn device_error(path: &std::path::Path) -> impl Fn(String) -> OsdError + use<> {
    let path = path.to_owned();
    move |what| OsdError::Device { path: path.clone(), what }
}

/// Creates a store for an OSD: formats the device or file, and writes the first superblock. Error: the device cannot
/// be used, holds other contents (without `force`), or fails.
pub fn mkfs(m: &Mkfs) -> Result<(), OsdError> {
    let err = device_error(&m.block);
    let file = disk::prepare(&m.block, m.bytes, m.force).map_err(|e| err(e.to_string()))?;
    let mut dev = SyncDevice(file);
    let mut labels = BTreeMap::from([
        ("ceph_fsid".to_owned(), m.fsid.to_string().into()),
        ("whoami".to_owned(), m.whoami.0.to_string().into()),
        ("osd_uuid".to_owned(), m.osd_fsid.to_string().into()),
    ]);
    labels.extend(about::labels_of_creation());
    let options = store::engine::FormatOptions { uuid: m.osd_fsid, reactors: 1, labels };
    store::engine::format(&mut dev, &options).map_err(|e| err(e.to_string()))?;
    let mut stores =
        store::engine::open(&mut dev, &store::engine::Config::default()).map_err(|e| err(e.to_string()))?;
    let Some(store) = stores.first_mut() else { return Err(err("the store has no part for any reactor".into())) };
    let sb = OsdSuperblock {
        cluster_fsid: m.fsid,
        osd_fsid: m.osd_fsid,
        whoami: m.whoami,
        compat_features: wire::types::CompatSet {
            incompat: wire::types::FeatureSet { mask: INCOMPAT, names: BTreeMap::new() },
            ..Default::default()
        },
        ..OsdSuperblock::default()
    };
    let tag = store::Tag(1);
    store.submit(tag, mapstore::first_transaction(&sb));
    store::engine::device::drive(store, &mut dev);
    match store.poll_event() {
        Some(store::Event::Durable(t, Ok(()))) if t == tag => Ok(()),
        other => Err(err(format!("the first transaction did not become durable: {other:?}"))),
    }
}

/// Synchronous access for opening and formatting.
pub(super) struct SyncDevice(Arc<DiskFile>);

impl SyncDevice {
    pub(super) fn new(file: Arc<DiskFile>) -> Self {
        Self(file)
    }
}

impl store::engine::Device for SyncDevice {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<bytes::Bytes, base::errno::Errno>> {
        self.0.read_many(ranges)
    }
    fn write(&mut self, off: u64, data: &[bytes::Bytes]) -> Result<(), base::errno::Errno> {
        self.0.write(off, data)
    }
    fn flush(&mut self) -> Result<(), base::errno::Errno> {
        self.0.sync()
    }
}

/// Extends the store to an enlarged device.
pub(super) fn grow_at_start(file: &Arc<DiskFile>) -> Result<(), store::engine::FormatError> {
    let mut dev = SyncDevice(file.clone());
    let before = store::engine::probe(&mut dev)?.size();
    let size = store::engine::grow(&mut dev)?.size();
    if size > before {
        tracing::info!(before, size, "the store has grown");
    }
    Ok(())
}

/// Opens the stores of all reactors and replays their logs in parallel.
fn open_stores(file: &Arc<DiskFile>, config: &store::engine::Config) -> Result<Vec<Store>, store::engine::OpenError> {
    store::engine::open_with(&mut SyncDevice(file.clone()), config, &mut |_, logs| {
        std::thread::scope(|s| {
            let mut left = logs.iter_mut();
            while let Some(log) = left.next() {
                let mut dev = SyncDevice(file.clone());
                if left.len() > 0 {
                    s.spawn(move || log.replay(&mut dev));
                } else {
                    // The calling thread is otherwise idle.
                    log.replay(&mut dev);
                }
            }
        });
    })
}

/// Longest replay of the log at a restart, in seconds.
const REPLAY_SECS_MAX: u64 = 6;
/// Least replay steps from which the speed of this machine is derived.
const REPLAY_TOLD_BY: u64 = 200_000;

/// Bounds the logs to what this machine can replay in time, if opening has measured its speed.
fn bound_log(stores: &mut [Store], took: Duration) {
    let (mut bytes, mut steps) = (0, 0);
    for r in stores.iter().map(|s| s.replayed()) {
        (bytes, steps) = (bytes + r.bytes, steps + r.steps);
    }
    let Some(each) = steps_bound(steps, took, stores.len() as u64) else { return };
    let (mib, ms) = (bytes >> 20, took.as_millis() as u64);
    tracing::info!(mib, steps, ms, bound_steps = each, "log replayed; its length is bounded by the replay speed");
    for s in stores {
        s.set_replay_steps_max(each);
    }
}

/// Replay steps for each of `reactors`, whose logs are replayed in parallel, from the time that `replayed`
/// steps took.
fn steps_bound(replayed: u64, took: Duration, reactors: u64) -> Option<u64> {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let in_time = replayed.saturating_mul(REPLAY_SECS_MAX * 1000) / ms;
    (replayed >= REPLAY_TOLD_BY).then(|| (in_time / reactors.max(1)).max(store::engine::REPLAY_STEPS_MIN))
}

pub(super) fn room_limits(o: &OsdOptions) -> RoomLimits {
    RoomLimits { min_free: o.device.file_min_free, failsafe: o.device.failsafe_full_ratio }
}

/// Refuses a file on a file system that is almost full: one of the OSD's next writes would fail.
pub(super) fn has_room(file: &DiskFile, o: &OsdOptions) -> Result<(), OsdError> {
    let Some((holes, free)) = file.room() else { return Ok(()) };
    let wanted = room_limits(o).to_start(holes);
    if free < wanted {
        return Err(OsdError::HostFull { path: o.device.path.clone(), free, wanted });
    }
    Ok(())
}

/// Allocates file blocks where the logs will be written next. A commit into a hole also waits for the file
/// system's journal, which takes two to three times the CPU for small commits. Only the first round through the
/// log meets holes; a device has none.
fn fill_log(stores: &mut [Store], file: &DiskFile) {
    let each = LOG_FILLED / stores.len() as u64;
    for s in stores {
        let (off, len) = s.log_ahead(each);
        match file.fill_holes(off, len) {
            Ok(bytes) => {
                tracing::debug!(bytes, "file blocks allocated ahead of the log");
                s.log_filled(len);
            }
            Err(errno) => {
                tracing::warn!(
                    errno = base::errno::name(errno),
                    "cannot allocate file blocks ahead of the log; small commits are slower at first"
                );
                return;
            }
        }
    }
}

/// Opens the stores of all reactors. `fills`: file blocks are allocated ahead of the logs.
pub(super) fn stores_of(o: &OsdOptions, file: &Arc<DiskFile>, fills: bool) -> Result<Vec<Store>, OsdError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let config = |reactors| {
        let config = store::engine::Config::for_memory(reactors, cores, o.memory.store, o.memory.data());
        store::engine::Config { discard: o.device.discard, fill: fills && !o.device.discard, ..config }
    };
    let begun = Instant::now();
    let opened = match open_stores(file, &config(o.reactors as u16)) {
        // The log can't be divided among another number of reactors while a collection exists twice. This start
        // removes one of the two equal collections.
        Err(store::engine::OpenError::Twice { cid, reactors }) => {
            tracing::error!(collection = ?cid, reactors, "a collection exists on two reactors; this start keeps the number of reactors, the next one can change it");
            open_stores(file, &config(reactors))
        }
        r => r,
    };
    let mut stores = opened.map_err(|e| {
        let hint = if e.is_rot() { " (see `belemnite store repair --metadata`)" } else { "" };
        device_error(&o.device.path)(format!("{e}{hint}"))
    })?;
    bound_log(&mut stores, begun.elapsed());
    if fills {
        fill_log(&mut stores, file);
    }
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_by_what_this_machine_replays_in_time() {
        let m = 1_000_000;
        assert_eq!(steps_bound(2 * m, Duration::from_secs(2), 1), Some(6 * m));
        assert_eq!(steps_bound(2 * m, Duration::from_secs(2), 3), Some(2 * m));
        let least = Some(store::engine::REPLAY_STEPS_MIN);
        assert_eq!(steps_bound(2 * m, Duration::from_secs(200), 2), least, "enough to work with");
        assert_eq!(steps_bound(1000, Duration::from_secs(2), 1), None, "too little to tell");
        assert!(steps_bound(m, Duration::ZERO, 1).is_some());
    }
}
