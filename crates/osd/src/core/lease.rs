//! Read leases between OSDs, which let the primary of a PG answer reads without asking the other members.
//!
//! An OSD that leads PGs requests a lease from every other OSD of their acting sets, for all PGs at once, over
//! the control lane. The primary may answer reads of a PG until the earliest `readable_until` of the PG's other
//! OSDs. The granting OSD remembers the end of its grants, so that the next primary can wait that long before
//! it serves. This machine requests and grants leases; a PG checks them before each operation (`pg::pg::mail::admit`
//! in the crate `pg`).
//!
//! Invariants:
//!  1. A lease counts from the time its request was sent, by the requester's own clock; clocks are never
//!     compared. Their rates may differ, so the requester counts the lease shorter
//!     ([`pg::limits::READ_LEASE_MARGIN`]) than the granter.
//!  2. A grant carries the granter's map epoch, and counts only once the requester has processed that epoch. So
//!     an OSD that grants after it saw a PG move has thereby told the old primary.
//!  3. [`Leases::granted_until`] is never before the end of any lease that this OSD granted, also before a
//!     restart.
//!  4. PGs get grants before any later map: both go through the same ordered outputs.
//!
//! Tests: those of this file; `crates/sim/src/node/promises.rs` watches the third.

use base::id::Uuid;
use base::planted::{Bug, acts};
use base::{Epoch, Mono, Now, OsdId};
use cluster::OsdMap;
use pg::lease::{Held, LeaseUpdate};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::{MOsdLease, lease_op};
use wire::types::Span;

/// `osd_heartbeat_grace` times `osd_pool_default_read_lease_ratio`.
pub const LEASE: Duration = pg::limits::READ_LEASE;
/// Default of `osd_pool_default_read_lease_ratio`.
pub const RATIO: f64 = 0.8;
/// Longest lease, whatever is configured. After a start, PGs assume that no lease is longer.
pub const LEASE_MAX: Duration = pg::limits::READ_LEASE;
/// Renewals per lease. All but one may be lost.
const RENEWALS: u32 = 4;
/// First pause before a request is repeated without a lease; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Most grants of a peer held back until their map arrives.
const HELD_MAX: usize = 8;

/// Actions for the host, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send over the control lane, if it is connected.
    Send(OsdId, MOsdLease),
    /// This OSD backs our reads until that time, by a grant of this epoch.
    Readable(OsdId, Mono, Epoch),
    /// This OSD has a lease from us until that time.
    Granted(OsdId, Mono),
    /// A grant waits for this map.
    WantMap(Epoch),
}

