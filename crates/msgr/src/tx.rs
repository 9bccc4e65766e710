//! Output of a connection: encodes frames into a queue of slices for vectored writes.
//!
//! Small parts (preambles, headers, short fronts, epilogues) are copied into one gathering buffer; large segments are
//! shared without a copy. In secure mode everything is encrypted in the gathering buffer, but for long messages: theirs
//! are encrypted in buffers of the connection's pool, because a gathering buffer of megabytes would be copied when it
//! grows and moved down between partial writes.
//!
//! Invariant: the concatenation of all slices is the byte stream, in order of the calls.
//!
//! Tests: below.

use crate::Error;
use crate::frame::{EPILOGUE_CRC_LEN, EPILOGUE_SECURE_LEN, HEADER2_LEN, LATE_COMPLETE, Preamble, Tag, segment_crc};
use crate::pool::BufPool;
use crate::secure::{INLINE, Stream, TAG_LEN, padded};
use base::crc::{SEED, append, crc32c};
use bytes::{BufMut, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;
use wire::{Features, Message, Writer};

/// Segments from this size in bytes are shared instead of copied into the gathering buffer.
const SHARE_MIN: usize = 2048;
/// In secure mode, segments 1 to 3 of a message are encrypted in a buffer of their own when they have at least this many
/// bytes together.
const OWN_BUFFER_MIN: usize = 64 * 1024;
/// A gathering buffer larger than this, in bytes, is freed once it is empty.
const KEEP_MAX: usize = 256 * 1024;
/// Consumed bytes at the front of the gathering buffer after which the rest is moved down.
const COMPACT_MIN: usize = 64 * 1024;

#[derive(Debug)]
enum Part {
    /// This many bytes of the gathering buffer.
    Small(usize),
    Shared(Bytes),
}

/// Output queue.
#[derive(Debug, Default)]
pub struct Tx {
    small: Vec<u8>,
    /// Bytes of `small` that are written to the socket.
    done: usize,
    parts: VecDeque<Part>,
    bytes: usize,
    crypto: Option<Stream>,
    /// All bytes sent so far, recorded for the signature.
    log: Option<Vec<u8>>,
    pool: BufPool,
}

impl Tx {
    /// An empty queue that records its output for the signature. Long encrypted messages get buffers from `pool`.
    #[must_use]
    pub fn new(pool: BufPool) -> Self {
        Self { log: Some(Vec::new()), pool, ..Self::default() }
    }

    /// Number of unwritten bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if everything was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Ends the recording and returns it.
    pub fn take_log(&mut self) -> Vec<u8> {
        self.log.take().unwrap_or_default()
    }

    /// Enables encryption.
    pub fn set_crypto(&mut self, s: Stream) {
        self.crypto = Some(s);
    }

    fn committed(&mut self, from: usize) {
        let n = self.small.len() - from;
        if n == 0 {
            return;
        }
        self.bytes += n;
        if let (Some(log), Some(new)) = (&mut self.log, self.small.get(from..)) {
            log.extend_from_slice(new);
        }
        match self.parts.back_mut() {
            Some(Part::Small(m)) => *m += n,
            _ => self.parts.push_back(Part::Small(n)),
        }
    }

    fn share(&mut self, b: &Bytes) {
        self.bytes += b.len();
        self.parts.push_back(Part::Shared(b.clone()));
    }

    /// Appends raw bytes (the banner).
    pub fn raw(&mut self, b: &[u8]) {
        let from = self.small.len();
        self.small.extend_from_slice(b);
        self.committed(from);
    }

    /// Appends a control frame whose payload `f` writes. Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn control(&mut self, tag: Tag, f: impl FnOnce(&mut Writer)) -> Result<(), Error> {
        let mut w = Writer::new(Features::PACIFIC);
        f(&mut w);
        let payload = w.as_slice();
        let (p, preamble) = Preamble::build(tag, [payload.len(), 0, 0, 0]);
        let from = self.small.len();
        self.small.extend_from_slice(&preamble);
        self.small.extend_from_slice(payload);
        if self.crypto.is_some() {
            self.seal_head(from, &p)?;
        } else if !payload.is_empty() {
            let crc = segment_crc(payload);
            self.small.extend_from_slice(&crc.to_le_bytes());
        }
        self.committed(from);
        Ok(())
    }

    /// Appends a message whose header is already encoded. Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn message(&mut self, header: &[u8; HEADER2_LEN], m: &Message) -> Result<(), Error> {
        let (p, preamble) = Preamble::build(Tag::Message, [HEADER2_LEN, m.front.len(), m.middle.len(), m.data_len()]);
        let from = self.small.len();
        self.small.extend_from_slice(&preamble);
        self.small.extend_from_slice(header);
        if self.crypto.is_some() {
            self.seal_head(from, &p)?;
            return self.seal_tail(from, &p, m);
        }
        self.small.extend_from_slice(&segment_crc(header).to_le_bytes());
        if p.count == 1 {
            self.committed(from);
            return Ok(());
        }
        let mut epilogue = [0; EPILOGUE_CRC_LEN];
        epilogue[0] = LATE_COMPLETE;
        for i in 0..p.count - 1 {
            let crc = match i {
                0 => segment_crc(&m.front),
                1 => segment_crc(&m.middle),
                _ => data_crc(m),
            };
            epilogue[1 + 4 * i..5 + 4 * i].copy_from_slice(&crc.to_le_bytes());
        }
        self.segments(from, m, &epilogue);
        Ok(())
    }

    /// Appends a message as `head`, its segments and `tail`, unencrypted.
    pub(crate) fn plain(&mut self, head: &[u8], m: &Message, tail: &[u8]) {
        let from = self.small.len();
        self.small.extend_from_slice(head);
        self.segments(from, m, tail);
    }

    /// Appends segments and what follows them to what was appended at `from`. Long segments are shared.
    fn segments(&mut self, mut from: usize, m: &Message, tail: &[u8]) {
        for seg in [&m.front, &m.middle, &m.lead, &m.data] {
            if seg.len() < SHARE_MIN {
                self.small.extend_from_slice(seg);
            } else {
                self.committed(from);
                self.share(seg);
                from = self.small.len();
            }
        }
        self.small.extend_from_slice(tail);
        self.committed(from);
    }

    /// Encrypts preamble and segment 0, which were appended at `from`: a first run with 48 bytes of the segment, and a
    /// second with its rest.
    fn seal_head(&mut self, from: usize, p: &Preamble) -> Result<(), Error> {
        let first = from + crate::frame::PREAMBLE_LEN + INLINE;
        let seg0 = padded(p.len[0]).max(INLINE);
        self.small.resize(from + crate::frame::PREAMBLE_LEN + seg0, 0);
        let rest = self.small.split_off(first);
        self.seal_from(from)?;
        if !rest.is_empty() {
            let at = self.small.len();
            self.small.extend_from_slice(&rest);
            self.seal_from(at)?;
        }
        Ok(())
    }

    /// Encrypts segments 1 to 3 and the epilogue as one run, and commits the frame, whose head was appended at `from`.
    fn seal_tail(&mut self, from: usize, p: &Preamble, m: &Message) -> Result<(), Error> {
        if p.count == 1 {
            self.committed(from);
            return Ok(());
        }
        let segments = [m.front.len(), m.middle.len(), m.data_len()];
        let len = segments.into_iter().map(padded).sum::<usize>() + EPILOGUE_SECURE_LEN;
        if len < OWN_BUFFER_MIN {
            let at = self.small.len();
            put_tail(&mut self.small, m);
            self.seal_from(at)?;
            self.committed(from);
            return Ok(());
        }
        self.committed(from);
        let mut buf = self.pool.take(len + TAG_LEN);
        let (Some(c), Some((run, tag))) = (&mut self.crypto, buf.bytes_mut().split_at_mut_checked(len)) else {
            return Err(Error::NonceExhausted);
        };
        put_tail(&mut *run, m);
        tag[..TAG_LEN].copy_from_slice(&c.seal(run)?);
        self.share(&Bytes::from_owner(buf).slice(..len + TAG_LEN));
        Ok(())
    }

    fn seal_from(&mut self, at: usize) -> Result<(), Error> {
        if let (Some(c), Some(run)) = (&mut self.crypto, self.small.get_mut(at..)) {
            let tag = c.seal(run)?;
            self.small.extend_from_slice(&tag);
        }
        Ok(())
    }

    /// Number of slices in the whole queue.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Fills `out` with the next slices; returns their number.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.done;
        let mut n = 0;
        for (p, o) in self.parts.iter().zip(out.iter_mut()) {
            *o = match p {
                Part::Small(len) => {
                    let s = self.small.get(at..at + len).unwrap_or_default();
                    at += len;
                    IoSlice::new(s)
                }
                Part::Shared(b) => IoSlice::new(b),
            };
            n += 1;
        }
        n
    }

    /// Reports that the socket took `n` bytes.
    pub fn advance(&mut self, mut n: usize) {
        self.bytes = self.bytes.saturating_sub(n);
        while n > 0 {
            match self.parts.front_mut() {
                None => break,
                Some(Part::Small(len)) => {
                    let k = n.min(*len);
                    *len -= k;
                    self.done += k;
                    n -= k;
                    if *len == 0 {
                        self.parts.pop_front();
                    }
                }
                Some(Part::Shared(b)) => {
                    let k = n.min(b.len());
                    n -= k;
                    if k == b.len() {
                        self.parts.pop_front();
                    } else {
                        let _ = b.split_to(k);
                    }
                }
            }
        }
        if self.done == self.small.len() {
            self.done = 0;
            if self.small.capacity() > KEEP_MAX {
                self.small = Vec::new();
            } else {
                self.small.clear();
            }
        } else if self.done >= COMPACT_MIN && self.done * 2 >= self.small.len() {
            self.small.drain(..self.done);
            self.done = 0;
        }
    }
}

