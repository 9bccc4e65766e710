//! Membership of one of several monitors over a shared state store: which one leads, and which run. No I/O and no
//! clock.
//!
//! Each monitor has one lease. Under it are its record of presence (`mon/up/NAME`) and, for the leader, `mon/leader`.
//!
//! Invariants:
//!  1. A monitor leads only while its lease holds by its own clock ([`state::lease::Held`]), and begins only once
//!     `mon/leader` is its own. The revision of that key is its fence: part of every transaction that it makes as
//!     leader.
//!     The leader also reads that key as often as others do, and stops if it is not its own any more, or could not be
//!     read for [`UNCONFIRMED_MAX`]. So a leader stops although a store renews its lease without asking the other
//!     members (etcd before 3.4.29 and 3.5.11, when its leader hangs), or its clock stood still with its machine.
//!  2. A deposed leader never leads again in this process, because its state may be stale.
//!  3. An unknown outcome is looked up: the record of the leader names the process that wrote it. If it is under an
//!     earlier lease of this process, it is written again under the present one before this monitor leads.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{EntityAddr, Mono};
use bytes::Bytes;
use serde_json::{Value, json};
use state::lease::Held;
use state::{Compare, Entry, LeaseId, Op, Outcome, Range, Reply, Request, StateError, Txn, Write};

use super::records::key;

/// Time to live of a monitor's lease: about the time without a leader after one died.
pub const LEASE: Duration = Duration::from_secs(4);
/// Interval of reads of the leader and the running monitors. A change of the leader that the watch of the state
/// reports is read at once ([`Member::leader_changed`]).
const LOOK: Duration = Duration::from_millis(500);
/// Time after which a leader that could not read its record stops.
pub const UNCONFIRMED_MAX: Duration = Duration::from_secs(8);
/// Base of the request tokens used here; the core's tokens are lower.
const TOKENS: u64 = 1 << 62;

/// A monitor's record of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The monitor's name.
    pub name: String,
    /// The monitor's address for monitors and clients.
    pub addr: EntityAddr,
    /// A random number of its process.
    pub instance: u64,
}

impl Presence {
    fn to_value(&self) -> Bytes {
        let addr = self.addr.sock.map(|s| s.to_string());
        json!({ "name": self.name, "addr": addr, "instance": format!("{:016x}", self.instance) }).to_string().into()
    }

    fn parse(v: &[u8]) -> Option<Self> {
        let v: Value = serde_json::from_slice(v).ok()?;
        let text = |k: &str| v[k].as_str();
        Some(Self {
            name: text("name")?.to_owned(),
            addr: EntityAddr::msgr2(text("addr")?.parse().ok()?, 0),
            instance: u64::from_str_radix(text("instance")?, 16).ok()?,
        })
    }
}

/// An output for the host to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request to the state store.
    Submit(Request),
    /// The leader changed; `None` if there is none.
    Leader(Option<Presence>),
    /// Revision of the last change that the store has. The replica must reach it.
    Written(u64),
    /// This monitor leads from now on: load the state, and put this fence into every transaction.
    Elected {
        /// The key and the revision to compare.
        fence: (Bytes, u64),
    },
    /// This monitor led and must stop at once.
    Deposed(String),
    /// The running monitors by name.
    Peers(BTreeMap<String, Presence>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Grant,
    Present,
    Look,
    Stand,
    Peers,
}

/// The membership of one monitor.
#[derive(Debug)]
pub struct Member {
    me: Presence,
    may_lead: bool,
    held: Option<Held>,
    /// The newest lease, even if it is not held any more.
    granted: Option<LeaseId>,
    present: bool,
    led: bool,
    leading: bool,
    /// While it leads: the revision of its record, and the sending time of the last read that showed it.
    fence: (u64, Mono),
    leader: Option<Presence>,
    /// The error of the newest request, until one succeeds.
    trouble: Option<String>,
    /// The request in flight, its time and its purpose.
    asked: Option<(u64, Mono, Ask)>,
    renewal: Option<u64>,
    next_look: Mono,
    /// True if the record of the leader changed after the newest read of it was sent.
    hurry: bool,
    /// True if the record of the leader does not decode.
    invalid: bool,
    heard: Mono,
    count: u64,
    out: Vec<Output>,
}

impl Member {
    /// The membership of a monitor that just started. With `may_lead` false it only announces its presence.
    #[must_use]
    pub fn new(me: Presence, may_lead: bool, now: Mono) -> Self {
        Self {
            me,
            may_lead,
            held: None,
            granted: None,
            present: false,
            led: false,
            leading: false,
            fence: (0, now),
            leader: None,
            trouble: None,
            asked: None,
            renewal: None,
            next_look: now,
            hurry: false,
            invalid: false,
            heard: now,
            count: TOKENS,
            out: Vec::new(),
        }
    }

