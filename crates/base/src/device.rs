//! Interface between a store core and the engine that executes its device I/O.
//!
//! The core emits [`IoRequest`]s and later receives one [`IoCompletion`] for each, in any order. Writes may run
//! in parallel. A [`IoKind::Flush`] covers every write requested before it, also those still in flight, except
//! for [`IoKind::WriteAhead`].
//!
//! Buffers of a request are [`Bytes`], which nothing changes while the engine has them.

use bytes::Bytes;

/// Identifies a request until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Operation of a request. Offsets and lengths are bytes, multiples of [`crate::buf::PAGE`].
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
    /// A write that flushes do not wait for. A flush covers it only if the flush is requested after its
    /// completion was seen.
    WriteAhead {
        /// Byte offset.
        off: u64,
        /// Page-aligned buffers, each a multiple of a page long.
        bufs: Vec<Bytes>,
    },
    /// Makes every earlier write durable, including those in flight: the engine waits for them first, but not
    /// for [`IoKind::WriteAhead`].
    Flush,
    /// Tells the device that a range holds nothing of value.
    Discard {
        /// Byte offset.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A request for device I/O.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Number chosen by the core, unique among requests in flight.
    pub id: IoId,
    /// Operation.
    pub kind: IoKind,
}

/// Outcome of one request.
#[derive(Debug)]
pub struct IoCompletion {
    /// Number of the request.
    pub id: IoId,
    /// Data of a read (exactly the requested length), empty for other operations; or the errno.
    pub result: Result<Bytes, crate::errno::Errno>,
}

/// Synchronous access to a device that nothing else uses: for opening, formatting and tools. Offsets and
/// lengths are multiples of [`crate::buf::PAGE`].
pub trait Device {
    /// Size in bytes.
    fn bytes(&self) -> u64;
    /// Reads ranges `(offset, length)`. Results are in the order of the ranges.
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, crate::errno::Errno>>;
    /// Writes the concatenation of page-aligned buffers.
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), crate::errno::Errno>;
    /// Tells the device that a range holds nothing of value. A device may ignore this.
    fn discard(&mut self, off: u64, len: u64) -> Result<(), crate::errno::Errno> {
        let _ = (off, len);
        Ok(())
    }
    /// Makes all writes durable.
    fn flush(&mut self) -> Result<(), crate::errno::Errno>;
}
