//! Configuration and counters of an engine. Nothing here depends on the state of a store.

#[cfg(doc)]
use super::Store;
use crate::meta::tree::KIDS_MAX;

/// Run-time configuration of an engine, independent of the format.
#[derive(Clone, Debug)]
pub struct Config {
    /// Reactors that share the device.
    pub reactors: u16,
    /// Budget in bytes for the metadata of each reactor's store. Single transactions may exceed it.
    pub meta_bytes: usize,
    /// Bytes of blocks cached for sub-block writes and re-reads.
    pub cache_bytes: usize,
    /// Bytes more of data that was read; see [`Store::set_data_bytes`].
    pub data_bytes: usize,
    /// Least bytes of whole blocks that a write needs to be written before its transaction enters a frame.
    pub early_bytes: usize,
    /// Most group commits in flight; above it the open frame waits and grows. The frame also waits while the newest
    /// commit in flight has more transactions than the frame, or more than four.
    pub commits_max: usize,
    /// Log bytes after which a checkpoint starts, at most half of the log's limit.
    pub checkpoint_log_bytes: u64,
    /// Most log bytes that a restart may have to replay, whatever the length of the ring. Beyond it
    /// transactions wait for a checkpoint.
    pub log_bytes_max: u64,
    /// Most steps ([`Replayed::steps`]) that a restart may have to replay. Beyond it transactions wait for a
    /// checkpoint, which starts at half of them. A step takes 0.6 to 1.3 us.
    pub replay_steps_max: u64,
    /// Bytes of metadata that a checkpoint encodes in one turn.
    pub checkpoint_turn_bytes: usize,
    /// Most bytes of metadata that a checkpoint has in flight.
    pub checkpoint_flight_bytes: usize,
    /// Discard freed blocks before they are allocated again.
    pub discard: bool,
    /// Ask the host to allocate file blocks before small data is written there ([`Store::poll_fill`]). For
    /// devices that are files.
    pub fill: bool,
    /// Allocate the lowest free blocks in every turn, so that freed blocks are soon overwritten. For crash
    /// tests.
    pub first_fit: bool,
    /// Most kids of an inner page, at least 2. A small number makes deep trees, for tests.
    pub kids_max: usize,
    /// Prepare only the first operation of a transaction, so that the others miss pages. For tests.
    pub prepare_less: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reactors: 1,
            meta_bytes: 256 << 20,
            cache_bytes: 8 << 20,
            data_bytes: 0,
            early_bytes: 64 << 10,
            commits_max: 2,
            checkpoint_log_bytes: 256 << 20,
            log_bytes_max: 256 << 20,
            replay_steps_max: 4_000_000,
            checkpoint_turn_bytes: 256 << 10,
            checkpoint_flight_bytes: 2 << 20,
            discard: false,
            fill: false,
            first_fit: false,
            kids_max: KIDS_MAX,
            prepare_less: false,
        }
    }
}

/// Least log bytes of one reactor.
pub const LOG_BYTES_MIN: u64 = 16 << 20;
/// Least replay steps of a log: as many as 16 MiB of overwrites need, some of them in pages of their own.
pub const REPLAY_STEPS_MIN: u64 = 500_000;
/// Number of logs that are replayed in parallel in the time of one, each on its core.
const LOGS_SIDE_BY_SIDE: u64 = 4;
/// Least memory in bytes of one reactor's store, for metadata and for blocks.
const MEMORY_MIN: (usize, usize) = (4 << 20, 1 << 20);

impl Config {
    /// Configuration for `reactors` on `cores` with `bytes` of memory in total, one sixteenth for data and the rest for
    /// metadata, and `data` bytes more for data. If reactors outnumber cores, or are many, they also share the log limits, since their
    /// logs are replayed in parallel from one device.
    #[must_use]
    pub fn for_memory(reactors: u16, cores: usize, bytes: u64, data: u64) -> Self {
        let each = usize::try_from(bytes / u64::from(reactors.max(1))).unwrap_or(usize::MAX);
        let n = u64::from(reactors.max(1));
        let share = |of: u64| of * n.min(cores.max(1) as u64).min(LOGS_SIDE_BY_SIDE) / n;
        let (log, steps) = (share(Self::default().log_bytes_max), share(Self::default().replay_steps_max));
        let cache_bytes = (each / 16).max(MEMORY_MIN.1);
        let meta_bytes = each.saturating_sub(cache_bytes).max(MEMORY_MIN.0);
        let data_bytes = usize::try_from(data / n).unwrap_or(usize::MAX);
        let (log_bytes_max, replay_steps_max) = (log.max(LOG_BYTES_MIN), steps.max(REPLAY_STEPS_MIN));
        Self { reactors, meta_bytes, cache_bytes, data_bytes, log_bytes_max, replay_steps_max, ..Self::default() }
    }
}

/// Counts of pieces of data that were to be compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Extents written compressed.
    pub packed: u64,
    /// Pieces that did not become small enough.
    pub unpackable: u64,
    /// Pieces that got a faster level than wanted, or none, since much was compressed in the same turn.
    pub hurried: u64,
}

/// Counters for metrics. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions submitted.
    pub txns: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of frames written.
    pub log_bytes: u64,
    /// Data blocks written.
    pub data_blocks: u64,
    /// Data write requests.
    pub data_writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Metadata blocks written.
    pub page_blocks: u64,
    /// Block maps of which a checkpoint stored only the changes.
    pub delta_chunks: u64,
    /// Read requests for metadata pages.
    pub page_reads: u64,
    /// Metadata pages evicted from memory.
    pub evictions: u64,
    /// Metadata pages that could not be read or were inconsistent.
    pub bad_pages: u64,
    /// Blocks whose checksum did not match.
    pub bad_blocks: u64,
    /// Blocks of reads that were answered from memory.
    pub cached_blocks: u64,
    /// Times a transaction waited for log or space.
    pub stalls: u64,
    /// Times a transaction missed a page or block while it was applied.
    pub suspensions: u64,
    /// Most steps of one turn besides metadata pages: runs entered into the map of used blocks, its pages given
    /// places, runs released.
    pub turn_steps_max: u64,
    /// Kids of inner pages of the trees that were looked at to bring or drop ranges of leaves.
    pub visits: u64,
    /// Words of the free-space bitmap and groups of blocks examined to find free blocks.
    pub searched: u64,
}

/// Amount of log that opening a store replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes of the frames.
    pub bytes: u64,
    /// Number of transactions.
    pub txns: u64,
    /// Cost of the replay: one step per change, key and reference, and for each page that became dirty as many
    /// as reading it may take. Replay time depends on these more than on bytes: the record of a clone is short
    /// but counts each of its blocks.
    pub steps: u64,
}
