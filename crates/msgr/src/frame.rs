//! Frames: tags, preamble, epilogue and the payloads of control frames.

use crate::Error;
use crate::policy::{ADDRS_MAX, LIST_MAX};
use auth::{ConMode, Method};
use base::crc::{SEED, crc32c};
use base::{AddrVec, EntityAddr, EntityKind, Summed};
use bytes::Bytes;
use std::sync::Arc;
use wire::codec::Result as DecodeResult;
use wire::{DecodeError, Features, MsgHeader, Reader, Writer};

/// Banner text.
pub const BANNER: &[u8; 8] = b"ceph v2\n";
/// Start of an msgr1 peer's banner.
pub const BANNER_V1: &[u8; 8] = b"ceph v02";
/// The protocol feature that we announce: revision 1.
pub const FEATURE_REVISION_1: u64 = 1;
/// Length of our banner in bytes.
pub const BANNER_LEN: usize = 26;
/// Length of a preamble in bytes.
pub const PREAMBLE_LEN: usize = 32;
/// Most segments of a frame.
pub const SEGMENTS_MAX: usize = 4;
/// Length of the epilogue in crc mode, in bytes.
pub const EPILOGUE_CRC_LEN: usize = 13;
/// Length of the epilogue in secure mode without its GCM tag, in bytes.
pub const EPILOGUE_SECURE_LEN: usize = 16;
/// Late status: the frame is complete.
pub const LATE_COMPLETE: u8 = 0x0e;
/// Late status: the sender aborted the frame; the receiver drops it.
pub const LATE_ABORTED: u8 = 0x01;
/// Length of a message header in bytes.
pub const HEADER2_LEN: usize = 41;
const ALIGN_CONTROL: u16 = 8;
const ALIGN_DATA: u16 = 4096;

/// Frame tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "names are the protocol's")]
pub enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
    CompressionRequest = 21,
    CompressionDone = 22,
}

impl Tag {
    /// The tag with this number. Compression frames are known, but no connection state expects them, as we never
    /// announce compression.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        use Tag::*;
        const ALL: [Tag; 22] = [
            Hello,
            AuthRequest,
            AuthBadMethod,
            AuthReplyMore,
            AuthRequestMore,
            AuthDone,
            AuthSignature,
            ClientIdent,
            ServerIdent,
            IdentMissingFeatures,
            SessionReconnect,
            SessionReset,
            SessionRetry,
            SessionRetryGlobal,
            SessionReconnectOk,
            Wait,
            Message,
            Keepalive2,
            Keepalive2Ack,
            Ack,
            CompressionRequest,
            CompressionDone,
        ];
        ALL.get(usize::from(n).checked_sub(1)?).copied()
    }

    /// Name for errors and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        use Tag::*;
        match self {
            Hello => "HELLO",
            AuthRequest => "AUTH_REQUEST",
            AuthBadMethod => "AUTH_BAD_METHOD",
            AuthReplyMore => "AUTH_REPLY_MORE",
            AuthRequestMore => "AUTH_REQUEST_MORE",
            AuthDone => "AUTH_DONE",
            AuthSignature => "AUTH_SIGNATURE",
            ClientIdent => "CLIENT_IDENT",
            ServerIdent => "SERVER_IDENT",
            IdentMissingFeatures => "IDENT_MISSING_FEATURES",
            SessionReconnect => "SESSION_RECONNECT",
            SessionReset => "SESSION_RESET",
            SessionRetry => "SESSION_RETRY",
            SessionRetryGlobal => "SESSION_RETRY_GLOBAL",
            SessionReconnectOk => "SESSION_RECONNECT_OK",
            Wait => "WAIT",
            Message => "MESSAGE",
            Keepalive2 => "KEEPALIVE2",
            Keepalive2Ack => "KEEPALIVE2_ACK",
            Ack => "ACK",
            CompressionRequest => "COMPRESSION_REQUEST",
            CompressionDone => "COMPRESSION_DONE",
        }
    }
}

/// The banner that we send.
#[must_use]
pub fn banner() -> [u8; BANNER_LEN] {
    let mut b = [0; BANNER_LEN];
    let (text, rest) = b.split_at_mut(8);
    text.copy_from_slice(BANNER);
    rest[0] = 16;
    rest[2] = FEATURE_REVISION_1 as u8;
    b
}