impl Output {
    /// News of a lease for the PGs, if this is any.
    #[must_use]
    pub fn news(&self) -> Option<LeaseUpdate> {
        match *self {
            Self::Readable(osd, until, epoch) => Some(LeaseUpdate::Held(osd, Held { until, epoch })),
            Self::Granted(osd, until) => Some(LeaseUpdate::Granted(osd, until)),
            Self::Send(..) | Self::WantMap(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Asked {
    up_from: Epoch,
    readable_until: Mono,
    /// Grants whose epoch is not processed yet: epoch and end.
    held: Vec<(Epoch, Mono)>,
    next: Mono,
    pause: Duration,
}

/// Leases of one OSD; see the module.
#[derive(Clone, Debug)]
pub struct Leases {
    fsid: Uuid,
    lease: Duration,
    born: Mono,
    /// Time until which a grant of an earlier instance may be in use.
    before: Mono,
    epoch: Epoch,
    up_from: Epoch,
    asked: BTreeMap<OsdId, Asked>,
    granted: BTreeMap<OsdId, Mono>,
    out: Vec<Output>,
}

/// Time for which the holder may count on a lease of this length ([`pg::limits::READ_LEASE_MARGIN`]).
fn counted(lease: Duration) -> Duration {
    let margin = if acts(Bug::LeaseWithoutMargin) { Duration::ZERO } else { lease / pg::limits::READ_LEASE_MARGIN };
    lease.saturating_sub(margin)
}

fn span(m: Mono) -> Span {
    Span(i64::try_from(m.0).unwrap_or(i64::MAX))
}

impl Leases {
    /// A machine without leases.
    #[must_use]
    pub fn new(fsid: Uuid) -> Self {
        Self {
            fsid,
            lease: LEASE,
            born: Mono(0),
            before: Mono(0),
            epoch: Epoch(0),
            up_from: Epoch(0),
            asked: BTreeMap::new(),
            granted: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// Starts the machine, at or shortly after the start of the process. All grants of an earlier instance to
    /// the OSDs of the stored map count as in use for the length of a lease.
    pub fn start(&mut self, stored: Option<&OsdMap>, now: Now) {
        self.born = now.mono;
        self.before = now.mono + self.lease;
        for o in stored.into_iter().flat_map(OsdMap::osds) {
            self.out.push(Output::Granted(o, self.granted_until(o)));
        }
    }

    /// Sets the length of a lease, at most [`LEASE_MAX`]. Other OSDs may use another length: the requester
    /// counts the shorter one, the granter its own.
    pub fn set_lease(&mut self, lease: Duration) {
        self.lease = lease.min(LEASE_MAX);
        self.before = self.before.max(self.born + self.lease);
    }

    /// Length of a lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Takes the pending actions.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Handles a map that was handed to the PGs. `up_from` is our own, 0 while the map does not show us up.
    pub fn handle_map(&mut self, map: &OsdMap, up_from: Epoch, now: Now) {
        self.epoch = self.epoch.max(map.epoch);
        if self.up_from != up_from {
            self.up_from = up_from;
            for a in self.asked.values_mut() {
                *a = Asked { up_from: a.up_from, next: now.mono, ..Asked::default() };
            }
        }
        for (osd, a) in &mut self.asked {
            let theirs = map.info(*osd).up_from;
            if a.up_from != theirs {
                // The peer is a new instance; grants of the earlier one belong to earlier intervals.
                *a = Asked { up_from: theirs, next: now.mono, ..Asked::default() };
            }
            let epoch = self.epoch;
            let ready = a.held.iter().filter(|(e, _)| *e <= epoch).max_by_key(|(_, t)| *t).copied();
            a.held.retain(|(e, _)| *e > epoch);
            if let Some((e, t)) = ready.filter(|(_, t)| *t > a.readable_until) {
                a.readable_until = t;
                self.out.push(Output::Readable(*osd, t, e));
            }
        }
    }

    /// Sets the OSDs that share PGs led here. New ones are asked at once.
    pub fn set_peers(&mut self, peers: &BTreeSet<OsdId>, map: &OsdMap, now: Now) {
        self.asked.retain(|o, _| peers.contains(o));
        for o in peers {
            let up_from = map.info(*o).up_from;
            self.asked.entry(*o).or_insert_with(|| Asked { up_from, next: now.mono, ..Asked::default() });
        }
        self.tick(now);
    }

    /// Handles the opened control lane to an OSD: a lost request is repeated.
    pub fn handle_open(&mut self, osd: OsdId, now: Now) {
        if let Some(a) = self.asked.get_mut(&osd)
            && a.readable_until <= now.mono
        {
            a.next = now.mono;
            a.pause = Duration::ZERO;
        }
        self.tick(now);
    }

    /// Time of the next [`Leases::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.up_from == Epoch(0) {
            return None;
        }
        self.asked.values().map(|a| a.next).min()
    }

    /// Handles elapsed time: sends the requests that are due.
    pub fn tick(&mut self, now: Now) {
        if self.up_from == Epoch(0) {
            return;
        }
        let (fsid, epoch, up_from, lease) = (self.fsid, self.epoch, self.up_from, self.lease);
        for (osd, a) in self.asked.iter_mut().filter(|(_, a)| a.next <= now.mono) {
            a.pause = if a.readable_until > now.mono {
                lease / RENEWALS
            } else {
                (a.pause * 2).clamp(RETRY_MIN, RETRY_MAX.min(lease / RENEWALS).max(RETRY_MIN))
            };
            a.next = now.mono + a.pause;
            let m = MOsdLease {
                fsid,
                op: lease_op::REQUEST,
                map_epoch: epoch,
                up_from,
                asker_up_from: up_from,
                sent: span(now.mono),
                lease: lease.into(),
            };
            self.out.push(Output::Send(*osd, m));
        }
    }

    /// Answers an OSD's request, if it gets a lease. An OSD that our map shows down, or as another instance,
    /// gets none; the caller sends it the missing maps.
    pub fn handle_request(&mut self, from: OsdId, m: &MOsdLease, map: &OsdMap, now: Now) -> Option<MOsdLease> {
        if m.fsid != self.fsid || m.op != lease_op::REQUEST || self.up_from == Epoch(0) {
            return None;
        }
        let known = map.info(from).up_from;
        let other = if map.is_up(from) { known != m.up_from } else { true };
        // A request with a newer map comes from an instance that our map does not know yet.
        if other && (map.epoch >= m.map_epoch || known > m.up_from) && !acts(Bug::LeaseWithoutEpoch) {
            return None;
        }
        let until = now.mono + self.lease;
        let slot = self.granted.entry(from).or_insert(until);
        *slot = (*slot).max(until);
        self.out.push(Output::Granted(from, *slot));
        Some(MOsdLease {
            fsid: self.fsid,
            op: lease_op::GRANT,
            map_epoch: map.epoch,
            up_from: self.up_from,
            asker_up_from: m.asker_up_from,
            sent: m.sent,
            lease: self.lease.into(),
        })
    }

    /// Handles a grant.
    pub fn handle_grant(&mut self, from: OsdId, m: &MOsdLease, now: Now) {
        let Some(a) = self.asked.get_mut(&from) else { return };
        let sent = Mono(u64::try_from(m.sent.0).unwrap_or(0));
        let ours = m.op == lease_op::GRANT && m.fsid == self.fsid && m.asker_up_from == self.up_from;
        if !ours || sent > now.mono || m.up_from != a.up_from {
            return;
        }
        let until = sent + counted(self.lease.min(m.lease.to_duration()));
        if m.map_epoch > self.epoch && !acts(Bug::LeaseWithoutEpoch) {
            if a.held.len() >= HELD_MAX {
                // The newest grants are the useful ones.
                a.held.remove(0);
            }
            a.held.push((m.map_epoch, until));
            self.out.push(Output::WantMap(m.map_epoch));
        } else if until > a.readable_until {
            a.readable_until = until;
            self.out.push(Output::Readable(from, until, m.map_epoch));
        }
        a.next = now.mono + self.lease / RENEWALS;
        a.pause = Duration::ZERO;
    }

    /// Time until which this OSD backs our reads; in the past if it does not.
    #[must_use]
    pub fn readable_until(&self, osd: OsdId) -> Mono {
        self.asked.get(&osd).map_or(Mono(0), |a| a.readable_until)
    }

    /// Time until which a lease that we granted to this OSD may be in use.
    #[must_use]
    pub fn granted_until(&self, osd: OsdId) -> Mono {
        // Grants of our earlier instance are not remembered one by one.
        self.granted.get(&osd).map_or(self.before, |g| (*g).max(self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntityAddr, Utime};
    use cluster::Incremental;

    const FSID: Uuid = Uuid([1; 16]);
    const A: OsdId = OsdId(0);
    const B: OsdId = OsdId(1);

    fn at(ms: u64) -> Now {
        Now { mono: Mono(1_000_000_000_000 + ms * 1_000_000), wall: Utime { sec: 1000, nsec: 0 } }
    }

    fn step(map: &OsdMap, f: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = Incremental::new(FSID, map.epoch.next(), Utime { sec: 1, nsec: 0 });
        f(&mut inc);
        map.apply(&inc).unwrap()
    }

    fn up(inc: &mut Incremental, o: OsdId) {
        let a: base::AddrVec = EntityAddr::msgr2(([127, 0, 0, 1], 6800 + o.0 as u16).into(), 1).into();
        inc.new_up_client.insert(o, a.clone());
        inc.new_up_cluster.insert(o, a.clone());
        inc.new_hb_back_up.insert(o, a.clone());
        inc.new_hb_front_up.insert(o, a);
    }

    /// Maps up to epoch 2, in which both OSDs are up.
    fn map() -> OsdMap {
        let mut m = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
        m.set_max_osd(3).unwrap();
        step(&m, |i| {
            up(i, A);
            up(i, B);
        })
    }

    fn pair(m: &OsdMap) -> (Leases, Leases) {
        let (mut a, mut b) = (Leases::new(FSID), Leases::new(FSID));
        a.handle_map(m, m.info(A).up_from, at(0));
        b.handle_map(m, m.info(B).up_from, at(0));
        (a, b)
    }

    fn request(b: &mut Leases) -> MOsdLease {
        let out = b.take_outputs();
        out.iter()
            .find_map(|o| if let Output::Send(A, m) = o { Some(m.clone()) } else { None })
            .unwrap_or_else(|| panic!("no request in {out:?}"))
    }

    /// With clock rates that differ by a hundredth, the holder's lease ends before the granter's, and before
    /// that of a new primary that waits by its own clock.
    #[test]
    fn no_difference_of_clock_rates_lets_a_lease_outlast_the_granters() {
        let m = map();
        for (holder, granter, waiter) in [(990, 1010, 1010), (1010, 990, 1010), (990, 990, 1010), (1000, 1010, 990)] {
            // Reading of a clock with this rate, in thousandths, after some milliseconds.
            let shows = |ms: u64, rate: u64| at(ms * rate / 1000);
            let (mut a, mut b) = pair(&m);
            b.set_peers(&BTreeSet::from([A]), &m, shows(1000, holder));
            let r = request(&mut b);
            let g = a.handle_request(B, &r, &m, shows(1000, granter)).unwrap();
            b.handle_grant(A, &g, shows(1000, holder));
            let ended = |t: Mono, rate: u64| (0..40_000).find(|ms| shows(*ms, rate).mono >= t).unwrap();
            let (held, given) = (ended(b.readable_until(A), holder), ended(a.granted_until(B), granter));
            assert!(held < given, "held until {held} ms, given until {given} ms");
            // Half of the lease was over when the next primary heard how long it lasts.
            let heard = 1000 + (given - 1000) / 2;
            let left = a.granted_until(B) - shows(heard, granter).mono;
            let over = ended(shows(heard, waiter).mono + left, waiter);
            assert!(held < over, "held until {held} ms, waited for until {over} ms");
        }
    }

    #[test]
    fn a_lease_counts_from_its_request() {
        let m = map();
        let (mut a, mut b) = pair(&m);
        b.set_peers(&BTreeSet::from([A]), &m, at(1000));
        let r = request(&mut b);
        let g = a.handle_request(B, &r, &m, at(1400)).unwrap();
        assert_eq!(a.take_outputs(), vec![Output::Granted(B, at(17_400).mono)]);
        b.handle_grant(A, &g, at(1800));
        assert_eq!(b.take_outputs(), vec![Output::Readable(A, at(16_500).mono, Epoch(2))]);
        assert!(a.granted_until(B) >= b.readable_until(A), "the granter waits at least as long");
        assert_eq!(b.next_deadline(), Some(at(5800).mono), "renewed at a quarter of the lease");
    }

    #[test]
    fn a_grant_of_a_newer_epoch_waits_for_that_map() {
        let m2 = map();
        let (mut a, mut b) = pair(&m2);
        b.set_peers(&BTreeSet::from([A]), &m2, at(0));
        let r = request(&mut b);
        // The PG may have moved in epoch 3, which A has seen.
        let m3 = step(&m2, |i| i.new_max_osd = 4);
        a.handle_map(&m3, m3.info(A).up_from, at(10));
        let g = a.handle_request(B, &r, &m3, at(10)).unwrap();
        b.handle_grant(A, &g, at(20));
        assert_eq!(b.take_outputs(), vec![Output::WantMap(Epoch(3))]);
        assert_eq!(b.readable_until(A), Mono(0), "not before epoch 3 is processed");
        b.handle_map(&m3, m3.info(B).up_from, at(30));
        assert_eq!(b.readable_until(A), at(15_500).mono);
    }

    #[test]
    fn an_osd_that_the_map_shows_down_gets_no_lease() {
        let m2 = map();
        let (mut a, mut b) = pair(&m2);
        b.set_peers(&BTreeSet::from([A]), &m2, at(0));
        let r = request(&mut b);
        let m3 = step(&m2, |i| {
            i.new_state.insert(B, cluster::osdmap::osd_state::UP);
        });
        a.handle_map(&m3, m3.info(A).up_from, at(10));
        assert_eq!(a.handle_request(B, &r, &m3, at(10)), None);
        // An earlier instance gets no lease once a later one is up.
        let m4 = step(&m3, |i| up(i, B));
        a.handle_map(&m4, m4.info(A).up_from, at(20));
        assert_eq!(a.handle_request(B, &r, &m4, at(20)), None);
    }

    #[test]
    fn an_osd_with_a_newer_map_gets_a_lease() {
        let m2 = map();
        let m3 = step(&m2, |i| {
            i.new_state.insert(B, cluster::osdmap::osd_state::UP);
        });
        let m4 = step(&m3, |i| up(i, B));
        let (mut a, mut b) = pair(&m2);
        a.handle_map(&m3, m3.info(A).up_from, at(0));
        b.handle_map(&m4, m4.info(B).up_from, at(0));
        b.set_peers(&BTreeSet::from([A]), &m4, at(0));
        let r = request(&mut b);
        let g = a.handle_request(B, &r, &m3, at(5)).unwrap();
        b.handle_grant(A, &g, at(6));
        assert_eq!(b.readable_until(A), at(15_500).mono);
    }

    #[test]
    fn requests_are_repeated_with_growing_pauses_until_there_is_a_lease() {
        let m = map();
        let (_, mut b) = pair(&m);
        b.set_peers(&BTreeSet::from([A]), &m, at(0));
        let mut sent = Vec::new();
        for ms in 0..5000 {
            b.tick(at(ms));
            if !b.take_outputs().is_empty() {
                sent.push(ms);
            }
        }
        assert_eq!(sent, vec![0, 100, 300, 700, 1500, 3100]);
        b.handle_open(A, at(5000));
        assert_eq!(b.take_outputs().len(), 1, "an open lane is used at once");
    }

    #[test]
    fn a_restarted_granter_assumes_grants_up_to_its_start() {
        let mut a = Leases::new(FSID);
        a.start(Some(&map()), at(0));
        assert_eq!(a.granted_until(B), at(16_000).mono);
        assert!(a.take_outputs().contains(&Output::Granted(B, at(16_000).mono)), "PGs are told, too");
    }

    #[test]
    fn the_requester_counts_the_shorter_lease_and_the_granter_its_own() {
        let m = map();
        let (mut a, mut b) = pair(&m);
        a.start(None, at(0));
        b.set_lease(Duration::from_secs(4));
        b.set_peers(&BTreeSet::from([A]), &m, at(20_000));
        let r = request(&mut b);
        let g = a.handle_request(B, &r, &m, at(20_000)).unwrap();
        b.handle_grant(A, &g, at(20_000));
        assert_eq!((b.readable_until(A), a.granted_until(B)), (at(23_875).mono, at(36_000).mono));
        // A shorter length does not shorten existing grants.
        a.set_lease(Duration::from_secs(1));
        assert_eq!((a.granted_until(B), a.granted_until(OsdId(2))), (at(36_000).mono, at(16_000).mono));
        a.set_lease(Duration::from_secs(60));
        assert_eq!((a.lease(), a.granted_until(OsdId(2))), (LEASE_MAX, at(16_000).mono));
    }

    #[test]
    fn grants_to_another_instance_or_from_the_future_are_ignored() {
        let m = map();
        let (mut a, mut b) = pair(&m);
        b.set_peers(&BTreeSet::from([A]), &m, at(0));
        let r = request(&mut b);
        let g = a.handle_request(B, &r, &m, at(1)).unwrap();
        b.handle_grant(A, &MOsdLease { asker_up_from: Epoch(1), ..g.clone() }, at(2));
        b.handle_grant(A, &MOsdLease { up_from: Epoch(1), ..g.clone() }, at(2));
        b.handle_grant(A, &MOsdLease { sent: span(at(50).mono), ..g.clone() }, at(2));
        b.handle_grant(OsdId(2), &g, at(2));
        assert_eq!(b.readable_until(A), Mono(0));
        b.handle_grant(A, &MOsdLease { lease: Span(i64::MAX), ..g }, at(2));
        assert_eq!(b.readable_until(A), at(15_500).mono, "never longer than asked for");
    }

    #[test]
    fn no_lease_is_requested_or_granted_while_the_map_shows_us_down() {
        let m = map();
        let (mut a, mut b) = pair(&m);
        b.set_peers(&BTreeSet::from([A]), &m, at(0));
        let r = request(&mut b);
        a.handle_map(&m, Epoch(0), at(1));
        assert_eq!(a.handle_request(B, &r, &m, at(1)), None);
        b.handle_map(&m, Epoch(0), at(1));
        assert_eq!(b.next_deadline(), None);
    }
}
