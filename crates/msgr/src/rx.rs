//! Input of a connection: turns bytes into verified (and decrypted) frames.
//!
//! Frames are slices of shared input chunks. A frame with a large remainder gets a buffer of its own ([`Rx::target`])
//! that the socket reads into directly, laid out so that its data segment is page-aligned.
//!
//! Invariants:
//!  1. Nothing is allocated for a frame before its preamble was checked against the limits of the phase, and, if the
//!     host asks for that, before it has granted the frame's bytes.
//!  2. A frame is returned only after all its checksums or tags were verified. A frame that its sender aborted is
//!     dropped.
//!
//! Tests: `tests/do_hostile_bytes_only_close.rs`, `crates/hostile/tests/do_half_frames_take_little_memory.rs` (1).

use crate::Error;
use crate::assembly::{Assembly, Raw, append};
use crate::frame::{
    BANNER, BANNER_V1, EPILOGUE_CRC_LEN, EPILOGUE_SECURE_LEN, Frame, HEADER2_LEN, LATE_ABORTED, LATE_COMPLETE,
    PREAMBLE_LEN, Preamble, SEGMENTS_MAX, Tag, segment_crc,
};
use crate::policy::{BANNER_PAYLOAD_MAX, CONTROL_BYTES_MAX, FRAME_BYTES_MAX_PREAUTH, FrameLimits, PREAUTH_BYTES_MAX};
use crate::pool::BufPool;
use crate::secure::{FIRST_RUN, INLINE, Stream, TAG_LEN, padded};
use base::Summed;
use bytes::{Buf, Bytes};

/// Index of the data segment of a message.
const DATA: usize = SEGMENTS_MAX - 1;

/// Phase of a connection, which selects the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The peer is not authenticated.
    PreAuth,
    /// The peer is authenticated, the session is not open.
    Ident,
    /// The session is open.
    Open,
}

#[derive(Debug)]
struct Body {
    pre: Preamble,
    /// Secure mode: the part of segment 0 in the same GCM run as the preamble.
    head: [u8; INLINE],
    bytes: Assembly,
}

/// Input queue and frame parser.
#[derive(Debug)]
pub struct Rx {
    chunk: Bytes,
    body: Option<Box<Body>>,
    phase: Phase,
    crypto: Option<Stream>,
    log: Option<Vec<u8>>,
    pool: BufPool,
    limits: FrameLimits,
}

impl Rx {
    /// An empty parser before authentication, which records its input for the signature. Large frames get buffers from
    /// `pool`.
    #[must_use]
    pub fn new(pool: BufPool, limits: FrameLimits) -> Self {
        let log = Some(Vec::new());
        Self { chunk: Bytes::new(), body: None, phase: Phase::PreAuth, crypto: None, log, pool, limits }
    }

    /// Changes the limits of messages.
    pub fn set_limits(&mut self, l: FrameLimits) {
        self.limits = l;
    }

    /// Bytes of an announced frame that waits for [`Rx::grant`]. Nothing is to be read before.
    #[must_use]
    pub fn asks(&self) -> Option<usize> {
        self.body.as_ref()?.bytes.asks()
    }

    /// Allows the memory of the announced frame.
    pub fn grant(&mut self) {
        if let Some(b) = &mut self.body {
            b.bytes.grant();
        }
    }

    /// Bytes that have arrived of the frame that has a buffer of its own, and those of the whole frame.
    #[must_use]
    pub fn partial(&self) -> Option<(usize, usize)> {
        self.body.as_ref()?.bytes.partial()
    }

    /// Ends the recording and returns it: all bytes parsed so far.
    pub fn take_log(&mut self) -> Vec<u8> {
        self.log.take().unwrap_or_default()
    }

    /// Enables decryption.
    pub fn set_crypto(&mut self, s: Stream) {
        self.crypto = Some(s);
    }

    /// Selects the limits.
    pub fn set_phase(&mut self, p: Phase) {
        self.phase = p;
    }

    /// Takes the unparsed input; the host puts it in front of the next read.
    pub fn take_pending(&mut self) -> Bytes {
        std::mem::take(&mut self.chunk)
    }

    /// Length of [`Rx::take_pending`].
    #[must_use]
    pub fn pending(&self) -> usize {
        self.chunk.len()
    }

    /// Adds input.
    pub fn feed(&mut self, b: Bytes) {
        append(&mut self.chunk, b);
    }

    /// Buffer to read into while a large frame is incomplete; then call [`Rx::received`].
    pub fn target(&mut self) -> Option<&mut [u8]> {
        self.body.as_mut()?.bytes.target(&self.pool)
    }

