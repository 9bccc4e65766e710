//! The content of a PG's shards, and its check.

use super::Cluster;
use super::map::CHUNK;
use base::{HObject, SnapId};
use bytes::Bytes;
use ec::{Codec, Layout, Technique};
use pg::object::{OI_ATTR, ObjectInfo};
use std::collections::BTreeMap;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};

pub type Attrs = Vec<(Bytes, Bytes)>;

/// The content of a shard: bytes and attributes by object.
pub fn shard(c: &mut Cluster, n: i32) -> BTreeMap<HObject, (Bytes, Attrs)> {
    let (cid, tag) = (Cid::Pg(c.spg(n)), Tag(u64::MAX - 1));
    let disk = &mut c.osds[n as usize].disk;
    macro_rules! get {
        ($e:expr) => {
            loop {
                match $e {
                    Err(ReadError::Wait) => while disk.poll_event().is_some() {},
                    r => break r.unwrap(),
                }
            }
        };
    }
    let mut all = BTreeMap::new();
    let mut from = Some(Oid::new(HObject::min()).at_generation(0));
    while let Some(f) = from {
        let (page, next) = get!(disk.list(tag, cid, &f, None, 100));
        for o in page.into_iter().filter(|o| !o.hobj.oid.is_empty()) {
            assert_eq!(o.generation, Oid::NO_GEN, "osd.{n} still has {o:?} set aside");
            let data = get!(disk.read(tag, cid, &o, 0, 1 << 24));
            let size = get!(disk.stat(tag, cid, &o)).size;
            assert_eq!(data.len() as u64, size);
            let attrs = get!(disk.attrs(tag, cid, &o));
            all.insert(o.hobj.clone(), (data, attrs));
        }
        from = next;
    }
    disk.release(tag);
    all
}

/// Checks that all shards exist with the right lengths and equal attributes, and that any `k` of them give the same
/// objects.
pub fn check(c: &mut Cluster) {
    assert!(c.violations.is_empty(), "{:#?}", c.violations);
    let (k, m) = c.map().code.unwrap();
    let (k, n) = (usize::from(k), usize::from(k + m));
    let layout = Layout::new(k, n - k, CHUNK).unwrap();
    let codec = Codec::new(Technique::JerasureVandermonde, k, n - k).unwrap();
    let acting: Vec<i32> = c.map().mapping().acting.iter().map(|o| o.0).collect();
    let shards: Vec<_> = acting.iter().map(|o| shard(c, *o)).collect();
    let infos: Vec<_> = acting.iter().map(|o| c.osds[*o as usize].pg.as_ref().unwrap().info()).collect();
    for i in &infos {
        assert_eq!(i.last_update, infos[0].last_update);
        assert_eq!(i.stats.num_objects, infos[0].stats.num_objects);
    }
    let heads = shards[0].keys().filter(|h| h.snap == SnapId::HEAD).count() as i64;
    assert!(heads <= infos[0].stats.num_objects, "{heads} heads, {} objects", infos[0].stats.num_objects);
    for (h, (_, attrs)) in &shards[0] {
        let oi = attrs.iter().find(|(k, _)| k == OI_ATTR).map(|(_, v)| ObjectInfo::from_attr(v).unwrap());
        let size = oi.map_or(0, |o| o.size);
        let len = layout.shard_len(size, 0) as usize;
        let mut padded = Vec::new();
        for (s, all) in shards.iter().enumerate() {
            let (data, theirs) = all.get(h).unwrap_or_else(|| panic!("shard {s} lacks {h}"));
            assert_eq!(theirs, attrs, "{h} on shard {s}");
            assert_eq!(data.len() as u64, layout.shard_len(size, s), "length of {h} on shard {s}, {size} bytes");
            let mut p = data.to_vec();
            p.resize(len, 0);
            padded.push(p);
        }
        let data: Vec<&[u8]> = padded[..k].iter().map(Vec::as_slice).collect();
        let mut coding = vec![vec![0u8; len]; n - k];
        codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        for (i, p) in coding.iter().enumerate() {
            assert!(*p == padded[k + i], "coding shard {} of {h} ({size} bytes) is not that of its data", k + i);
        }
    }
    for s in &shards {
        assert_eq!(s.len(), shards[0].len());
    }
}

/// Runs until the PG is clean, and checks it.
pub fn finish(c: &mut Cluster) {
    c.settle();
    check(c);
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{:?} {:?}", c.found(), c.log);
    c.final_reads();
}
