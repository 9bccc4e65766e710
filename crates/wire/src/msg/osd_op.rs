//! Object operations with their arguments and payloads; `osd_op_messages` has the messages that carry them.
//!
//! Invariants:
//!  1. Names and inputs are slices of the message's segments: decoding copies no payload.
//!  2. The 28-byte argument union of an operation is kept unchanged, so that a reply echoes it byte for byte.
//!
//! Tests: `tests/do_layouts_without_a_capture_hold.rs` (1, `an_operation_with_payloads`),
//! `tests/are_captured_messages_read_to_the_end_and_written_alike.rs` (2).

use crate::Features;
use crate::codec::{Reader, Result, Writer};
use crate::msg::OpCode;
use base::SnapId;
use bytes::Bytes;
use smallvec::SmallVec;

/// Length of the argument union in bytes.
const UNION_LEN: usize = 28;
/// Length of `ceph_osd_op` on the wire, in bytes.
pub(super) const OSD_OP_LEN: usize = 38;

/// Bytes before the data of one extent: the number of extents, the extent, and the length of the data.
const EXTENT_LEAD: usize = 4 + 16 + 4;

/// Operations of a message; two inline ones cover a write with its allocation hint.
pub type OpVec = SmallVec<[OsdOp; 2]>;

/// One operation of a message (`ceph_osd_op` with its payload; `OSDOp` in a reply).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdOp {
    /// Operation code.
    pub op: OpCode,
    /// [`crate::msg::op_code::op_flags`].
    pub flags: u32,
    /// Argument union; the accessors read it.
    pub raw: [u8; UNION_LEN],
    /// Input payload.
    pub indata: Bytes,
    /// Output payload (replies).
    pub outdata: Bytes,
    /// crc32c of `outdata` from [`base::crc::SEED`], if it is known. Only in replies to be sent.
    pub out_crc: Option<u32>,
    /// Set for the output of a SPARSE_READ that found one extent, at this offset: `outdata` is that extent alone, and
    /// what stands before it is made when the reply is sent. Only in replies to be sent.
    pub out_extent: Option<u64>,
    /// Result of this operation (replies).
    pub rval: i32,
}

/// Arguments of reads, writes and truncations; offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset.
    pub offset: u64,
    /// Length.
    pub length: u64,
    /// Object size at the truncation `truncate_seq` (CephFS).
    pub truncate_size: u64,
    /// Number of the newest truncation that the client knows; 0 for none.
    pub truncate_seq: u32,
}

/// Arguments of xattr operations; `indata` holds name and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrArgs {
    /// Length of the name.
    pub name_len: u32,
    /// Length of the value.
    pub value_len: u32,
    /// Comparison: 1 EQ, 2 NE, 3 GT, 4 GTE, 5 LT, 6 LTE.
    pub cmp_op: u8,
    /// Comparison mode: 1 text, 2 numbers.
    pub cmp_mode: u8,
}

/// Arguments of CALL; `indata` holds class, method and input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClsArgs {
    /// Length of the class name.
    pub class_len: u8,
    /// Length of the method name.
    pub method_len: u8,
    /// Unused, 0.
    pub argc: u8,
    /// Length of the input.
    pub indata_len: u32,
}

/// Arguments of PG listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PglsArgs {
    /// Largest number of entries to return.
    pub count: u64,
    /// Map epoch at which the listing started.
    pub start_epoch: u32,
}

/// Arguments of WATCH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchArgs {
    /// The client's number of the watch.
    pub cookie: u64,
    /// Unused version.
    pub ver: u64,
    /// Action: [`WatchArgs::UNWATCH`], [`WatchArgs::WATCH`] or another constant of this type.
    pub op: u8,
    /// Registration generation.
    pub gen_: u32,
    /// Timeout in seconds; 0 for the default.
    pub timeout: u32,
}

impl WatchArgs {
    /// Ends a watch.
    pub const UNWATCH: u8 = 0;
    /// Starts a watch (old clients).
    pub const LEGACY_WATCH: u8 = 1;
    /// Starts a watch.
    pub const WATCH: u8 = 3;
    /// Re-establishes a watch after a reconnect.
    pub const RECONNECT: u8 = 5;
    /// Keeps a watch alive.
    pub const PING: u8 = 7;
}

