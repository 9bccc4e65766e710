//! The language between a store core and whatever executes its device I/O.
//!
//! The core emits [`IoRequest`]s and is later handed one [`IoCompletion`] for each, in any order. Requests of one
//! [`IoKind::Write`] batch may run in parallel; a flush covers only writes whose completion was seen before it was
//! issued, unless it is `after` a set of writes in the same submission (then the engine orders it behind them).
//! Invariant: a buffer handed out in a request belongs to the engine until its completion.

use bytes::Bytes;

/// Names a request until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// What to do with the device. Offsets and lengths are bytes, multiples of [`crate::buf::PAGE`].
#[derive(Clone, Debug)]
pub enum IoKind {
    /// Read `len` bytes at `off` into a fresh aligned buffer.
    Read {
        /// Byte offset.
        off: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Write the concatenation of page-aligned buffers at `off`.
    Write {
        /// Byte offset.
        off: u64,
        /// Page-aligned buffers, each a multiple of a page long.
        bufs: Vec<Bytes>,
    },
    /// The same, but no flush that is requested before its completion was seen waits for it.
    WriteAhead {
        /// Byte offset.
        off: u64,
        /// Page-aligned buffers, each a multiple of a page long.
        bufs: Vec<Bytes>,
    },
    /// Make every write durable that was requested before this flush, including those still in flight: the engine
    /// waits for them first, but for [`IoKind::WriteAhead`].
    Flush,
    /// Tell the device that a range holds nothing of value.
    Discard {
        /// Byte offset.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// One request.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Chosen by the core, unique among requests in flight.
    pub id: IoId,
    /// What to do.
    pub kind: IoKind,
}

/// Outcome of one request.
#[derive(Debug)]
pub struct IoCompletion {
    /// The request.
    pub id: IoId,
    /// Data of a read (exactly the length asked for), empty for others; or the errno.
    pub result: Result<Bytes, crate::errno::Errno>,
}

/// A device used by one thread while nothing else runs on it: opening, formatting, tools. Offsets and lengths are multiples
/// of [`crate::buf::PAGE`].
pub trait Device {
    /// Size in bytes.
    fn bytes(&self) -> u64;
    /// Reads ranges `(offset, length)`; results in order.
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, crate::errno::Errno>>;
    /// Writes the concatenation of page-aligned buffers.
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), crate::errno::Errno>;
    /// Says that a range holds nothing of value; a device may do nothing.
    fn discard(&mut self, off: u64, len: u64) -> Result<(), crate::errno::Errno> {
        let _ = (off, len);
        Ok(())
    }
    /// Makes all writes durable.
    fn flush(&mut self) -> Result<(), crate::errno::Errno>;
}
