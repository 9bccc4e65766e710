//! Watches and notifies of a PG while it is active.
//!
//! A watch is registered in the object's info, so it survives a restart. This table has the volatile part: the
//! watch's session and deadline, and the notifies that wait for acknowledgements.
//!
//! Invariants:
//!  1. Every watch here is in its object's info once the vector that made it is durable. A watch that times out or
//!     whose client is blocklisted leaves the info through a logged write.
//!  2. A notify completes exactly once: when every watcher it was sent to has acknowledged it or gone, or at its
//!     deadline.
//!
//! Tests: `tests/scenario.rs`.

use crate::effect::Effect;
use crate::event::SessionId;
use crate::exec::{NotifyAck, WatchConnect, WatchEffects};
use crate::limits::{NOTIFIES_MAX, NOTIFY_BYTES_MAX};
use crate::object::ObjectInfo;
use crate::object::info::WatchKey;
use base::errno::ETIMEDOUT;
use base::{EntityAddr, EntityName, Epoch, HObject, Mono, Now, unreached};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::MWatchNotify;
use wire::msg::{NotifyReply, watch_event};
use wire::{Encode, Features};

/// One watch.
#[derive(Clone, Debug, PartialEq)]
struct Watch {
    session: Option<SessionId>,
    addr: EntityAddr,
    timeout: Duration,
    pings: bool,
    /// Time when the watch is dropped; `None` while it has an open session and sends no pings.
    deadline: Option<Mono>,
    /// The write that removes the watch is in flight.
    ending: bool,
    /// Notifies that the watcher has not acknowledged.
    pending: BTreeSet<u64>,
}

/// One notify.
#[derive(Clone, Debug, PartialEq)]
struct Notify {
    session: SessionId,
    gid: u64,
    cookie: u64,
    version: u64,
    payload: Bytes,
    deadline: Mono,
    waiting: BTreeSet<WatchKey>,
    acks: BTreeMap<(u64, u64), Bytes>,
    head: HObject,
}

/// All watches and notifies of a PG; see the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchTable {
    objects: BTreeMap<HObject, BTreeMap<WatchKey, Watch>>,
    notifies: BTreeMap<u64, Notify>,
    /// Bytes of the notifies' payloads and acknowledgements.
    notify_bytes: u32,
    /// Low bits of the newest notify's id; the high ones are the epoch.
    seq: Cell<u32>,
    /// No deadline is earlier, cached since it is read after every input. Only a passed deadline makes it unknown: a
    /// ping of one of many watches must not cost a look at all of them.
    next: Cell<Option<Option<Mono>>>,
}

/// A watch whose removal must be written to the object's info.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The object.
    pub head: HObject,
    /// The watch.
    pub key: WatchKey,
}

/// A watch, for `dump_watchers`.
#[derive(Clone, Debug)]
pub struct WatchDump {
    /// The object.
    pub head: HObject,
    /// The watching client.
    pub client: EntityName,
    /// The client's cookie for the watch.
    pub cookie: u64,
    /// The client's address.
    pub addr: EntityAddr,
    /// Time of silence after which the watch is dropped.
    pub timeout: Duration,
}

impl WatchTable {
    /// All watches.
    #[must_use]
    pub fn dump(&self) -> Vec<WatchDump> {
        let one = |head: &HObject, (cookie, client): &WatchKey, w: &Watch| WatchDump {
            head: head.clone(),
            client: *client,
            cookie: *cookie,
            addr: w.addr,
            timeout: w.timeout,
        };
        self.objects.iter().flat_map(|(h, all)| all.iter().map(move |(k, w)| one(h, k, w))).collect()
    }