/// Arguments of COPY_FROM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyFromArgs {
    /// Snapshot of the source to read.
    pub snapid: SnapId,
    /// User version that the source must have; 0 for any.
    pub src_version: u64,
    /// `CEPH_OSD_COPY_FROM_FLAG_*`: 1 flush, 2 ignore overlay, 4 ignore cache, 8 map snap clone, 16 rw ordered,
    /// 32 truncate sequence given.
    pub flags: u8,
    /// Access hints for reading the source.
    pub src_fadvise_flags: u32,
}

/// Arguments of SETALLOCHINT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocHintArgs {
    /// Expected size of the object in bytes.
    pub expected_object_size: u64,
    /// Expected size of a write in bytes.
    pub expected_write_size: u64,
    /// `CEPH_OSD_ALLOC_HINT_FLAG_*`.
    pub flags: u32,
}

/// Arguments of WRITESAME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSameArgs {
    /// Offset.
    pub offset: u64,
    /// Length of the range.
    pub length: u64,
    /// Length of the pattern.
    pub data_length: u64,
}

/// Arguments of CHECKSUM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumArgs {
    /// Offset.
    pub offset: u64,
    /// Length of the range; 0 for up to the end.
    pub length: u64,
    /// Length of each checksummed chunk; 0 for a single one.
    pub chunk_size: u32,
    /// Algorithm: 0 xxhash32, 1 xxhash64, 2 crc32c.
    pub kind: u8,
}

/// Arguments of COPY_GET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyGetArgs {
    /// Largest number of bytes to return.
    pub max: u64,
    /// Flags.
    pub flags: u8,
}

impl OsdOp {
    /// An operation without arguments.
    #[must_use]
    pub fn new(op: OpCode) -> Self {
        Self { op, ..Self::default() }
    }

    /// An operation with input only.
    #[must_use]
    pub fn with_indata(op: OpCode, indata: Bytes) -> Self {
        Self { op, indata, ..Self::default() }
    }

    /// An operation on a range.
    #[must_use]
    pub fn with_extent(op: OpCode, offset: u64, length: u64, indata: Bytes) -> Self {
        let mut o = Self::with_indata(op, indata);
        o.set_extent(Extent { offset, length, ..Extent::default() });
        o
    }

    /// An xattr operation.
    #[must_use]
    pub fn with_xattr(op: OpCode, name: &[u8], value: &[u8], cmp_op: u8, cmp_mode: u8) -> Self {
        let mut o = Self::with_indata(op, [name, value].concat().into());
        o.put32(0, name.len() as u32);
        o.put32(4, value.len() as u32);
        o.put8(8, cmp_op);
        o.put8(9, cmp_mode);
        o
    }

    /// A class call; names longer than 255 bytes are truncated (no class has such names).
    #[must_use]
    pub fn call(class: &str, method: &str, input: &[u8]) -> Self {
        let class = class.as_bytes().get(..255).unwrap_or(class.as_bytes());
        let method = method.as_bytes().get(..255).unwrap_or(method.as_bytes());
        let mut o = Self::with_indata(OpCode::CALL, [class, method, input].concat().into());
        o.put8(0, class.len() as u8);
        o.put8(1, method.len() as u8);
        o.put32(3, input.len() as u32);
        o
    }

