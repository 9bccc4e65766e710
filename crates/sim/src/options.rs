//! The shape of a run: sizes given by the caller, all else drawn from the seed. Each run has a few kinds of faults at
//! rates of its own (swarm testing), because a fault that happens all the time hides others.
//!
//! `fault` has the kinds of faults, and the groups in which seeds draw them.

mod fault;

use crate::coded::Code;
use crate::node::reactors::REACTORS_MAX;
use crate::queue::{MS, SEC, Time, US};
use crate::rough::Rough;
use base::rng::Rng;

use fault::COMMON;
pub use fault::{Fault, OF_FILES, OF_MONITORS, PLOTS, all_faults};

/// The caller's choices.
#[derive(Clone, Debug)]
pub struct Size {
    /// OSDs, one per host.
    pub osds: usize,
    /// Client operations.
    pub ops: usize,
    /// Least number of faults.
    pub faults: usize,
    /// Copies of an object; 0 draws 1 to 3 from the seed.
    pub copies: usize,
    /// The only kinds of faults, if any are named.
    pub only: Vec<Fault>,
}

impl Default for Size {
    fn default() -> Self {
        Self { osds: 5, ops: 2000, faults: 10, copies: 0, only: Vec::new() }
    }
}

/// The shape of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The caller's choices.
    pub size: Size,
    /// The pool.
    pub pool: PoolShape,
    /// The work of the clients.
    pub work: Work,
    /// Delays of messages.
    pub net: NetShape,
    /// Disks, and the stores on them.
    pub disk: DiskShape,
    /// Each OSD.
    pub osd: OsdShape,
    /// Kinds of faults of this run.
    pub faults: Vec<Fault>,
    /// Mean time between faults.
    pub fault_every: Time,
    /// Longest time a fault lasts.
    pub fault_lasts: Time,
    /// True if all hosts lose power at once at the end, before the contents are read.
    pub final_power_cut: bool,
    /// Largest difference of clock rates, in parts per million.
    pub drift_ppm: u64,
    /// True if one OSD stays dead at first, or its copies fail, once faults have stopped: the others must serve
    /// everything.
    pub without_one: bool,
    /// Seconds for which an OSD is down before it is marked out.
    pub down_out: u64,
    /// Number of monitors.
    pub mons: usize,
    /// Faults of the state that several monitors share.
    pub state: state::simulated::Faults,
    /// Number of MDS daemons of the file system; 0: the run has no file system.
    pub mds: usize,
    /// Sizes and counts that only some runs have.
    pub rough: Rough,
}

/// The pool.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// Number of copies of each object, or of shards.
    pub copies: usize,
    /// The erasure code of the pool, if it has one.
    pub code: Option<Code>,
    /// Number of copies or shards that writes need.
    pub min_size: usize,
    /// Number of PGs of the pool.
    pub pgs: u32,
}

impl PoolShape {
    /// A pool of copies, two of which writes need.
    #[must_use]
    pub fn of_copies(copies: usize, pgs: u32) -> Self {
        Self { copies, code: None, min_size: copies.min(2), pgs }
    }

    /// A pool of the shards of a code.
    #[must_use]
    pub fn of_shards(code: Code, pgs: u32) -> Self {
        Self { copies: code.shards(), code: Some(code), min_size: code.min_size(), pgs }
    }

    /// A pool of `copies` copies, or of that many data and coding shards.
    #[must_use]
    pub fn new(copies: usize, shards: Option<(u8, u8)>, pgs: u32) -> Self {
        shards.map_or_else(|| Self::of_copies(copies, pgs), |(k, m)| Self::of_shards(Code::plain(k, m), pgs))
    }
}

/// The work of the clients.
#[derive(Clone, Debug)]
pub struct Work {
    /// Number of clients.
    pub clients: usize,
    /// Number of clients that only read; these come first.
    pub readers: usize,
    /// Most operations that a client has in flight.
    pub depth: usize,
    /// Number of objects.
    pub objects: usize,
    /// Mean time a client waits before its next operation.
    pub think: Time,
    /// True if operations come in bursts.
    pub bursts: bool,
    /// True if clients take snapshots.
    pub snapshots: bool,
    /// True if clients watch objects and notify each other.
    pub watches: bool,
    /// True if some reads go to any member of the acting set.
    pub anywhere: bool,
    /// True if clients call object classes.
    pub calls: bool,
    /// True if clients list the pool.
    pub lists: bool,
    /// Number of objects that are sources of copies; 0: no copies.
    pub sources: usize,
}

