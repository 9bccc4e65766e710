//! The data segment of a message: payloads of writes, and bulk metadata for receivers that understand it
//! ([`PeerFeatures::PARTS`]).

use bytes::{BufMut, Bytes, BytesMut};
use wire::msg::{MPgPeer, PeerFeatures};
use wire::{DecodeError, Reader, Writer};

/// Metadata of one change above this size in bytes goes to the data segment.
const BULK_MIN: usize = 64 << 10;
/// Size of the body in bytes from which all metadata goes to the data segment.
const BODY_MANY: usize = 1 << 20;
/// Longest blob in bytes that stays in the body among those of bulk metadata.
const INLINE_MAX: usize = 256;
/// Flag of a length: the bytes are in the data segment.
const APART: u32 = 1 << 31;

/// The data segment that is being filled.
#[derive(Debug)]
pub struct Payload {
    pieces: Vec<Bytes>,
    len: usize,
    /// The receivers accept metadata here.
    bulk: bool,
}

impl Payload {
    /// An empty segment for receivers with these features.
    #[must_use]
    pub fn new(to: PeerFeatures) -> Self {
        Self { pieces: Vec::new(), len: 0, bulk: to.has(PeerFeatures::PARTS) }
    }

    /// Appends a piece.
    pub fn push(&mut self, b: &Bytes) {
        if !b.is_empty() {
            self.len += b.len();
            self.pieces.push(b.clone());
        }
    }

    /// True if metadata of `size` bytes goes to this segment rather than to body `w`.
    pub(super) fn takes(&self, size: usize, w: &Writer) -> bool {
        let many = size > BULK_MIN || w.len() > BODY_MANY && size > INLINE_MAX;
        self.bulk && many && self.len.saturating_add(size) <= MPgPeer::DATA_MAX
    }

    /// Appends a blob of bulk metadata: its length to the body, its bytes to the body or to this segment.
    pub(super) fn blob(&mut self, b: &Bytes, w: &mut Writer) {
        let len = u32::try_from(b.len()).unwrap_or(u32::MAX) & !APART;
        if b.len() <= INLINE_MAX && w.len() <= BODY_MANY {
            w.u32(len);
            w.raw(b);
        } else {
            w.u32(len | APART);
            self.push(b);
        }
    }

    /// The segment; a single piece is not copied.
    #[must_use]
    pub fn join(mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.swap_remove(0),
            _ => {
                let mut all = BytesMut::with_capacity(self.len);
                self.pieces.iter().for_each(|p| all.put_slice(p));
                all.freeze()
            }
        }
    }
}

/// Reads a data segment in the order in which it was filled.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    data: &'a Bytes,
    at: usize,
}

impl<'a> Segment<'a> {
    pub(super) fn new(data: &'a Bytes) -> Self {
        Self { data, at: 0 }
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        let end = self.at.checked_add(len).filter(|e| *e <= self.data.len());
        let end = end.ok_or(DecodeError::BadValue { what, value: len as u64 })?;
        let b = self.data.slice(self.at..end);
        self.at = end;
        Ok(b)
    }

    /// The next blob of bulk metadata.
    pub(super) fn blob(&mut self, r: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
        let len = r.u32()?;
        let n = (len & !APART) as usize;
        if len & APART == 0 { r.take_bytes(n, "metadata") } else { self.take(n, "metadata") }
    }
}

/// True if a message with this body and data may be sent to another OSD.
#[must_use]
pub fn may_be_sent((body, data): &(Bytes, Bytes)) -> bool {
    body.len() <= MPgPeer::BODY_MAX && data.len() <= MPgPeer::DATA_MAX
}