    fn at8(&self, at: usize) -> u8 {
        self.raw.get(at).copied().unwrap_or(0)
    }
    fn at32(&self, at: usize) -> u32 {
        self.raw.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
    fn at64(&self, at: usize) -> u64 {
        self.raw.get(at..at + 8).and_then(|s| s.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
    fn put(&mut self, at: usize, b: &[u8]) {
        if let Some(s) = self.raw.get_mut(at..at + b.len()) {
            s.copy_from_slice(b);
        }
    }
    fn put8(&mut self, at: usize, v: u8) {
        self.put(at, &[v]);
    }
    fn put32(&mut self, at: usize, v: u32) {
        self.put(at, &v.to_le_bytes());
    }
    fn put64(&mut self, at: usize, v: u64) {
        self.put(at, &v.to_le_bytes());
    }

    /// Range arguments.
    #[must_use]
    pub fn extent(&self) -> Extent {
        Extent { offset: self.at64(0), length: self.at64(8), truncate_size: self.at64(16), truncate_seq: self.at32(24) }
    }
    /// Sets range arguments.
    pub fn set_extent(&mut self, e: Extent) {
        self.put64(0, e.offset);
        self.put64(8, e.length);
        self.put64(16, e.truncate_size);
        self.put32(24, e.truncate_seq);
    }

    /// Xattr arguments.
    #[must_use]
    pub fn xattr(&self) -> XattrArgs {
        XattrArgs { name_len: self.at32(0), value_len: self.at32(4), cmp_op: self.at8(8), cmp_mode: self.at8(9) }
    }
    /// Name and value of an xattr operation; `None` if the payload is shorter than its lengths.
    #[must_use]
    pub fn xattr_payload(&self) -> Option<(Bytes, Bytes)> {
        let a = self.xattr();
        let mut rest = self.indata.clone();
        let name = split(&mut rest, a.name_len as usize)?;
        let value = split(&mut rest, a.value_len as usize)?;
        Some((name, value))
    }

    /// Class call arguments.
    #[must_use]
    pub fn cls(&self) -> ClsArgs {
        ClsArgs { class_len: self.at8(0), method_len: self.at8(1), argc: self.at8(2), indata_len: self.at32(3) }
    }
    /// Class, method and input of a call; `None` if the payload is shorter than its lengths.
    #[must_use]
    pub fn cls_payload(&self) -> Option<(&[u8], &[u8], Bytes)> {
        let (class, method, input) = self.cls_parts()?;
        Some((class, method, self.indata.slice_ref(input)))
    }

    /// Class and method of a call; see [`OsdOp::cls_payload`].
    #[must_use]
    pub fn cls_names(&self) -> Option<(&[u8], &[u8])> {
        self.cls_parts().map(|(class, method, _)| (class, method))
    }

    fn cls_parts(&self) -> Option<(&[u8], &[u8], &[u8])> {
        let a = self.cls();
        let (class, rest) = self.indata.split_at_checked(a.class_len.into())?;
        let (method, rest) = rest.split_at_checked(a.method_len.into())?;
        Some((class, method, rest.get(..a.indata_len as usize)?))
    }

    /// PG listing arguments.
    #[must_use]
    pub fn pgls(&self) -> PglsArgs {
        PglsArgs { count: self.at64(0), start_epoch: self.at32(8) }
    }
    /// Sets PG listing arguments.
    pub fn set_pgls(&mut self, a: PglsArgs) {
        self.put64(0, a.count);
        self.put32(8, a.start_epoch);
    }

    /// Watch arguments.
    #[must_use]
    pub fn watch(&self) -> WatchArgs {
        WatchArgs {
            cookie: self.at64(0),
            ver: self.at64(8),
            op: self.at8(16),
            gen_: self.at32(17),
            timeout: self.at32(21),
        }
    }
    /// Sets watch arguments.
    pub fn set_watch(&mut self, a: WatchArgs) {
        self.put64(0, a.cookie);
        self.put64(8, a.ver);
        self.put8(16, a.op);
        self.put32(17, a.gen_);
        self.put32(21, a.timeout);
    }

    /// Cookie of NOTIFY.
    #[must_use]
    pub fn notify_cookie(&self) -> u64 {
        self.at64(0)
    }
    /// Sets the cookie of NOTIFY.
    pub fn set_notify_cookie(&mut self, cookie: u64) {
        self.put64(0, cookie);
    }

    /// Version of ASSERT_VER.
    #[must_use]
    pub fn assert_ver(&self) -> u64 {
        self.at64(8)
    }
    /// Sets the version of ASSERT_VER.
    pub fn set_assert_ver(&mut self, ver: u64) {
        self.put64(8, ver);
    }

    /// Snapshot of ROLLBACK.
    #[must_use]
    pub fn snap(&self) -> SnapId {
        SnapId(self.at64(0))
    }
    /// Sets the snapshot of ROLLBACK.
    pub fn set_snap(&mut self, s: SnapId) {
        self.put64(0, s.0);
    }

    /// COPY_FROM arguments.
    #[must_use]
    pub fn copy_from(&self) -> CopyFromArgs {
        CopyFromArgs {
            snapid: SnapId(self.at64(0)),
            src_version: self.at64(8),
            flags: self.at8(16),
            src_fadvise_flags: self.at32(17),
        }
    }
    /// Sets COPY_FROM arguments.
    pub fn set_copy_from(&mut self, a: CopyFromArgs) {
        self.put64(0, a.snapid.0);
        self.put64(8, a.src_version);
        self.put8(16, a.flags);
        self.put32(17, a.src_fadvise_flags);
    }

    /// COPY_GET arguments.
    #[must_use]
    pub fn copy_get(&self) -> CopyGetArgs {
        CopyGetArgs { max: self.at64(0), flags: self.at8(8) }
    }
    /// Sets COPY_GET arguments.
    pub fn set_copy_get(&mut self, a: CopyGetArgs) {
        self.put64(0, a.max);
        self.put8(8, a.flags);
    }

    /// Allocation hint.
    #[must_use]
    pub fn alloc_hint(&self) -> AllocHintArgs {
        AllocHintArgs { expected_object_size: self.at64(0), expected_write_size: self.at64(8), flags: self.at32(16) }
    }
    /// Sets the allocation hint.
    pub fn set_alloc_hint(&mut self, a: AllocHintArgs) {
        self.put64(0, a.expected_object_size);
        self.put64(8, a.expected_write_size);
        self.put32(16, a.flags);
    }

    /// WRITESAME arguments.
    #[must_use]
    pub fn writesame(&self) -> WriteSameArgs {
        WriteSameArgs { offset: self.at64(0), length: self.at64(8), data_length: self.at64(16) }
    }
    /// Sets WRITESAME arguments.
    pub fn set_writesame(&mut self, a: WriteSameArgs) {
        self.put64(0, a.offset);
        self.put64(8, a.length);
        self.put64(16, a.data_length);
    }

    /// CHECKSUM arguments.
    #[must_use]
    pub fn checksum(&self) -> ChecksumArgs {
        ChecksumArgs { offset: self.at64(0), length: self.at64(8), chunk_size: self.at32(16), kind: self.at8(20) }
    }
    /// Sets CHECKSUM arguments.
    pub fn set_checksum(&mut self, a: ChecksumArgs) {
        self.put64(0, a.offset);
        self.put64(8, a.length);
        self.put32(16, a.chunk_size);
        self.put8(20, a.kind);
    }

    /// Removes the output.
    pub fn clear_output(&mut self) {
        (self.outdata, self.out_crc, self.out_extent) = (Bytes::new(), None, None);
    }

    /// Length of the output in bytes, as it is sent.
    #[must_use]
    pub fn out_len(&self) -> usize {
        self.outdata.len() + self.out_extent.map_or(0, |_| EXTENT_LEAD)
    }

    /// The output as it is sent, in one piece.
    #[must_use]
    pub fn output(&self) -> Bytes {
        if self.out_extent.is_none() { self.outdata.clone() } else { [&self.lead()[..], &self.outdata].concat().into() }
    }

    /// Bytes before `outdata`: the map of extents and the length of their data.
    pub(super) fn lead(&self) -> Bytes {
        let Some(offset) = self.out_extent else { return Bytes::new() };
        let mut w = Writer::with_capacity(Features::PACIFIC, EXTENT_LEAD);
        w.put(&[(offset, self.outdata.len() as u64)][..]);
        w.u32(self.outdata.len() as u32);
        w.into_bytes()
    }

    pub(super) fn encode(&self, payload_len: usize, w: &mut Writer) {
        w.u16(self.op.0);
        w.u32(self.flags);
        w.raw(&self.raw);
        w.u32(payload_len as u32);
    }

    /// Decodes an operation without its payload; also returns the payload's length.
    #[inline]
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<(Self, usize)> {
        // One bounds check for all fields.
        let b: [u8; OSD_OP_LEN] = r.array("osd_op")?;
        let mut raw = [0; UNION_LEN];
        raw.copy_from_slice(&b[6..6 + UNION_LEN]);
        let op = OpCode(u16::from_le_bytes([b[0], b[1]]));
        let flags = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
        let len = u32::from_le_bytes([b[34], b[35], b[36], b[37]]) as usize;
        Ok((Self { op, flags, raw, ..Self::default() }, len))
    }
}

fn split(rest: &mut Bytes, n: usize) -> Option<Bytes> {
    (n <= rest.len()).then(|| rest.split_to(n))
}
