//! Planning of one operation vector against a view of the object, operation by operation.
//!
//! Each operation sees existence and object info as earlier operations of the vector left them. Data, attributes and
//! omap it sees as they were before the vector. Planning only reads the store.
//!
//! | module | contents |
//! | --- | --- |
//! | `access` | classification of an operation message: the caps it needs, and how the PG must serve it |
//! | `attr` | operations on user attributes |
//! | `checksum` | checksums of the CHECKSUM operation: crc32c, xxHash32, xxHash64 |
//! | `class` | CALL: runs a class method on the object, in the context of the vector |
//! | `copy` | `copy_from`: COPY_GET reads a source in chunks, COPY_FROM applies the content |
//! | `data` | operations on an object's bytes and existence |
//! | `finish` | completion of a planned vector: a clone if a snapshot needs it, new metadata, log records |
//! | `list` | operations on the PG itself: lists of objects in hash order, with filters |
//! | `omap` | operations on omap |
//! | `progress` | progress of a long vector: a vector of many operations runs in parts, and goes on where it stopped |
//! | `snap` | snapshots: resolving the version of an object, listing clones, rollback, trimming |
//! | `tmap` | legacy text maps (TMAP): sorted keys with values in an object's data |
//! | `view` | one object in the view of an operation vector: its state in the store, and the changes collected so far |
//! | `watch` | watch, notify and acknowledgement as operations |
//!
//! Invariants:
//!  1. A vector succeeds or fails as a whole. Its collected changes are used only if every operation succeeded or was
//!     allowed to fail.
//!  2. Planning is repeatable: the same request on the same object gives the same plan.
//!
//! Tests: `tests/semantics.rs` (`vectors_are_atomic`), `tests/model.rs`.

mod access;
mod attr;
mod checksum;
mod class;
mod copy;
mod data;
mod finish;
pub(crate) mod list;
mod omap;
mod progress;
mod snap;
mod tmap;
mod view;
mod watch;

pub use access::{ClassCall, OpAccess, op_access};
pub use copy::copy_source;
pub(crate) use copy::{CopyDone, CopyRequest, CopyState};
pub(crate) use data::{check_range, plain_range, truncation};
pub(crate) use finish::{Finished, finish};
pub(crate) use list::{pg_range, split_bits};
pub(crate) use progress::Progress;
pub use snap::index_key;
pub(crate) use snap::{index_clone, load_clone_info, load_context, trim_clone};
pub(crate) use view::{Step, Stop, View, takes_payload};
pub(crate) use watch::{NotifyAck, WatchConnect, WatchDisconnect, WatchEffects};

use crate::limits::OUTPUT_MAX;
use crate::object::intervals::RangeLog;
use crate::object::{ObjectContext, ObjectInfo};
use crate::stats::StatSum;
use crate::watch::WatchTable;
use base::errno::{EINVAL, EMSGSIZE, EOPNOTSUPP};
use base::rng::Rng;
use base::{EntityAddr, EntityName, Epoch, Eversion, HObject, Now, ReqId, SpgId};
use progress::{KEEP_AFTER, OP_WORK, PART_WORK};
use wire::msg::OpCode;
use wire::msg::op_code::op_flags;
use wire::msg::{OpVec, OsdOp};

/// Inputs of planning beside the object.
pub(crate) struct Env<'a> {
    pub spg: SpgId,
    /// `pg_num` of the pool.
    pub pg_num: u32,
    pub epoch: Epoch,
    pub now: Now,
    /// Version of the next log record.
    pub next_version: Eversion,
    /// Newest user version in the PG.
    pub last_user_version: u64,
    /// Removed snapshots: no clones are made for them.
    pub removed_snaps: &'a cluster::IntervalSet,
    pub watches: &'a WatchTable,
    pub reqid: ReqId,
    pub client: EntityName,
    pub addr: EntityAddr,
    pub features: u64,
    pub mtime: base::Utime,
    /// Limits of an erasure-coded pool; `None` in a replicated one.
    pub coded: Option<Coded>,
}

/// Limits of an erasure-coded pool for client operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coded {
    /// Bytes of an object in one stripe.
    pub stripe_width: u64,
    /// Objects may be written in part.
    pub overwrites: bool,
}

