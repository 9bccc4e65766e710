//! Session of a client or daemon with a monitor: maps, subscriptions, commands, configuration, ticket renewal.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::frame::WireMessage;
use crate::macros::{message, plain};
use crate::types::{LogEntry, PaxosHeader, PoolStat, Text};
use base::id::Uuid;
use base::{AuthName, Epoch, PoolId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;

message! {
    /// `MMonMap`: an encoded MonMap.
    MMonMap = 4, 1, 1 {
        monmapbl: Bytes,
    }

    /// `MMonGetMap`: requests the monitor map.
    MMonGetMap = 5, 1, 1 {}

    /// `MMonGetOSDMap`: ranges of epochs, 0 for none.
    MMonGetOsdMap = 6, 1, 1 {
        paxos: PaxosHeader,
        full_first: Epoch,
        full_last: Epoch,
        inc_first: Epoch,
        inc_last: Epoch,
    }

    /// `MStatfs`: space of the cluster or of one pool.
    MStatfs = 13, 2, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        data_pool: Option<PoolId> => 2,
    }

    /// `MStatfsReply`: the answer to [`MStatfs`]; space in KiB.
    MStatfsReply = 14, 1, 1 {
        fsid: Uuid,
        version: u64,
        kb: u64,
        kb_used: u64,
        kb_avail: u64,
        num_objects: u64,
    }

    /// `MMonSubscribe`: adds or renews subscriptions of the session.
    MMonSubscribe = 15, 3, 1 {
        what: BTreeMap<String, SubscribeItem>,
        hostname: String => 3,
    }

    /// `MMonSubscribeAck`: sent only to peers without stateful subscriptions.
    MMonSubscribeAck = 16, 1, 1 {
        interval: u32,
        fsid: Uuid,
    }

    /// `MAuthReply`: the answer to [`MAuth`]; `result` is 0 or a negative errno.
    MAuthReply = 18, 1, 1 {
        protocol: u32,
        result: i32,
        global_id: u64,
        auth_payload: Bytes,
        result_msg: String,
    }

    /// `MMonGetVersion`: requests the newest version of a map ("osdmap", "monmap", "mgrmap", "fsmap", "mdsmap").
    MMonGetVersion = 19, 1, 1 {
        handle: u64,
        what: String,
    }

    /// `MMonGetVersionReply`.
    MMonGetVersionReply = 20, 2, 2 {
        handle: u64,
        version: u64,
        oldest_version: u64,
    }

    /// `MPoolOpReply`: the answer to [`MPoolOp`]. The data is the id of a new self-managed snapshot.
    MPoolOpReply = 48, 1, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        reply_code: i32,
        epoch: Epoch,
        response_data: Option<Bytes>,
    }

    /// `MPoolOp`: creates and removes pools and snapshots without the command interface.
    MPoolOp = 49, 4, 2 {
        paxos: PaxosHeader,
        fsid: Uuid,
        pool: u32,
        /// [`pool_op`].
        op: u32,
        /// Obsolete, 0.
        auid: u64,
        snapid: SnapId,
        name: Text,
        pad: u8 => 3,
        crush_rule: i16 => 4,
    }

    /// `MMonCommand`: a JSON command; the input is in the data segment.
    MMonCommand = 50, 1, 1 + data {
        paxos: PaxosHeader,
        fsid: Uuid,
        cmd: Vec<Text>,
    }

    /// `MMonCommandAck`: result, status text, the command; the output is in the data segment.
    MMonCommandAck = 51, 1, 1 + data {
        paxos: PaxosHeader,
        r: i32,
        rs: Text,
        cmd: Vec<Text>,
    }

    /// `MLog`: entries of the cluster log, in both directions.
    MLog = 52, 1, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        entries: Vec<LogEntry>,
    }

    /// `MLogAck`: the monitor has stored all entries up to `last`.
    MLogAck = 53, 1, 1 {
        fsid: Uuid,
        last: u64,
        channel: String,
    }

    /// `MKVData`: keys with a subscribed prefix; a missing value means that the key was removed.
    MKvData = 54, 1, 1 {
        version: u64,
        prefix: String,
        incremental: bool,
        data: BTreeMap<String, Option<Bytes>>,
    }

    /// `MGetPoolStats`: requests the statistics of pools, by name.
    MGetPoolStats = 58, 1, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        pools: Vec<String>,
    }

    /// `MGetPoolStatsReply`: the answer to [`MGetPoolStats`].
    MGetPoolStatsReply = 59, 2, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        pool_stats: BTreeMap<String, PoolStat>,
        per_pool: bool => 2,
    }

    /// `MConfig`: all configuration options for this session.
    MConfig = 62, 1, 1 {
        config: BTreeMap<String, Text>,
    }

    /// `MGetConfig`: requests the options without a subscription.
    MGetConfig = 63, 1, 1 {
        name: AuthName,
        host: String,
        device_class: String,
    }
}

