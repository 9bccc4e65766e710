//! Bytes of msgr1: greetings, connect requests and their replies, message headers and footers, signatures.
//!
//! Sources: Ceph's `include/msgr.h` (all structures, packed and little-endian, and the tags), `msg/async/ProtocolV1.cc`
//! (order, checksums), `auth/cephx/CephxSessionHandler.cc` (signature), Linux's `net/ceph/messenger_v1.c` and `auth_x.c`
//! (the same from the other end). Checked against a recorded session of 16.2.15.

use crate::Error;
use base::crc::crc32c;
use base::{EntityAddr, EntityKind};
use wire::codec::Result as DecodeResult;
use wire::{Features, MsgHeader, Reader, Writer};

/// First bytes of both ends.
pub const BANNER: &[u8; 9] = b"ceph v027";
/// Length in bytes of an address without marker and version: u32 0, u32 nonce, 128 bytes of socket address.
pub const ADDR_LEN: usize = 136;
/// Length of a client's greeting: banner, own address.
pub const CLIENT_HELLO_LEN: usize = BANNER.len() + ADDR_LEN;
/// Length of a server's greeting: banner, own address, the client's address as the server sees it.
pub const SERVER_HELLO_LEN: usize = CLIENT_HELLO_LEN + ADDR_LEN;
/// Length of [`Connect`].
pub const CONNECT_LEN: usize = 33;
/// Length of [`Reply`].
pub const REPLY_LEN: usize = 26;
/// Length of [`Header`].
pub const HEADER_LEN: usize = 53;
/// Length of [`Footer`].
pub const FOOTER_LEN: usize = 21;
/// Length of the bytes that a signature is made of.
pub const SIGNED_LEN: usize = 32;

/// Feature: message numbers are exchanged before the first message (`RECONNECT_SEQ`).
pub const RECONNECT_SEQ: u64 = 1 << 6;
/// Feature: the footer with a signature (`MSG_AUTH`).
pub const MSG_AUTH: u64 = 1 << 23;
/// Feature: challenge of the authorizer, and signatures over lengths and numbers too (`CEPHX_V2`).
pub const CEPHX_V2: u64 = 1 << 61;

/// Type of what follows: the first byte of a reply and of everything in an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the protocol's")]
pub enum Tag {
    Ready = 1,
    Close = 6,
    Msg = 7,
    Ack = 8,
    Keepalive = 9,
    BadProtocol = 10,
    BadAuthorizer = 11,
    Features = 12,
    Seq = 13,
    Keepalive2 = 14,
    Keepalive2Ack = 15,
    ChallengeAuthorizer = 16,
}

impl Tag {
    /// The tag of an item in an open session.
    #[must_use]
    pub fn of_item(b: u8) -> Option<Self> {
        let items = [Self::Close, Self::Msg, Self::Ack, Self::Keepalive, Self::Keepalive2, Self::Keepalive2Ack];
        items.into_iter().find(|t| *t as u8 == b)
    }

    /// Bytes of the item after its tag, without the body of a message.
    #[must_use]
    pub fn fixed_len(self) -> usize {
        match self {
            Self::Msg => HEADER_LEN,
            Self::Ack | Self::Keepalive2 | Self::Keepalive2Ack => 8,
            _ => 0,
        }
    }
}

/// Protocol number of a service, which client and server must agree on (`CEPH_MONC_PROTOCOL` and its like).
#[must_use]
pub fn protocol_of(service: EntityKind) -> u32 {
    match service {
        EntityKind::MON => 15,
        EntityKind::OSD => 24,
        EntityKind::MDS => 32,
        _ => 0,
    }
}

/// The greeting of a server with address `ours`, for a client whose socket it sees at `theirs`.
#[must_use]
pub fn server_hello(ours: &EntityAddr, theirs: &EntityAddr) -> Vec<u8> {
    let mut w = Writer::new(Features::default());
    w.raw(BANNER);
    w.put(ours);
    w.put(theirs);
    w.as_slice().to_vec()
}

/// A client's request to connect (`ceph_msg_connect`), without its authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Features of the client.
    pub features: Features,
    /// Entity type that the client claims.
    pub kind: u32,
    /// Connection attempts of the client so far.
    pub global_seq: u32,
    /// Connections of this session so far.
    pub connect_seq: u32,
    /// [`protocol_of`] the service that the client expects.
    pub protocol: u32,
    /// Authentication method of the authorizer.
    pub method: u32,
    /// Length of the authorizer, which follows.
    pub authorizer_len: u32,
}

impl Connect {
    /// Decodes [`CONNECT_LEN`] bytes. Error: there are fewer.
    pub fn read(b: &[u8]) -> DecodeResult<Self> {
        let mut r = Reader::new(b);
        Ok(Self {
            features: Features(r.u64()?),
            kind: r.u32()?,
            global_seq: r.u32()?,
            connect_seq: r.u32()?,
            protocol: r.u32()?,
            method: r.u32()?,
            authorizer_len: r.u32()?,
        })
    }
}

/// The answer to [`Connect`] (`ceph_msg_connect_reply`), without the authorizer that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Kind of the answer.
    pub tag: Tag,
    /// Features.
    pub features: Features,
    /// Connection attempts of the server so far.
    pub global_seq: u32,
    /// Connections of this session so far.
    pub connect_seq: u32,
    /// [`protocol_of`] the server.
    pub protocol: u32,
    /// Length of what follows for the authorizer.
    pub authorizer_len: u32,
}

