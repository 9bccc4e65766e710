//! Messages as the messenger carries them: a header and up to three payload segments.

use crate::codec::{Reader, Result, Writer};
use crate::features::Features;
use bytes::Bytes;

/// `ceph_msg_header2` without the fields that belong to the session (sequence, ack), which the messenger fills in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgHeader {
    /// Sequence number in its session and direction; set by the messenger.
    pub seq: u64,
    /// Transaction number: replies echo the request's.
    pub tid: u64,
    /// Message type.
    pub kind: u16,
    /// Priority; does not matter to peers.
    pub priority: u16,
    /// Version of the front's encoding.
    pub version: u16,
    /// Oldest version a decoder must know.
    pub compat: u16,
    /// Offset of the data within its first page, a hint.
    pub data_off: u16,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Header.
    pub header: MsgHeader,
    /// Typed fields.
    pub front: Bytes,
    /// Extra fields of a few legacy messages, usually empty.
    pub middle: Bytes,
    /// Bulk payload.
    pub data: Bytes,
}

impl Message {
    /// The same message with a transaction number: replies carry their request's.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.header.tid = tid;
        self
    }

    /// Bytes this message occupies in queues, with what it is decoded into: many small ones must not take far more memory than
    /// they count for.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len() + 768
    }
}

/// A typed message.
pub trait WireMessage: Sized {
    /// Message type number.
    const KIND: u16;
    /// Version we write.
    const VERSION: u16;
    /// Compat version we write.
    const COMPAT: u16;
    /// Priority we write (127 default, 196 for a monitor's answers).
    const PRIORITY: u16 = 127;

    /// Writes the front.
    fn encode_front(&self, w: &mut Writer);

    /// Reads the front written as `version`. `data` is the data segment, for messages whose fields point into it.
    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self>;

    /// The data segment.
    fn data(&self) -> Bytes {
        Bytes::new()
    }

    /// Transaction number to put into the header.
    fn tid(&self) -> u64 {
        0
    }

    /// Room to make for the front. Exact is best: nothing is grown, and the buffer becomes shared bytes as it is.
    fn front_len_hint(&self) -> usize {
        256
    }

    /// The message for a peer with `features`.
    fn to_message(&self, features: Features) -> Message {
        let mut w = Writer::with_capacity(features, self.front_len_hint());
        self.encode_front(&mut w);
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
            data: self.data(),
        }
    }

    /// Refuses a message whose sender demands a newer decoder.
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

    /// Reads a message of this type; the caller has checked `header.kind`.
    fn from_message(m: &Message) -> Result<Self> {
        Self::check_compat(m)?;
        Self::decode_front(&mut Reader::shared(&m.front), m.header.version, &m.data)
    }
}
