//! A store's device with invalid records: superblocks, roots and log frames. Checksums detect random damage (as the
//! store's own tests show), so here the checksums are corrected and the protected contents are wrong.
//!
//! Input: pieces of `{u16 block, u16 offset, u8 length, bytes}` written over the blocks of a short history. Opening and
//! rebuilding must refuse or succeed; an opened store must answer reads.

use super::Family;
use base::crc::{SEED, crc32c};
use base::device::Device;
use base::rng::Rng;
use base::{HObject, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, Store};
use store::mem::MemStore;
use store::testing::disk::SimDisk;
use store::testing::workload::Workload;
use store::{ObjectStore, Oid, ReadError, Tag};
use wire::Reader;

pub(super) const FAMILY: Family = Family { name: "store_records", run, seeds, alloc_fixed: 256 << 20, cost: 60 };

const BYTES: u64 = 64 << 20;
const BLOCK: usize = 4096;
const TRANSACTIONS: u64 = 60;
/// Number of transactions before the checkpoint, so that there are pages and a log.
const CHECKPOINT_AT: u64 = 25;
/// Objects read after opening, and attempts per read.
const READS: usize = 8;
const ATTEMPTS: usize = 8;

/// Magic numbers as written by `store::wal` and `store::superblock`, with the positions of length and checksums.
const FRAME_MAGIC: [u8; 4] = 0x4657_4c42_u32.to_le_bytes();
const FRAME_HEADER: usize = 64;
const ROOT_MAGIC: [u8; 4] = 0x5254_4c42_u32.to_le_bytes();
const SUPER_MAGIC: &[u8; 16] = b"belemnite store\n";

fn config() -> Config {
    Config { cache_bytes: 1 << 20, ..Config::default() }
}

/// The device after the history, with the numbers of written blocks.
static IMAGE: LazyLock<(SimDisk, Vec<u64>)> = LazyLock::new(|| {
    let mut dev = SimDisk::new(BYTES);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: BTreeMap::new() };
    engine::format(&mut dev, &o).expect("format");
    let mut s = engine::open(&mut dev, &config()).expect("open").remove(0);
    let mut rng = Rng::new(11);
    let mut load = Workload::new(&mut rng);
    let mut model = MemStore::new();
    for n in 1..=TRANSACTIONS {
        let txn = load.next(&mut rng, &model);
        submit(&mut s, &mut dev, Tag(n), txn.clone()).expect("the device is sound");
        model.submit(Tag(n), txn);
        while model.poll_event().is_some() {}
        if n == CHECKPOINT_AT {
            s.request_checkpoint();
        }
        drive(&mut s, &mut dev);
        while s.poll_event().is_some() {}
    }
    let blocks = dev.written();
    (dev, blocks)
});

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn put32(b: &mut [u8], at: usize, v: u32) {
    if let Some(s) = b.get_mut(at..at + 4) {
        s.copy_from_slice(&v.to_le_bytes());
    }
}

/// Corrects the checksums of the record at `at` in a run of adjacent blocks. `chain` maps a frame's old checksum to its
/// new one.
fn repair(run: &mut [u8], at: usize, chain: &mut BTreeMap<u32, u32>) {
    let magic: Option<[u8; 4]> = run.get(at..at + 4).and_then(|m| m.try_into().ok());
    if magic == Some(FRAME_MAGIC) {
        let old = u32_at(run, at + 60);
        let payload = at + FRAME_HEADER..(at + FRAME_HEADER).saturating_add(u32_at(run, at + 32) as usize);
        if let Some(p) = run.get(payload) {
            let crc = crc32c(SEED, p);
            put32(run, at + 36, crc);
        }
        if let Some(new) = chain.get(&u32_at(run, at + 12)) {
            put32(run, at + 12, *new);
        }
        let crc = crc32c(SEED, &run[at..at + 60]);
        put32(run, at + 60, crc);
        chain.insert(old, crc);
        return;
    }
    let sealed = if magic == Some(ROOT_MAGIC) {
        Some(4)
    } else {
        run.get(at..at + 16).is_some_and(|m| m == SUPER_MAGIC).then_some(20)
    };
    if let Some(len_at) = sealed {
        let body = (u32_at(run, at + len_at) as usize).saturating_sub(4);
        if let Some(covered) = run.get(at..at.saturating_add(body)) {
            let crc = crc32c(SEED, covered);
            put32(run, at + body, crc);
        }
    }
}