/// Delays of messages.
#[derive(Clone, Debug)]
pub struct NetShape {
    /// Least delay of a message, and the mean of the random delay added to it.
    pub delay: (Time, Time),
    /// One message in so many takes a hundred times as long; 0 for never.
    pub slow: u64,
}

/// Disks, and the stores on them.
#[derive(Clone, Debug)]
pub struct DiskShape {
    /// Mean time of a disk request.
    pub delay: Time,
    /// One disk request in so many takes a hundred times as long; 0 for never.
    pub slow: u64,
    /// Bytes of a disk.
    pub bytes: u64,
    /// Bytes of log after which a store makes a checkpoint.
    pub checkpoint_bytes: u64,
    /// True if the stores reuse freed blocks at once.
    pub first_fit: bool,
    /// Most children of an inner page of a store; few make deep trees.
    pub kids: usize,
}

/// Each OSD.
#[derive(Clone, Debug)]
pub struct OsdShape {
    /// Number of reactors of an OSD.
    pub reactors: u16,
    /// True if an OSD has another number of reactors at every start.
    pub reactors_change: bool,
    /// Number of recent map steps that an OSD keeps for clients and peers.
    pub recent_maps: usize,
    /// True if PGs that were split off move to the reactors of their names, as by default in an OSD.
    pub moves: bool,
    /// Number of PGs of a reactor that handle a map in one turn, and the pause until the next ones.
    pub walk: (usize, Time),
    /// Number of records that a PG's log keeps.
    pub log_records: u32,
    /// Bytes of unanswered operations above which a connection is not read.
    pub unanswered: usize,
    /// Objects in a backfill range, and object contexts of a PG.
    pub sizes: (u32, u32),
    /// True if osd.0 is of a newer version than the others.
    pub newer: bool,
    /// True if the OSDs compress all data, each in its own way. [`Options::compression`] draws it.
    pub compress: bool,
}

/// Bytes of a simulated disk.
const DISK: u64 = 1 << 30;
/// Bytes of a disk that is filled: the least size of a store, plus the bytes that a run may write.
const SMALL_DISK: u64 = 96 << 20;

/// Least default of the records that a PG's log keeps.
const LOG_RECORDS: u32 = 3000;
/// Largest error of a clock rate that leases must tolerate, in parts per million.
const DRIFT_MAX: u64 = 10_000;

/// Most operations of a run to which [`Options::swarm`] gives an erasure-coded pool, because such a run costs several
/// times as much.
const CODED_OPS_MAX: usize = 800;

/// Most monitors of a run.
pub const MONS_MAX: usize = 7;

/// Most MDS daemons of a run.
pub const MDS_MAX: usize = 7;

/// Most copies of a PG that the production code supports.
pub const COPIES_MAX: usize = if mon::command::REPLICATION { 3 } else { 1 };

fn pick<T: Copy>(r: &mut Rng, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize]
}

/// Faults of a seed, for any number of copies.
fn draw_faults(seed: u64, r: &mut Rng) -> Vec<Fault> {
    // A third of all kinds on average; one run in twenty has none.
    let share = pick(r, &[1u64, 2, 3, 5]);
    let none = r.chance(1, 20);
    let mut f: Vec<Fault> = COMMON.to_vec();
    f.retain(|_| r.chance(share, 9) && !none);
    // Drawn separately, so that the runs of seeds without it do not change.
    if !none && Rng::new(seed ^ 0x7067_5f6e_756d).chance(1, 3) {
        f.push(Fault::PgNum);
    }
    // Often together with `PgNum`, so that merged PGs are split again.
    let shrinks = &mut Rng::new(seed ^ 0x7067_5f6a_6f69_6e00);
    if !none && shrinks.chance(1, 5) {
        f.push(Fault::PgShrink);
        if !f.contains(&Fault::PgNum) && shrinks.chance(1, 2) {
            f.push(Fault::PgNum);
        }
    }
    // Drawn separately, too.
    if !none && Rng::new(seed ^ 0x6973_6f6c_6174_6500).chance(1, 8) {
        f.push(Fault::Isolate);
    }
    if !none && Rng::new(seed ^ 0x726f_7400).chance(1, 6) {
        f.push(Fault::Rot);
    }
    if !none && Rng::new(seed ^ 0x6675_6c6c).chance(1, 8) {
        f.push(Fault::Full);
    }
    if !none && Rng::new(seed ^ 0x636f_7079).chance(1, 6) {
        f.push(Fault::FailCopy);
    }
    // Drawn separately, too.
    let apart = &mut Rng::new(seed ^ 0x706c_6f74_7307);
    if !none && apart.chance(1, 4) {
        f.extend(PLOTS.iter().filter(|_| apart.chance(1, 2)));
    }
    f
}

