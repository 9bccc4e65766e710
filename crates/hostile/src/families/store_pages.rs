//! Pages of a store's metadata with invalid contents. On a device the checksums in parent pages detect damage; here
//! they are bypassed.
//!
//! Input: u16 length and that many bytes as stored beside the pointer to a page, then the page.

use super::{ALLOC_DECODER, Family};
use base::device::Device;
use base::{Eversion, HObject, PgId, PoolId};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::engine::Config;
use store::engine::device::{drive, submit};
use store::testing::disk::SimDisk;
use store::testing::{decode_page, fresh};
use store::{BLOCK, Cid, ObjectStore, Oid, Op, Tag, Transaction};
use wire::Reader;

pub(super) const FAMILY: Family = Family { name: "store_pages", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 4 };

const BYTES: u64 = 64 << 20;
/// Seeds of each kind of page.
const OF_A_KIND: usize = 6;
/// Numbers of the kinds of pages.
const KINDS: std::ops::RangeInclusive<u8> = 1..=9;
/// Kind of a leaf of a block map.
const MAP: u8 = 4;
/// Most blocks of a page that is read.
const BLOCKS_MAX: u64 = 4;
/// Most zeros at the end of a page.
const ZEROS_MAX: usize = 32;

fn run(input: &[u8]) {
    let mut r = Reader::new(input);
    let Ok(n) = r.u16() else { return };
    let Ok(late) = r.take(usize::from(n).min(r.remaining()), "changes") else { return };
    let page = r.take(r.remaining(), "page").unwrap_or_default();
    let Some(once) = decode_page(BYTES, page, late) else { return };
    let again = decode_page(BYTES, &once, &[]).unwrap_or_else(|| panic!("own encoding refused"));
    assert!(again == once, "encoding is not stable");
}

/// A store with pages of all kinds.
fn image() -> SimDisk {
    let cfg = Config { kids_max: 6, ..Config::default() };
    let (mut dev, mut s) = fresh(BYTES, 3, &cfg);
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid =
        |n: u32| Oid::new(HObject { oid: format!("o{n}").into(), hash: n, pool: PoolId(1), ..HObject::min() }.head());
    let mut ops = vec![Op::MakeCollection { cid, bits: 0 }, Op::PgInfo { cid, info: Bytes::from_static(b"info") }];
    for n in 0..6 {
        let entries = (0..300).map(|k| (format!("key{k:05}").into(), Bytes::from_static(&[1; 40]))).collect();
        ops.push(Op::OmapSet { cid, oid: oid(n), entries });
        ops.push(Op::Write { cid, oid: oid(n), off: 0, data: vec![n as u8; 600 << 10].into(), sums: None });
        ops.push(Op::LogAppend {
            cid,
            version: Eversion::new(1, u64::from(n) + 1),
            entry: Bytes::from_static(&[2; 99]),
        });
    }
    ops.push(Op::Clone { cid, src: oid(0), dst: oid(9) });
    let keep = Op::Keep { cid, version: Eversion::new(1, 9) };
    let small =
        |n: u32| Op::Write { cid, oid: oid(n), off: u64::from(n) * BLOCK, data: vec![9; 5000].into(), sums: None };
    let first = Transaction { ops };
    let then = Transaction { ops: vec![keep, small(1), small(2), Op::Truncate { cid, oid: oid(3), size: 590 << 10 }] };
    for (n, t) in [first, then].into_iter().enumerate() {
        submit(&mut s, &mut dev, Tag(1 + n as u64), t).expect("the device is sound");
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        while s.poll_event().is_some() {}
    }
    dev
}

/// The page that begins with these blocks; the last block is padded with zeros.
fn page(blocks: &[u8]) -> Option<&[u8]> {
    (1..=blocks.len() / BLOCK as usize).find_map(|n| {
        let last = blocks.get(..n * BLOCK as usize)?;
        let end = last.iter().rposition(|x| *x != 0)? + 1;
        let ends = end..=(end + ZEROS_MAX).min(last.len());
        ends.filter_map(|n| blocks.get(..n)).find(|p| decode_page(BYTES, p, &[]).is_some())
    })
}

/// Some pages of each kind; the fuzzer finds other variants.
fn seeds() -> Vec<Vec<u8>> {
    let mut dev = image();
    let (mut many, mut out) = (BTreeMap::new(), Vec::new());
    for b in dev.find(0, |b| KINDS.contains(&b[0])) {
        let Some(Ok(blocks)) = dev.read_many(&[(b * BLOCK, BLOCKS_MAX * BLOCK)]).pop() else { continue };
        let Some(page) = page(&blocks) else { continue };
        let of_kind = many.entry(page[0]).or_insert(0);
        *of_kind += 1;
        if *of_kind <= OF_A_KIND {
            // One hole, as updates of a chunk may leave.
            let late: &[u8] = if page[0] == MAP { &[3, 0] } else { &[] };
            out.push([&(late.len() as u16).to_le_bytes(), late, page].concat());
        }
    }
    assert!(KINDS.clone().all(|k| many.contains_key(&k)), "pages of kinds {:?}", many.keys());
    out
}
