//! Rates: differences of sums over the last samples.

use base::{Mono, PoolId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::types::{ObjectStatSum, PoolStat};

/// Number of samples. At one every five seconds, rates cover half a minute (`mon_stat_smooth_intervals`).
const SAMPLES: usize = 7;

/// Client and recovery I/O per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub write_bytes: u64,
    /// Client reads.
    pub read_ops: u64,
    /// Client writes.
    pub write_ops: u64,
    /// Bytes recovered.
    pub recovering_bytes: u64,
    /// Keys recovered.
    pub recovering_keys: u64,
    /// Objects recovered.
    pub recovering_objects: u64,
}

impl Rate {
    /// True if clients had any I/O.
    #[must_use]
    pub fn client_io(&self) -> bool {
        self.read_bytes + self.write_bytes + self.read_ops + self.write_ops > 0
    }

    /// True if there was any recovery I/O.
    #[must_use]
    pub fn recovery(&self) -> bool {
        self.recovering_bytes + self.recovering_keys + self.recovering_objects > 0
    }
}

/// Bytes recovered within the window from which a rate is taken for the cluster's own.
const MEASURED_MIN: i64 = 64 << 20;
/// Time without recovery after which the next one is measured anew.
const MEASURED_GAP: Duration = Duration::from_secs(60);

/// The highest rate of the last recovery of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes a second.
    pub bytes_per_sec: u64,
    /// Time of its last sample.
    pub at: Mono,
}

#[derive(Debug)]
struct Sample {
    at: Mono,
    sum: ObjectStatSum,
    pools: BTreeMap<PoolId, ObjectStatSum>,
}

/// Samples for rates.
#[derive(Debug, Default)]
pub struct Rates {
    samples: VecDeque<Sample>,
    /// PGs with statistics at the newest sample.
    pgs: usize,
    recovered: Option<Recovered>,
}

impl Rates {
    /// Adds a sample of the sums over `pgs` PGs. Earlier samples do not count if there are more PGs than before: the
    /// first report of a PG has the totals of its whole life, as all have after a start.
    pub fn sample(&mut self, at: Mono, sum: &PoolStat, pools: &BTreeMap<PoolId, PoolStat>, pgs: usize) {
        if pgs > self.pgs {
            self.samples.clear();
        }
        self.pgs = pgs;
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        let pools = pools.iter().map(|(p, s)| (*p, s.stats.sum)).collect();
        self.samples.push_back(Sample { at, sum: sum.stats.sum, pools });
        self.measure(at);
    }

    /// Keeps the rate of a recovery of some size.
    fn measure(&mut self, at: Mono) {
        let (delta, seconds) = self.delta();
        if seconds <= 0.0 || delta.stats.sum.num_bytes_recovered < MEASURED_MIN {
            return;
        }
        let bytes_per_sec = (delta.stats.sum.num_bytes_recovered as f64 / seconds) as u64;
        let goes_on = self.recovered.filter(|r| at.since(r.at) < MEASURED_GAP).map_or(0, |r| r.bytes_per_sec);
        self.recovered = Some(Recovered { bytes_per_sec: bytes_per_sec.max(goes_on), at });
    }

    /// The measured rate of the last recovery; `None` if there was none of some size since the start.
    #[must_use]
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered
    }

    /// Difference of the newest and the oldest sample, and the seconds between them.
    #[must_use]
    pub fn delta(&self) -> (PoolStat, f64) {
        let mut p = PoolStat::default();
        let (Some(a), Some(b)) = (self.samples.front(), self.samples.back()) else { return (p, 0.0) };
        p.stats.sum = b.sum;
        p.stats.sum.sub(&a.sum);
        (p, b.at.since(a.at).as_secs_f64())
    }

    /// Rates of a pool, or of the cluster for `None`.
    #[must_use]
    pub fn rate(&self, pool: Option<PoolId>) -> Rate {
        let (Some(a), Some(b)) = (self.samples.front(), self.samples.back()) else { return Rate::default() };
        let seconds = b.at.since(a.at).as_secs_f64();
        let pick = |s: &Sample| match pool {
            Some(p) => s.pools.get(&p).copied(),
            None => Some(s.sum),
        };
        // A pool that is new in the window: everything counts from its creation.
        let (old, Some(new)) = (pick(a).unwrap_or_default(), pick(b)) else { return Rate::default() };
        if seconds <= 0.0 {
            return Rate::default();
        }
        // Sums shrink when a pool or PG is removed; the rate is then zero.
        let per = |f: fn(&ObjectStatSum) -> i64| ((f(&new) - f(&old)).max(0) as f64 / seconds) as u64;
        Rate {
            read_bytes: per(|s| s.num_rd_kb << 10),
            write_bytes: per(|s| s.num_wr_kb << 10),
            read_ops: per(|s| s.num_rd),
            write_ops: per(|s| s.num_wr),
            recovering_bytes: per(|s| s.num_bytes_recovered),
            recovering_keys: per(|s| s.num_keys_recovered),
            recovering_objects: per(|s| s.num_objects_recovered),
        }
    }
}