/// Drops faults that need more copies.
fn keep_possible(faults: &mut Vec<Fault>, copies: usize) {
    if copies == 1 {
        faults.retain(|f| {
            !f.moves_data()
                && !matches!(f, Fault::Turns | Fault::LastWords | Fault::Exile | Fault::Hearsay | Fault::LongGone)
        });
    }
    // With two copies besides a rotten one, every acknowledged write is in a readable copy.
    if copies < 3 {
        faults.retain(|f| *f != Fault::Rot);
    }
}

/// Length of the PG logs of a seed with these faults.
fn log_records(seed: u64, faults: &[Fault]) -> u32 {
    // After so many other writes a resend counts as a new operation, so the log is not short where a client may
    // be cut off for long. A client whose monitor gets no maps does not learn where its PGs are.
    let cut_off = [Fault::Partition, Fault::OneWay, Fault::Isolate, Fault::Slow, Fault::Pause, Fault::StateLate];
    if faults.iter().any(|f| cut_off.contains(f) || OF_MONITORS.contains(f)) {
        return LOG_RECORDS;
    }
    pick(&mut Rng::new(seed ^ 0x6c6f_6700), &[LOG_RECORDS, 200, 200, 400])
}

impl NetShape {
    fn draw(r: &mut Rng) -> Self {
        let delay = pick(r, &[(20 * US, 50 * US), (50 * US, MS), (MS, 20 * MS)]);
        Self { delay, slow: pick(r, &[0, 1000, 50]) }
    }
}

impl DiskShape {
    fn draw(seed: u64, bytes: u64, r: &mut Rng) -> Self {
        // Fields are drawn in this order.
        Self {
            delay: pick(r, &[20 * US, 200 * US, 5 * MS]),
            slow: pick(r, &[0, 1000, 50]),
            checkpoint_bytes: pick(r, &[32 << 10, 256 << 10, 8 << 20]),
            first_fit: r.chance(1, 2),
            bytes,
            kids: if seed.is_multiple_of(3) { 4 } else { store::engine::Config::default().kids_max },
        }
    }
}

impl OsdShape {
    /// The shape of a seed, each part from random numbers of its own.
    fn draw(seed: u64, log_records: u32) -> Self {
        Self {
            reactors: pick(&mut Rng::new(seed ^ 0x7265_6163_746f_7273), &[1, 1, 1, 2, 2, REACTORS_MAX]),
            reactors_change: Rng::new(seed ^ 0x6368_616e_6765_7300).chance(1, 4),
            recent_maps: pick(&mut Rng::new(seed ^ 0x7265_6365_6e74), &[1, 4, 16, 128]),
            moves: Rng::new(seed ^ 0x6d6f_7665_7300_0000).chance(3, 4),
            walk: pick(
                &mut Rng::new(seed ^ 0x7761_6c6b_0000),
                &[(osd::core::pgs::WALK_STEP, 0), (1, MS), (1, 3 * MS), (2, MS), (7, 2 * MS)],
            ),
            log_records,
            unanswered: 100 << 20,
            sizes: pick(&mut Rng::new(seed ^ 0x7369_7a65_7300), &[(128, 512), (128, 512), (2, 4), (5, 16)]),
            newer: false,
            compress: false,
        }
    }
}

