//! Ledgers of some seconds, added up by pool, client, object and culprit. Everything in a window is bounded.

use super::{CAUSES, Cause, Ledger};
use crate::{EntityName, Mono, OsdId, PoolId};
use std::time::Duration;

/// Most pools, clients and other OSDs of a window.
const POOLS_MAX: usize = 16;
const CLIENTS_MAX: usize = 32;
const PEERS_MAX: usize = 64;
/// Most bytes of an object's name that are kept.
const NAME_MAX: usize = 56;

/// Time by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of operations.
    pub ops: u64,
    us: [u64; CAUSES],
}

impl Sums {
    /// Adds a ledger.
    pub fn add(&mut self, l: &Ledger) {
        self.ops += 1;
        for (c, us) in l.causes() {
            self.us[c as usize % CAUSES] += u64::from(us);
        }
    }

    /// Adds the sums of another window.
    pub fn merge(&mut self, o: &Self) {
        self.ops += o.ops;
        self.us.iter_mut().zip(&o.us).for_each(|(a, b)| *a += b);
    }

    /// Adds time that belongs to no single operation.
    pub fn charge(&mut self, c: Cause, us: u64) {
        self.us[c as usize % CAUSES] += us;
    }

    /// Microseconds of a cause.
    #[must_use]
    pub fn us(&self, c: Cause) -> u64 {
        self.us[c as usize % CAUSES]
    }

    /// Microseconds in the OSD: all causes but the client's own.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.us.iter().sum::<u64>() - self.us(Cause::Client)
    }
}

/// CPU of a reactor's thread and of its surroundings, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Time in which the samples were taken.
    pub wall: u64,
    /// The thread ran.
    pub ran: u64,
    /// The thread was ready to run, but another one had the CPU.
    pub waited: u64,
    /// The quota of the cgroup stopped its threads.
    pub throttled: u64,
    /// The hypervisor gave the CPUs to others, mean of all CPUs.
    pub steal: u64,
}

impl Cpu {
    /// Adds another sample.
    pub fn add(&mut self, o: &Self) {
        self.wall += o.wall;
        self.ran += o.ran;
        self.waited += o.waited;
        self.throttled += o.throttled;
        self.steal += o.steal;
    }
}

/// TCP of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// Segments sent.
    pub sent: u64,
    /// Segments sent again.
    pub again: u64,
}

impl Net {
    /// Adds another sample.
    pub fn add(&mut self, o: &Self) {
        self.sent += o.sent;
        self.again += o.again;
    }
}

/// Writes that another OSD acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Number of acknowledgements.
    pub acks: u64,
    /// Microseconds from sending to acknowledgement.
    pub us: u64,
    /// The longest.
    pub max_us: u64,
    /// Microseconds for which operations waited for this OSD alone.
    pub blamed_us: u64,
}

impl Peer {
    /// Adds the figures of another window.
    pub fn merge(&mut self, o: &Self) {
        self.acks += o.acks;
        self.us += o.us;
        self.max_us = self.max_us.max(o.max_us);
        self.blamed_us += o.blamed_us;
    }
}

/// Name of an object, cut to a fixed length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    len: u8,
    bytes: [u8; NAME_MAX],
}

impl Name {
    pub(super) fn new(of: &[u8]) -> Self {
        let cut = Self::cut(of);
        let mut bytes = [0; NAME_MAX];
        bytes[..cut.len()].copy_from_slice(cut);
        Self { len: cut.len() as u8, bytes }
    }

    /// The part of a name that is kept.
    fn cut(of: &[u8]) -> &[u8] {
        &of[..of.len().min(NAME_MAX)]
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..usize::from(self.len)]).into_owned()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

/// Operations on one object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pool: PoolId,
    name: Name,
    /// Number of operations; less than the true one for objects that are not among the most used.
    pub ops: u64,
    /// Microseconds that they waited for the object's lock.
    pub lock_us: u64,
    /// Operations that a class refused with `EBUSY`: another client holds a lock.
    pub busy: u64,
}

impl Object {
    pub(super) fn new(pool: PoolId, name: &[u8]) -> Self {
        Self { pool, name: Name::new(name), ops: 0, lock_us: 0, busy: 0 }
    }

    /// The object with this number of operations.
    pub(super) fn with_ops(self, ops: u64) -> Self {
        Self { ops, ..self }
    }

    /// True for the object with this name, as far as names are kept.
    pub(super) fn is(&self, pool: PoolId, name: &[u8]) -> bool {
        self.pool == pool && self.name.bytes[..usize::from(self.name.len)] == *Name::cut(name)
    }

