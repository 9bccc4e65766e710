//! An idle erasure-coded PG with one object of known content.

use super::Cluster;
use super::map::CHUNK;
use super::shards::finish;
use bytes::Bytes;
use wire::msg::{OpCode, OsdOp};

/// Chunks of the object.
pub const CHUNKS: usize = 8;
/// Bytes of a chunk.
pub const BLOCK: usize = CHUNK as usize;
/// Number of the object.
pub const OBJECT: usize = 10;

pub fn extent(code: OpCode, off: usize, data: Bytes) -> OsdOp {
    OsdOp::with_extent(code, off as u64, data.len() as u64, data)
}

/// The cluster, and the expected bytes of the object.
pub struct Rest {
    pub c: Cluster,
    pub data: Vec<u8>,
}

impl Rest {
    pub fn new(seed: u64, osds: usize, shape: (u8, u8)) -> Self {
        let mut c = Cluster::coded(seed, osds, shape, 1, 0);
        c.contended = false;
        c.keep_log = (3000, 100);
        c.run(3_000);
        let data: Vec<u8> = (0..CHUNKS * BLOCK).map(|i| (i * 31 + i / 977) as u8).collect();
        let mut r = Self { c, data };
        let all = Bytes::from(r.data.clone());
        r.ask(extent(OpCode::WRITEFULL, 0, all), 1_000);
        r.quiet();
        r
    }

    /// Runs until nothing is deferred any more.
    pub fn quiet(&mut self) {
        self.c.settle();
        self.c.run(12_000);
    }

    pub fn send(&mut self, op: OsdOp) -> u64 {
        let primary = self.c.map().mapping().acting_primary.0;
        self.c.ask(primary, 1, OBJECT, 0, vec![op])
    }

    pub fn ask(&mut self, op: OsdOp, ms: u64) -> Bytes {
        let tid = self.send(op);
        self.c.run(ms);
        let answer = self.c.asked.answers.get(&tid).unwrap_or_else(|| panic!("no answer; {}", self.c.describe(1)));
        assert_eq!(answer.result.min(0), 0);
        answer.ops[0].outdata.clone()
    }

    /// Overwrites a chunk.
    pub fn write(&mut self, chunk: usize, with: u8) {
        let new = self.set(chunk, with);
        self.ask(extent(OpCode::WRITE, chunk * BLOCK, new), 300);
    }

    /// Begins to overwrite a chunk; returns the operation's number.
    pub fn begin(&mut self, chunk: usize, with: u8) -> u64 {
        let new = self.set(chunk, with);
        self.send(extent(OpCode::WRITE, chunk * BLOCK, new))
    }

    fn set(&mut self, chunk: usize, with: u8) -> Bytes {
        let new = Bytes::from(vec![with; BLOCK]);
        self.data[chunk * BLOCK..][..BLOCK].copy_from_slice(&new);
        new
    }

    pub fn reads_right(&mut self) {
        let all = OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new());
        let got = self.ask(all, 2_000);
        let wrong: Vec<usize> = (0..CHUNKS)
            .filter(|n| got.get(n * BLOCK..(n + 1) * BLOCK) != self.data.get(n * BLOCK..(n + 1) * BLOCK))
            .collect();
        assert!(got.len() == self.data.len() && wrong.is_empty(), "chunks {wrong:?} are wrong");
    }

    pub fn spared(&self) -> u64 {
        self.c.osds.iter().filter_map(|o| o.pg.as_ref()).map(|p| p.counters().shards_spared).sum()
    }

    pub fn last_updates(&self) -> Vec<u64> {
        self.c.osds.iter().map(|o| o.pg.as_ref().map_or(0, |p| p.info().last_update.version)).collect()
    }

    /// Checks that the PG becomes clean and the object has the expected bytes.
    pub fn finish(mut self) {
        self.c.heal();
        self.quiet();
        finish(&mut self.c);
        self.reads_right();
    }
}
