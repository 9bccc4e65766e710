//! Messages above the messenger: a header and up to three payload segments.

use crate::codec::{Reader, Result, Writer};
use crate::features::Features;
use base::Summed;
use bytes::Bytes;
use std::sync::Arc;

/// `ceph_msg_header2` without the session fields (sequence number, acknowledgement), which the messenger fills in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgHeader {
    /// Sequence number in the session and direction; set by the messenger.
    pub seq: u64,
    /// Transaction number; a reply echoes the request's.
    pub tid: u64,
    /// Message type.
    pub kind: u16,
    /// Priority; ignored by peers.
    pub priority: u16,
    /// Version of the front's encoding.
    pub version: u16,
    /// Oldest version that the decoder must know.
    pub compat: u16,
    /// Offset of the data in its first page; a hint.
    pub data_off: u16,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Header.
    pub header: MsgHeader,
    /// Front segment: the typed fields.
    pub front: Bytes,
    /// Middle segment: extra fields of a few legacy messages, usually empty.
    pub middle: Bytes,
    /// Beginning of the data segment, before [`Message::data`]. Only in messages to be sent: a few bytes in front of
    /// data that is not copied.
    pub lead: Bytes,
    /// Data segment: bulk payload.
    pub data: Bytes,
    /// crc32c of `data` from [`base::crc::SEED`], if it is known. Only in messages to be sent.
    pub data_crc: Option<u32>,
    /// Checksums of the blocks of `data`, if its receiver has summed them. Only in received messages.
    pub sums: Option<Arc<Summed>>,
}

impl Message {
    /// Sets the transaction number; a reply carries that of its request.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.header.tid = tid;
        self
    }

    /// Bytes that the message counts for in queues. The decoded form is included: many small messages must not use far
    /// more memory than they count for.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.front.len() + self.middle.len() + self.data_len() + 768
    }

    /// Length of the data segment.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.lead.len() + self.data.len()
    }

    /// The data segment in one piece.
    #[must_use]
    pub fn whole_data(&self) -> Bytes {
        if self.lead.is_empty() { self.data.clone() } else { [&self.lead[..], &self.data].concat().into() }
    }
}

/// A typed message.
pub trait WireMessage: Sized {
    /// Message type number.
    const KIND: u16;
    /// Version of the encoding that [`WireMessage::encode_front`] writes.
    const VERSION: u16;
    /// Oldest version that a decoder of this encoding must know.
    const COMPAT: u16;
    /// Priority in the header of sent messages: 127, or 196 for a monitor's replies.
    const PRIORITY: u16 = 127;

    /// Encodes the front.
    fn encode_front(&self, w: &mut Writer);

    /// Decodes a front of version `version`. `data` is the data segment, for messages whose fields refer to it.
    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self>;

    /// Data segment.
    fn data(&self) -> Bytes {
        Bytes::new()
    }

    /// Data segment as [`Message::lead`], [`Message::data`] and [`Message::data_crc`].
    fn payload(&self) -> (Bytes, Bytes, Option<u32>) {
        (Bytes::new(), self.data(), None)
    }

    /// Transaction number for the header.
    fn tid(&self) -> u64 {
        0
    }

    /// Capacity to reserve for the front. An exact value avoids a copy when the buffer becomes shared bytes.
    fn front_len_hint(&self) -> usize {
        256
    }

    /// Encodes the message for a peer with `features`.
    fn to_message(&self, features: Features) -> Message {
        let mut w = Writer::with_capacity(features, self.front_len_hint());
        self.encode_front(&mut w);
        let (lead, data, data_crc) = self.payload();
        debug_assert!(data_crc.is_none_or(|c| base::crc::is_crc32c(c, base::crc::SEED, &data)));
        Message {
            header: MsgHeader {
                tid: self.tid(),
                kind: Self::KIND,
                priority: Self::PRIORITY,
                version: Self::VERSION,
                compat: Self::COMPAT,
                ..MsgHeader::default()
            },
            front: w.into_bytes(),
            middle: Bytes::new(),
            lead,
            data,
            data_crc,
            sums: None,
        }
    }

    /// Checks that the sender does not require a newer decoder.
    fn check_compat(m: &Message) -> Result<()> {
        if m.header.compat > Self::VERSION {
            return Err(crate::DecodeError::Incompatible {
                what: std::any::type_name::<Self>(),
                compat: m.header.compat.min(255) as u8,
                known: Self::VERSION.min(255) as u8,
            });
        }
        Ok(())
    }

    /// Decodes a message of this type; the caller has checked `header.kind`.
    fn from_message(m: &Message) -> Result<Self> {
        Self::check_compat(m)?;
        Self::decode_front(&mut Reader::shared(&m.front), m.header.version, &m.data)
    }
}
