//! Removing a collection a step at a time: what the next transaction of it is.
//!
//! The caller submits one step after the other at its own pace until there are none, then removes the empty collection. What is
//! left tells where to go on, so a crash costs nothing; what a step frees is accounted to the block with its transaction. The
//! collection must have no other user: large objects become shorter, and lose keys, before they go. What its log keeps
//! ([`Op::Keep`]) is dropped before or behind these steps; until then the collection counts as not empty.

use crate::api::{BLOCK, ObjectStore, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::txn::Op;
use base::HObject;
use bytes::Bytes;

/// How much one step removes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Objects.
    pub objects: usize,
    /// Bytes of data, which stand for pages of block maps: 3 to 4 KiB for each MiB.
    pub data: u64,
    /// Keys of an omap.
    pub keys: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { objects: 64, data: 64 << 20, keys: 16 << 10 }
    }
}

/// Bytes of keys and values that are looked at for one step.
const OMAP_BYTES: usize = 2 << 20;
/// Omaps with fewer bytes go with their object.
const OMAP_SMALL: u64 = 256 << 10;

/// The operations of the next step; empty if the collection holds no object. Part of the plan of `tag`.
pub fn step(store: &mut dyn ObjectStore, tag: Tag, cid: Cid, b: Bounds) -> Result<Vec<Op>, ReadError> {
    let min = Oid { generation: 0, ..Oid::new(HObject::min()) };
    let (found, _) = store.list(tag, cid, &min, None, b.objects.max(1))?;
    let (mut ops, mut data) = (Vec::new(), 0);
    for oid in found {
        let st = store.stat(tag, cid, &oid)?;
        if st.omap > OMAP_SMALL {
            let page = match store.omap_range(tag, cid, &oid, b"", false, b.keys.max(1), OMAP_BYTES) {
                // What can't be read goes in one piece.
                Err(ReadError::Io { errno: base::errno::EIO, .. }) => Default::default(),
                r => r?,
            };
            if let (true, Some((last, _))) = (page.more, page.entries.last()) {
                if ops.is_empty() {
                    // The first key behind the last one that goes.
                    let last = Bytes::from([last.as_ref(), &[0]].concat());
                    ops.push(Op::OmapRmRange { cid, oid, first: Bytes::new(), last });
                }
                break;
            }
        }
        data += st.allocated;
        if data > b.data {
            if ops.is_empty() {
                // At a block's border: nothing of it need be read.
                let size = st.size.saturating_sub(b.data.max(1)) / BLOCK * BLOCK;
                ops.push(Op::Truncate { cid, oid, size });
            }
            break;
        }
        ops.push(Op::Remove { cid, oid });
    }
    Ok(ops)
}
