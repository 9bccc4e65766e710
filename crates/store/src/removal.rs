//! Removal of a collection in steps.
//!
//! The caller submits one step after the other at its own pace until none is left, then removes the empty
//! collection. The collection itself shows where to continue, so a crash costs nothing. Space is accounted to
//! the block with each step. The collection must have no other user, because large objects are truncated, and
//! lose keys, before they are removed. The caller drops the undo records ([`Op::Keep`]) before or after these
//! steps; until then the collection counts as not empty.

use crate::api::{BLOCK, ObjectStore, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::txn::Op;
use base::HObject;
use bytes::Bytes;

/// Most that one step removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Number of objects.
    pub objects: usize,
    /// Bytes of data. They stand for pages of block maps: 3 to 4 KiB for each MiB.
    pub data: u64,
    /// Number of omap keys.
    pub keys: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { objects: 64, data: 64 << 20, keys: 16 << 10 }
    }
}

/// Most bytes of keys and values that one step reads.
const OMAP_BYTES: usize = 2 << 20;
/// Omaps with fewer bytes are removed with their object.
const OMAP_SMALL: u64 = 256 << 10;

/// Operations of the next step, as part of the plan of `tag`. Empty if the collection has no object. Error: that of the
/// listing, `stat` or omap read, [`ReadError::Wait`] included.
pub fn step(store: &mut dyn ObjectStore, tag: Tag, cid: Cid, b: Bounds) -> Result<Vec<Op>, ReadError> {
    let min = Oid::new(HObject::min()).at_generation(0);
    let (found, _) = store.list(tag, cid, &min, None, b.objects.max(1))?;
    let (mut ops, mut data) = (Vec::new(), 0);
    for oid in found {
        let st = store.stat(tag, cid, &oid)?;
        if st.omap > OMAP_SMALL {
            let page = match store.omap_range(tag, cid, &oid, b"", false, b.keys.max(1), OMAP_BYTES) {
                // An unreadable omap is removed in one piece.
                Err(ReadError::Io { errno: base::errno::EIO, .. }) => Default::default(),
                r => r?,
            };
            if let (true, Some((last, _))) = (page.more, page.entries.last()) {
                if ops.is_empty() {
                    // The first key after the last one to remove.
                    let last = Bytes::from([last.as_ref(), &[0]].concat());
                    ops.push(Op::OmapRmRange { cid, oid, first: Bytes::new(), last });
                }
                break;
            }
        }
        data += st.allocated;
        if data > b.data {
            if ops.is_empty() {
                // At a block boundary no data has to be read.
                let size = st.size.saturating_sub(b.data.max(1)) / BLOCK * BLOCK;
                ops.push(Op::Truncate { cid, oid, size });
            }
            break;
        }
        ops.push(Op::Remove { cid, oid });
    }
    Ok(ops)
}
