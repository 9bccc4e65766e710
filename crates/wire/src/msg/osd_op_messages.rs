//! `MOSDOp` and `MOSDOpReply`: the messages that carry operations ([`osd_op`](super::osd_op)) and their results.
//!
//! Invariant: names and inputs are slices of the message's segments: decoding copies no payload.
//!
//! Tests: `tests/do_layouts_without_a_capture_hold.rs` (`an_operation_with_payloads`).

use super::osd_op::{OSD_OP_LEN, OpVec, OsdOp};
use crate::codec::{DecodeError, Reader, Result, Writer};
use crate::frame::{Message, WireMessage};
use crate::types::{ObjectLocator, RequestRedirect, SnapContext};
use base::{Epoch, Eversion, PgId, ReqId, SnapId, SpgId, Summed, Utime};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Takes the payload at `*at` from the data segment.
fn payload(data: &Bytes, at: &mut usize, len: usize) -> Result<Bytes> {
    if len == 0 {
        return Ok(Bytes::new());
    }
    let have = data.len() - *at;
    if len > have {
        return Err(DecodeError::Truncated { what: "osd_op payload", at: *at, need: len, have });
    }
    let b = data.slice(*at..*at + len);
    *at += len;
    Ok(b)
}

/// Concatenates payloads; a single one is shared without a copy.
fn join<'a>(mut parts: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    let total: usize = parts.clone().map(Bytes::len).sum();
    if total == 0 {
        return Bytes::new();
    }
    if let Some(one) = parts.clone().find(|b| !b.is_empty())
        && one.len() == total
    {
        return one.clone();
    }
    let mut all = BytesMut::with_capacity(total);
    parts.by_ref().for_each(|b| all.extend_from_slice(b));
    all.freeze()
}

/// `MOSDOp`: operations on one object, applied atomically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MOsdOp {
    /// Transaction number (message header).
    pub tid: u64,
    /// Target PG, with the seed of the actual PG.
    pub pgid: SpgId,
    /// Full placement hash of the object.
    pub hash: u32,
    /// Map epoch of the sender.
    pub osdmap_epoch: Epoch,
    /// [`crate::msg::op_code::msg_flags`].
    pub flags: u32,
    /// Identity of the operation; often empty, see [`MOsdOp::reqid_from`].
    pub reqid: ReqId,
    /// Tracing ids, echoed in the reply.
    pub trace: [u64; 3],
    /// Incarnation of the client.
    pub client_inc: i32,
    /// Modification time by the client's clock.
    pub mtime: Utime,
    /// Pool, namespace and locator key.
    pub locator: ObjectLocator,
    /// Object name.
    pub oid: Bytes,
    /// Operations.
    pub ops: OpVec,
    /// Snapshot to read, or the head.
    pub snapid: SnapId,
    /// Snapshot context of a write.
    pub snapc: SnapContext,
    /// Number of earlier attempts; -1 if the sender does not count.
    pub retry_attempt: i32,
    /// The sender's features.
    pub features: u64,
    /// Checksums of the data segment, of which the inputs of `ops` are slices; see [`Message::sums`].
    pub sums: Option<Arc<Summed>>,
}

/// Most operations in a message; the wire format counts them in a u16.
const OPS_MAX: usize = u16::MAX as usize;

impl MOsdOp {
    /// Identity of the operation: the message's reqid or, as in Ceph, one made from the connection's entity.
    #[must_use]
    pub fn reqid_from(&self, sender: base::EntityName) -> ReqId {
        if self.reqid.name != base::EntityName::default() || self.reqid.tid != 0 {
            self.reqid
        } else {
            ReqId { name: sender, tid: self.tid, inc: self.client_inc }
        }
    }
}

impl WireMessage for MOsdOp {
    const KIND: u16 = 42;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = 63;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid);
        w.u32(self.hash);
        w.put(&self.osdmap_epoch);
        w.u32(self.flags);
        w.put(&self.reqid);
        w.put(&self.trace);
        w.i32(self.client_inc);
        w.put(&self.mtime);
        w.put(&self.locator);
        w.blob(&self.oid);
        let n = self.ops.len().min(OPS_MAX);
        w.u16(n as u16);
        for op in self.ops.iter().take(n) {
            op.encode(op.indata.len(), w);
        }
        w.put(&self.snapid);
        w.put(&self.snapc);
        w.i32(self.retry_attempt);
        w.u64(self.features);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self> {
        if version < 8 {
            // Older versions are sent only by clients without features that we require.
            return Err(DecodeError::BadValue { what: "MOSDOp version", value: version.into() });
        }
        let pgid = r.get()?;
        let hash = r.u32()?;
        let osdmap_epoch = r.get()?;
        let flags = r.u32()?;
        let reqid = r.get()?;
        let trace = r.get()?;
        if version >= 9 {
            r.versioned("otel trace", u8::MAX, |_, _| Ok(()))?;
        }
        let client_inc = r.i32()?;
        let mtime = r.get()?;
        let locator = r.get()?;
        let oid = r.blob()?;
        let n = r.u16()? as usize;
        let need = n * OSD_OP_LEN;
        if need > r.remaining() {
            return Err(DecodeError::Truncated { what: "osd_ops", at: r.position(), need, have: r.remaining() });
        }
        let mut ops = OpVec::with_capacity(n);
        let mut at = 0;
        for _ in 0..n {
            let (mut op, len) = OsdOp::decode(r)?;
            op.indata = payload(data, &mut at, len)?;
            ops.push(op);
        }
        let snapid = r.get()?;
        let snapc = r.get()?;
        let retry_attempt = r.i32()?;
        let features = r.u64()?;
        Ok(Self {
            tid: 0,
            pgid,
            hash,
            osdmap_epoch,
            flags,
            reqid,
            trace,
            client_inc,
            mtime,
            locator,
            oid,
            ops,
            snapid,
            snapc,
            retry_attempt,
            features,
            sums: None,
        })
    }

    fn data(&self) -> Bytes {
        join(self.ops.iter().map(|o| &o.indata))
    }

    fn tid(&self) -> u64 {
        self.tid
    }

    fn from_message(m: &Message) -> Result<Self> {
        Self::check_compat(m)?;
        let mut op = Self::decode_front(&mut Reader::shared(&m.front), m.header.version, &m.data)?;
        op.tid = m.header.tid;
        op.sums.clone_from(&m.sums);
        Ok(op)
    }
}

