//! The evidence: measurements of the daemons, as a collector gathers them. All fields may be missing, since daemons of
//! other releases do not report them.

use crate::placement::Placement;
use serde::Deserialize;
use std::collections::BTreeMap;

/// CPU of a reactor's thread over the span, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Cpu {
    /// Time in which the samples were taken.
    pub wall_us: u64,
    /// The thread ran.
    pub ran_us: u64,
    /// The thread was ready, and another one had the CPU.
    pub waited_us: u64,
    /// The cgroup's quota stopped threads.
    pub throttled_us: u64,
    /// The hypervisor gave the CPUs to others.
    pub steal_us: u64,
}

impl Cpu {
    /// A part of the time in which samples were taken.
    #[must_use]
    pub fn part(&self, us: u64) -> f64 {
        if self.wall_us == 0 { 0.0 } else { us as f64 / self.wall_us as f64 }
    }
}

/// Flushes of a device.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Device {
    /// Number of timed flushes.
    pub writes: u64,
    /// Their summed time.
    pub us: u64,
    /// The longest.
    pub max_us: u64,
    /// Age of the oldest request without an answer.
    pub pending_us: u64,
}

impl Device {
    /// Mean time of a flush in milliseconds. A request without an answer counts with its age.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        let (n, us) = (self.writes + u64::from(self.pending_us > 0), self.us + self.pending_us);
        if n == 0 { 0.0 } else { us as f64 / n as f64 / 1000.0 }
    }
}

/// TCP of a host (network namespace) over the span, and its interfaces.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Network {
    /// Segments sent.
    pub sent: u64,
    /// Segments sent again.
    pub again: u64,
    /// MTU of the interfaces that have its addresses.
    pub mtu: BTreeMap<String, u32>,
}

/// Another OSD, as a primary sees it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Peer {
    /// Its number.
    pub osd: i32,
    /// Acknowledged writes.
    pub acks: u64,
    /// Summed time from sending to acknowledgement.
    pub us: u64,
    /// The longest.
    pub max_us: u64,
    /// Time for which operations waited for it alone.
    pub blamed_us: u64,
}

/// Time by cause of one client.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Client {
    /// Its name.
    pub client: String,
    /// Number of operations.
    pub ops: u64,
    /// Microseconds by cause.
    pub us: BTreeMap<String, u64>,
}

/// Time by cause of one pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct PoolTime {
    /// Number of the pool.
    pub pool: i64,
    /// Number of operations.
    pub ops: u64,
    /// Microseconds by cause.
    pub us: BTreeMap<String, u64>,
}

/// An object among the most used.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Object {
    /// Number of the pool.
    pub pool: i64,
    /// Name.
    pub object: String,
    /// Number of operations.
    pub ops: u64,
    /// Microseconds of waiting for its lock.
    pub lock_us: u64,
}

/// An object with calls that were refused with `EBUSY`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Refused {
    /// Number of the pool.
    pub pool: i64,
    /// Name.
    pub object: String,
    /// Number of refused calls.
    pub calls: u64,
}

/// Operations without an answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Waiting {
    /// Name of the cause.
    pub cause: String,
    /// Number of operations.
    pub ops: u64,
    /// Their summed age in microseconds.
    pub us: u64,
    /// Age of the oldest in seconds.
    pub oldest: f64,
    /// The OSD they wait for, if it is another one.
    pub behind: Option<i32>,
}

/// Space of an OSD, as it judges it itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Space {
    /// True while the OSD accepts no growing writes.
    pub short: bool,
    /// Bytes of its store.
    pub total: u64,
    /// Free bytes of its store, holes of its file included.
    pub available: u64,
    /// Bytes of the holes for which the file system of its file has no room; 0 for a device.
    pub lacks: u64,
    /// Free bytes of that file system.
    pub free: u64,
}

/// Answer of an OSD to `dump_ledger`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Osd {
    /// Its number.
    pub osd: i32,
    /// Its host.
    pub host: String,
    /// Length of the span in seconds.
    pub seconds: f64,
    /// Seconds that its clock is ahead of the collector's, beyond what the round trip explains.
    pub clock_ahead: f64,
    /// Operations answered.
    pub ops: u64,
    /// Microseconds by cause.
    pub us: BTreeMap<String, u64>,
    /// Operations of the last ten minutes.
    pub long_ops: u64,
    /// Their microseconds.
    pub long_us: u64,
    /// By pool.
    pub pools: Vec<PoolTime>,
    /// By client.
    pub clients: Vec<Client>,
    /// Objects with the most operations.
    pub objects: Vec<Object>,
    /// Objects with refused calls.
    pub refused: Vec<Refused>,
    /// Other OSDs.
    pub peers: Vec<Peer>,
    /// Operations without an answer.
    pub waiting: Vec<Waiting>,
    /// Its device.
    pub device: Device,
    /// Its reactors.
    pub reactors: Vec<Cpu>,
    /// Its host's network.
    pub network: Network,
    /// Its space.
    pub space: Space,
}