    /// An empty table. Notify ids start at `seed`, so that PGs of one OSD don't share them.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self { seq: Cell::new(seed), ..Self::default() }
    }

    /// Id for a notify. It is taken when the notify is planned, since other vectors are planned before this one's
    /// effects; a vector that is planned again takes another one.
    pub(crate) fn take_notify_id(&self, epoch: Epoch) -> u64 {
        let n = self.seq.get();
        self.seq.set(n.wrapping_add(1));
        u64::from(epoch.0) << 32 | u64::from(n)
    }

    /// Number of watches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.values().map(BTreeMap::len).sum()
    }

    /// True if there is neither watch nor notify.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.notifies.is_empty()
    }

    /// True if this many more notifies, with this many bytes, may wait for acknowledgements.
    pub(crate) fn has_room(&self, notifies: usize, bytes: usize) -> bool {
        self.notifies.len() + notifies <= NOTIFIES_MAX && self.notify_bytes as usize + bytes <= NOTIFY_BYTES_MAX
    }

    /// True while notifies wait for acknowledgements.
    #[must_use]
    pub fn notifies(&self) -> bool {
        !self.notifies.is_empty()
    }

    /// True if the watch has a session.
    #[must_use]
    pub fn is_connected(&self, head: &HObject, key: &WatchKey) -> bool {
        self.objects.get(head).and_then(|o| o.get(key)).is_some_and(|w| w.session.is_some())
    }

    /// Adds the watches of an object's info, after a restart or a new interval. Their clients have the timeout to
    /// reconnect.
    pub(crate) fn adopt(&mut self, head: &HObject, oi: &ObjectInfo, now: Now) {
        for (key, info) in &oi.watchers {
            let timeout = Duration::from_secs(info.timeout_seconds.into());
            self.note_deadline(Some(now.mono + timeout));
            self.objects.entry(head.clone()).or_default().entry(*key).or_insert_with(|| Watch {
                session: None,
                addr: info.addr,
                timeout,
                pings: true,
                deadline: Some(now.mono + timeout),
                ending: false,
                pending: BTreeSet::new(),
            });
        }
    }

    /// Drops all watches and notifies (a new interval: clients reconnect).
    pub fn clear(&mut self) {
        self.next.set(None);
        self.objects.clear();
        self.notifies.clear();
        self.notify_bytes = 0;
    }

    /// Notes that a watch or notify has this deadline.
    fn note_deadline(&self, d: Option<Mono>) {
        if let (Some(known), Some(d)) = (self.next.get(), d) {
            self.next.set(Some(Some(known.map_or(d, |k| k.min(d)))));
        }
    }

    /// A time before which no watch or notify has its deadline; [`WatchTable::expire`] is due then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        if let Some(known) = self.next.get() {
            return known;
        }
        let watches = self.objects.values().flat_map(BTreeMap::values).filter(|w| !w.ending).filter_map(|w| w.deadline);
        let next = watches.chain(self.notifies.values().map(|n| n.deadline)).min();
        self.next.set(Some(next));
        next
    }

    /// Begins a watch, or connects it anew.
    fn connect(
        &mut self,
        c: &WatchConnect,
        head: &HObject,
        session: SessionId,
        addr: EntityAddr,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let watches = self.objects.entry(head.clone()).or_default();
        let w = watches.entry(c.key).or_insert_with(|| Watch {
            session: None,
            addr,
            timeout: c.timeout,
            pings: c.pings,
            deadline: None,
            ending: false,
            pending: BTreeSet::new(),
        });
        w.session = Some(session);
        w.addr = addr;
        w.pings = c.pings;
        w.ending = false;
        w.deadline = c.pings.then(|| now.mono + w.timeout);
        let deadline = w.deadline;
        // Notifies that it missed while disconnected.
        for id in &w.pending {
            if let Some(n) = self.notifies.get(id) {
                out.push(notify_message(n, *id, session, c.key.0));
            }
        }
        self.note_deadline(deadline);
    }

    /// Begins a notify: all watchers of the object get it.
    fn notify(&mut self, id: u64, mut notify: Notify, out: &mut Vec<Effect>) {
        for (key, w) in self.objects.get_mut(&notify.head).into_iter().flatten() {
            notify.waiting.insert(*key);
            w.pending.insert(id);
            if let Some(s) = w.session {
                out.push(notify_message(&notify, id, s, key.0));
            }
        }
        self.notify_bytes += notify.payload.len() as u32;
        self.note_deadline(Some(notify.deadline));
        self.notifies.insert(id, notify);
        self.complete_if_done(id, out);
    }

    /// Carries out the watch operations of a durable vector.
    #[allow(clippy::too_many_arguments, reason = "who asked, for what, when, and where answers go")]
    pub(crate) fn apply(
        &mut self,
        fx: WatchEffects,
        head: &HObject,
        session: SessionId,
        client: EntityName,
        addr: EntityAddr,
        user_version: u64,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        for d in fx.disconnects {
            self.remove(head, &d.key, d.tell, user_version, out);
        }
        for c in fx.connects {
            self.connect(&c, head, session, addr, now, out);
        }
        for key in fx.pings {
            if let Some(w) = self.objects.get_mut(head).and_then(|o| o.get_mut(&key)) {
                w.deadline = w.pings.then(|| now.mono + w.timeout);
                // A removal that has not run yet would end the watch of a live client.
                w.ending = false;
                let deadline = w.deadline;
                self.note_deadline(deadline);
            }
        }
        for n in fx.notifies {
            let notify = Notify {
                session,
                gid: client.num as u64,
                cookie: n.cookie,
                version: user_version,
                payload: Bytes::copy_from_slice(&n.payload),
                deadline: now.mono + n.timeout,
                waiting: BTreeSet::new(),
                acks: BTreeMap::new(),
                head: head.clone(),
            };
            self.notify(n.id, notify, out);
        }
        for a in fx.acks {
            self.ack(&a, head, client, out);
        }
    }

    fn ack(&mut self, a: &NotifyAck, head: &HObject, client: EntityName, out: &mut Vec<Effect>) {
        let Some(watches) = self.objects.get_mut(head) else { return };
        // With a cookie it is one watch; an object may have a hundred thousand.
        let range = match a.cookie {
            Some(c) => (c, client)..=(c, client),
            None => (0, client)..=(u64::MAX, client),
        };
        for (key, w) in watches.range_mut(range) {
            if key.1 != client || !w.pending.remove(&a.id) {
                continue;
            }
            if let Some(n) = self.notifies.get_mut(&a.id) {
                n.waiting.remove(key);
                self.notify_bytes += a.reply.len() as u32;
                // A slice would keep the whole message alive.
                n.acks.insert((key.1.num as u64, key.0), Bytes::copy_from_slice(&a.reply));
            }
        }
        self.complete_if_done(a.id, out);
    }

    /// Drops a watch that has left the object's info.
    fn remove(&mut self, head: &HObject, key: &WatchKey, tell: bool, version: u64, out: &mut Vec<Effect>) {
        let Some(watches) = self.objects.get_mut(head) else { return };
        let Some(w) = watches.remove(key) else { return };
        if watches.is_empty() {
            self.objects.remove(head);
        }
        if let (true, Some(s)) = (tell, w.session) {
            let m = MWatchNotify {
                msg_ver: 1,
                opcode: watch_event::DISCONNECT,
                cookie: key.0,
                ver: version,
                ..MWatchNotify::default()
            };
            out.push(Effect::Watch(s, Box::new(m), Bytes::new()));
        }
        for id in w.pending {
            if let Some(n) = self.notifies.get_mut(&id) {
                n.waiting.remove(key);
            }
            self.complete_if_done(id, out);
        }
    }

    fn complete_if_done(&mut self, id: u64, out: &mut Vec<Effect>) {
        if self.notifies.get(&id).is_some_and(|n| n.waiting.is_empty()) {
            self.complete(id, 0, out);
        }
    }

    fn complete(&mut self, id: u64, return_code: i32, out: &mut Vec<Effect>) {
        let Some(n) = self.notifies.remove(&id) else { return unreached("a notify is completed once") };
        let kept = n.payload.len() + n.acks.values().map(Bytes::len).sum::<usize>();
        self.notify_bytes = self.notify_bytes.saturating_sub(kept as u32);
        for key in &n.waiting {
            if let Some(w) = self.objects.get_mut(&n.head).and_then(|o| o.get_mut(key)) {
                w.pending.remove(&id);
            }
        }
        let timeouts = n.waiting.iter().map(|k| (k.1.num as u64, k.0)).collect();
        let reply = NotifyReply { acks: n.acks, timeouts };
        let m = MWatchNotify {
            msg_ver: 1,
            opcode: watch_event::NOTIFY_COMPLETE,
            cookie: n.cookie,
            ver: n.version,
            notify_id: id,
            payload: Bytes::new(),
            return_code,
            notifier_gid: n.gid,
            data: Bytes::new(),
        };
        out.push(Effect::Watch(n.session, Box::new(m), reply.to_bytes(Features::PACIFIC)));
    }

    /// True if a watch or a notify belongs to that session.
    #[must_use]
    pub(crate) fn knows(&self, session: SessionId) -> bool {
        self.objects.values().flat_map(BTreeMap::values).any(|w| w.session == Some(session))
            || self.notifies.values().any(|n| n.session == session)
    }

    /// Handles the end of a session: its watches wait for their clients to reconnect, its notifies are completed
    /// without a reply.
    pub fn session_closed(&mut self, session: SessionId, now: Now) {
        let mut first = None;
        for w in self.objects.values_mut().flat_map(BTreeMap::values_mut) {
            if w.session == Some(session) {
                w.session = None;
                w.deadline = Some(now.mono + w.timeout);
                first = w.deadline.min(first).or(w.deadline);
            }
        }
        self.note_deadline(first);
        let gone: Vec<u64> = self.notifies.iter().filter(|(_, n)| n.session == session).map(|(id, _)| *id).collect();
        for id in gone {
            let mut nowhere = Vec::new();
            self.complete(id, ETIMEDOUT, &mut nowhere);
        }
    }

    /// Completes notifies whose deadline has passed; returns the watches whose removal must be written.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Effect>) -> Vec<Expired> {
        if self.next.get().is_some_and(|next| next.is_none_or(|d| d > now.mono)) {
            return Vec::new();
        }
        self.next.set(None);
        let late: Vec<u64> = self.notifies.iter().filter(|(_, n)| n.deadline <= now.mono).map(|(id, _)| *id).collect();
        for id in late {
            self.complete(id, ETIMEDOUT, out);
        }
        self.end_watches(|w| w.deadline.is_some_and(|d| d <= now.mono))
    }

    /// Returns the watches of blocklisted clients, whose removal must be written.
    pub fn end_blocklisted(&mut self, blocked: impl Fn(&EntityAddr) -> bool) -> Vec<Expired> {
        self.end_watches(|w| blocked(&w.addr))
    }

    fn end_watches(&mut self, ends: impl Fn(&Watch) -> bool) -> Vec<Expired> {
        let mut v = Vec::new();
        for (head, watches) in &mut self.objects {
            for (key, w) in watches.iter_mut().filter(|(_, w)| !w.ending && ends(w)) {
                w.ending = true;
                v.push(Expired { head: head.clone(), key: *key });
            }
        }
        v
    }

    /// True if a watch is still to be removed: its client has not reconnected.
    #[must_use]
    pub fn still_ending(&self, e: &Expired) -> bool {
        self.objects.get(&e.head).and_then(|o| o.get(&e.key)).is_some_and(|w| w.ending)
    }
}

