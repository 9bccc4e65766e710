//! Admission and decoding of messages on a client's session. Executing them is the caller's task.
//!
//! Invariant: a message is decoded only if its sender may send it ([`crate::core::admission`]).
//!
//! Tests: those of this file, and `tests/rights.rs`.

use super::admission::{Admission, Lane, Refusal};
use auth::Principal;
use wire::msg::{MCommand, MOsdMap, MOsdOp, OpCode, OsdOp};
use wire::{DecodeError, Message, WireMessage as _};

/// Decoded request of a client's message.
#[derive(Debug)]
pub enum Request {
    /// An operation. [`crate::core::pgs::Pgs::op`] checks its caps.
    Op(Box<MOsdOp>),
    /// A command of a principal that may run all commands.
    Command,
    /// Maps from another OSD.
    Maps(Box<MOsdMap>),
    /// No request: an acknowledgement of a backoff, or a watcher's ping.
    Nothing,
}

/// Bytes of the answer that a request asks for, at most: what its reads name, and all of an object if they name no
/// length. Answers of other operations count once they are there.
#[must_use]
pub fn answer_bytes(m: &MOsdOp) -> usize {
    let of_object = u64::try_from(base::sizes::OUTPUT_MAX).unwrap_or(u64::MAX).min(base::sizes::OBJECT_MAX);
    let read = |o: &OsdOp| match o.op {
        OpCode::READ | OpCode::SYNC_READ | OpCode::SPARSE_READ => match o.extent().length {
            0 => of_object,
            n => n.min(of_object),
        },
        _ => 0,
    };
    let sum = m.ops.iter().map(read).fold(0, u64::saturating_add);
    usize::try_from(sum).unwrap_or(usize::MAX).min(base::sizes::OUTPUT_MAX)
}

/// Bytes that the OSD makes of a request's input before it writes them, at most: WRITESAME names a length and sends a
/// short pattern.
#[must_use]
pub fn expanded_bytes(m: &MOsdOp) -> usize {
    let same = |o: &OsdOp| if o.op == OpCode::WRITESAME { o.writesame().length } else { 0 };
    let sum = m.ops.iter().map(same).fold(0, u64::saturating_add);
    usize::try_from(sum).unwrap_or(usize::MAX).min(base::sizes::VECTOR_PAYLOAD_MAX)
}

/// Reason why a message is not executed.
#[derive(Debug)]
pub enum NotTaken {
    /// The sender may not send this message.
    Refused(Refusal),
    /// An operation that can't be decoded. The session must end, since its client would wait for the answer.
    BadOp(DecodeError),
    /// Maps that can't be decoded.
    BadMaps(DecodeError),
}

/// Admits and decodes a message that came to the public address. Error: the sender may not send it, or it does not
/// decode.
pub fn from_client(admission: &Admission, who: &Principal, m: &Message) -> Result<Request, NotTaken> {
    admission.admit(Lane::Public, m.header.kind, who).map_err(NotTaken::Refused)?;
    match m.header.kind {
        MOsdOp::KIND => MOsdOp::from_message(m).map(|op| Request::Op(Box::new(op))).map_err(NotTaken::BadOp),
        MCommand::KIND => Ok(Request::Command),
        MOsdMap::KIND => MOsdMap::from_message(m).map(|m| Request::Maps(Box::new(m))).map_err(NotTaken::BadMaps),
        _ => Ok(Request::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{AuthName, EntityKind};
    use bytes::Bytes;
    use wire::Features;

    #[test]
    fn a_message_is_refused_before_it_is_decoded() {
        let nobody = Principal::nobody(([127, 0, 0, 1], 1).into());
        let client = Principal { name: AuthName::parse("client.a").unwrap(), kind: EntityKind::CLIENT, ..nobody };
        let maps = MOsdMap::default().to_message(Features::PACIFIC);
        let cut = Message { front: maps.front.slice(..maps.front.len() / 2), ..maps };
        let taken = from_client(&Admission::default(), &client, &cut);
        assert!(matches!(taken, Err(NotTaken::Refused(_))), "a client may not send maps, whether or not they decode");
    }

    fn of(ops: &[(OpCode, u64)]) -> usize {
        let ops = ops.iter().map(|(code, len)| OsdOp::with_extent(*code, 0, *len, Bytes::new())).collect();
        answer_bytes(&MOsdOp { ops, ..MOsdOp::default() })
    }

    #[test]
    fn expansions_are_charged_with_what_they_write() {
        let mut same = OsdOp::with_indata(OpCode::WRITESAME, Bytes::from_static(b"ab"));
        let mut of = |length, n| {
            same.set_writesame(wire::msg::osd_op::WriteSameArgs { offset: 0, length, data_length: 2 });
            expanded_bytes(&MOsdOp { ops: vec![same.clone(); n].into_iter().collect(), ..MOsdOp::default() })
        };
        assert_eq!((of(4096, 3), of(0, 1)), (12_288, 0));
        assert_eq!((of(u64::MAX, 2), of(64 << 20, 65_535)), (base::sizes::VECTOR_PAYLOAD_MAX, 128 << 20));
        assert_eq!(expanded_bytes(&MOsdOp::default()), 0);
    }

    #[test]
    fn reads_are_charged_what_they_ask_for() {
        const MIB: u64 = 1 << 20;
        assert_eq!(of(&[(OpCode::READ, 4 * MIB), (OpCode::STAT, 9), (OpCode::WRITE, 5 * MIB)]), 4 << 20);
        assert_eq!(of(&[(OpCode::SPARSE_READ, 3), (OpCode::SYNC_READ, 5)]), 8);
        assert_eq!(of(&[(OpCode::READ, 0)]), base::sizes::OBJECT_MAX as usize, "all of the object");
        assert_eq!(of(&[(OpCode::READ, u64::MAX)]), base::sizes::OBJECT_MAX as usize);
        assert_eq!(of(&vec![(OpCode::READ, u64::MAX); 100]), base::sizes::OUTPUT_MAX, "more is refused");
    }
}
