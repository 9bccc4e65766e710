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
//!
//! Tests: `src/core/quorum/member/tests.rs` (1, `a_leader_stops_when_the_record_is_not_its_own`,
//! `a_lease_that_is_renewed_without_the_others_ends_with_the_reads`; 3,
//! `a_leaders_record_under_an_earlier_lease_is_written_again`), an assertion (2).

use std::collections::BTreeMap;
use std::time::Duration;

use base::{EntityAddr, Mono};
use bytes::Bytes;
use serde_json::{Value, json};
use state::lease::Held;
use state::{Compare, Entry, LeaseId, Op, Outcome, Range, Reply, Request, StateError, Txn, Write};

use crate::state::records::key;

/// Time to live of a monitor's lease: about the time without a leader after one died.
pub const LEASE: Duration = Duration::from_secs(4);
/// Interval of reads of the leader and the running monitors. A change of the leader that the watch of the state
/// reports is read at once ([`Member::leader_changed`]).
const LOOK: Duration = Duration::from_millis(500);
/// Time after which a leader that could not read its record stops.
pub const UNCONFIRMED_MAX: Duration = Duration::from_secs(8);
/// Interval at which the leader drops the store's history up to the time of the interval before. Etcd keeps all of it
/// unless somebody does. Followers stop long before they lag so far behind.
pub const COMPACT_EVERY: Duration = Duration::from_secs(600);
/// Most entries of a monitor's metadata, and the longest name and text in bytes; others are left out.
const METADATA: usize = 64;
/// See [`METADATA`].
const METADATA_TEXT: usize = 1024;
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
    /// The monitor's own part of `mon metadata`; empty for a monitor of an earlier version.
    pub metadata: BTreeMap<String, String>,
}

impl Presence {
    fn to_value(&self) -> Bytes {
        let addr = self.addr.sock.map(|s| s.to_string());
        let instance = format!("{:016x}", self.instance);
        json!({ "name": self.name, "addr": addr, "instance": instance, "metadata": self.metadata }).to_string().into()
    }

    fn parse(v: &[u8]) -> Option<Self> {
        let v: Value = serde_json::from_slice(v).ok()?;
        let text = |k: &str| v[k].as_str();
        let told = v["metadata"].as_object().into_iter().flatten().take(METADATA);
        let short = |(k, v): (&String, &Value)| {
            let v = v.as_str().filter(|v| v.len() <= METADATA_TEXT && k.len() <= METADATA_TEXT)?;
            Some((k.clone(), v.to_owned()))
        };
        Some(Self {
            name: text("name")?.to_owned(),
            addr: EntityAddr::msgr2(text("addr")?.parse().ok()?, 0),
            instance: u64::from_str_radix(text("instance")?, 16).ok()?,
            metadata: told.filter_map(short).collect(),
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
    /// Drop the store's revisions below this one.
    Compact(u64),
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
    /// While it leads: time of the next compaction, and the revision up to which it drops the history.
    compaction: (Mono, u64),
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
            compaction: (now, 0),
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

    /// Sets whether this monitor may stand for election. One that leads goes on until it is stopped.
    pub fn set_may_lead(&mut self, may: bool) {
        self.may_lead = may;
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
                self.compact(r.revision, now);
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

    fn compact(&mut self, newest: u64, now: Mono) {
        let (at, revision) = self.compaction;
        if now >= at {
            self.compaction = (now + COMPACT_EVERY, newest);
            self.out.push(Output::Compact(revision));
        }
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
        debug_assert!(!self.led, "a process leads once: it stands and takes up its record only if it has not led");
        self.led = true;
        self.leading = true;
        self.fence = (revision, now);
        self.compaction = (now + COMPACT_EVERY, revision);
        // The list of running monitors is read at once.
        self.hurry = true;
        self.out.push(Output::Elected { fence: (key::MON_LEADER.into(), revision) });
    }
}

#[cfg(test)]
mod tests;
