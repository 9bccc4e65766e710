//! Every bound of a PG, named. Reaching one is an errno, a wait or an eviction, never growth.

use std::time::Duration;

/// Largest object (`osd_max_object_size`); beyond it writes answer `EFBIG`.
pub const OBJECT_SIZE_MAX: u64 = 128 << 20;
/// Most payload of one write vector (`osd_max_write_size`); beyond it `EMSGSIZE`.
pub const WRITE_SIZE_MAX: usize = 90 << 20;
/// Longest object name or locator key (`osd_max_object_name_len`).
pub const OBJECT_NAME_LEN_MAX: usize = 2048;
/// Longest namespace (`osd_max_object_namespace_len`).
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Longest attribute name (`osd_max_attr_name_len`).
pub const ATTR_NAME_LEN_MAX: usize = 100;
/// Largest attribute value; Ceph's default is "no limit" (`osd_max_attr_size` 0) with the store's own bound behind it.
pub const ATTR_SIZE_MAX: usize = 64 << 20;
/// Most operations of one vector; more answer `EINVAL`.
pub const OPS_PER_VECTOR_MAX: usize = 4096;
/// Most omap entries of one answer (`osd_max_omap_entries_per_request`).
pub const OMAP_ENTRIES_PER_REQUEST: usize = 1024;
/// Most omap bytes of one answer; Ceph allows 1 GiB (`osd_max_omap_bytes_per_request`), a message holds less.
pub const OMAP_BYTES_PER_REQUEST: usize = 64 << 20;
/// Outdata of a write that asked for it (`osd_max_write_op_reply_len`).
pub const WRITE_REPLY_LEN_MAX: usize = 64;
/// Most entries of one PGLS answer (`osd_max_pgls`).
pub const PGLS_ENTRIES_MAX: usize = 1024;
/// Object contexts kept decoded per PG.
pub const OBJECT_CONTEXTS_MAX: usize = 512;
/// Operations held per PG (waiting for a map, space, an object); beyond it the session with the most is closed, and its client
/// sends again what had no answer.
pub const HELD_OPS_MAX: usize = 16_384;
/// Bytes of operations held per PG.
pub const HELD_BYTES_MAX: usize = 512 << 20;
/// Default timeout of a watch (`osd_client_watch_timeout`).
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest timeout of a watch or notify a client may ask for.
pub const WATCH_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// Default timeout of a notify (`osd_default_notify_timeout`).
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Notifies that wait for answers, of one PG; a further one is `EBUSY`.
pub const NOTIFIES_MAX: usize = 4096;
/// Bytes that they keep, payloads and answers: a notify beyond is `EBUSY` (`EMSGSIZE` if it is more by itself), an answer beyond `EMSGSIZE`.
pub const NOTIFY_BYTES_MAX: usize = 8 << 20;
/// Objects removed per step of deleting a PG (`osd_target_transaction_size`).
pub const DELETE_BATCH: usize = 64;
/// What removing them costs, as the transfer of so many bytes ([`crate::pace::cost`]).
pub const DELETE_BATCH_COST: usize = 128 << 10;
/// How long a PG must have been as it is before it moves to another reactor.
pub const MOVE_SETTLED: Duration = Duration::from_secs(4);
/// Bytes that the other reactor may have before it, of what a PG that moves has; then no more objects are sent...
pub const MOVE_AHEAD: usize = 4 << 20;
/// ...and bytes, changes included, with which it is too far behind.
pub const MOVE_BEHIND_MAX: usize = 64 << 20;
/// How long operations are held so that a PG that moves comes to rest; after that it is tried again later...
pub const MOVE_HOLD: Duration = Duration::from_millis(250);
/// ...so many times.
pub const MOVE_HOLDS_MAX: u32 = 12;
/// Largest part of an object that is read at once, as it changes all the time.
pub const MOVE_PART_MAX: usize = 16 << 20;
/// How long an answer of another OSD is waited for before the question is repeated.
pub const PEER_RETRY: Duration = Duration::from_secs(5);
/// Messages of other OSDs kept while a PG loads; what is beyond is sent again.
pub const EARLY_PEERS_MAX: usize = 256;
/// A PG writes down which map it has seen at least this often; the host keeps more maps than that for its next start.
pub const EPOCHS_UNSAVED_MAX: u32 = 32;
/// So many past intervals that may have taken writes are told; none may be dropped.
pub const PAST_INTERVALS_MANY: usize = 4096;
/// Objects pulled at once per PG; `osd_recovery_max_active` bounds those of all PGs of an OSD.
pub const PULLS_MAX: usize = 8;
/// Objects pushed at once per PG.
pub const PUSHES_MAX: usize = 4;
/// Objects pushed at once by backfill to a copy that is being filled.
pub const BACKFILL_PUSHES_MAX: usize = 4;
/// Of those beside them, to be small, that are sent and wait for nothing but the answer: what they cost is time.
pub const PUSHES_SENT_MAX: usize = 32;
/// An object with so many bytes is small.
pub const PUSH_SMALL: usize = 64 << 10;
/// What an object costs besides its bytes where it is read and where it is written, as the transfer of so many.
pub const PUSH_COST: usize = 32 << 10;
/// About how much one part of a pushed object holds (`osd_recovery_max_chunk`).
pub const PUSH_BYTES: usize = 1 << 20;
/// ... while clients are served by the same reactor.
pub const PUSH_BYTES_BESIDE_CLIENTS: usize = 256 << 10;
/// Bytes read at once for it.
pub const PUSH_READ: u64 = 512 << 10;
/// Omap entries read at once for it.
pub const PUSH_OMAP_ENTRIES: usize = 1024;
/// Clones of one object that recovery looks at; more than any snapshot schedule makes.
pub const FAMILY_MAX: usize = 65_536;
/// Transfers into a PG that are remembered, so that a repeated part is known.
pub const INCOMING_MAX: usize = 1024;
/// Objects per range of backfill.
pub const BACKFILL_RANGE: usize = 128;
/// What listing them costs, as the transfer of so many bytes.
pub const BACKFILL_RANGE_COST: usize = 512 << 10;
/// How long a lease lasts (`osd_heartbeat_grace` times `osd_pool_default_read_lease_ratio`): the holder counts from when it
/// asked, the granter from when it was asked.
pub const READ_LEASE: Duration = Duration::from_secs(16);
/// By so much of it who holds a lease counts it shorter than who gave it, since their clocks may run at different rates: a thirty-second
/// part is right for clocks that differ by 3 percent, between them the one by which who leads next waits.
pub const READ_LEASE_MARGIN: u32 = 32;
/// Objects trimmed per step of snapshot trimming.
pub const TRIM_BATCH: usize = 4;
/// What that costs, as the transfer of so many bytes.
pub const TRIM_BATCH_COST: usize = 128 << 10;
/// Snap index keys read per step.
pub const SNAP_INDEX_BATCH: usize = 64;
/// Bytes fetched per step of a copy_from (`osd_copyfrom_max_chunk`).
pub const COPY_CHUNK: u64 = 8 << 20;
/// Objects listed at once by a scrub.
pub const SCRUB_RANGE: usize = 64;
/// Objects held and compared at once, at first and at most; deep scrubs adapt it to [`SCRUB_GROUP_BYTES`].
pub const SCRUB_GROUP: usize = 8;
/// See there.
pub const SCRUB_GROUP_MAX: usize = 32;
/// About as many bytes are read while writes to what is compared wait.
pub const SCRUB_GROUP_BYTES: u64 = 4 << 20;
/// Bytes read at once.
pub const SCRUB_READ: u64 = 512 << 10;
/// Omap entries read at once.
pub const SCRUB_OMAP_ENTRIES: usize = 1024;
/// A write that waits for a comparison longer than this goes first, and the objects are compared again.
pub const SCRUB_HOLD_MAX: Duration = Duration::from_millis(250);
/// So often per group; then the write waits.
pub const SCRUB_PREEMPT_MAX: u32 = 5;
/// How long a scrub that could not begin waits before it tries again.
pub const SCRUB_RETRY: Duration = Duration::from_secs(2);
/// How long a member keeps a slot for a scrub whose primary says nothing.
pub const SCRUB_SLOT_MAX: Duration = Duration::from_secs(60);
