//! Class `cephfs`: statistics that `cephfs-data-scan` collects on the first object of a file while it scans all of
//! them.
//!
//! Stored: three xattrs named by the caller (`scan_ceiling`, `scan_max_mtime`, `scan_max_size`), each with the largest
//! value seen. Format: `src/cls/cephfs/cls_cephfs.cc`; input as sent by 16.2.15 and 20.2.4. The class's listing filter
//! is implemented in the PG, with the other filters.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, input, optional};
use bytes::Bytes;
use wire::Reader;
use wire::codec::Result as Decoded;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[Method::rdwr("accumulate_inode_metadata", accumulate)];

/// `AccumulateArgs`.
struct Args {
    ceiling_attr: Bytes,
    mtime_attr: Bytes,
    size_attr: Bytes,
    index: u64,
    size: u64,
    mtime: i64,
}

fn args(r: &mut Reader<'_>) -> Decoded<Args> {
    r.versioned("AccumulateArgs", 1, |r, _| {
        Ok(Args {
            ceiling_attr: r.blob()?,
            mtime_attr: r.blob()?,
            size_attr: r.blob()?,
            index: r.u64()?,
            size: r.u64()?,
            mtime: r.i64()?,
        })
    })
}

/// Sets an xattr, unless its present value is at least as large. A value that does not decode, or has trailing bytes,
/// is replaced.
fn raise<T: PartialOrd>(
    c: &mut dyn ObjectCtx,
    name: &[u8],
    value: &T,
    encoded: Bytes,
    decode: impl Fn(&mut Reader<'_>) -> Decoded<T>,
) -> ClsResult<()> {
    let have = optional(c.getxattr(name))?.and_then(|b| {
        let mut r = Reader::shared(&b);
        decode(&mut r).ok().filter(|_| r.is_empty())
    });
    if have.is_some_and(|h| *value <= h) {
        return Ok(());
    }
    c.setxattr(name, &encoded)
}

/// Records index, size and mtime of one object of the file.
fn accumulate(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let a = input(i, args)?;
    // `ObjCeiling`: compared only by its index.
    let ceiling = enc(|w| {
        w.versioned(1, 1, |w| {
            w.u64(a.index);
            w.u64(a.size);
        });
    });
    raise(c, &a.ceiling_attr, &a.index, ceiling, |r| {
        r.versioned("ObjCeiling", 1, |r, _| {
            let index = r.u64()?;
            r.u64()?;
            Ok(index)
        })
    })?;
    raise(c, &a.mtime_attr, &a.mtime, enc(|w| w.i64(a.mtime)), |r| r.i64())?;
    raise(c, &a.size_attr, &a.size, enc(|w| w.u64(a.size)), |r| r.u64())?;
    Ok(Output::default())
}

#[cfg(test)]
mod tests {
    use crate::testing::MemCtx;
    use crate::util::enc;
    use base::errno::EINVAL;
    use bytes::Bytes;

    fn call(index: u64, size: u64, mtime: i64) -> Bytes {
        enc(|w| {
            w.versioned(1, 1, |w| {
                for name in ["scan_ceiling", "scan_max_mtime", "scan_max_size"] {
                    w.blob(name.as_bytes());
                }
                w.u64(index);
                w.u64(size);
                w.i64(mtime);
            });
        })
    }

    fn seen(c: &MemCtx) -> [&[u8]; 3] {
        let o = c.object.as_ref().unwrap();
        ["scan_ceiling", "scan_max_mtime", "scan_max_size"].map(|n| &o.xattrs[n.as_bytes()][..])
    }

    fn ceiling(index: u8, size: u8) -> Vec<u8> {
        [&[1, 1, 16, 0, 0, 0, index][..], &[0; 7], &[size], &[0; 7]].concat()
    }

    #[test]
    fn the_largest_value_of_each_xattr_is_kept() {
        let mut c = MemCtx::new();
        let add = |c: &mut MemCtx, i, s, m| c.exec("cephfs", "accumulate_inode_metadata", call(i, s, m)).unwrap();
        add(&mut c, 2, 7, -5);
        assert_eq!(seen(&c), [&ceiling(2, 7)[..], &(-5i64).to_le_bytes(), &7u64.to_le_bytes()]);
        add(&mut c, 1, 9, 3);
        assert_eq!(seen(&c), [&ceiling(2, 7)[..], &3i64.to_le_bytes(), &9u64.to_le_bytes()]);
        add(&mut c, 3, 1, 2);
        assert_eq!(seen(&c), [&ceiling(3, 1)[..], &3i64.to_le_bytes(), &9u64.to_le_bytes()]);
        // A value that cannot be decoded is replaced.
        c.object.as_mut().unwrap().xattrs.insert("scan_max_size".into(), [0xff; 9][..].to_vec().into());
        add(&mut c, 0, 4, 0);
        assert_eq!(seen(&c), [&ceiling(3, 1)[..], &3i64.to_le_bytes(), &4u64.to_le_bytes()]);
        let cut = call(1, 1, 1);
        let r = c.exec("cephfs", "accumulate_inode_metadata", cut.slice(..cut.len() - 1));
        assert_eq!(r, Err(EINVAL));
    }
}