/// A validated preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Type of the frame.
    pub tag: Tag,
    /// Number of segments, 1 to 4.
    pub count: usize,
    /// Lengths of the segments in bytes.
    pub len: [usize; SEGMENTS_MAX],
}

impl Preamble {
    /// Parses and validates a preamble. Error: [`Error::PreambleCrc`] or [`Error::BadPreamble`].
    pub fn parse(b: &[u8; PREAMBLE_LEN]) -> Result<Self, Error> {
        let (head, crc) = b.split_at(28);
        let want = crc32c(0, head);
        let got = u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]);
        if got != want {
            return Err(Error::PreambleCrc { got, want });
        }
        let tag = Tag::from_number(b[0]).ok_or(Error::BadPreamble("unknown tag"))?;
        let count = usize::from(b[1]);
        if count == 0 || count > SEGMENTS_MAX {
            return Err(Error::BadPreamble("number of segments"));
        }
        if b[26] != 0 {
            return Err(Error::BadPreamble("compressed frame without negotiation"));
        }
        let mut len = [0; SEGMENTS_MAX];
        for (i, l) in len.iter_mut().enumerate() {
            let at = 2 + 6 * i;
            *l = u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]) as usize;
            if i >= count && *l != 0 {
                return Err(Error::BadPreamble("length of an absent segment"));
            }
        }
        if count > 1 && len.get(count - 1) == Some(&0) {
            return Err(Error::BadPreamble("empty last segment"));
        }
        Ok(Self { tag, count, len })
    }

    /// Encodes a preamble for segments of these lengths; trailing empty segments are omitted.
    #[must_use]
    pub fn build(tag: Tag, len: [usize; SEGMENTS_MAX]) -> (Self, [u8; PREAMBLE_LEN]) {
        let count = len.iter().rposition(|l| *l != 0).map_or(1, |i| i + 1);
        let mut b = [0; PREAMBLE_LEN];
        b[0] = tag as u8;
        b[1] = count as u8;
        for (i, l) in len.iter().enumerate().take(count) {
            let at = 2 + 6 * i;
            b[at..at + 4].copy_from_slice(&(*l as u32).to_le_bytes());
            let align = if i == 3 { ALIGN_DATA } else { ALIGN_CONTROL };
            b[at + 4..at + 6].copy_from_slice(&align.to_le_bytes());
        }
        let crc = crc32c(0, &b[..28]);
        b[28..].copy_from_slice(&crc.to_le_bytes());
        (Self { tag, count, len }, b)
    }

    /// Length of the frame after the preamble, in crc mode.
    #[must_use]
    pub fn body_crc(&self) -> usize {
        let seg0 = if self.len[0] > 0 { self.len[0] + 4 } else { 0 };
        let tail = if self.count > 1 { self.len[1] + self.len[2] + self.len[3] + EPILOGUE_CRC_LEN } else { 0 };
        seg0 + tail
    }
}

/// crc32c of a segment.
#[must_use]
pub fn segment_crc(b: &[u8]) -> u32 {
    crc32c(SEED, b)
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of the frame.
    pub tag: Tag,
    /// Segments; absent ones are empty.
    pub segments: [Bytes; SEGMENTS_MAX],
    /// Checksums of the blocks of the last segment, if it is large and was verified by its checksum.
    pub sums: Option<Arc<Summed>>,
}

impl Frame {
    /// Decodes the payload of a control frame with `f`. Bytes that `f` leaves are ignored. Error: [`Error::Malformed`]
    /// with the type of the frame and the error of `f`.
    pub fn read<T>(&self, f: impl FnOnce(&mut Reader<'_>) -> DecodeResult<T>) -> Result<T, Error> {
        let mut r = Reader::shared(&self.segments[0]);
        f(&mut r).map_err(|error| Error::Malformed { tag: self.tag.name(), error })
    }
}

fn u32_list(r: &mut Reader<'_>) -> DecodeResult<Vec<u32>> {
    let n = r.count(4, "list")?;
    if n > LIST_MAX {
        return Err(DecodeError::BadValue { what: "list length", value: n as u64 });
    }
    (0..n).map(|_| r.u32()).collect()
}

fn addrs(r: &mut Reader<'_>) -> DecodeResult<AddrVec> {
    // The decoder checks the count against the input's length; this check bounds the stored list.
    let a: AddrVec = r.get()?;
    if a.0.len() > ADDRS_MAX {
        return Err(DecodeError::BadValue { what: "addresses", value: a.0.len() as u64 });
    }
    Ok(a)
}

/// Payload of HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Entity type of the sender.
    pub kind: EntityKind,
    /// The receiver's address as the sender sees it.
    pub peer_addr: EntityAddr,
}

