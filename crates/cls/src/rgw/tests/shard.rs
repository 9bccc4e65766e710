//! A bucket index shard with the calls of a gateway, which checks the statistics after each.

use super::enc;
use crate::rgw::keys;
use crate::rgw::types::{DirEntry, Header, Key, Meta, Stats, Ver};
use crate::testing::MemCtx;
use base::Utime;
use base::errno::EFBIG;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, Reader};

/// A shard with the calls of a gateway.
pub(super) struct Shard(pub(super) MemCtx);

pub(super) type Entries = Vec<(Bytes, DirEntry)>;

impl Shard {
    pub(super) fn new() -> Self {
        let mut c = MemCtx::new();
        c.quiet = true;
        c.exec("rgw", "bucket_init_index", "").unwrap();
        Self(c)
    }

    pub(super) fn call(&mut self, method: &str, input: Bytes) -> Result<Bytes, i32> {
        let r = self.0.exec("rgw", method, input);
        self.check();
        r
    }

    pub(super) fn header(&self) -> Header {
        Header::from_bytes(&self.0.object.as_ref().unwrap().header).unwrap()
    }

    /// Checks that the header's statistics are those of the entries, and that the class's own check agrees.
    pub(super) fn check(&mut self) {
        let mut want: BTreeMap<u8, Stats> = BTreeMap::new();
        for (k, v) in &self.0.object.as_ref().unwrap().omap {
            let kind = keys::kind(k);
            if !matches!(kind, keys::Kind::Plain | keys::Kind::Instance) {
                continue;
            }
            let e = DirEntry::from_bytes(v).unwrap();
            if e.exists && (kind == keys::Kind::Instance || e.flags == 0) {
                want.entry(e.meta.category).or_default().add(&Stats::of(&e.meta));
            }
        }
        let some = |m: &BTreeMap<u8, Stats>| -> BTreeMap<u8, Stats> {
            m.iter().filter(|(_, s)| **s != Stats::default()).map(|(k, s)| (*k, *s)).collect()
        };
        assert_eq!(some(&self.header().stats), some(&want));
        let out = self.0.exec("rgw", "bucket_check_index", "").unwrap();
        let counted = Reader::shared(&out)
            .versioned("ret", 1, |r, _| {
                Header::decode(r)?;
                Header::decode(r)
            })
            .unwrap();
        assert_eq!(some(&counted.stats), some(&want));
    }

    pub(super) fn prepare(&mut self, op: u8, key: &Key, tag: &str) -> Result<Bytes, i32> {
        self.call(
            "bucket_prepare_op",
            enc(|w| {
                w.versioned(7, 5, |w| {
                    w.u8(op);
                    w.string(tag);
                    w.blob(b"");
                    w.bool(true);
                    w.put(key);
                    w.u16(0);
                    w.u32(0);
                });
            }),
        )
    }

    pub(super) fn complete(
        &mut self,
        op: u8,
        key: &Key,
        tag: &str,
        epoch: u64,
        meta: &Meta,
        remove: &[Key],
    ) -> Result<Bytes, i32> {
        self.call(
            "bucket_complete_op",
            enc(|w| {
                w.versioned(9, 7, |w| {
                    w.u8(op);
                    w.u64(epoch);
                    w.put(meta);
                    w.string(tag);
                    w.blob(b"");
                    w.seq(remove.iter(), |w, k| w.put(k));
                    w.put(&Ver { pool: 7, epoch });
                    w.bool(true);
                    w.put(key);
                    w.u16(0);
                    w.u32(0);
                });
            }),
        )
    }

    pub(super) fn link(
        &mut self,
        key: &Key,
        olh_tag: &str,
        marker: bool,
        epoch: u64,
        meta: &Meta,
    ) -> Result<Bytes, i32> {
        self.call(
            "bucket_link_olh",
            enc(|w| {
                w.versioned(5, 1, |w| {
                    w.put(key);
                    w.string(olh_tag);
                    w.bool(marker);
                    w.string("op");
                    w.put(meta);
                    w.u64(epoch);
                    w.bool(true);
                    w.u16(0);
                    w.u64(0);
                    w.put(&Utime::ZERO);
                    w.bool(false);
                    w.u32(0);
                });
            }),
        )
    }

    pub(super) fn unlink(&mut self, key: &Key, olh_tag: &str, epoch: u64) -> Result<Bytes, i32> {
        self.call(
            "bucket_unlink_instance",
            enc(|w| {
                w.versioned(3, 1, |w| {
                    w.put(key);
                    w.string("op");
                    w.u64(epoch);
                    w.bool(true);
                    w.u16(0);
                    w.string(olh_tag);
                    w.u32(0);
                });
            }),
        )
    }

    pub(super) fn suggest(&mut self, all: &[(u8, DirEntry)]) -> Result<Bytes, i32> {
        self.call(
            "dir_suggest_changes",
            enc(|w| {
                for (op, e) in all {
                    w.u8(*op);
                    w.put(e);
                }
            }),
        )
    }

    /// One page: entries, whether it was truncated, and the marker to continue from.
    pub(super) fn page(
        &mut self,
        start: &Key,
        max: u32,
        prefix: &str,
        delimiter: &str,
        versions: bool,
    ) -> (Entries, bool, Key) {
        let input = enc(|w| {
            w.versioned(6, 4, |w| {
                w.u32(max);
                w.string(prefix);
                w.put(start);
                w.bool(versions);
                w.string(delimiter);
            });
        });
        let out = match self.0.exec_full("rgw", "bucket_list", input) {
            Ok(o) => o.out,
            Err(crate::ClsError::Fail { errno: EFBIG, out }) => out,
            Err(e) => panic!("{e:?}"),
        };
        Reader::shared(&out)
            .versioned("ret", 4, |r, _| {
                let all = r.versioned("dir", 2, |r, _| {
                    Header::decode(r)?;
                    r.vec_with("entry", |r| Ok((r.blob()?, DirEntry::decode(r)?)))
                })?;
                Ok((all, r.bool()?, r.get()?))
            })
            .unwrap()
    }

    /// All names and common prefixes, read in pages.
    pub(super) fn list(&mut self, max: u32, prefix: &str, delimiter: &str) -> Vec<Bytes> {
        let (mut found, mut start) = (Vec::new(), Key::default());
        loop {
            let (page, more, marker) = self.page(&start, max, prefix, delimiter, false);
            found.extend(page.into_iter().map(|(_, e)| e.key.name));
            if !more {
                return found;
            }
            assert!(marker.name > start.name, "{marker:?} after {start:?}");
            start = marker;
        }
    }
}