    /// Takes the outputs of the calls so far.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// The time until which this monitor may act as leader without a renewal; `None` if it does not lead.
    #[must_use]
    pub fn leads_until(&self) -> Option<Mono> {
        let until = self.held.as_ref().filter(|_| self.leading).map(Held::until)?;
        Some(until.min(self.fence.1 + UNCONFIRMED_MAX))
    }

    /// The error of the newest request to the store, until one succeeds.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The time of the store's last successful answer.
    #[must_use]
    pub fn heard(&self) -> Mono {
        self.heard
    }

    /// The lease to give back when the monitor stops. This includes a lease that could not be renewed in time: the
    /// store may hold it for longer than this monitor counts it, and no other monitor leads before it ends in the
    /// store.
    #[must_use]
    pub fn to_give_back(&self) -> Option<LeaseId> {
        self.granted
    }

    fn lease(&self) -> Option<LeaseId> {
        self.held.as_ref().map(|h| h.id)
    }

    fn submit(&mut self, op: Op) -> u64 {
        self.count += 1;
        self.out.push(Output::Submit(Request { token: self.count, op }));
        self.count
    }

    fn ask(&mut self, what: Ask, op: Op, now: Mono) {
        let token = self.submit(op);
        self.asked = Some((token, now, what));
    }

    /// Reports that the leader's record changed: the next [`Member::tick`] reads it at once. A leader does not read it.
    pub fn leader_changed(&mut self) {
        self.hurry = !self.leading;
    }

    /// Advances the time. Called several times a second.
    pub fn tick(&mut self, now: Mono) {
        if self.held.as_ref().is_some_and(|h| !h.holds(now)) {
            self.lease_gone("its lease could not be renewed in time");
        }
        if let Some(h) = &mut self.held
            && h.take_renewal(now)
        {
            let id = h.id;
            self.renewal = Some(self.submit(Op::Renew(id)));
        }
        if self.asked.is_some() || now < self.next_look && !self.hurry {
            return;
        }
        let Some(lease) = self.lease() else {
            return self.ask(Ask::Grant, Op::Grant(LEASE), now);
        };
        if !self.present {
            let put = Write::Put(key::named(key::MON_UP, &self.me.name), self.me.to_value(), Some(lease));
            self.ask(Ask::Present, Op::Txn(Txn { then: vec![put], ..Txn::default() }), now);
        } else if self.leading {
            self.hurry = false;
            // The leader's record comes before the records of presence.
            let end = Range::prefix(key::MON_UP.as_bytes()).end;
            self.ask(Ask::Peers, Op::all(Range { start: key::MON_LEADER.into(), end }), now);
        } else {
            self.hurry = false;
            self.ask(Ask::Look, Op::get(vec![key::MON_LEADER.into(), key::OSDMAP_BOUNDS.into()]), now);
        }
    }

    fn lease_gone(&mut self, why: &str) {
        self.held = None;
        self.renewal = None;
        self.present = false;
        if self.leading {
            self.leading = false;
            self.out.push(Output::Deposed(why.to_owned()));
        }
    }

    /// True if a reply belongs to a request made here.
    #[must_use]
    pub fn awaits(&self, token: u64) -> bool {
        token > TOKENS
    }

    /// Handles an answer of the store.
    pub fn reply(&mut self, r: Reply, now: Mono) {
        self.note(r.token, &r.result, now);
        if self.renewal == Some(r.token) {
            self.renewal = None;
            return match (&mut self.held, r.result) {
                (Some(h), Ok(_)) => h.renewed(true),
                (Some(h), Err(StateError::NoLease)) => {
                    h.renewed(false);
                    self.granted = None;
                    self.lease_gone("its lease has ended");
                }
                (Some(h), Err(_)) => h.renewal_failed(),
                (None, _) => {}
            };
        }
        let Some((_, sent, what)) = self.asked.take_if(|(t, ..)| *t == r.token) else { return };
        match (what, r.result) {
            (Ask::Grant, Ok(Outcome::Lease(id, ttl))) => {
                self.held = Some(Held::new(id, ttl, sent));
                self.granted = Some(id);
                return;
            }
            (Ask::Present, Ok(Outcome::Committed)) => {
                // Without a lease the record is under one that was lost since; no other is granted before this answer.
                self.present = self.held.is_some();
                return;
            }
            (Ask::Stand, Ok(Outcome::Committed)) => self.elected(r.revision, now),
            (Ask::Look, Ok(Outcome::Values(v))) => {
                let mut v = v.into_iter();
                let leader = v.next().flatten();
                // Every transaction of a leader writes the bounds.
                if let Some(bounds) = v.next().flatten() {
                    self.out.push(Output::Written(bounds.modified));
                }
                return self.looked(leader, now);
            }
            (Ask::Peers, Ok(Outcome::Entries { entries, .. })) if self.leading => {
                let mine = entries.iter().any(|(k, e)| k == key::MON_LEADER && e.modified == self.fence.0);
                if !mine {
                    return self.lease_gone("another monitor has led since, or may lead");
                }
                self.fence.1 = sent;
                let entries = entries.iter().filter(|(k, _)| k.starts_with(key::MON_UP.as_bytes()));
                let peers = entries.filter_map(|(_, e)| Presence::parse(&e.value));
                self.out.push(Output::Peers(peers.map(|p| (p.name.clone(), p)).collect()));
            }
            (Ask::Present | Ask::Stand, Err(StateError::NoLease)) => self.lease_gone("its lease has ended"),
            // On any other outcome the next read shows the state.
            _ => {}
        }
        self.next_look = now + LOOK;
    }

