//! The state that several monitors share, and the oracles about them. It keeps the simulated state, all changes in the
//! order of their effect, and the epochs that were sent to processes.
//!
//! Oracles:
//!  1. An epoch has one content, in the state and in all messages.
//!  2. Monitors send a process no epoch older than one that they sent it before. The answer to a question for the
//!     newest epoch is not older than any epoch that was sent to any process before the question.
//!  3. A leader acts before any later leader does, in true time.
//!  4. Each change of the state is made under the leader that the state names at that time, by one process for each
//!     leader.
//!  5. A monitor's copy of the state has the keys and caps that the state had at the copy's revision.
//!  6. A global id is given to one session only.

use crate::net::NodeId;
use crate::node::Node;
use crate::queue::Time;
use crate::world::World;
use auth::AuthHost as _;
use base::{AuthName, Epoch, Mono, OsdId};
use bytes::Bytes;
use cluster::OsdMap;
use mon::state::AuthEntry;
use mon::state::records::{Bounds, key};
use state::Entry;
use state::simulated::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::MOsdMap;
use wire::{Decode as _, Message, WireMessage as _};

/// The shared state and the records of the oracles; see the module.
pub struct Several {
    /// The state.
    pub cluster: Cluster,
    /// The nodes of the monitors.
    pub nodes: Vec<NodeId>,
    /// Time of the state's next event in the queue.
    pub next: Option<Time>,
    /// Questions of the witness without an answer.
    pub waiting: usize,
    /// Global ids given to sessions.
    pub given: BTreeSet<u64>,
    /// Newest epoch that was sent to any process.
    pub newest: u32,
    /// Leases may end early. Then a deposed leader may tell old epochs, but it changes nothing.
    early: bool,
    acted: u64,
    /// Current keys and caps, and the revision of their last change.
    auth: BTreeMap<AuthName, AuthEntry>,
    auth_revision: u64,
    /// Revision of the newest change.
    revision: u64,
    /// Revision of the record of the leader.
    leader: Option<u64>,
    /// The leader under which each process wrote, and the process that wrote under each leader.
    terms: (BTreeMap<u64, u64>, BTreeMap<u64, u64>),
    stored: BTreeMap<Bytes, Bytes>,
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    told: BTreeMap<(NodeId, u64), u32>,
    /// The epochs at which OSDs came up, while no fault of the run affects OSDs.
    up: Option<Vec<Epoch>>,
}

impl Several {
    /// Creates the records for monitors at these nodes. With `early` leases may end before their time.
    #[must_use]
    pub fn new(cluster: Cluster, nodes: Vec<NodeId>, early: bool) -> Self {
        cluster.observe();
        Self {
            cluster,
            nodes,
            next: None,
            waiting: 0,
            given: BTreeSet::new(),
            newest: 0,
            early,
            acted: 0,
            auth: BTreeMap::new(),
            auth_revision: 0,
            revision: 0,
            leader: None,
            terms: Default::default(),
            stored: BTreeMap::new(),
            incs: BTreeMap::new(),
            fulls: BTreeMap::new(),
            told: BTreeMap::new(),
            up: None,
        }
    }

    /// Records that a leader with this fence acts; returns the fence of a later leader that has acted before, if there
    /// is one.
    pub fn acts(&mut self, fence: u64) -> Option<u64> {
        let newest = self.acted;
        self.acted = self.acted.max(fence);
        (newest > fence && !self.early).then_some(newest)
    }

    /// Number of leaders that changed the state.
    #[must_use]
    pub fn leaders(&self) -> usize {
        self.terms.1.len()
    }

    /// Lets time pass for the state; returns violations.
    pub fn advance(&mut self, now: Time) -> Vec<String> {
        let mut wrong = Vec::new();
        loop {
            self.cluster.advance(Mono(now));
            let leader = self.leader;
            let observed = self.cluster.take_observed();
            if observed.is_empty() {
                return wrong;
            }
            for (revision, changes) in observed {
                self.revision = revision;
                for c in changes {
                    wrong.extend(self.changed(revision, &c.key, c.entry.as_ref()));
                }
            }
            if self.leader.is_some() && self.leader != leader {
                // This is the worst time for delayed requests of the previous leader.
                self.cluster.release();
            }
        }
    }

    fn changed(&mut self, revision: u64, k: &Bytes, e: Option<&Entry>) -> Option<String> {
        let text = std::str::from_utf8(k).unwrap_or_default();
        if let Some(n) = text.strip_prefix(key::AUTH).and_then(AuthName::parse) {
            self.auth_revision = revision;
            match e.and_then(|e| AuthEntry::from_bytes(&e.value).ok()) {
                Some(e) => self.auth.insert(n, e),
                None => self.auth.remove(&n),
            };
        } else if text == key::MON_LEADER {
            self.leader = e.map(|e| e.modified);
        } else if text == key::OSDMAP_BOUNDS {
            return self.wrote(e?);
        } else if text.starts_with("osdmap/inc/")
            && let Some(e) = e
            && let Some(before) = self.stored.insert(k.clone(), e.value.clone())
            && before != e.value
        {
            return Some(format!("{text} is written with another content"));
        }
        None
    }