impl Reply {
    /// Encodes the reply of a session that is lossy, as all are.
    #[must_use]
    pub fn bytes(&self) -> [u8; REPLY_LEN] {
        let mut b = [0; REPLY_LEN];
        b[0] = self.tag as u8;
        b[1..9].copy_from_slice(&self.features.0.to_le_bytes());
        b[9..13].copy_from_slice(&self.global_seq.to_le_bytes());
        b[13..17].copy_from_slice(&self.connect_seq.to_le_bytes());
        b[17..21].copy_from_slice(&self.protocol.to_le_bytes());
        b[21..25].copy_from_slice(&self.authorizer_len.to_le_bytes());
        b[25] = u8::from(matches!(self.tag, Tag::Ready | Tag::Seq));
        b
    }
}

/// Header of a message (`ceph_msg_header`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The part that does not depend on the messenger.
    pub common: MsgHeader,
    /// Lengths of front, middle and data in bytes.
    pub len: [usize; 3],
    /// Entity type of the sender, as it says.
    pub src_kind: EntityKind,
    /// Number of the sender, as it says.
    pub src_num: i64,
    /// Checksum of the header.
    pub crc: u32,
}

impl Header {
    /// Decodes [`HEADER_LEN`] bytes. Error: the checksum is wrong, or there are fewer bytes.
    pub fn read(b: &[u8]) -> Result<Self, Error> {
        let malformed = |error| Error::Malformed { tag: "message", error };
        let h = Self::fields(b).map_err(malformed)?;
        let want = crc32c(0, b.get(..HEADER_LEN - 4).unwrap_or_default());
        if h.crc != want {
            return Err(Error::HeaderCrc { got: h.crc, want });
        }
        Ok(h)
    }

    fn fields(b: &[u8]) -> DecodeResult<Self> {
        let mut r = Reader::new(b);
        let (seq, tid, kind, priority, version) = (r.u64()?, r.u64()?, r.u16()?, r.u16()?, r.u16()?);
        let len = [r.u32()? as usize, r.u32()? as usize, r.u32()? as usize];
        let data_off = r.u16()?;
        let (src_kind, src_num) = (EntityKind(r.u8()?), r.u64()?.cast_signed());
        let compat = r.u16()?;
        r.u16()?;
        let common = MsgHeader { seq, tid, kind, priority, version, compat, data_off };
        Ok(Self { common, len, src_kind, src_num, crc: r.u32()? })
    }

    /// Encodes the header with its checksum, which it also stores.
    pub fn seal(&mut self) -> [u8; HEADER_LEN] {
        let (mut b, h) = ([0; HEADER_LEN], &self.common);
        b[0..8].copy_from_slice(&h.seq.to_le_bytes());
        b[8..16].copy_from_slice(&h.tid.to_le_bytes());
        b[16..18].copy_from_slice(&h.kind.to_le_bytes());
        b[18..20].copy_from_slice(&h.priority.to_le_bytes());
        b[20..22].copy_from_slice(&h.version.to_le_bytes());
        for (i, len) in self.len.iter().enumerate() {
            b[22 + 4 * i..26 + 4 * i].copy_from_slice(&(*len as u32).to_le_bytes());
        }
        b[34..36].copy_from_slice(&h.data_off.to_le_bytes());
        b[36] = self.src_kind.0;
        b[37..45].copy_from_slice(&self.src_num.to_le_bytes());
        b[45..47].copy_from_slice(&h.compat.to_le_bytes());
        self.crc = crc32c(0, &b[..HEADER_LEN - 4]);
        b[HEADER_LEN - 4..].copy_from_slice(&self.crc.to_le_bytes());
        b
    }
}

/// Flag of a footer: the message was not aborted.
pub const COMPLETE: u8 = 1;
/// Flag of a footer: the data has no checksum.
pub const NO_DATA_CRC: u8 = 2;
/// Flag of a footer: it has a signature.
pub const SIGNED: u8 = 4;

/// Footer of a message (`ceph_msg_footer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Checksums of front, middle and data.
    pub crc: [u32; 3],
    /// Signature, or 0.
    pub signature: u64,
    /// [`COMPLETE`], [`NO_DATA_CRC`], [`SIGNED`].
    pub flags: u8,
}

impl Footer {
    /// Decodes [`FOOTER_LEN`] bytes. Error: there are fewer.
    pub fn read(b: &[u8]) -> DecodeResult<Self> {
        let mut r = Reader::new(b);
        Ok(Self { crc: [r.u32()?, r.u32()?, r.u32()?], signature: r.u64()?, flags: r.u8()? })
    }

    /// Encodes the footer.
    #[must_use]
    pub fn bytes(&self) -> [u8; FOOTER_LEN] {
        let mut b = [0; FOOTER_LEN];
        for (i, crc) in self.crc.iter().enumerate() {
            b[4 * i..4 * i + 4].copy_from_slice(&crc.to_le_bytes());
        }
        b[12..20].copy_from_slice(&self.signature.to_le_bytes());
        b[20] = self.flags;
        b
    }

    /// The bytes that the signature is made of: checksums, lengths, and the lower half of the sequence number.
    #[must_use]
    pub fn signed(&self, h: &Header) -> [u8; SIGNED_LEN] {
        let len = |i: usize| h.len.get(i).map_or(0, |n| *n as u32);
        let [front, middle, data] = self.crc;
        let words = [h.crc, front, len(0), middle, len(1), data, len(2), h.common.seq as u32];
        let mut b = [0; SIGNED_LEN];
        for (to, w) in b.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&w.to_le_bytes());
        }
        b
    }
}