plain! {
    /// `ceph_mon_subscribe_item`.
    SubscribeItem {
        /// First version to send; 0 for the newest full map.
        start: u64,
        /// [`SubscribeItem::ONETIME`] or 0.
        flags: u8,
    }
}

impl SubscribeItem {
    /// The subscription ends with the first answer.
    pub const ONETIME: u8 = 1;

    /// Makes a standing or one-time subscription.
    #[must_use]
    pub fn new(start: u64, onetime: bool) -> Self {
        Self { start, flags: if onetime { Self::ONETIME } else { 0 } }
    }

    /// True if the subscription ends with the first answer.
    #[must_use]
    pub fn is_onetime(&self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

/// Values of [`MPoolOp::op`].
pub mod pool_op {
    /// Creates a pool.
    pub const CREATE: u32 = 0x01;
    /// Removes a pool.
    pub const DELETE: u32 = 0x02;
    /// Obsolete.
    pub const AUID_CHANGE: u32 = 0x03;
    /// Makes a pool snapshot.
    pub const CREATE_SNAP: u32 = 0x11;
    /// Removes a pool snapshot.
    pub const DELETE_SNAP: u32 = 0x12;
    /// Allocates a self-managed snapshot.
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    /// Removes a self-managed snapshot.
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// `MAuth`: authentication on an open session, for renewal of tickets and rotating secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MAuth {
    /// Paxos header.
    pub paxos: PaxosHeader,
    /// Method: 1 none, 2 cephx; 0 in the first message of the old handshake.
    pub protocol: u32,
    /// Method-specific payload.
    pub auth_payload: Bytes,
    /// MonMap epoch of the sender; old kernels omit it.
    pub monmap_epoch: Option<Epoch>,
}

impl WireMessage for MAuth {
    const KIND: u16 = 17;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.u32(self.protocol);
        w.blob(&self.auth_payload);
        if let Some(e) = &self.monmap_epoch {
            w.put(e);
        }
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self {
            paxos: r.get()?,
            protocol: r.u32()?,
            auth_payload: r.blob()?,
            monmap_epoch: if r.is_empty() { None } else { Some(r.get()?) },
        })
    }
}

/// `MPing`: keepalive. A monitor replies with a text about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MPing {
    /// Empty, or an encoded string.
    pub payload: Bytes,
}

impl WireMessage for MPing {
    const KIND: u16 = 2;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.raw(&self.payload);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self { payload: r.rest() })
    }
}

impl MPing {
    /// A monitor's reply.
    #[must_use]
    pub fn with_text(text: &str) -> Self {
        let mut w = Writer::default();
        text.encode(&mut w);
        Self { payload: w.into_bytes() }
    }

    /// Decodes the text of a reply.
    pub fn text(&self) -> Result<Text> {
        Text::from_bytes(&self.payload)
    }
}
