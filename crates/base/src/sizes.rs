//! The table of sizes: what a request may have at each boundary between a client and the devices. Every boundary takes
//! its bound from here.
//!
//! ```text
//! client ──message──▶ plan ──transaction──▶ log frame of the primary's device
//!                        ├──write message──▶ member ──▶ log frame of its device
//!                        └──(later) push──▶ parts ──▶ log frames of a copy or shard
//! ```
//!
//! A vector is all operations of a request. *Payload* is object data; *metadata* is attributes, omap keys, values and
//! headers, by name and value.
//!
//! Invariants, as far as possible checked at compile time:
//!  1. Whatever planning accepts fits a message between OSDs, and a log frame of [`FRAME_MAX`].
//!  2. Planning refuses what a frame of the smallest log among the acting set does not take. Members tell their frames
//!     when an interval begins.
//!  3. Whatever an object may hold can be read in one answer, copied, and pushed in parts.
//!
//! Tests: `crates/pg/tests/sizes.rs`.

/// Largest front segment of a message, in bytes.
pub const FRONT_MAX: usize = 64 << 20;
/// Largest data segment of a message, in bytes: Ceph's bound of a client's operation with room for overhead.
pub const DATA_MAX: usize = 128 << 20;

/// Most input of one write vector in bytes (`osd_max_write_size`).
pub const WRITE_INPUT_MAX: usize = 90 << 20;
/// Most operations of a vector: the field on the wire has 16 bits.
pub const VECTOR_OPS_MAX: usize = u16::MAX as usize;
/// Largest object in bytes (`osd_max_object_size`).
pub const OBJECT_MAX: u64 = 128 << 20;
/// Most payload that a vector writes, in bytes, after expansion (WRITESAME, `copy_from`, class methods).
pub const VECTOR_PAYLOAD_MAX: usize = OBJECT_MAX as usize;
/// Most metadata that a vector sets or names, in bytes.
pub const VECTOR_METADATA_MAX: usize = WRITE_INPUT_MAX;
/// Most payload and metadata of a vector together, in bytes; metadata up to [`BODY_TARGET`] does not count.
pub const VECTOR_BYTES_MAX: usize = DATA_MAX;
/// Most entries of metadata that a vector sets or names: attributes, omap keys.
pub const VECTOR_ENTRIES_MAX: usize = 1 << 19;
/// Largest value of an attribute or omap key, and largest omap header, in bytes.
pub const VALUE_MAX: usize = 64 << 20;
/// Most bytes of all attributes of an object, each with [`ENTRY_OVERHEAD`].
pub const OBJECT_ATTRS_MAX: usize = 80 << 20;
/// Bytes that an attribute counts beside its name and value.
pub const ENTRY_OVERHEAD: usize = 64;
/// Most output of operations that a write vector's log record keeps, in bytes, 16 more for each operation.
pub const RETURNS_MAX: usize = 128 << 10;
/// Most output of a vector in bytes: that of two reads of the largest object.
pub const OUTPUT_MAX: usize = 256 << 20;

/// Bytes of the body of a message between OSDs beyond which metadata travels in the data segment.
pub const BODY_TARGET: usize = 1 << 20;
/// Most bytes of the body of a write message: [`BODY_TARGET`], the heads of all operations, names, log records.
pub const BODY_MAX: usize = 32 << 20;
/// Most payload and metadata of a part of a pushed object, in bytes. A larger value is a part of its own. It
/// travels in pieces (`pg::limits::PIECE_BYTES`) and is stored in one transaction.
pub const PART_MAX: usize = 1 << 20;

/// Most bytes of a log frame. A device with less log per reactor has smaller frames: a quarter of a reactor's log.
pub const FRAME_MAX: usize = 128 << 20;
/// Frame of the smallest device, divided among the most reactors. No log takes less, whatever an OSD claims.
pub const FRAME_MIN: usize = 28 << 10;
/// Bytes of a frame beside the metadata of a transaction: records of its blocks, names, the log entry, the PG's info.
pub const FRAME_OVERHEAD: usize = 32 << 20;

const _: () = {
    assert!(WRITE_INPUT_MAX <= DATA_MAX && OBJECT_MAX as usize <= DATA_MAX);
    assert!(VECTOR_BYTES_MAX <= DATA_MAX && BODY_TARGET + BODY_MAX <= FRONT_MAX);
    assert!(VECTOR_METADATA_MAX + FRAME_OVERHEAD <= FRAME_MAX);
    assert!(VALUE_MAX <= VECTOR_METADATA_MAX && VALUE_MAX <= OBJECT_ATTRS_MAX);
    assert!(OBJECT_ATTRS_MAX <= VECTOR_METADATA_MAX && OBJECT_ATTRS_MAX <= OUTPUT_MAX);
    assert!(2 * OBJECT_MAX as usize <= OUTPUT_MAX);
    assert!(PART_MAX >= BODY_TARGET);
};