    /// Reports that `n` bytes were read into [`Rx::target`].
    pub fn received(&mut self, n: usize) {
        if let Some(b) = &mut self.body {
            b.bytes.received(n);
        }
    }

    /// Returns the peer's supported and required protocol features once the banner is complete. Error:
    /// [`Error::Msgr1Peer`], [`Error::NotMsgr2`], [`Error::BadBanner`] or [`Error::Malformed`].
    pub fn poll_banner(&mut self) -> Result<Option<(u64, u64)>, Error> {
        let have = self.chunk.len();
        let n = have.min(BANNER.len());
        if self.chunk.get(..n) != BANNER.get(..n) {
            // The bytes suffice to recognise msgr1, or already differ from its banner.
            if have >= BANNER_V1.len() || self.chunk.get(..n) != BANNER_V1.get(..n) {
                let old = self.chunk.get(..BANNER_V1.len()) == Some(BANNER_V1.as_slice());
                return Err(if old { Error::Msgr1Peer } else { Error::NotMsgr2 });
            }
            return Ok(None);
        }
        let Some(len) = self.chunk.get(8..10) else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes([len[0], len[1]]));
        if !(16..=BANNER_PAYLOAD_MAX).contains(&len) {
            return Err(Error::BadBanner(len));
        }
        if have < 10 + len {
            return Ok(None);
        }
        let b = self.chunk.split_to(10 + len);
        self.record(&b);
        let mut r = wire::Reader::new(b.get(10..).unwrap_or_default());
        let malformed = |error| Error::Malformed { tag: "banner", error };
        Ok(Some((r.u64().map_err(malformed)?, r.u64().map_err(malformed)?)))
    }

    /// Returns the next frame if it is complete. Error: a preamble, segment or epilogue that is invalid, too long or
    /// does not decrypt, or [`Error::TooMuchBeforeAuth`].
    pub fn poll_frame(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            // Boxed only while incomplete: most frames arrive as a whole.
            let mut body = match self.body.take() {
                Some(b) => *b,
                None => match self.poll_preamble()? {
                    Some(b) => b,
                    None => return Ok(None),
                },
            };
            // Frames before authentication are short, and their number is bounded.
            let free = !self.limits.ask || self.phase != Phase::Open;
            let Some(raw) = body.bytes.poll(&mut self.chunk, &self.pool, free) else {
                self.body = Some(Box::new(body));
                return Ok(None);
            };
            // Decryption works in place and needs a buffer of its own.
            let raw = if self.crypto.is_some() { raw.into_owned() } else { raw };
            let frame =
                if self.crypto.is_some() { self.finish_secure(&body, raw)? } else { self.finish_crc(&body, raw)? };
            if let Some(n) = self.log.as_ref().map(Vec::len).filter(|n| *n > PREAUTH_BYTES_MAX) {
                return Err(Error::TooMuchBeforeAuth(n));
            }
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    fn record(&mut self, b: &[u8]) {
        if let Some(l) = &mut self.log {
            l.extend_from_slice(b);
        }
    }

    /// Parses a preamble if it is complete.
    fn poll_preamble(&mut self) -> Result<Option<Body>, Error> {
        let mut head = [0; INLINE];
        let mut pre = [0; PREAMBLE_LEN];
        if let Some(c) = &mut self.crypto {
            if self.chunk.len() < FIRST_RUN {
                return Ok(None);
            }
            let mut run = [0; FIRST_RUN];
            self.chunk.copy_to_slice(&mut run);
            c.open(&mut run)?;
            pre.copy_from_slice(&run[..PREAMBLE_LEN]);
            head.copy_from_slice(&run[PREAMBLE_LEN..PREAMBLE_LEN + INLINE]);
        } else {
            if self.chunk.len() < PREAMBLE_LEN {
                return Ok(None);
            }
            self.chunk.copy_to_slice(&mut pre);
            self.record(&pre);
        }
        let pre = Preamble::parse(&pre)?;
        self.check_limits(&pre)?;
        let (need, data_at) = if self.crypto.is_some() {
            (body_secure(&pre), head_rest(&pre) + padded(pre.len[1]) + padded(pre.len[2]))
        } else {
            let need = pre.body_crc();
            (need, need.saturating_sub(EPILOGUE_CRC_LEN + pre.len[3]))
        };
        Ok(Some(Body { pre, head, bytes: Assembly::new(need, data_at) }))
    }

    fn check_limits(&self, p: &Preamble) -> Result<(), Error> {
        let max: [usize; SEGMENTS_MAX] = match (self.phase, p.tag) {
            (Phase::Open, Tag::Message) => {
                if p.len[0] != HEADER2_LEN {
                    return Err(Error::BadPreamble("length of a message header"));
                }
                [HEADER2_LEN, self.limits.front, self.limits.middle, self.limits.data]
            }
            (Phase::PreAuth, _) => [FRAME_BYTES_MAX_PREAUTH, 0, 0, 0],
            _ => [CONTROL_BYTES_MAX, 0, 0, 0],
        };
        for (segment, (len, max)) in p.len.into_iter().zip(max).enumerate() {
            if len > max {
                return Err(Error::TooLarge { tag: p.tag.name(), segment, len, max });
            }
        }
        Ok(())
    }

    fn finish_crc(&mut self, body: &Body, raw: Raw) -> Result<Option<Frame>, Error> {
        let p = &body.pre;
        let mut b = raw.freeze(0);
        self.record(&b);
        let mut segments: [Bytes; SEGMENTS_MAX] = Default::default();
        let mut sums = None;
        let check = |segment: usize, want: u32, got: u32| -> Result<(), Error> {
            if got == want { Ok(()) } else { Err(Error::SegmentCrc { tag: p.tag.name(), segment, got, want }) }
        };
        if p.len[0] > 0 {
            segments[0] = b.split_to(p.len[0]);
            check(0, segment_crc(&segments[0]), b.get_u32_le())?;
        }
        if p.count > 1 {
            for (s, len) in segments.iter_mut().zip(p.len).skip(1) {
                *s = b.split_to(len);
            }
            let status = b.first().copied().unwrap_or_default();
            if is_aborted(status)? {
                return Ok(None);
            }
            for (i, s) in segments.iter().enumerate().take(p.count).skip(1) {
                if i == DATA {
                    sums = Summed::if_large(s);
                }
                let want = sums.as_ref().map_or_else(|| segment_crc(s), |known| known.crc());
                check(i, want, le32(b.get(1 + 4 * (i - 1)..).unwrap_or_default()))?;
            }
            body.bytes.own_front(&mut segments[1]);
        }
        Ok(Some(Frame { tag: p.tag, segments, sums }))
    }

    fn finish_secure(&mut self, body: &Body, mut raw: Raw) -> Result<Option<Frame>, Error> {
        let p = &body.pre;
        let (Some(crypto), Raw::Owned(d)) = (&mut self.crypto, &mut raw) else { return Err(Error::Decrypt) };
        let bytes = d.bytes_mut();
        let rest = head_rest(p);
        let (first, tail) = bytes.split_at_mut_checked(rest).ok_or(Error::Decrypt)?;
        let mut segments: [Bytes; SEGMENTS_MAX] = Default::default();
        if rest > 0 {
            crypto.open(first)?;
            let mut v = Vec::with_capacity(p.len[0]);
            v.extend_from_slice(&body.head);
            v.extend_from_slice(first.get(..p.len[0] - INLINE).unwrap_or_default());
            segments[0] = v.into();
        } else {
            segments[0] = Bytes::copy_from_slice(body.head.get(..p.len[0]).unwrap_or_default());
        }
        if p.count > 1 {
            let n = crypto.open(tail)?;
            let status = tail.get(n.wrapping_sub(EPILOGUE_SECURE_LEN)).copied().ok_or(Error::Decrypt)?;
            if is_aborted(status)? {
                return Ok(None);
            }
            let mut b = raw.freeze(rest);
            for (s, len) in segments.iter_mut().zip(p.len).skip(1) {
                let mut whole = b.split_to(padded(len).min(b.len()));
                whole.truncate(len);
                *s = whole;
            }
            body.bytes.own_front(&mut segments[1]);
        }
        Ok(Some(Frame { tag: p.tag, segments, sums: None }))
    }
}

/// Encrypted bytes of segment 0 beyond the first GCM run, tag included.
fn head_rest(p: &Preamble) -> usize {
    let n = padded(p.len[0]);
    if n > INLINE { n - INLINE + TAG_LEN } else { 0 }
}

/// Bytes after the first GCM run in secure mode.
fn body_secure(p: &Preamble) -> usize {
    let tail = if p.count > 1 {
        padded(p.len[1]) + padded(p.len[2]) + padded(p.len[3]) + EPILOGUE_SECURE_LEN + TAG_LEN
    } else {
        0
    };
    head_rest(p) + tail
}

fn is_aborted(status: u8) -> Result<bool, Error> {
    match status & 0x0f {
        LATE_COMPLETE => Ok(false),
        LATE_ABORTED => Ok(true),
        _ => Err(Error::BadLateStatus(status)),
    }
}

fn le32(b: &[u8]) -> u32 {
    match b {
        [a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}