/// `MOSDOpReply`: results of a [`MOsdOp`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MOsdOpReply {
    /// Transaction number of the request (message header).
    pub tid: u64,
    /// Object name.
    pub oid: Bytes,
    /// PG that served the operation.
    pub pgid: PgId,
    /// Flags of the request ([`crate::msg::op_code::msg_flags`]) with ACK and ONDISK.
    pub flags: u64,
    /// Overall result.
    pub result: i32,
    /// Obsolete, zero.
    pub bad_replay_version: Eversion,
    /// Map epoch of the OSD.
    pub osdmap_epoch: Epoch,
    /// Operations of the request, with results and output.
    pub ops: OpVec,
    /// Attempt number of the request.
    pub retry_attempt: i32,
    /// PG version of the write.
    pub replay_version: Eversion,
    /// User version of the object.
    pub user_version: u64,
    /// Location of the object, if it is redirected.
    pub redirect: Option<RequestRedirect>,
    /// Tracing ids of the request.
    pub trace: [u64; 3],
}

/// Length of a reply's front without name, operations and redirect.
const REPLY_FIXED: usize = 4 + 17 + 8 + 4 + 12 + 4 + 4 + 4 + 12 + 8 + 1 + 24;
/// Length of a redirect without its three strings.
const REDIRECT_FIXED: usize = 6 + (6 + 8 + 4 + 4 + 4 + 8) + 4 + 4;

impl WireMessage for MOsdOpReply {
    const KIND: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        w.blob(&self.oid);
        w.put(&self.pgid);
        w.u64(self.flags);
        w.i32(self.result);
        w.put(&self.bad_replay_version);
        w.put(&self.osdmap_epoch);
        w.u32(self.ops.len() as u32);
        for op in &self.ops {
            op.encode(op.out_len(), w);
        }
        w.i32(self.retry_attempt);
        for op in &self.ops {
            w.i32(op.rval);
        }
        w.put(&self.replay_version);
        w.u64(self.user_version);
        w.put(&self.redirect);
        w.put(&self.trace);
    }

    fn front_len_hint(&self) -> usize {
        let redirect = self
            .redirect
            .as_ref()
            .map_or(0, |r| REDIRECT_FIXED + r.locator.key.len() + r.locator.nspace.len() + r.object.len());
        REPLY_FIXED + self.oid.len() + self.ops.len() * (OSD_OP_LEN + 4) + redirect
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self> {
        if version < 8 {
            return Err(DecodeError::BadValue { what: "MOSDOpReply version", value: version.into() });
        }
        let oid = r.blob()?;
        let pgid = r.get()?;
        let flags = r.u64()?;
        let result = r.i32()?;
        let bad_replay_version = r.get()?;
        let osdmap_epoch = r.get()?;
        let n = r.count(OSD_OP_LEN, "osd_ops")?;
        let mut ops = OpVec::with_capacity(n);
        let mut at = 0;
        for _ in 0..n {
            let (mut op, len) = OsdOp::decode(r)?;
            op.outdata = payload(data, &mut at, len)?;
            ops.push(op);
        }
        let retry_attempt = r.i32()?;
        for op in &mut ops {
            op.rval = r.i32()?;
        }
        Ok(Self {
            tid: 0,
            oid,
            pgid,
            flags,
            result,
            bad_replay_version,
            osdmap_epoch,
            ops,
            retry_attempt,
            replay_version: r.get()?,
            user_version: r.u64()?,
            redirect: r.get()?,
            trace: r.get()?,
        })
    }

    fn data(&self) -> Bytes {
        let (lead, data, _) = self.payload();
        if lead.is_empty() { data } else { [lead, data].concat().into() }
    }

    fn payload(&self) -> (Bytes, Bytes, Option<u32>) {
        let mut with_output = self.ops.iter().filter(|o| o.out_len() > 0);
        match (with_output.next(), with_output.next()) {
            (None, _) => (Bytes::new(), Bytes::new(), None),
            (Some(o), None) => (o.lead(), o.outdata.clone(), o.out_crc),
            _ => {
                let mut all = BytesMut::with_capacity(self.ops.iter().map(OsdOp::out_len).sum());
                self.ops.iter().for_each(|o| {
                    all.extend_from_slice(&o.lead());
                    all.extend_from_slice(&o.outdata);
                });
                (Bytes::new(), all.freeze(), None)
            }
        }
    }

    fn tid(&self) -> u64 {
        self.tid
    }

    fn from_message(m: &Message) -> Result<Self> {
        Self::check_compat(m)?;
        let mut op = Self::decode_front(&mut Reader::shared(&m.front), m.header.version, &m.whole_data())?;
        op.tid = m.header.tid;
        Ok(op)
    }
}