impl Options {
    /// The default options of a seed. If the number of copies is not given, a quarter of the seeds have an
    /// erasure-coded pool ([`Options::coded`]); all others are as drawn by [`Options::draw`].
    #[must_use]
    pub fn swarm(seed: u64, size: Size) -> Self {
        if size.copies == 0 && Rng::new(seed ^ 0x6563_5f70_6f6f_6c73).chance(1, 4) {
            let ops = size.ops.min(CODED_OPS_MAX);
            Self::coded(seed, Size { ops, ..size }, None)
        } else {
            Self::draw(seed, size)
        }
    }

    /// The options of a seed with a pool of copies.
    #[must_use]
    pub fn draw(seed: u64, size: Size) -> Self {
        let mut o = Self::plain(seed, size);
        o.extend();
        o
    }

    /// Draws the options that [`Options::plain`] leaves out, each from random numbers of its own.
    pub(crate) fn extend(&mut self) {
        let seed = self.seed;
        let one_in = |what: u64, n: u64| Rng::new(seed ^ what).chance(1, n);
        self.work.calls = one_in(0x636c_6173_7300, 3);
        self.work.lists = one_in(0x6c69_7374_7300, 3);
        self.work.sources = if one_in(0x636f_7079_6672, 3) { 2 } else { 0 };
        self.osd.unanswered = pick(&mut Rng::new(seed ^ 0x756e_616e_7377), &[128 << 10, 1 << 20, 100 << 20]);
        if self.size.only.is_empty() && !self.faults.is_empty() && self.pool.copies > 1 && self.pool.code.is_none() {
            self.faults.extend([Fault::Exile].iter().filter(|_| one_in(0x6578_696c_6500, 4)));
            self.faults.extend([Fault::Hearsay].iter().filter(|_| one_in(0x6865_6172_7361, 4)));
        }
        if self.faults.contains(&Fault::Hearsay) {
            self.osd.recent_maps = 1;
        }
        self.osd.newer = one_in(0x6e65_7765_7200, 4);
        self.rough = Rough::draw(seed, self.pool.code.is_some(), self.disk.bytes <= SMALL_DISK);
        // Rotten blocks and merges wait for a step that comes after that of the quota.
        self.rough.quota &= !self.faults.iter().any(|f| matches!(f, Fault::Rot | Fault::Full | Fault::PgShrink));
        if self.size.only.is_empty() && !self.faults.is_empty() && self.pool.copies > 1 && one_in(0x6c6f_7365_0000, 5) {
            self.faults.push(Fault::Lose);
        }
        if self.size.only.is_empty() && !self.faults.is_empty() {
            self.faults
                .extend([Fault::CutPair].iter().filter(|_| self.pool.copies > 1 && one_in(0x6375_7470_6169_7200, 6)));
            let stuck = one_in(0x7374_7563_6b00, 6);
            self.faults.extend([Fault::StuckDisk].iter().filter(|_| stuck));
        }
        if self.size.only.is_empty() && !self.faults.is_empty() && self.pool.copies > 1 {
            let placed = one_in(0x706c_6163_6500, 5);
            self.faults.extend([Fault::Place].iter().filter(|_| placed));
            let gone = self.rough.trims && self.pool.code.is_none() && one_in(0x676f_6e65_0000, 2);
            self.faults.extend([Fault::LongGone].iter().filter(|_| gone));
        }
        if self.rough.many {
            // One PG has them all, so that a move of it is one interval.
            self.pool.pgs = 1;
        }
        // An isolated OSD serves reads until its leases end, by its own clock.
        if self.faults.contains(&Fault::Isolate) && one_in(0x6564_6765_7300, 2) {
            self.drift_ppm = DRIFT_MAX;
        }
    }