    /// Records a transaction of a proposal that took effect; returns a violation.
    fn wrote(&mut self, e: &Entry) -> Option<String> {
        let writer = Bounds::from_bytes(&e.value).ok()?.writer.0;
        if writer == 0 {
            return None;
        }
        let Some(leader) = self.leader else { return Some("the state changes while no monitor leads".into()) };
        let (by_writer, by_leader) = &mut self.terms;
        let (was, who) = (*by_writer.entry(writer).or_insert(leader), *by_leader.entry(leader).or_insert(writer));
        if was != leader || who != writer {
            return Some(format!("leader {was} changes the state while {leader} leads"));
        }
        None
    }

    /// Checks a message to a process; returns a violation.
    pub fn told(&mut self, from: NodeId, to: (NodeId, u64), m: &Message) -> Option<String> {
        if m.header.kind != MOsdMap::KIND {
            return None;
        }
        let m = MOsdMap::from_message(m).ok()?;
        for (all, of) in [(&mut self.incs, &m.incremental_maps), (&mut self.fulls, &m.maps)] {
            for (e, b) in of {
                if all.entry(*e).or_insert_with(|| b.clone()) != b {
                    return Some(format!("node {} is sent a map {e} that differs from the one sent to others", to.0));
                }
            }
        }
        if !self.nodes.contains(&from) || self.nodes.contains(&to.0) {
            return None;
        }
        let before = self.told.entry(to).or_default();
        let now = m.newest_map.0;
        if now < *before && !self.early {
            return Some(format!("node {} is told that {now} is the newest map, after {before}", to.0));
        }
        *before = now;
        self.newest = self.newest.max(now);
        None
    }

    /// Checks an answer to a question for the newest epoch; `before` is the newest epoch that was sent to any process
    /// before the question.
    pub fn answered(&mut self, epoch: u32, before: u32) -> Option<String> {
        self.newest = self.newest.max(epoch);
        (epoch < before && !self.early).then(|| {
            format!(
                "epoch {epoch} is reported as the newest, though {before} was sent to a process before the question"
            )
        })
    }
}

/// A difference between a monitor's copy of the state and the state itself.
#[must_use]
pub fn false_copy(w: &World) -> Option<String> {
    let s = w.ctx.several.as_ref()?;
    s.nodes.iter().find_map(|n| {
        let Node::Mons(m) = &w.nodes[*n] else { return None };
        // A copy of an older revision is checked once it has caught up.
        let (_, copy) = m.copy().filter(|(revision, _)| *revision >= s.auth_revision)?;
        s.auth.iter().find_map(|(name, e)| {
            let right = copy.entity(name).is_some_and(|c| c.key == e.key && c.caps == e.caps);
            (!right).then(|| format!("mon node {n} has other keys or caps of {name} than the state"))
        })
    })
}

/// The reason why monitors do not serve; `None` if they do.
#[must_use]
pub fn unwell(w: &World) -> Option<String> {
    let s = w.ctx.several.as_ref()?;
    if s.waiting > 0 {
        return Some(format!("{} questions to monitors have no answer", s.waiting));
    }
    s.nodes.iter().find_map(|n| {
        let Node::Mons(m) = &w.nodes[*n] else { return None };
        let behind = m.copy().is_some_and(|(revision, _)| revision < s.auth_revision);
        m.unwell().or(behind.then_some("is behind the state")).map(|why| format!("mon node {n} {why}"))
    })
}

fn up_from(map: &OsdMap, o: OsdId) -> Epoch {
    map.info(o).up_from
}

/// From now on an OSD that is marked down is a violation.
pub fn all_stay_up(w: &mut World) {
    let Some(map) = crate::oracle::map(w) else { return };
    if let Some(s) = &mut w.ctx.several {
        s.up = Some(map.osds().map(|o| up_from(&map, o)).collect());
    }
}

/// OSDs may be marked down again.
pub fn may_go_down(w: &mut World) {
    if let Some(s) = &mut w.ctx.several {
        s.up = None;
    }
}

/// Describes an OSD that was marked down although it must stay up.
#[must_use]
pub fn marked_down(w: &World) -> Option<String> {
    let up = w.ctx.several.as_ref()?.up.as_ref()?;
    let map = crate::oracle::map(w)?;
    let wrong = map.osds().zip(up).find(|(o, up)| !map.is_up(*o) || up_from(&map, *o) != **up)?;
    Some(format!("{} was marked down in map {}, though only monitors had died", wrong.0, map.epoch))
}
