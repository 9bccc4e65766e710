//! All bounds of a PG. Reaching one leads to an errno, a wait or an eviction, never to growth.

use base::sizes;
use std::time::Duration;

/// Largest object in bytes (`osd_max_object_size`); writes beyond it answer `EFBIG`.
pub const OBJECT_SIZE_MAX: u64 = sizes::OBJECT_MAX;
/// Most payload of one write vector in bytes (`osd_max_write_size`); more answers `EMSGSIZE`.
pub const WRITE_SIZE_MAX: usize = sizes::WRITE_INPUT_MAX;
/// Longest object name or locator key in bytes (`osd_max_object_name_len`).
pub const OBJECT_NAME_LEN_MAX: usize = 2048;
/// Longest namespace in bytes (`osd_max_object_namespace_len`).
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Longest attribute name in bytes (`osd_max_attr_name_len`).
pub const ATTR_NAME_LEN_MAX: usize = 100;
/// Largest attribute value in bytes. Ceph's default is no limit (`osd_max_attr_size` 0), except for the store's own
/// bound.
pub const ATTR_SIZE_MAX: usize = sizes::VALUE_MAX;
/// Most operations of one vector; more answer `EINVAL`.
pub const OPS_PER_VECTOR_MAX: usize = sizes::VECTOR_OPS_MAX;
/// Most omap entries of one answer (`osd_max_omap_entries_per_request`).
pub const OMAP_ENTRIES_PER_REQUEST: usize = 1024;
/// Most omap bytes of one answer; Ceph allows 1 GiB (`osd_max_omap_bytes_per_request`), a message holds less.
pub const OMAP_BYTES_PER_REQUEST: usize = 64 << 20;
/// Most output of a write that returns results (RETURNVEC, `osd_max_write_op_reply_len`), in bytes per operation.
pub const WRITE_REPLY_LEN_MAX: usize = 64;
/// Most output of a vector in bytes: that of two reads of the largest object. More is `EMSGSIZE`.
pub const OUTPUT_MAX: usize = sizes::OUTPUT_MAX;
/// Most entries of one PGLS answer (`osd_max_pgls`).
pub const PGLS_ENTRIES_MAX: usize = 1024;
/// Objects that one PGLS looks at; beyond it the page ends early, even without an entry, and the client goes on.
pub const PGLS_LOOKS_MAX: usize = 8192;
/// Object contexts kept decoded per PG.
pub const OBJECT_CONTEXTS_MAX: usize = 512;
/// Operations held per PG (waiting for a map, space, an object). Beyond it the session with the most is closed, and
/// its client resends its unanswered operations.
pub const HELD_OPS_MAX: usize = 16_384;
/// Most bytes of operations held per PG.
pub const HELD_BYTES_MAX: usize = 512 << 20;
/// Default timeout of a watch (`osd_client_watch_timeout`).
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest timeout of a watch or notify a client may ask for.
pub const WATCH_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// Default timeout of a notify (`osd_default_notify_timeout`).
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Most watch, notify and acknowledge operations of one vector; more answer `EINVAL`.
pub const WATCH_OPS_MAX: usize = 256;
/// Notifies of one PG that wait for acknowledgements; a further one answers `EBUSY`.
pub const NOTIFIES_MAX: usize = 4096;
/// Most bytes of waiting notifies of one PG, with payloads and answers. A notify that would exceed it answers
/// `EBUSY`, or `EMSGSIZE` if it alone is larger; an acknowledgement that would exceed it answers `EMSGSIZE`.
pub const NOTIFY_BYTES_MAX: usize = 8 << 20;
/// Long calls of a reactor of which something is kept between their parts ([`crate::LongCalls`]); further ones wait.
pub const LONG_CALLS_MAX: usize = 64;
/// Cost of one part of a long call, as an operation with this many bytes ([`crate::pace::cost`]).
pub const LONG_PART_COST: usize = 384 << 10;
/// Objects removed per step of deleting a PG (`osd_target_transaction_size`).
pub const DELETE_BATCH: usize = 64;
/// Cost of one step of deleting a PG, as the transfer of this many bytes ([`crate::pace::cost`]).
pub const DELETE_BATCH_COST: usize = 128 << 10;
/// Time for which a PG must be stable before it moves to another reactor.
pub const MOVE_SETTLED: Duration = Duration::from_secs(4);
/// Most bytes of a moving PG that are sent and not durable on the target reactor. Beyond it the source sends no
/// further objects, but still sends changes.
pub const MOVE_AHEAD: usize = 4 << 20;
/// Most such bytes, objects and changes together, before the move is given up.
pub const MOVE_BEHIND_MAX: usize = 64 << 20;
/// Longest time that operations are held so that a moving PG comes to rest. After it the PG serves again, and the
/// switch is tried later.
pub const MOVE_HOLD: Duration = Duration::from_millis(250);
/// Number of times that operations are held in one move; after them the move is given up.
pub const MOVE_HOLDS_MAX: u32 = 12;
/// Largest part of an object that a move reads at once, if the object changes between its parts.
pub const MOVE_PART_MAX: usize = 16 << 20;
/// Time after which an unanswered question to another OSD is repeated.
pub const PEER_RETRY: Duration = Duration::from_secs(5);
/// Bytes of unacknowledged writes that are sent again at once; further ones follow as these are acknowledged.
pub const RESEND_BYTES: usize = 8 << 20;
/// Messages of other OSDs kept while a PG loads. Those beyond it are dropped; their senders repeat them.
pub const EARLY_PEERS_MAX: usize = 256;
/// Epochs after which a PG stores the newest map it has processed, at the latest. The host keeps more maps than that
/// for its next start.
pub const EPOCHS_UNSAVED_MAX: u32 = 32;
/// Past intervals that may have taken writes, above which a PG logs a warning. None may be dropped.
pub const PAST_INTERVALS_MANY: usize = 4096;
/// Bytes of primaries' writes that wait to be applied on a reactor. Beyond it each PG takes one write at a time; its
/// primary repeats the others ([`PEER_RETRY`]).
pub const APPLY_BYTES_MAX: usize = 1 << 30;
/// Objects pulled at once per PG; `osd_recovery_max_active` bounds those of all PGs of an OSD together.
pub const PULLS_MAX: usize = 8;
/// Objects pushed at once per PG.
pub const PUSHES_MAX: usize = 4;
/// Lacked objects at which a step of recovery looks, to see whether they can be recovered.
pub const RECOVERY_LOOKS_MAX: usize = 1024;
/// Objects pushed at once by backfill to its targets.
pub const BACKFILL_PUSHES_MAX: usize = 4;
/// Most pushes of small objects that are completely sent and not acknowledged. [`PUSHES_MAX`] and
/// [`BACKFILL_PUSHES_MAX`] do not count them, because they only cost the round trip.
pub const PUSHES_SENT_MAX: usize = 32;
/// Largest object in bytes that counts as small ([`PUSHES_SENT_MAX`]).
pub const PUSH_SMALL: usize = 64 << 10;
/// Fixed cost of an object at its source and at its target, as the transfer of this many bytes.
pub const PUSH_COST: usize = 32 << 10;
/// Target size of one part of a pushed object in bytes (`osd_recovery_max_chunk`), while the reactor serves no
/// clients.
pub const PUSH_BYTES: usize = 1 << 20;
/// Target size of one part of a pushed object in bytes, while the reactor serves clients.
pub const PUSH_BYTES_BESIDE_CLIENTS: usize = 256 << 10;
/// Bytes that a push reads at once.
pub const PUSH_READ: u64 = 512 << 10;
/// Omap entries that a push reads at once.
pub const PUSH_OMAP_ENTRIES: usize = 1024;
/// Target size of one page of an object's and its clones' attributes between shards, in bytes.
pub const DESCRIBE_BYTES: usize = 4 << 20;
/// Most clones in such a page.
pub const DESCRIBE_OBJECTS: usize = 256;
/// Most clones of one object that recovery looks at; more than any snapshot schedule makes.
pub const FAMILY_MAX: usize = 65_536;
/// Most pushes into a PG that have begun and are not complete. A further one waits.
pub const INCOMING_MAX: usize = 1024;
/// Complete pushes into a PG that are remembered, to acknowledge a repeated part: several times as many as one sender
/// has in flight.
pub const INCOMING_DONE: usize = 256;
/// Bytes of one piece of a message that is sent in pieces.
pub const PIECE_BYTES: usize = 8 << 20;
/// Longest message in pieces, in bytes. The log of a PG with 100,000 entries and their undo data has half of it.
pub const LONG_MESSAGE_MAX: usize = 1 << 30;
/// Messages in pieces that one copy may send to another at once; a further one replaces the oldest.
pub const PIECES_OPEN_MAX: usize = 8;
/// Messages in several pieces that one copy sends to another at once; further ones wait.
pub const PIECES_SENT_MAX: usize = 4;
/// Messages in pieces that are remembered, to recognise a repetition.
pub const PIECES_DONE: usize = 64;
/// Objects per range of backfill.
pub const BACKFILL_RANGE: usize = 128;
/// Cost of listing one range of backfill, as the transfer of this many bytes.
pub const BACKFILL_RANGE_COST: usize = 512 << 10;
/// Duration of a lease (`osd_heartbeat_grace` times `osd_pool_default_read_lease_ratio`). The holder counts from its
/// question, the granter from the arrival of the question.
pub const READ_LEASE: Duration = Duration::from_secs(16);
/// The holder counts a lease shorter by this fraction than the granter, since clocks may run at different rates. One
/// part in 32 covers clocks that differ by 3 percent, also that of the next primary, which waits for the lease to
/// end.
pub const READ_LEASE_MARGIN: u32 = 32;
/// Objects trimmed per step of snapshot trimming.
pub const TRIM_BATCH: usize = 4;
/// Cost of one step of snapshot trimming, as the transfer of this many bytes.
pub const TRIM_BATCH_COST: usize = 128 << 10;
/// Snap index keys read per look.
pub const SNAP_INDEX_BATCH: usize = 64;
/// Looks into the snap index per step.
pub const TRIM_LOOKS: usize = 16;
/// Ranges of snapshots removed out of order that a PG remembers; with more it looks through the index again.
pub const TRIM_LATE_MAX: usize = 64;
/// Ranges of purged snapshots that a PG reports (`osd_max_snap_prune_intervals_per_epoch`).
pub const PURGED_RANGES_MAX: usize = 512;
/// Bytes fetched per step of a copy_from (`osd_copyfrom_max_chunk`).
pub const COPY_CHUNK: u64 = 8 << 20;
/// Most bytes of content that the copies of a reactor hold ([`crate::Copies`]); one alone may have more.
pub const COPY_BYTES_MAX: usize = 512 << 20;
/// Bytes that a copy counts before it knows how large its source is.
pub const COPY_UNKNOWN: usize = 64 << 20;
/// Time without an answer of its source after which a copy gives up its room, if others wait for it.
pub const COPY_STALL: Duration = Duration::from_secs(30);
/// Objects listed at once by a scrub.
pub const SCRUB_RANGE: usize = 64;
/// Objects held and compared at once in the first group of a scrub. Later groups grow or shrink, so that a deep scrub
/// reads about [`SCRUB_GROUP_BYTES`] per group.
pub const SCRUB_GROUP: usize = 8;
/// Most objects held and compared at once.
pub const SCRUB_GROUP_MAX: usize = 32;
/// Bytes that a deep scrub aims to read per group. Writes to the group's objects wait for that long.
pub const SCRUB_GROUP_BYTES: u64 = 4 << 20;
/// Bytes that a scrub reads at once.
pub const SCRUB_READ: u64 = 512 << 10;
/// Omap entries that a scrub reads at once.
pub const SCRUB_OMAP_ENTRIES: usize = 1024;
/// Time for which a write waits for a comparison at most. Then the write goes first, and the objects are compared
/// again.
pub const SCRUB_HOLD_MAX: Duration = Duration::from_millis(250);
/// Most preemptions of one group by writes; after them writes wait for the comparison.
pub const SCRUB_PREEMPT_MAX: u32 = 5;
/// Delay before a scrub that could not begin is tried again.
pub const SCRUB_RETRY: Duration = Duration::from_secs(2);
/// Time for which a member keeps a scrub slot without a message from the primary.
pub const SCRUB_SLOT_MAX: Duration = Duration::from_secs(60);