    /// The options of a seed without class calls, listings and copies. Seeds that found something before those
    /// existed keep their histories.
    #[must_use]
    pub fn plain(seed: u64, size: Size) -> Self {
        let r = &mut Rng::new(seed ^ 0x5eed_0f0b_710e_5000);
        let most = COPIES_MAX.min(size.osds);
        let copies = if size.copies > 0 { size.copies } else { most - r.below(most.min(3) as u64) as usize };
        let min_size = if copies >= 3 { 2 } else { 1 };
        let mut faults = if size.only.is_empty() { draw_faults(seed, r) } else { size.only.clone() };
        keep_possible(&mut faults, copies);
        // A disk that is filled is small, for speed.
        let disk = if faults.contains(&Fault::Full) { SMALL_DISK } else { DISK };
        let log_records = log_records(seed, &faults);
        let without_one = copies - min_size >= 1
            && min_size >= 2
            && size.osds > copies
            && !faults.iter().any(|f| matches!(f, Fault::Rot | Fault::Full | Fault::PgShrink | Fault::WriteError))
            && Rng::new(seed ^ 0x6f6e_6500).chance(2, 3);
        let clients = 1 + r.below(5) as usize;
        let fault_every = pick(r, &[SEC, 3 * SEC, 8 * SEC]);
        // This think time spreads the operations over the time of the faults.
        let think = (size.faults as u64 + 2) * fault_every * clients as u64 / size.ops.max(1) as u64;
        let pgs = pick(r, &[1, 4, 8, 16, 32]);
        let depth = 1 + r.below(8) as usize;
        let objects = pick(r, &[3, 10, 30, 80]);
        let fault_lasts = pick(r, &[SEC, 8 * SEC, 40 * SEC]);
        let bursts = r.chance(1, 2);
        let final_power_cut = r.chance(1, 2);
        let net = NetShape::draw(r);
        let disk = DiskShape::draw(seed, disk, r);
        let drift_ppm = {
            let drift = pick(r, &[0, 50, 200]);
            // Drawn separately: clocks with the largest error that leases must tolerate.
            if Rng::new(seed ^ 0x6472_6966_7400).chance(1, 6) { DRIFT_MAX } else { drift }
        };
        let snapshots = r.chance(1, 2);
        let down_out = pick(r, &[20, 60, 600]);
        Self {
            seed,
            pool: PoolShape { copies, code: None, min_size, pgs },
            work: Work {
                clients,
                readers: 0,
                depth,
                objects,
                think,
                bursts,
                snapshots,
                watches: Rng::new(seed ^ 0x7761_7463_6800).chance(1, 2),
                anywhere: Rng::new(seed ^ 0x616e_7977_6865_7265).chance(1, 2),
                calls: false,
                lists: false,
                sources: 0,
            },
            net,
            disk,
            osd: OsdShape::draw(seed, log_records),
            faults,
            fault_every,
            fault_lasts,
            final_power_cut,
            drift_ppm,
            // Allowed where every acknowledged write is in another copy, and no merge waits for all of them.
            without_one,
            down_out,
            mons: 1,
            state: state::simulated::Faults::default(),
            mds: 0,
            rough: Rough::default(),
            size,
        }
    }

    /// Sets the number of monitors: `mons`, or three in a fifth of the seeds. In a quarter of the seeds with several
    /// monitors all faults are faults of monitors.
    pub fn monitors(&mut self, mons: Option<usize>) {
        let r = &mut Rng::new(self.seed ^ 0x6d6f_6e69_746f_7273);
        let drawn = if r.chance(1, 5) { 3 } else { 1 };
        self.mons = mons.unwrap_or(drawn).clamp(1, MONS_MAX);
        if self.mons == 1 {
            return;
        }
        self.state = state::simulated::Faults {
            delay_max: pick(r, &[2 * MS, 20 * MS, 200 * MS]),
            lost_answer: pick(r, &[0, 5, 20]),
            lost_request: pick(r, &[0, 5, 20]),
            broken_watch: pick(r, &[0, 5, 20]),
            compaction: pick(r, &[0, 5, 20]),
            lost_lease: pick(r, &[0, 0, 0, 10]),
        };
        if !self.size.only.is_empty() {
            return;
        }
        if r.chance(1, 4) {
            self.faults.clear();
        } else if self.faults.is_empty() {
            return;
        }
        let some = OF_MONITORS.iter().copied().filter(|f| !self.faults.contains(f)).filter(|_| r.chance(1, 2));
        let some: Vec<Fault> = some.collect();
        self.faults.extend(some);
        if self.faults.is_empty() {
            self.faults.push(Fault::MonCrash);
        }
        self.osd.log_records = log_records(self.seed, &self.faults);
    }