impl Hello {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.put(&self.kind);
        w.put(&self.peer_addr);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self { kind: r.get()?, peer_addr: r.get()? })
    }
}

/// Payload of AUTH_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    /// Authentication method.
    pub method: Method,
    /// Connection modes, preferred first.
    pub modes: Vec<u32>,
    /// Method-specific data.
    pub payload: Bytes,
}

impl AuthRequest {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.u32(self.method.0);
        w.put(&self.modes);
        w.blob(&self.payload);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self { method: Method(r.u32()?), modes: u32_list(r)?, payload: r.blob()? })
    }
}

/// Payload of AUTH_BAD_METHOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthBadMethod {
    /// The rejected method.
    pub method: Method,
    /// Negative errno.
    pub result: i32,
    /// Allowed methods.
    pub methods: Vec<u32>,
    /// Allowed connection modes.
    pub modes: Vec<u32>,
}

impl AuthBadMethod {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.u32(self.method.0);
        w.i32(self.result);
        w.put(&self.methods);
        w.put(&self.modes);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self { method: Method(r.u32()?), result: r.i32()?, methods: u32_list(r)?, modes: u32_list(r)? })
    }
}

/// Payload of AUTH_DONE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthDone {
    /// Global id of the client.
    pub global_id: u64,
    /// Connection mode from here on.
    pub mode: ConMode,
    /// Method-specific data.
    pub payload: Bytes,
}

impl AuthDone {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.u64(self.global_id);
        w.u32(self.mode.0);
        w.blob(&self.payload);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self { global_id: r.u64()?, mode: ConMode(r.u32()?), payload: r.blob()? })
    }
}

/// Flag of idents: the session is lossy.
pub const FLAG_LOSSY: u64 = 1;

/// Encodes the common end of both idents: sender's number, global sequence, supported and required features, flags,
/// cookie.
fn write_session(w: &mut Writer, num: i64, rest: [u64; 5]) {
    w.i64(num);
    for v in rest {
        w.u64(v);
    }
}

/// Decodes the common end of both idents; see [`write_session`].
fn read_session(r: &mut Reader<'_>) -> DecodeResult<(i64, [u64; 5])> {
    Ok((r.i64()?, [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?]))
}

/// Payload of CLIENT_IDENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdent {
    /// Addresses of the sender.
    pub addrs: AddrVec,
    /// Address that the sender connected to.
    pub target: EntityAddr,
    /// Number of the sender.
    pub num: i64,
    /// Sequence number of the process's connection attempts.
    pub global_seq: u64,
    /// Supported features.
    pub supported: Features,
    /// Required features.
    pub required: Features,
    /// [`FLAG_LOSSY`] or 0.
    pub flags: u64,
    /// Client cookie of a lossless session, else 0.
    pub cookie: u64,
}

impl ClientIdent {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.put(&self.addrs);
        w.put(&self.target);
        write_session(w, self.num, [self.global_seq, self.supported.0, self.required.0, self.flags, self.cookie]);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        let (addrs, target) = (addrs(r)?, r.get()?);
        let (num, [global_seq, supported, required, flags, cookie]) = read_session(r)?;
        let (supported, required) = (Features(supported), Features(required));
        Ok(Self { addrs, target, num, global_seq, supported, required, flags, cookie })
    }
}

/// Payload of SERVER_IDENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdent {
    /// Addresses of the sender.
    pub addrs: AddrVec,
    /// Number of the sender.
    pub num: i64,
    /// Sequence number of the process's connection attempts.
    pub global_seq: u64,
    /// Supported features.
    pub supported: Features,
    /// Required features.
    pub required: Features,
    /// [`FLAG_LOSSY`] or 0.
    pub flags: u64,
    /// Server cookie of a lossless session, else 0.
    pub cookie: u64,
}