    /// The object's pool.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// The object's name, of which the end may be cut.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.text()
    }
}

/// Ledgers of some seconds; see the module.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Its begin.
    pub from: Mono,
    /// All operations.
    pub all: Sums,
    /// By pool.
    pub pools: Vec<(PoolId, Sums)>,
    /// Clients with the most time. Those that had no place are in `others`.
    pub clients: Vec<(EntityName, Sums)>,
    /// Clients without a place of their own.
    pub others: Sums,
    /// Objects with the most operations.
    pub objects: Vec<Object>,
    /// Other OSDs that have copies of the PGs led here.
    pub peers: Vec<(OsdId, Peer)>,
    /// Timed flushes of this OSD's device; as a [`Peer`] without blame.
    pub device: Peer,
    /// CPU of the reactor.
    pub cpu: Cpu,
    /// TCP of the host; one reactor measures it for all.
    pub net: Net,
}

/// The entry of `key`, made if there is room.
fn entry<K: Copy + PartialEq, V: Default>(of: &mut Vec<(K, V)>, key: K, max: usize) -> Option<&mut V> {
    let i = match of.iter().position(|(k, _)| *k == key) {
        Some(i) => i,
        None if of.len() < max => {
            of.push((key, V::default()));
            of.len() - 1
        }
        None => return None,
    };
    of.get_mut(i).map(|(_, v)| v)
}

impl Window {
    /// Empties the window; its memory stays.
    pub(super) fn begin(&mut self, from: Mono) {
        self.from = from;
        (self.all, self.others, self.device, self.cpu, self.net) = Default::default();
        self.pools.clear();
        self.clients.clear();
        self.objects.clear();
        self.peers.clear();
    }

    pub(super) fn add(&mut self, pool: PoolId, client: EntityName, l: &Ledger) {
        self.all.add(l);
        if let Some(s) = entry(&mut self.pools, pool, POOLS_MAX) {
            s.add(l);
        }
        self.client(client).add(l);
        if let Some(osd) = l.behind()
            && let Some(p) = entry(&mut self.peers, osd, PEERS_MAX)
        {
            p.blamed_us += u64::from(l.us(Cause::Replica));
        }
    }

    /// The client's sums. A client without a place takes that of the one with the least time.
    fn client(&mut self, client: EntityName) -> &mut Sums {
        let known = self.clients.iter().position(|(c, _)| *c == client);
        let at = known.unwrap_or_else(|| {
            if self.clients.len() < CLIENTS_MAX {
                self.clients.push((client, Sums::default()));
                return self.clients.len() - 1;
            }
            let least = self.clients.iter().enumerate().min_by_key(|(_, (_, s))| s.total_us()).map_or(0, |(i, _)| i);
            if let Some(slot) = self.clients.get_mut(least) {
                self.others.merge(&slot.1);
                *slot = (client, Sums::default());
            }
            least
        });
        match self.clients.get_mut(at) {
            Some((_, s)) => s,
            None => &mut self.others,
        }
    }

    pub(super) fn acked(&mut self, osd: OsdId, took: Duration) {
        if let Some(p) = entry(&mut self.peers, osd, PEERS_MAX) {
            let us = took.as_micros() as u64;
            p.merge(&Peer { acks: 1, us, max_us: us, blamed_us: 0 });
        }
    }

    /// Adds another window's figures.
    pub fn merge(&mut self, o: &Self) {
        self.from = if self.all.ops == 0 { o.from } else { self.from.min(o.from) };
        self.all.merge(&o.all);
        self.others.merge(&o.others);
        self.device.merge(&o.device);
        self.cpu.add(&o.cpu);
        self.net.add(&o.net);
        for (k, v) in &o.pools {
            if let Some(s) = entry(&mut self.pools, *k, usize::MAX) {
                s.merge(v);
            }
        }
        for (k, v) in &o.clients {
            if let Some(s) = entry(&mut self.clients, *k, usize::MAX) {
                s.merge(v);
            }
        }
        for (k, v) in &o.peers {
            if let Some(p) = entry(&mut self.peers, *k, usize::MAX) {
                p.merge(v);
            }
        }
        self.objects(o.objects.iter().copied());
    }

    /// Adds operations on objects.
    pub(super) fn objects(&mut self, all: impl Iterator<Item = Object>) {
        for b in all {
            match self.objects.iter_mut().find(|a| a.pool == b.pool && a.name == b.name) {
                Some(a) => {
                    a.ops += b.ops;
                    a.lock_us += b.lock_us;
                    a.busy += b.busy;
                }
                None => self.objects.push(b),
            }
        }
    }
}
