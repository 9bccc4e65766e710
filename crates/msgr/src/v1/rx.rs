//! Input of a msgr1 connection: turns bytes into greetings, requests and verified messages.
//!
//! Invariants:
//!  1. Nothing is allocated for a message before its header's checksum and lengths were checked, and, if the host asks
//!     for that, before it has granted the bytes.
//!  2. A message is returned only after all its checksums were verified. Its signature is the caller's to check.
//!
//! Tests: `tests/does_msgr1_serve_clients_and_refuse_others.rs`.

use super::format::{COMPLETE, FOOTER_LEN, Footer, HEADER_LEN, Header, NO_DATA_CRC, SIGNED_LEN, Tag};
use crate::Error;
use crate::assembly::{self, Assembly};
use crate::policy::FrameLimits;
use crate::pool::BufPool;
use base::crc::{SEED, append, crc32c};
use base::{Summed, Utime};
use bytes::{Buf, Bytes};
use wire::{Message, Reader};

/// A received message with what its signature is about.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// Number of the sender, as it says.
    pub(crate) src_num: i64,
    pub(crate) signed: [u8; SIGNED_LEN],
    pub(crate) signature: u64,
}

/// One item of an open session.
#[derive(Debug)]
pub(crate) enum Item {
    Message(Box<Received>),
    Ack,
    Keepalive,
    /// The peer wants this time back.
    Keepalive2(Utime),
    /// The time that we sent.
    KeepaliveAck(Utime),
    Close,
}

#[derive(Debug)]
struct Body {
    header: Header,
    bytes: Assembly,
}

/// Input queue and parser.
#[derive(Debug)]
pub(crate) struct Rx {
    chunk: Bytes,
    body: Option<Box<Body>>,
    pool: BufPool,
}

impl Rx {
    /// An empty queue. Large messages get buffers from `pool`.
    pub(crate) fn new(pool: BufPool) -> Self {
        Self { chunk: Bytes::new(), body: None, pool }
    }

    pub(crate) fn feed(&mut self, b: Bytes) {
        assembly::append(&mut self.chunk, b);
    }

    pub(crate) fn take_pending(&mut self) -> Bytes {
        std::mem::take(&mut self.chunk)
    }

    /// The unparsed input.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.chunk
    }

    pub(crate) fn asks(&self) -> Option<usize> {
        self.body.as_ref()?.bytes.asks()
    }

    pub(crate) fn grant(&mut self) {
        if let Some(b) = &mut self.body {
            b.bytes.grant();
        }
    }

    pub(crate) fn partial(&self) -> Option<(usize, usize)> {
        self.body.as_ref()?.bytes.partial()
    }

    pub(crate) fn target(&mut self) -> Option<&mut [u8]> {
        self.body.as_mut()?.bytes.target(&self.pool)
    }

    pub(crate) fn received(&mut self, n: usize) {
        if let Some(b) = &mut self.body {
            b.bytes.received(n);
        }
    }

    /// The next `n` bytes, once they have arrived.
    pub(crate) fn exact(&mut self, n: usize) -> Option<Bytes> {
        (self.chunk.len() >= n).then(|| self.chunk.split_to(n))
    }

    /// The next item, once it is complete. Error: an unknown tag, a length above `limits`, a wrong checksum, or a message
    /// that its sender aborted.
    pub(crate) fn poll_item(&mut self, limits: FrameLimits) -> Result<Option<Item>, Error> {
        let mut body = match self.body.take() {
            Some(b) => b,
            None => {
                let Some(tag) = self.chunk.first().copied() else { return Ok(None) };
                let tag = Tag::of_item(tag).ok_or(Error::BadTag(tag))?;
                let Some(mut fixed) = self.exact(1 + tag.fixed_len()) else { return Ok(None) };
                fixed.advance(1);
                if tag != Tag::Msg {
                    return short_item(tag, &fixed).map(Some);
                }
                Box::new(begin(&fixed, limits)?)
            }
        };
        match body.bytes.poll(&mut self.chunk, &self.pool, !limits.ask) {
            Some(raw) => finish(&body, raw.freeze(0)).map(Some),
            None => {
                self.body = Some(body);
                Ok(None)
            }
        }
    }
}

fn short_item(tag: Tag, b: &[u8]) -> Result<Item, Error> {
    let time = || Reader::new(b).get::<Utime>().map_err(|error| Error::Malformed { tag: "keepalive", error });
    Ok(match tag {
        Tag::Ack => Item::Ack,
        Tag::Keepalive2 => Item::Keepalive2(time()?),
        Tag::Keepalive2Ack => Item::KeepaliveAck(time()?),
        Tag::Close => Item::Close,
        _ => Item::Keepalive,
    })
}

/// Checks a header against the limits.
fn begin(header: &[u8], limits: FrameLimits) -> Result<Body, Error> {
    debug_assert_eq!(header.len(), HEADER_LEN);
    let header = Header::read(header)?;
    for (segment, (len, max)) in header.len.into_iter().zip([limits.front, limits.middle, limits.data]).enumerate() {
        if len > max {
            return Err(Error::TooLarge { tag: "message", segment, len, max });
        }
    }
    let [front, middle, data] = header.len;
    Ok(Body { header, bytes: Assembly::new(front + middle + data + FOOTER_LEN, front + middle) })
}

/// Checks a complete message.
fn finish(body: &Body, mut b: Bytes) -> Result<Item, Error> {
    let h = &body.header;
    let [mut front, middle, data] = h.len.map(|n| b.split_to(n.min(b.len())));
    let footer = Footer::read(&b).map_err(|error| Error::Malformed { tag: "message", error })?;
    if footer.flags & COMPLETE == 0 {
        return Err(Error::Aborted);
    }
    let mut sums = None;
    for (segment, (bytes, got)) in [&front, &middle, &data].into_iter().zip(footer.crc).enumerate() {
        if segment == 2 && footer.flags & NO_DATA_CRC != 0 {
            continue;
        }
        if segment == 2 {
            sums = Summed::if_large(bytes);
        }
        let want = match &sums {
            Some(known) => append(0, SEED, known.crc(), bytes.len()),
            None => crc32c(0, bytes),
        };
        if got != want {
            return Err(Error::SegmentCrc { tag: "message", segment, got, want });
        }
    }
    body.bytes.own_front(&mut front);
    Ok(Item::Message(Box::new(Received {
        signed: footer.signed(h),
        signature: footer.signature,
        src_num: h.src_num,
        message: Message { header: h.common, front, middle, data, sums, ..Message::default() },
    })))
}