impl ServerIdent {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.put(&self.addrs);
        write_session(w, self.num, [self.global_seq, self.supported.0, self.required.0, self.flags, self.cookie]);
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        let addrs = addrs(r)?;
        let (num, [global_seq, supported, required, flags, cookie]) = read_session(r)?;
        let (supported, required) = (Features(supported), Features(required));
        Ok(Self { addrs, num, global_seq, supported, required, flags, cookie })
    }
}

/// Payload of SESSION_RECONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// Addresses of the sender.
    pub addrs: AddrVec,
    /// Client cookie of the session.
    pub client_cookie: u64,
    /// Server cookie of the session.
    pub server_cookie: u64,
    /// Sequence number of the process's connection attempts.
    pub global_seq: u64,
    /// Sequence number of the session's connections.
    pub connect_seq: u64,
    /// Sequence number of the last message that the sender received.
    pub msg_seq: u64,
}

impl Reconnect {
    /// Writes the payload.
    pub fn write(&self, w: &mut Writer) {
        w.put(&self.addrs);
        for v in [self.client_cookie, self.server_cookie, self.global_seq, self.connect_seq, self.msg_seq] {
            w.u64(v);
        }
    }

    /// Reads the payload. Error: [`DecodeError`] for one that is cut short or has a value above its limit.
    pub fn read(r: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self {
            addrs: addrs(r)?,
            client_cookie: r.u64()?,
            server_cookie: r.u64()?,
            global_seq: r.u64()?,
            connect_seq: r.u64()?,
            msg_seq: r.u64()?,
        })
    }
}

/// Flag of a message header: the message is complete. Other implementations always set it.
const MSG_COMPLETE: u8 = 1;

/// Encodes a message header (`ceph_msg_header2`).
#[must_use]
pub fn header2(h: &MsgHeader, seq: u64, ack_seq: u64) -> [u8; HEADER2_LEN] {
    let mut b = [0; HEADER2_LEN];
    b[0..8].copy_from_slice(&seq.to_le_bytes());
    b[8..16].copy_from_slice(&h.tid.to_le_bytes());
    b[16..18].copy_from_slice(&h.kind.to_le_bytes());
    b[18..20].copy_from_slice(&h.priority.to_le_bytes());
    b[20..22].copy_from_slice(&h.version.to_le_bytes());
    b[26..28].copy_from_slice(&h.data_off.to_le_bytes());
    b[28..36].copy_from_slice(&ack_seq.to_le_bytes());
    b[36] = MSG_COMPLETE;
    b[37..39].copy_from_slice(&h.compat.to_le_bytes());
    b
}

/// Decodes a message header; returns it with the acknowledged sequence number. Error: too few bytes, or a malformed
/// field.
pub fn read_header2(b: &[u8]) -> DecodeResult<(MsgHeader, u64)> {
    let mut r = Reader::new(b);
    let (seq, tid, kind, priority, version) = (r.u64()?, r.u64()?, r.u16()?, r.u16()?, r.u16()?);
    r.u32()?;
    let data_off = r.u16()?;
    let ack = r.u64()?;
    r.u8()?;
    let compat = r.u16()?;
    r.u16()?;
    Ok((MsgHeader { seq, tid, kind, priority, version, compat, data_off }, ack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preamble_round_trip_and_checks() {
        for len in [[0, 0, 0, 0], [41, 10, 0, 0], [41, 0, 0, 4096], [5, 0, 7, 0]] {
            let (p, b) = Preamble::build(Tag::Message, len);
            assert_eq!(Preamble::parse(&b).unwrap(), p);
            for i in 0..32 * 8 {
                let mut c = b;
                c[i / 8] ^= 1 << (i % 8);
                assert!(Preamble::parse(&c).is_err(), "bit {i}");
            }
        }
    }

    #[test]
    fn every_tag_number_maps_back() {
        for n in 0..=255u8 {
            match Tag::from_number(n) {
                Some(t) => assert_eq!(t as u8, n),
                None => assert!(n == 0 || n > 22),
            }
        }
    }
}