impl Coded {
    /// True if Ceph's rules forbid an operation on an object of `size` bytes. `offset` is that of a write.
    fn refuses(self, code: OpCode, offset: u64, size: u64) -> bool {
        match code {
            OpCode::OMAPSETVALS
            | OpCode::OMAPSETHEADER
            | OpCode::OMAPCLEAR
            | OpCode::OMAPRMKEYS
            | OpCode::OMAPRMKEYRANGE
            | OpCode::TMAPUP
            | OpCode::TMAPPUT
            | OpCode::TMAPGET
            | OpCode::TMAP2OMAP
            | OpCode::MAPEXT
            | OpCode::SYNC_READ => true,
            OpCode::ZERO | OpCode::TRUNCATE | OpCode::TRIMTRUNC => !self.overwrites,
            OpCode::WRITE => !self.overwrites && (offset != size || !offset.is_multiple_of(self.stripe_width)),
            OpCode::APPEND => !self.overwrites && !size.is_multiple_of(self.stripe_width),
            OpCode::WRITESAME => !self.overwrites,
            _ => false,
        }
    }
}

/// The snapshot context in force for a vector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapc {
    pub seq: u64,
    /// Snapshots, newest first.
    pub snaps: Vec<u64>,
}

/// How a vector changes its object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// The vector must give the object a new user version.
    pub by_user: bool,
    /// The vector changes the object although it has no store operation.
    pub any: bool,
    /// The object is no longer dirty.
    pub undirty: bool,
}

/// A `copy_from` in a vector.
#[derive(Debug, Default)]
pub(crate) struct CopyFrom<'a> {
    /// Content of the source, once it was read.
    pub done: Option<&'a CopyDone>,
    /// User version that is taken over.
    pub version: Option<u64>,
    /// Modification time that is taken over.
    pub mtime: Option<base::Utime>,
    /// A copy whose source must be read before planning can go on.
    pub want: Option<CopyRequest>,
}

/// The part of a vector that is planned at once.
#[derive(Debug, Default)]
pub(crate) struct PartState {
    /// Progress of the vector's long calls.
    pub parts: cls::Parts,
    /// Work of this part of the vector ([`progress`]).
    pub work: u64,
    /// The part is over before the vector.
    pub paused: bool,
    /// An operation's look-ups of omap keys that have not ended.
    pub lookups: Option<Box<omap::Lookups>>,
    /// The vector has one operation.
    pub alone: bool,
}

/// State of a vector while it is planned.
pub(crate) struct OpCtx<'a> {
    pub view: View<'a>,
    pub env: &'a Env<'a>,
    /// Head of the object.
    pub head: &'a HObject,
    /// The object's metadata before the vector.
    pub before: &'a ObjectContext,
    /// The object exists after the operations planned so far.
    pub exists: bool,
    /// Object info after the operations planned so far.
    pub oi: ObjectInfo,
    /// The object may have omap: it had some and the vector did not clear it, or the vector sets some. Removing the
    /// object does not change this, since later operations still see its omap.
    pub omap: bool,
    pub snapc: Snapc,
    /// Changed ranges of data, for the overlaps of clones.
    pub modified: RangeLog,
    pub delta: StatSum,
    pub effects: WatchEffects,
    pub change: Change,
    pub copy: CopyFrom<'a>,
    pub long: PartState,
    pub rng: Rng,
    pub index: u32,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// A log line says that the vector is too large.
    pub told: bool,
    /// Bytes of the object's attributes, if known; see `attr`.
    pub attr_bytes: Option<usize>,
}

impl<'a> OpCtx<'a> {
    /// The state before the first operation of a vector that reads and writes what `view` shows. `oi` is the info of
    /// the object that is read.
    pub(crate) fn new(
        view: View<'a>,
        env: &'a Env<'a>,
        head: &'a HObject,
        before: &'a ObjectContext,
        oi: ObjectInfo,
    ) -> Self {
        Self {
            view,
            env,
            head,
            before,
            exists: before.exists,
            omap: oi.has_omap(),
            oi,
            snapc: Snapc::default(),
            modified: RangeLog::default(),
            delta: StatSum::default(),
            effects: WatchEffects::default(),
            change: Change::default(),
            copy: CopyFrom::default(),
            long: PartState::default(),
            rng: Rng::new(0),
            index: 0,
            bytes_read: 0,
            bytes_written: 0,
            told: false,
            attr_bytes: None,
        }
    }
}