    /// Records an answer's success, or logs a new reason why the store refuses requests.
    fn note(&mut self, token: u64, result: &Result<Outcome, StateError>, now: Mono) {
        let Err(e) = result else {
            self.heard = now;
            if self.renewal != Some(token) {
                self.trouble = None;
            }
            return;
        };
        let what = match self.asked.as_ref().filter(|(t, ..)| *t == token).map(|(.., what)| what) {
            Some(Ask::Grant) => "grants this monitor no lease, so it cannot lead",
            Some(Ask::Stand) => "refuses this monitor as leader",
            Some(Ask::Present) => "refuses this monitor's record of presence",
            Some(Ask::Look | Ask::Peers) => "does not tell which monitor leads",
            None => "does not renew the lease of this monitor",
        };
        let text = format!("the state store {what}: {e}");
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("mon: {text}");
            self.trouble = Some(text);
        }
    }

    fn looked(&mut self, found: Option<Entry>, now: Mono) {
        self.next_look = now + LOOK;
        let leader = found.as_ref().and_then(|e| Presence::parse(&e.value));
        let invalid = found.is_some() && leader.is_none();
        if invalid && !std::mem::replace(&mut self.invalid, invalid) {
            tracing::error!(
                "mon: '{}' in the state store is invalid; no monitor can lead before it is removed",
                key::MON_LEADER
            );
        }
        self.invalid = invalid;
        let mine = leader.as_ref().is_some_and(|l| l.instance == self.me.instance);
        // The record may be of a lease that this monitor could not renew. The store may end that one at any time.
        let outlived = mine && found.as_ref().is_some_and(|e| e.lease != self.lease());
        if mine && !outlived && !self.led {
            // The answer to this monitor's own transaction was lost.
            return self.elected(found.map_or(0, |e| e.modified), now);
        }
        if (found.is_none() || outlived)
            && self.may_lead
            && !self.led
            && let Some(lease) = self.lease()
        {
            let put = Write::Put(key::MON_LEADER.into(), self.me.to_value(), Some(lease));
            let compare = vec![Compare::Modified(key::MON_LEADER.into(), found.map_or(0, |e| e.modified))];
            self.ask(Ask::Stand, Op::Txn(Txn { compare, then: vec![put] }), now);
        }
        if self.leader != leader {
            self.leader = leader.clone();
            self.out.push(Output::Leader(leader));
        }
    }

    fn elected(&mut self, revision: u64, now: Mono) {
        // The record is not held by a lease that was replaced in the meantime.
        if !self.held.as_ref().is_some_and(|h| h.holds(now)) {
            return;
        }
        self.led = true;
        self.leading = true;
        self.fence = (revision, now);
        // The list of running monitors is read at once.
        self.hurry = true;
        self.out.push(Output::Elected { fence: (key::MON_LEADER.into(), revision) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    fn presence(name: &str, instance: u64) -> Presence {
        Presence { name: name.into(), addr: EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0), instance }
    }

    fn asked(m: &mut Member) -> Vec<Request> {
        let requests = m.take_outputs().into_iter();
        requests.filter_map(|o| if let Output::Submit(r) = o { Some(r) } else { None }).collect()
    }

    fn reply(r: &Request, revision: u64, result: Result<Outcome, StateError>) -> Reply {
        Reply { token: r.token, revision, result }
    }

    /// The only request made by a tick at `ms`.
    fn tick_for_one(m: &mut Member, ms: u64) -> Request {
        m.tick(at(ms));
        let [r] = &asked(m)[..] else { panic!("one request at {ms} ms") };
        r.clone()
    }

    #[test]
    fn a_lost_leader_is_replaced_at_once() {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let grant = tick_for_one(&mut m, 0);
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
        let present = tick_for_one(&mut m, 2);
        m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(3));
        let look = tick_for_one(&mut m, 4);
        assert!(matches!(look.op, Op::Get { .. }));
        let b = Entry { value: presence("b", 2).to_value(), created: 1, modified: 1, lease: None };
        let values = |leader: Option<&Entry>| Ok(Outcome::Values(vec![leader.cloned(), None]));
        m.reply(reply(&look, 1, values(Some(&b))), at(5));
        m.tick(at(50));
        assert!(asked(&mut m).is_empty(), "the next read has its time");
        m.leader_changed();
        let look = tick_for_one(&mut m, 51);
        assert!(matches!(look.op, Op::Get { .. }));
        // A change that is reported while a read is under way is not in that read.
        m.leader_changed();
        m.reply(reply(&look, 1, values(Some(&b))), at(52));
        let look = tick_for_one(&mut m, 53);
        m.reply(reply(&look, 2, values(None)), at(54));
        let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
        m.reply(reply(stand, 3, Ok(Outcome::Committed)), at(55));
        assert!(m.take_outputs().contains(&Output::Elected { fence: (key::MON_LEADER.into(), 3) }));
        // A leader reads the list of running monitors at once, and then at its usual interval.
        let list = tick_for_one(&mut m, 56);
        assert!(matches!(list.op, Op::Range { .. }), "{:?}", list.op);
        m.reply(reply(&list, 4, entries(Some(3))), at(57));
        m.leader_changed();
        m.tick(at(58));
        assert!(asked(&mut m).is_empty());
    }

    /// The answer to a leader's read: its record, if it is there, with the revision of its last change.
    fn entries(leader: Option<u64>) -> Result<Outcome, StateError> {
        let put = |k: &str, modified| {
            let value = presence("a", 1).to_value();
            (Bytes::copy_from_slice(k.as_bytes()), Entry { value, created: 1, modified, lease: None })
        };
        let leader = leader.map(|modified| put(key::MON_LEADER, modified));
        Ok(Outcome::Entries { entries: leader.into_iter().chain([put("mon/up/a", 2)]).collect(), more: false })
    }

    /// A member that leads since 3 ms, under a fence of revision 3.
    fn leading() -> Member {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let grant = tick_for_one(&mut m, 0);
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
        let present = tick_for_one(&mut m, 1);
        m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(1));
        let look = tick_for_one(&mut m, 2);
        m.reply(reply(&look, 1, Ok(Outcome::Values(vec![None, None]))), at(2));
        let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
        m.reply(reply(stand, 3, Ok(Outcome::Committed)), at(3));
        m.take_outputs();
        m
    }

    #[test]
    fn a_leader_stops_when_the_record_is_not_its_own() {
        for found in [None, Some(9)] {
            let mut m = leading();
            let read = tick_for_one(&mut m, 4);
            m.reply(reply(&read, 4, entries(Some(3))), at(5));
            assert!(m.leads_until().is_some());
            let out = m.take_outputs();
            assert!(matches!(&out[..], [Output::Peers(p)] if p.len() == 1), "{out:?}");
            m.tick(at(600));
            let sent = asked(&mut m);
            let read = sent.iter().find(|r| matches!(r.op, Op::Range { .. })).expect("it reads again");
            m.reply(reply(read, 9, entries(found)), at(601));
            assert_eq!(m.leads_until(), None);
            assert!(matches!(&m.take_outputs()[..], [Output::Deposed(_)]), "{found:?}");
        }
    }

    #[test]
    fn a_lease_that_is_renewed_without_the_others_ends_with_the_reads() {
        let mut m = leading();
        let read = tick_for_one(&mut m, 4);
        m.reply(reply(&read, 4, entries(Some(3))), at(5));
        // A member that hangs renews the lease, and answers no reads.
        for ms in (500..20_000).step_by(100) {
            m.tick(at(ms));
            for r in asked(&mut m) {
                match r.op {
                    Op::Renew(_) => m.reply(reply(&r, 0, Ok(Outcome::Done)), at(ms)),
                    _ => m.reply(reply(&r, 0, Err(StateError::Unavailable("timed out".into()))), at(ms)),
                }
            }
        }
        assert_eq!(m.leads_until(), Some(at(4) + UNCONFIRMED_MAX));
        assert!(m.trouble().is_some_and(|t| t.contains("does not tell which monitor leads: ")), "{:?}", m.trouble());
    }

    #[test]
    fn the_reason_of_a_refused_election_is_told() {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let full = || StateError::Refused("etcdserver: mvcc: database space exceeded".into());
        let grant = tick_for_one(&mut m, 0);
        m.reply(reply(&grant, 0, Err(full())), at(1));
        let text = "the state store grants this monitor no lease, so it cannot lead: ";
        assert!(m.trouble().is_some_and(|t| t.starts_with(text) && t.contains("space exceeded")), "{:?}", m.trouble());
        let grant = tick_for_one(&mut m, 600);
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(601));
        assert_eq!(m.trouble(), None);
    }

    #[test]
    fn a_leaders_record_under_an_earlier_lease_is_written_again() {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let enter = |m: &mut Member, ms: u64, lease: u64| {
            let grant = tick_for_one(m, ms);
            assert_eq!(grant.op, Op::Grant(LEASE));
            m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(lease), LEASE))), at(ms));
            let present = tick_for_one(m, ms);
            m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(ms));
            tick_for_one(m, ms)
        };
        let values = |leader: Option<Entry>| Ok(Outcome::Values(vec![leader, None]));
        let look = enter(&mut m, 0, 7);
        m.reply(reply(&look, 1, values(None)), at(1));
        let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
        // The transaction takes effect, but no answer comes while the lease can be used, nor can it be renewed.
        m.tick(at(3300));
        asked(&mut m);
        m.reply(reply(stand, 0, Err(StateError::Unknown("late".into()))), at(3300));
        let look = enter(&mut m, 3900, 8);
        let of =
            |lease| Entry { value: presence("a", 1).to_value(), created: 5, modified: 5, lease: Some(LeaseId(lease)) };
        m.reply(reply(&look, 5, values(Some(of(7)))), at(3901));
        assert_eq!(m.leads_until(), None, "lease 7 may end before lease 8");
        let out = m.take_outputs();
        let [stand] =
            &out.iter().filter_map(|o| if let Output::Submit(r) = o { Some(r) } else { None }).collect::<Vec<_>>()[..]
        else {
            panic!("it stands again: {out:?}")
        };
        let Op::Txn(t) = &stand.op else { panic!("{stand:?}") };
        assert_eq!(t.compare, [Compare::Modified(key::MON_LEADER.into(), 5)]);
        assert!(matches!(&t.then[..], [Write::Put(_, _, Some(LeaseId(8)))]), "{t:?}");
        // This answer is late as well. Now the record is under the present lease.
        m.reply(reply(stand, 0, Err(StateError::Unknown("late".into()))), at(3950));
        m.tick(at(4500));
        let sent = asked(&mut m);
        let look = sent.iter().find(|r| matches!(r.op, Op::Get { .. })).expect("it looks again, and renews its lease");
        let again = Entry { modified: 9, ..of(8) };
        m.reply(reply(look, 9, values(Some(again))), at(4501));
        assert!(m.take_outputs().contains(&Output::Elected { fence: (key::MON_LEADER.into(), 9) }));
    }

    #[test]
    fn presence_that_was_written_under_an_earlier_lease_is_written_again() {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let grant = tick_for_one(&mut m, 0);
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
        let present = tick_for_one(&mut m, 2);
        // The answer comes when the lease cannot be used any more.
        m.tick(at(3300));
        asked(&mut m);
        m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(3301));
        let grant = tick_for_one(&mut m, 3302);
        m.reply(reply(&grant, 1, Ok(Outcome::Lease(LeaseId(8), LEASE))), at(3303));
        let Op::Txn(t) = tick_for_one(&mut m, 3304).op else { panic!("it announces itself") };
        assert!(matches!(&t.then[..], [Write::Put(_, _, Some(LeaseId(8)))]), "{t:?}");
    }

    #[test]
    fn a_lease_that_could_not_be_renewed_is_given_back_all_the_same() {
        let mut m = Member::new(presence("a", 1), true, at(0));
        let grant = tick_for_one(&mut m, 0);
        assert_eq!(grant.op, Op::Grant(LEASE));
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(10));
        assert_eq!(m.to_give_back(), Some(LeaseId(7)));
        // No answer arrives until after the lease's usable time.
        m.tick(at(20));
        m.tick(at(3300));
        assert_eq!(m.to_give_back(), Some(LeaseId(7)), "the store may have it for a second more");
        let renewal = asked(&mut m).into_iter().find(|r| matches!(r.op, Op::Renew(_)));
        assert!(renewal.is_none_or(|r| r.op == Op::Renew(LeaseId(7))));
    }
}