fn notify_message(n: &Notify, id: u64, session: SessionId, cookie: u64) -> Effect {
    let m = MWatchNotify {
        msg_ver: 1,
        opcode: watch_event::NOTIFY,
        cookie,
        ver: n.version,
        notify_id: id,
        payload: n.payload.clone(),
        return_code: 0,
        notifier_gid: n.gid,
        data: Bytes::new(),
    };
    Effect::Watch(session, Box::new(m), Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::WatchConnect;
    use crate::object::info::WatchInfo;

    fn at(secs: u64) -> Now {
        Now { mono: Mono::default() + Duration::from_secs(secs), ..Now::default() }
    }

    fn client() -> EntityName {
        EntityName::new(base::EntityKind::CLIENT, 4)
    }

    fn apply(t: &mut WatchTable, head: &HObject, fx: WatchEffects, now: Now) {
        let (name, addr) = (client(), EntityAddr::default());
        t.apply(fx, head, SessionId(1), name, addr, 1, now, &mut Vec::new());
    }

    /// Deadlines are looked through once in each timeout, not for each ping.
    #[test]
    fn pings_of_many_watches_cost_no_look_at_all_of_them() {
        let mut t = WatchTable::default();
        let heads: Vec<HObject> = (0..500).map(|n| HObject { hash: n, ..HObject::min() }).collect();
        let key: WatchKey = (7, client());
        for h in &heads {
            let mut fx = WatchEffects::default();
            fx.connects.push(WatchConnect { key, timeout: Duration::from_secs(30), pings: true });
            apply(&mut t, h, fx, at(0));
        }
        let mut looks = 0;
        for s in 0..300 {
            for h in heads.iter().skip(s % 10).step_by(10) {
                looks += usize::from(t.next.get().is_none());
                assert!(t.next_deadline() <= Some(at(s as u64 + 31).mono));
                let mut fx = WatchEffects::default();
                fx.pings.push(key);
                apply(&mut t, h, fx, at(s as u64));
            }
            assert!(t.expire(at(s as u64), &mut Vec::new()).is_empty(), "all of them ping");
        }
        assert!(looks <= 300 / 10, "{looks}");
        // Without pings all end, each once.
        let ended: usize = (300..340).map(|s| t.expire(at(s), &mut Vec::new()).len()).sum();
        assert_eq!((ended, t.next_deadline()), (500, None));
        // A ping revives a watch, which ends again.
        let mut fx = WatchEffects::default();
        fx.pings.push(key);
        apply(&mut t, &heads[3], fx, at(340));
        assert_eq!(t.next_deadline(), Some(at(370).mono));
        assert_eq!(t.expire(at(370), &mut Vec::new()).len(), 1);
        // One from an object's info has its own deadline.
        let mut oi = ObjectInfo::default();
        oi.watchers.insert((8, client()), WatchInfo { timeout_seconds: 5, addr: EntityAddr::default() });
        t.adopt(&heads[4], &oi, at(400));
        assert_eq!(t.next_deadline(), Some(at(405).mono));
        t.session_closed(SessionId(1), at(401));
        assert_eq!((t.next_deadline(), t.expire(at(405), &mut Vec::new()).len()), (Some(at(405).mono), 1));
    }
}