impl OpCtx<'_> {
    /// True if the vector changes the object.
    pub(crate) fn changed(&self) -> bool {
        !self.view.ops.is_empty() || self.change.any
    }

    /// Creates the object if it is absent.
    pub(crate) fn create(&mut self) {
        if !self.exists {
            self.exists = true;
            self.oi.reset();
            self.delta.num_objects += 1;
            self.view.touch();
        }
    }

    /// Counts a read of `bytes` in the statistics.
    pub(crate) fn count_read(&mut self, bytes: usize) {
        self.delta.num_rd += 1;
        self.delta.num_rd_kb += kib(bytes as u64);
        self.bytes_read += bytes as u64;
        self.long.work += bytes as u64;
    }

    /// The errno of a vector whose changes or output are too large. The first time it leaves a log line.
    fn too_large(&mut self) -> Stop {
        if !std::mem::replace(&mut self.told, true) {
            let s = self.view.sums;
            let (client, op) = (self.env.client, self.index);
            tracing::info!(
                object = %self.head, %client, op, payload = s.payload, metadata = s.metadata, entries = s.entries,
                "request refused: its changes or its output are too large (docs/reference/limits.md)"
            );
        }
        EMSGSIZE.into()
    }

    /// Runs the vector, from its start or from where it stopped. Returns the result of its last operation, or of the
    /// first failed one without FAILOK. `progress` is kept if it waits.
    pub(crate) fn run(&mut self, ops: &mut OpVec, progress: &mut Option<Box<Progress>>) -> Step<i32> {
        self.long.alone = ops.len() == 1;
        let (first, mut result, mut output) = progress.take().map_or((0, 0, 0), |p| self.restore(*p));
        for i in first..ops.len() {
            if i > first && self.long.work >= PART_WORK {
                self.long.paused = true;
                *progress = Some(self.save(i, result, output));
                return Err(Stop::Wait);
            }
            let Some(op) = ops.get_mut(i) else { break };
            self.index = i as u32;
            op.clear_output();
            op.rval = 0;
            self.long.work += OP_WORK;
            let before = (i >= KEEP_AFTER).then(|| self.before_op());
            let one = self.one(op, OUTPUT_MAX - output);
            let next = match one {
                Ok(r) => r,
                Err(Stop::Wait) => {
                    // Look-ups have their place themselves, and change nothing.
                    if self.long.lookups.is_some() || before.is_some_and(|b| self.take_back(b)) {
                        *progress = Some(self.save(i, result, output));
                    }
                    return Err(Stop::Wait);
                }
                Err(Stop::Errno(e)) => e,
            };
            result = next;
            if self.copy.want.is_some() {
                return Ok(0);
            }
            op.rval = result;
            output += op.outdata.len();
            if output > OUTPUT_MAX || !self.view.sums.is_legal() {
                // FAILOK does not excuse it: the rest of the vector might have as much again.
                ops.iter_mut().for_each(OsdOp::clear_output);
                return Err(self.too_large());
            }
            if result < 0 {
                if op.flags & op_flags::FAILOK != 0 {
                    result = 0;
                } else {
                    break;
                }
            }
        }
        Ok(result)
    }

    /// Fails if the pool is erasure-coded and forbids the operation of a client or class method; see
    /// [`Coded::refuses`].
    fn permits(&self, code: OpCode, offset: u64) -> Step<()> {
        let forbidden = self.env.coded.is_some_and(|c| c.refuses(code, offset, self.oi.size));
        if forbidden { Err(EOPNOTSUPP.into()) } else { Ok(()) }
    }

    /// Runs one operation, whose output should not exceed `room` bytes.
    fn one(&mut self, op: &mut OsdOp, room: usize) -> Step<i32> {
        data::normalize(op);
        let code = op.op;
        self.permits(code, op.extent().offset)?;
        if code.is_write() && !is_invisible(code) {
            self.change.by_user = true;
        }
        match code {
            OpCode::READ | OpCode::SYNC_READ => self.op_read(op),
            OpCode::SPARSE_READ => self.op_sparse_read(op),
            OpCode::MAPEXT => self.op_mapext(op),
            OpCode::CHECKSUM => self.op_checksum(op),
            OpCode::CMPEXT => self.op_cmpext(op),
            OpCode::STAT => self.op_stat(op),
            OpCode::ASSERT_VER => self.op_assert_ver(op),
            OpCode::WRITE => self.op_write(op),
            OpCode::APPEND => self.op_append(op),
            OpCode::WRITEFULL => self.op_writefull(op),
            OpCode::WRITESAME => self.op_writesame(op),
            OpCode::TRUNCATE => self.op_truncate(op, false),
            OpCode::TRIMTRUNC => self.op_truncate(op, true),
            OpCode::SETTRUNC => self.op_settrunc(op),
            OpCode::ZERO => self.op_zero(op),
            OpCode::CREATE => self.op_create(op),
            OpCode::DELETE => self.delete().map(|()| 0),
            OpCode::SETALLOCHINT => self.op_alloc_hint(op),
            OpCode::ROLLBACK => self.op_rollback(op),
            OpCode::LIST_SNAPS => self.op_list_snaps(op),
            OpCode::GETXATTR => self.op_getxattr(op),
            OpCode::GETXATTRS => self.op_getxattrs(op),
            OpCode::CMPXATTR => self.op_cmpxattr(op),
            OpCode::SETXATTR => self.op_setxattr(op),
            OpCode::RMXATTR => self.op_rmxattr(op),
            OpCode::OMAPGETKEYS => self.op_omap_keys(op),
            OpCode::OMAPGETVALS => self.op_omap_vals(op),
            OpCode::OMAPGETHEADER => self.op_omap_header(op),
            OpCode::OMAPGETVALSBYKEYS => self.op_omap_by_keys(op, room),
            OpCode::OMAP_CMP => self.op_omap_cmp(op),
            OpCode::OMAPSETVALS => self.op_omap_set(op),
            OpCode::OMAPSETHEADER => self.op_omap_set_header(op),
            OpCode::OMAPCLEAR => self.op_omap_clear(),
            OpCode::OMAPRMKEYS => self.op_omap_rm_keys(op),
            OpCode::OMAPRMKEYRANGE => self.op_omap_rm_range(op),
            OpCode::CALL => self.op_call(op),
            OpCode::WATCH => self.op_watch(op),
            OpCode::NOTIFY => self.op_notify(op),
            OpCode::NOTIFY_ACK => self.op_notify_ack(op),
            OpCode::LIST_WATCHERS => self.op_list_watchers(op),
            OpCode::COPY_GET => self.op_copy_get(op),
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.op_copy_from(op),
            OpCode::ISDIRTY => {
                self.count_read(1);
                op.outdata = vec![u8::from(self.oi.flags & ObjectInfo::DIRTY != 0)].into();
                Ok(0)
            }
            OpCode::UNDIRTY => {
                if self.oi.flags & ObjectInfo::DIRTY != 0 {
                    self.change.undirty = true;
                    self.change.any = true;
                    self.delta.num_wr += 1;
                }
                Ok(0)
            }
            // Cache tier operations, on a pool that is no tier.
            OpCode::CACHE_FLUSH | OpCode::CACHE_EVICT | OpCode::CACHE_TRY_FLUSH => Err(EINVAL.into()),
            OpCode::CACHE_PIN | OpCode::CACHE_UNPIN => Err(EINVAL.into()),
            OpCode::TMAPUP => self.op_tmap_update(op),
            OpCode::TMAPPUT => self.op_tmap_put(op),
            OpCode::TMAPGET => self.op_read(op),
            OpCode::TMAP2OMAP => self.op_tmap_to_omap(op),
            _ => {
                tracing::info!(op = ?code, object = %self.head, "operation not supported");
                Err(EOPNOTSUPP.into())
            }
        }
    }
}

/// True for writes that give the object no new user version.
fn is_invisible(c: OpCode) -> bool {
    matches!(
        c,
        OpCode::WATCH
            | OpCode::UNDIRTY
            | OpCode::COPY_FROM
            | OpCode::COPY_FROM2
            | OpCode::CACHE_FLUSH
            | OpCode::CACHE_EVICT
            | OpCode::CACHE_TRY_FLUSH
            | OpCode::CACHE_PIN
            | OpCode::CACHE_UNPIN
            | OpCode::SET_REDIRECT
            | OpCode::TIER_PROMOTE
            | OpCode::TIER_FLUSH
            | OpCode::TIER_EVICT
    )
}

/// `bytes` in KiB, rounded up, as the statistics count.
pub(crate) fn kib(bytes: u64) -> i64 {
    bytes.div_ceil(1024) as i64
}