impl Osd {
    /// Microseconds of a cause.
    #[must_use]
    pub fn cause(&self, name: &str) -> u64 {
        self.us.get(name).copied().unwrap_or(0)
    }

    /// The largest part of its time that a reactor spent so.
    #[must_use]
    pub fn worst(&self, us: impl Fn(&Cpu) -> u64) -> f64 {
        self.reactors.iter().map(|c| c.part(us(c))).fold(0.0, f64::max)
    }

    /// True if its reactors lack CPU, so that every time it measures is too long.
    #[must_use]
    pub fn lacks_cpu(&self) -> bool {
        self.worst(|c| c.waited_us) >= crate::rules::WAITED_MIN
            || self.worst(|c| c.throttled_us) >= crate::rules::THROTTLED_MIN
    }
}

/// A health check.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Check {
    /// Its code.
    pub code: String,
    /// Its summary.
    pub summary: String,
    /// Its details.
    pub detail: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Pool {
    /// Number.
    pub pool: i64,
    /// Name.
    pub name: String,
    /// True while it takes no writes for lack of space or for its quota.
    pub full: bool,
    /// True while it has reached its quota.
    pub quota: bool,
}

/// Kind of a PG's background work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A deep scrub.
    DeepScrub,
    /// Recovery or backfill.
    Recovery,
    /// The PG serves no operations.
    Inactive,
}

/// Background work of a PG, or its absence from service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Background {
    /// Name of the PG.
    pub pg: String,
    /// Its state.
    pub state: String,
    /// Kind.
    pub activity: Activity,
    /// OSDs that take part.
    pub osds: Vec<i32>,
    /// Places that CRUSH finds for a PG that does not serve.
    #[serde(default)]
    pub placement: Placement,
}

/// A lock on an object that made calls of other clients fail.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Lock {
    /// Number of the pool.
    pub pool: i64,
    /// Name of the object.
    pub object: String,
    /// Name of the lock.
    pub name: String,
    /// The holder's word for it.
    pub cookie: String,
    /// Holder.
    pub owner: String,
    /// Address of the holder.
    pub addr: String,
    /// True if the lock ends at a time, unless its holder renews it.
    pub expires: bool,
    /// True if the holder watches the object, as live holders of RBD locks do.
    pub watches: bool,
}

/// A monitor.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Mon {
    /// Its name.
    pub name: String,
    /// Seconds that its clock differs from the leader's.
    pub skew: f64,
}

/// Measurements of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Evidence {
    /// OSDs that answered.
    pub osds: Vec<Osd>,
    /// OSDs that are up and did not answer.
    pub silent: Vec<i32>,
    /// Health checks.
    pub health: Vec<Check>,
    /// Pools.
    pub pools: Vec<Pool>,
    /// PGs with background work, and PGs that do not serve.
    pub background: Vec<Background>,
    /// Bytes a second that recovery moves.
    pub recovery_rate: f64,
    /// Locks on objects with refused calls.
    pub locks: Vec<Lock>,
    /// Monitors.
    pub mons: Vec<Mon>,
    /// Part of an OSD's space in use from which the map shows it full; 0 if unknown.
    pub full_ratio: f64,
    /// The same for backfill.
    pub backfillfull_ratio: f64,
}

impl Evidence {
    /// Name of a pool, or its number.
    #[must_use]
    pub fn pool_name(&self, pool: i64) -> String {
        self.pools.iter().find(|p| p.pool == pool).map_or_else(|| format!("pool {pool}"), |p| p.name.clone())
    }

    /// OSDs that run for a shorter time than the span, with that time in seconds: a start loses what was measured before.
    #[must_use]
    pub fn young(&self) -> Vec<(i32, u64)> {
        let age = |o: &Osd| o.reactors.iter().map(|c| c.wall_us).max().map(|us| (o.osd, us / 1_000_000));
        let is_young = |o: &&Osd| age(o).is_some_and(|(_, s)| s as f64 + YOUNG_BY < o.seconds);
        self.osds.iter().filter(is_young).filter_map(age).collect()
    }

    /// The sentence about them; empty if there are none.
    #[must_use]
    pub fn young_text(&self) -> String {
        let all = self.young();
        let Some(longest) = all.iter().map(|(_, s)| *s).max() else { return String::new() };
        let names: Vec<String> = all.iter().take(4).map(|(o, _)| format!("osd.{o}")).collect();
        let more =
            if all.len() > names.len() { format!(" and {} more", all.len() - names.len()) } else { String::new() };
        format!("{}{more} started {longest} s ago or later: what was before is not known", names.join(", "))
    }
}

/// Seconds by which the measured time may be shorter than the span: three of the parts of five seconds in which measurements
/// are kept.
const YOUNG_BY: f64 = 15.0;