    /// Sets the number of MDS daemons: the given one, or two or three in an eighth of the seeds whose pool has copies.
    pub fn files(&mut self, mds: Option<usize>) {
        let r = &mut Rng::new(self.seed ^ 0x6669_6c65_7300);
        let drawn = if r.chance(1, 8) { 2 + r.below(2) as usize } else { 0 };
        self.mds = if self.pool.code.is_some() { 0 } else { mds.unwrap_or(drawn).min(MDS_MAX) };
        if self.mds == 0 || self.faults.is_empty() || !self.size.only.is_empty() {
            return;
        }
        self.faults.extend(OF_FILES.iter().filter(|_| r.chance(2, 3)));
    }

    /// Sets whether the OSDs compress all data: the given choice, or so in an eighth of the seeds.
    pub fn compression(&mut self, compress: Option<bool>) {
        let drawn = Rng::new(self.seed ^ 0x7061_636b_0000).chance(1, 8);
        self.osd.compress = compress.unwrap_or(drawn);
    }

    /// True if all faults are faults of monitors.
    #[must_use]
    pub fn only_monitors(&self) -> bool {
        self.mons > 1 && self.faults.iter().all(|f| OF_MONITORS.contains(f) || *f == Fault::StateLate)
    }

    /// Sets few objects, and clients with few but frequent operations, of which one only reads. Such clients notice
    /// faults that isolate an OSD together with them.
    pub fn watchful(&mut self) {
        (self.osd.reactors, self.osd.reactors_change) = (1, false);
        self.fault_every = 20 * SEC;
        self.work.objects = 3;
        self.work.clients = 3;
        self.work.readers = 1;
        // A client that is isolated with an OSD must not wait for other OSDs.
        self.pool.pgs = if self.pool.pgs > 8 { 4 } else { 1 };
        self.down_out = 600;
        self.work.think = SEC;
        self.work.bursts = false;
    }

    /// Cuts that outlast failure detection, and few objects, so that both sides of a cut use the same ones.
    pub fn long_cuts(&mut self) {
        self.fault_lasts = 80 * SEC;
        self.fault_every = 8 * SEC;
        self.work.objects = 3;
        self.work.clients = 3;
        self.work.think = 600 * SEC / self.size.ops.max(1) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Seed 880000068: a client heard no map for 18 s, because its monitor was apart from the others, and its write came
    /// again after more other writes than the log kept.
    #[test]
    fn logs_are_long_where_faults_of_monitors_cut_clients_off() {
        for seed in 0..400 {
            let mut o = Options::swarm(seed, Size::default());
            o.monitors(Some(3));
            let cut_off = o.faults.iter().any(|f| OF_MONITORS.contains(f));
            assert!(!cut_off || o.osd.log_records == LOG_RECORDS, "seed {seed}: {:?}", o.faults);
        }
    }

    #[test]
    fn a_quarter_of_the_seeds_has_an_erasure_coded_pool_and_the_others_keep_their_options() {
        let (mut shapes, mut chunks, mut coded) = (BTreeSet::new(), BTreeSet::new(), 0);
        for seed in 0..400 {
            let o = Options::swarm(seed, Size::default());
            if let Some(c) = o.pool.code {
                shapes.insert((c.k, c.m));
                chunks.insert(c.chunk);
                coded += 1;
                assert!(o.size.ops <= CODED_OPS_MAX && o.size.osds >= c.shards());
            } else {
                let before = Options::draw(seed, Size::default());
                assert_eq!(format!("{o:?}"), format!("{before:?}"));
            }
            let three = Options::swarm(seed, Size { copies: 3, ..Size::default() });
            assert_eq!((three.pool.code, three.pool.copies), (None, COPIES_MAX.min(3)));
        }
        assert!((80..=120).contains(&coded), "{coded} of 400");
        assert_eq!((shapes.len(), chunks.len()), (4, 3), "{shapes:?} {chunks:?}");
    }

    #[test]
    fn an_eighth_of_the_seeds_compresses_and_a_choice_counts() {
        let of = |seed, choice| {
            let mut o = Options::swarm(seed, Size::default());
            o.compression(choice);
            o.osd.compress
        };
        let drawn = (0..400).filter(|s| of(*s, None)).count();
        assert!((35..=65).contains(&drawn), "{drawn} of 400");
        assert!((0..40).all(|s| of(s, Some(true)) && !of(s, Some(false))));
    }
}