/// A part that is not there.
static NOTHING: Bytes = Bytes::new();

/// Checksum of the data segment. One that is known saves a pass over the data.
fn data_crc(m: &Message) -> u32 {
    let lead = crc32c(SEED, &m.lead);
    match m.data_crc {
        Some(crc) => append(lead, SEED, crc, m.data.len()),
        None => crc32c(lead, &m.data),
    }
}

/// Appends segments 1 to 3, padded to whole blocks, and the epilogue of secure mode.
fn put_tail(mut w: impl BufMut, m: &Message) {
    for parts in [[&m.front, &NOTHING], [&m.middle, &NOTHING], [&m.lead, &m.data]] {
        parts.iter().for_each(|b| w.put_slice(b));
        let len = parts.iter().map(|b| b.len()).sum();
        w.put_bytes(0, padded(len) - len);
    }
    w.put_u8(LATE_COMPLETE);
    w.put_bytes(0, EPILOGUE_SECURE_LEN - 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn take(tx: &Tx) -> Vec<u8> {
        let mut s = [IoSlice::new(&[]); 64];
        let n = tx.slices(&mut s);
        s[..n].iter().flat_map(|x| x.to_vec()).collect()
    }

    #[test]
    fn data_in_two_parts_is_sent_as_in_one() {
        let crypto = || crate::secure::streams(&[7; 64], false).unwrap().1;
        for len in [1, 24, 4095, 4096, 70_000] {
            let whole =
                Message { front: vec![1; 50].into(), data: (0..len).map(|i| i as u8).collect(), ..Message::default() };
            for at in [0, 1, 24].into_iter().filter(|at| *at <= len) {
                let (lead, data) = (whole.data.slice(..at), whole.data.slice(at..));
                for data_crc in [None, Some(crc32c(SEED, &data))] {
                    let parts = Message { lead: lead.clone(), data: data.clone(), data_crc, ..whole.clone() };
                    for secure in [false, true] {
                        let [a, b] = [&whole, &parts].map(|m| {
                            let mut tx = Tx::default();
                            if secure {
                                tx.set_crypto(crypto());
                            }
                            tx.message(&[3; HEADER2_LEN], m).unwrap();
                            take(&tx)
                        });
                        assert_eq!(a, b, "{len} bytes, cut at {at}, secure {secure}");
                    }
                }
            }
        }
    }

    #[test]
    fn partial_writes_lose_nothing() {
        let seed = 0x7e57;
        let mut rng = Rng::new(seed);
        let mut tx = Tx::default();
        let mut want = Vec::new();
        let mut got = Vec::new();
        for i in 0..300u64 {
            let m = Message {
                front: vec![i as u8; rng.below(5000) as usize].into(),
                data: vec![!i as u8; rng.below(9000) as usize].into(),
                ..Message::default()
            };
            let mut one = Tx::default();
            one.message(&[3; HEADER2_LEN], &m).unwrap();
            want.extend(take(&one));
            tx.message(&[3; HEADER2_LEN], &m).unwrap();
            for _ in 0..2 {
                let all = take(&tx);
                let n = rng.below(all.len() as u64 + 1) as usize;
                got.extend_from_slice(&all[..n]);
                tx.advance(n);
            }
        }
        while !tx.is_empty() {
            let all = take(&tx);
            got.extend_from_slice(&all);
            tx.advance(all.len());
        }
        assert!(got == want, "seed {seed}");
        assert_eq!(tx.small.len(), 0);
    }
}