fn run(input: &[u8]) {
    let (image, blocks) = &*IMAGE;
    let mut dev = image.clone();
    let mut r = Reader::new(input);
    let mut wrong: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    while let (Ok(which), Ok(offset), Ok(len)) = (r.u16(), r.u16(), r.u8()) {
        let piece = r.take(usize::from(len).min(r.remaining()), "piece").unwrap_or_default();
        let Some(block) = blocks.get(usize::from(which) % blocks.len().max(1)) else { return };
        let b = wrong.entry(*block).or_insert_with(|| read(&mut dev, *block));
        let from = usize::from(offset) % BLOCK;
        let to = (from + piece.len()).min(BLOCK);
        b[from..to].copy_from_slice(&piece[..to - from]);
    }
    if wrong.is_empty() {
        return;
    }
    // Runs of adjacent blocks, since frames may span several.
    let mut chain = BTreeMap::new();
    let mut at = 0;
    while at < blocks.len() {
        let first = blocks[at];
        let n = blocks[at..].iter().zip(first..).take_while(|(b, want)| **b == *want).count();
        let mut bytes: Vec<u8> = Vec::with_capacity(n * BLOCK);
        for b in &blocks[at..at + n] {
            let block = wrong.get(b).cloned().unwrap_or_else(|| read(&mut dev, *b));
            bytes.extend(block);
        }
        let before = bytes.clone();
        for i in 0..n {
            repair(&mut bytes, i * BLOCK, &mut chain);
        }
        for (i, b) in blocks[at..at + n].iter().enumerate() {
            let range = i * BLOCK..(i + 1) * BLOCK;
            if wrong.contains_key(b) || bytes[range.clone()] != before[range.clone()] {
                let mut page = base::buf::AlignedBuf::zeroed(BLOCK);
                page.copy_from_slice(&bytes[range]);
                let _ = dev.write(b * BLOCK as u64, &[page.freeze()]);
            }
        }
        at += n;
    }
    let mut copy = dev.clone();
    if engine::rebuild(&mut copy, &config(), |_| false).is_ok() {
        open_and_look(&mut copy);
    }
    open_and_look(&mut dev);
}

fn open_and_look(dev: &mut SimDisk) {
    for mut s in engine::open(dev, &config()).unwrap_or_default() {
        look_around(&mut s, dev);
    }
}

fn read(dev: &mut SimDisk, block: u64) -> Vec<u8> {
    let b: Option<Result<Bytes, _>> = dev.read_many(&[(block * BLOCK as u64, BLOCK as u64)]).pop();
    b.and_then(Result::ok).map_or_else(|| vec![0; BLOCK], |b| b.to_vec())
}

fn patiently<T>(s: &mut Store, dev: &mut SimDisk, mut f: impl FnMut(&mut Store) -> Result<T, ReadError>) -> Option<T> {
    for _ in 0..ATTEMPTS {
        match f(s) {
            Err(ReadError::Wait) => {
                drive(s, dev);
                while s.poll_event().is_some() {}
            }
            r => {
                s.release(Tag(1));
                return r.ok();
            }
        }
    }
    s.release(Tag(1));
    None
}

fn look_around(s: &mut Store, dev: &mut SimDisk) {
    let tag = Tag(1);
    for (cid, _) in s.collections() {
        let start = Oid::new(HObject::min());
        let Some((oids, _)) = patiently(s, dev, |s| s.list(tag, cid, &start, None, READS)) else { continue };
        for oid in &oids {
            let _ = patiently(s, dev, |s| s.read(tag, cid, oid, 0, 1 << 20));
            let _ = patiently(s, dev, |s| s.attrs(tag, cid, oid));
            let _ = patiently(s, dev, |s| s.omap_range(tag, cid, oid, b"", false, 16, 4096));
        }
        let _ = patiently(s, dev, |s| s.pg_info(tag, cid));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let (image, blocks) = &*IMAGE;
    let mut dev = image.clone();
    // Each record's own bytes, written to their place: the start of every block with a record.
    let mut out = Vec::new();
    for (i, b) in blocks.iter().enumerate() {
        let block = read(&mut dev, *b);
        if block.starts_with(&FRAME_MAGIC) || block.starts_with(&ROOT_MAGIC) || block.starts_with(SUPER_MAGIC) {
            let mut seed = Vec::new();
            for at in (0..240usize).step_by(48) {
                seed.extend((i as u16).to_le_bytes());
                seed.extend((at as u16).to_le_bytes());
                seed.push(48);
                seed.extend(&block[at..at + 48]);
            }
            out.push(seed);
        }
    }
    out
}
