//! Data connections of one reactor to other OSDs.
//!
//! Every reactor has its own cluster address, and the OSD map lists them all in order. A PG's messages go from
//! its reactor directly to the one that holds the PG at the other OSD, over the one session between the two
//! addresses. Either end may have opened the session.
//!
//! Invariants:
//!  1. All messages of a PG to one OSD use one session, so they arrive in order, or the session's end is
//!     reported.
//!  2. Sessions are lossless: a broken socket is no event. A session is reset only if the other end has lost
//!     it, or does not read for too long.
//!  3. Small messages wait for the turn's end and share a frame, unless a larger one for the same OSD is sent
//!     first and takes them along.
//!  4. Leases and heartbeats never wait behind these messages, since they have their own connections
//!     (`super::links`).

use crate::core::admission::{Admission, Lane, Refusal, Right, right};
use crate::core::peers::{PeerTable, addresses};
use crate::core::places::reactor_of;
use auth::Principal;
use base::{AuthName, EntityAddr, EntityKind, Epoch, OsdId, PgId};
use cluster::OsdMap;
use net::{CloseReason, ConnEvent, ConnId, Endpoint, Handler, Net, PeerInfo, SendError, Target};
use reactor::turn::{Turn, TurnHook};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::msg::{MPgPeer, MPgPeers};
use wire::{Features, Message, WireMessage as _};

/// Pause after a refusal before a peer is dialled again.
const PAUSE: Duration = Duration::from_millis(500);
/// Largest body in bytes of a message that waits for others: acknowledgements, and questions for a part of a shard.
const SMALL_MAX: usize = 256;
/// Most waiting messages.
const WAITING_MAX: usize = 256;

/// Bytes queued for another OSD above which clients wait, and at which they go on. What clients write is queued for each
/// other member of the PG, so one that is slower than the clients would collect all that they send.
const QUEUE_MAX: usize = 64 << 20;
const QUEUE_RESUME: usize = QUEUE_MAX / 2;

/// Event of a session with another OSD.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// The first queue has become too long (`true`), or the last one is short again.
    Slow(bool),
    /// The OSD sent a message.
    Message(OsdId, Message),
    /// Unanswered messages to that OSD may be lost.
    Reset(OsdId),
}

/// Small messages of this turn, which are lost with the session.
type Waiting = Rc<RefCell<Vec<MPgPeer>>>;

/// Sessions that messages of PGs took under one map, by OSD and PG. Any change of sessions empties it.
#[derive(Default)]
struct Taken {
    epoch: Epoch,
    all: FxHashMap<(OsdId, PgId), (ConnId, Waiting)>,
}

/// Data sessions of one reactor; see the module.
pub(super) struct Peers {
    me: Weak<Self>,
    net: Net,
    /// Addresses that recently refused us.
    paused: RefCell<BTreeSet<EntityAddr>>,
    endpoint: RefCell<Option<Endpoint>>,
    sessions: RefCell<PeerTable<ConnId, Waiting>>,
    taken: RefCell<Taken>,
    /// Sessions whose queue is too long.
    slow: RefCell<BTreeSet<ConnId>>,
    /// Sessions with waiting messages.
    unsent: RefCell<Vec<ConnId>>,
    hook: RefCell<Option<TurnHook>>,
    sink: Box<dyn Fn(PeerEvent)>,
    admission: Admission,
}

struct Events(Weak<Peers>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(p) = self.0.upgrade() {
            p.event(conn, event);
        }
    }

    fn drained(&self, conn: ConnId) {
        if let Some(p) = self.0.upgrade() {
            p.is_fast(conn);
        }
    }
}

/// Number of the OSD that connected to us: signed in as `osd.N`, with caps that allow everything.
pub(super) fn osd_of(p: &Principal) -> Option<OsdId> {
    p.osd().filter(|_| Right::Osd.is_held_by(p))
}

impl Peers {
    pub(super) fn new(net: &Net, config: net::EndpointConfig, sink: Box<dyn Fn(PeerEvent)>) -> Rc<Self> {
        let me = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            net: net.clone(),
            paused: RefCell::default(),
            endpoint: RefCell::default(),
            sessions: RefCell::default(),
            taken: RefCell::default(),
            slow: RefCell::default(),
            unsent: RefCell::default(),
            hook: RefCell::default(),
            sink,
            admission: Admission::default(),
        });
        let weak = Rc::downgrade(&me);
        *me.hook.borrow_mut() = Some(Turn::current().before_end(move || {
            if let Some(p) = weak.upgrade() {
                p.send_waiting();
            }
        }));
        *me.endpoint.borrow_mut() = Some(net.endpoint(config, Rc::new(Events(Rc::downgrade(&me)))));
        me
    }

    /// Endpoint, for listening.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(p) => self.open(conn, &p),
            ConnEvent::Closed(reason) => {
                self.is_fast(conn);
                self.forget_taken();
                let Some(s) = self.sessions.borrow_mut().forget(conn) else { return };
                tracing::info!(osd = s.osd.0, addr = %s.addr, %reason, "session with another OSD ended");
                if matches!(reason, CloseReason::Auth { .. } | CloseReason::OutputFull) {
                    self.pause(s.osd, s.addr);
                } else {
                    (self.sink)(PeerEvent::Reset(s.osd));
                }
            }
            ConnEvent::Message(m) => {
                // The session exists because its other end is an OSD: [`Right::Osd`].
                let Some(osd) = self.sessions.borrow().get(conn).map(|s| s.osd) else { return };
                match self.admission.count(right(Lane::Cluster, m.header.kind).ok_or(Refusal::NotHere)) {
                    Ok(_) => (self.sink)(PeerEvent::Message(osd, m)),
                    Err(why) => {
                        let kind = m.header.kind;
                        tracing::info!(osd = osd.0, kind, ?why, "message of another OSD is not supported");
                    }
                }
            }
        }
    }

    /// Pauses dialling an address that would fail again. Messages meanwhile are dropped, and the reset is
    /// reported after the pause.
    fn pause(&self, osd: OsdId, addr: EntityAddr) {
        let weak = self.me.clone();
        self.paused.borrow_mut().insert(addr);
        self.forget_taken();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(PAUSE).await;
            if let Some(p) = weak.upgrade() {
                p.paused.borrow_mut().remove(&addr);
                (p.sink)(PeerEvent::Reset(osd));
            }
        });
    }

    fn open(&self, conn: ConnId, p: &PeerInfo) {
        if self.sessions.borrow().get(conn).is_some() {
            return;
        }
        let osd = self.admission.count(osd_of(&p.principal).ok_or(Refusal::Lacks(Right::Osd))).ok();
        let (Some(osd), Some(addr)) = (osd, p.addrs.msgr2().copied()) else {
            tracing::warn!(entity = %p.entity, name = %p.principal.name, "not an OSD of this cluster; connection refused");
            return self.net.close(conn);
        };
        self.sessions.borrow_mut().accepted(conn, osd, addr, Waiting::default());
        self.forget_taken();
    }

    /// The session for messages of a PG, which is opened if there is none. `None` for an OSD that the map does not show
    /// up, since the PG's interval ends with that map, and for one that has refused us.
    fn session_for(&self, to: OsdId, pg: PgId, map: &OsdMap) -> Option<(ConnId, Waiting)> {
        {
            let mut taken = self.taken.borrow_mut();
            if taken.epoch != map.epoch {
                *taken = Taken { epoch: map.epoch, ..Taken::default() };
            }
            if let Some((conn, waiting)) = taken.all.get(&(to, pg)) {
                return Some((*conn, Rc::clone(waiting)));
            }
        }
        if !map.is_up(to) {
            return None;
        }
        let list = addresses(map, to);
        let reactors = list.clone().count().max(1);
        let addr = list.clone().nth(reactor_of(pg, reactors))?;
        if self.paused.borrow().contains(&addr) {
            return None;
        }
        let known = self.sessions.borrow().at(&addr);
        let conn = known.or_else(|| self.connect(to, addr))?;
        let waiting = self.sessions.borrow().get(conn).map(|s| Rc::clone(&s.host))?;
        self.taken.borrow_mut().all.insert((to, pg), (conn, Rc::clone(&waiting)));
        Some((conn, waiting))
    }

    fn forget_taken(&self) {
        self.taken.borrow_mut().all.clear();
    }

    /// Sends a message of a PG, if there may be a session with the OSD.
    pub(super) fn send(&self, to: OsdId, m: MPgPeer, map: &OsdMap) {
        let Some((conn, s)) = self.session_for(to, m.spg.pg, map) else { return };
        if m.body.len() > MPgPeer::BODY_MAX || m.data.len() > MPgPeer::DATA_MAX {
            // Its receiver would end the session, and again whenever it is repeated. PGs check it before.
            let (body, data) = (m.body.len(), m.data.len());
            tracing::error!(osd = to.0, pg = %m.spg, body, data, "a message is too large for another OSD and is not sent");
            return debug_assert!(false, "a message of {body} and {data} bytes");
        }
        let small = m.data.is_empty() && m.body.len() <= SMALL_MAX;
        if !small {
            self.send_waiting_of(conn, to, &s);
            return self.send_now(conn, to, m.to_message(Features::PACIFIC));
        }
        let waiting = {
            let mut w = s.borrow_mut();
            w.push(m);
            w.len()
        };
        if waiting >= WAITING_MAX {
            self.send_waiting_of(conn, to, &s);
        } else if waiting == 1 {
            self.unsent.borrow_mut().push(conn);
            if let Some(h) = &*self.hook.borrow() {
                h.schedule();
            }
        }
    }

    /// Sends the waiting messages at the turn's end.
    fn send_waiting(&self) {
        for conn in self.unsent.take() {
            let s = self.sessions.borrow().get(conn).map(|s| (s.osd, Rc::clone(&s.host)));
            if let Some((osd, waiting)) = s {
                self.send_waiting_of(conn, osd, &waiting);
            }
        }
    }

    fn send_waiting_of(&self, conn: ConnId, to: OsdId, waiting: &RefCell<Vec<MPgPeer>>) {
        let mut items = waiting.take();
        let m = match items.len() {
            0 => return,
            1 => items.swap_remove(0).to_message(Features::PACIFIC),
            _ => MPgPeers { items }.to_message(Features::PACIFIC),
        };
        self.send_now(conn, to, m);
    }

    fn send_now(&self, conn: ConnId, to: OsdId, m: Message) {
        match self.net.send(conn, m) {
            Ok(()) => {
                if self.net.output_bytes(conn) > QUEUE_MAX {
                    self.is_slow(conn);
                }
            }
            // Both cases are reported as the end of the session.
            Err(SendError::Full) => {
                tracing::warn!(osd = to.0, "another OSD does not read its messages; its session ends")
            }
            Err(SendError::Gone) => {
                tracing::debug!(osd = to.0, "session with another OSD does not exist any more");
                self.is_fast(conn);
                self.forget_taken();
                let gone = self.sessions.borrow_mut().forget(conn);
                if let Some(s) = gone {
                    (self.sink)(PeerEvent::Reset(s.osd));
                }
            }
        }
    }

    /// Makes clients wait until the queue of `conn` is short again.
    fn is_slow(&self, conn: ConnId) {
        let (new, first) = {
            let mut slow = self.slow.borrow_mut();
            let first = slow.is_empty();
            (slow.insert(conn), first)
        };
        if new && self.net.report_drained(conn, QUEUE_RESUME).is_ok() && first {
            (self.sink)(PeerEvent::Slow(true));
        }
    }

    fn is_fast(&self, conn: ConnId) {
        let last = {
            let mut slow = self.slow.borrow_mut();
            slow.remove(&conn) && slow.is_empty()
        };
        if last {
            (self.sink)(PeerEvent::Slow(false));
        }
    }

    fn connect(&self, osd: OsdId, addr: EntityAddr) -> Option<ConnId> {
        let ep = self.endpoint()?;
        let name = AuthName { kind: EntityKind::OSD, id: osd.0.to_string() };
        let conn = ep.connect(Target { kind: EntityKind::OSD, addr, addrs: addr.into(), name: Some(name) });
        self.sessions.borrow_mut().opened(conn, osd, addr, Waiting::default());
        self.forget_taken();
        Some(conn)
    }

    /// Handles a newer map: sessions with instances that are gone end.
    pub(super) fn handle_map(&self, map: &OsdMap) {
        let gone = self.sessions.borrow_mut().age(map);
        self.forget_taken();
        for conn in gone {
            self.is_fast(conn);
            self.net.close(conn);
        }
    }

    /// Numbers of accepted and refused messages.
    pub(super) fn verdicts(&self) -> (u64, u64) {
        self.admission.figures()
    }

    /// Number of sessions, open or being opened, and bytes queued for their peers.
    pub(super) fn figures(&self) -> (usize, usize) {
        let s = self.sessions.borrow();
        (s.keys().len(), s.keys().map(|c| self.net.output_bytes(c)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::{ConMode, Method};
    use base::id::Uuid;
    use base::{AddrVec, AuthName, Epoch, PgId, PoolId, Utime};
    use cluster::Incremental;
    use msgr::{Policies, Policy};

    const PG: PgId = PgId { pool: PoolId(1), seed: 3 };

    struct Osd {
        id: OsdId,
        peers: Rc<Peers>,
        addr: EntityAddr,
        got: Rc<RefCell<Vec<u32>>>,
        resets: Rc<RefCell<Vec<OsdId>>>,
        slow: Rc<RefCell<Vec<bool>>>,
    }

    fn osd(id: i32, nonce: u32) -> Osd {
        let net = Net::new();
        let modes = vec![ConMode::CRC];
        let name = AuthName { kind: EntityKind::OSD, id: id.to_string() };
        let config = net::EndpointConfig {
            kind: EntityKind::OSD,
            num: id.into(),
            addrs: AddrVec::default(),
            policies: Policies::uniform(Policy { reset_check: true, ..Policy::lossless_peer(modes) }),
            auth_host: Some(Rc::new(auth::server::ServiceHost::new(EntityKind::OSD, vec![Method::NONE]))),
            auth_client: Some(Rc::new(RefCell::new(auth::Client::none(name)))),
            limits: net::Limits { backoff_max: Duration::from_millis(300), ..net::Limits::default() },
        };
        let got: Rc<RefCell<Vec<u32>>> = Rc::default();
        let resets: Rc<RefCell<Vec<OsdId>>> = Rc::default();
        let slow: Rc<RefCell<Vec<bool>>> = Rc::default();
        let (g, r, s) = (got.clone(), resets.clone(), slow.clone());
        let peers = Peers::new(
            &net,
            config,
            Box::new(move |e| match e {
                PeerEvent::Slow(slow) => s.borrow_mut().push(slow),
                PeerEvent::Message(_, m) if m.header.kind == MPgPeers::KIND => {
                    g.borrow_mut().extend(MPgPeers::from_message(&m).unwrap().items.iter().map(|m| m.epoch.0));
                }
                PeerEvent::Message(_, m) => g.borrow_mut().push(MPgPeer::from_message(&m).unwrap().epoch.0),
                PeerEvent::Reset(o) => r.borrow_mut().push(o),
            }),
        );
        let ep = peers.endpoint().unwrap();
        let at = ep.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let addr = EntityAddr::msgr2(at, nonce);
        ep.set_addrs(addr.into());
        Osd { id: OsdId(id), peers, addr, got, resets, slow }
    }

    fn map(epoch: u32, osds: &[&Osd]) -> OsdMap {
        let mut m = OsdMap { fsid: Uuid([1; 16]), epoch: Epoch(epoch), ..OsdMap::default() };
        m.set_max_osd(4).unwrap();
        let mut inc = Incremental::new(m.fsid, Epoch(epoch + 1), Utime { sec: 1, nsec: 0 });
        for o in osds {
            let a: AddrVec = o.addr.into();
            inc.new_up_client.insert(o.id, a.clone());
            inc.new_up_cluster.insert(o.id, a.clone());
            inc.new_hb_back_up.insert(o.id, a.clone());
            inc.new_hb_front_up.insert(o.id, a);
        }
        m.apply(&inc).unwrap()
    }

    fn message(n: u32) -> MPgPeer {
        let data = vec![n as u8; 5000].into();
        MPgPeer {
            spg: PG.into(),
            from: base::ShardId::NONE,
            epoch: Epoch(n),
            up_from: Epoch(1),
            body: Default::default(),
            data,
            sums: None,
        }
    }

    fn small(n: u32) -> MPgPeer {
        MPgPeer { data: Default::default(), ..message(n) }
    }

    async fn until(what: &str, f: impl Fn() -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            while !f() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    #[test]
    fn the_largest_message_fits_in_a_frame() {
        let largest = MPgPeer { body: vec![0; MPgPeer::BODY_MAX].into(), ..small(1) }.to_message(Features::PACIFIC);
        assert!(largest.front.len() <= msgr::policy::FRONT_BYTES_MAX);
        const { assert!(MPgPeer::DATA_MAX <= msgr::policy::DATA_BYTES_MAX) };
    }

    #[test]
    fn if_both_ends_dial_at_once_one_session_carries_all_in_order() {
        reactor::run_here(|_, _| async {
            let (a, b) = (osd(0, 11), osd(1, 22));
            let m = map(5, &[&a, &b]);
            for n in 0..200 {
                a.peers.send(b.id, message(n), &m);
                b.peers.send(a.id, message(n), &m);
            }
            until("all is there", || a.got.borrow().len() == 200 && b.got.borrow().len() == 200).await;
            let want: Vec<u32> = (0..200).collect();
            assert_eq!((&*a.got.borrow(), &*b.got.borrow()), (&want, &want));
            assert_eq!((a.peers.figures().0, b.peers.figures().0), (1, 1));
            assert!(a.resets.borrow().is_empty() && b.resets.borrow().is_empty());
        })
        .unwrap();
    }

    #[test]
    fn small_messages_share_frames_and_keep_their_order() {
        reactor::run_here(|_, _| async {
            let (a, b) = (osd(0, 11), osd(1, 22));
            let m = map(5, &[&a, &b]);
            let n = 3 * WAITING_MAX as u32;
            for i in 0..n {
                // Two large messages are among them, and must not overtake.
                let large = i == 7 || i == n - 5;
                a.peers.send(b.id, if large { message(i) } else { small(i) }, &m);
            }
            until("all is there", || b.got.borrow().len() == n as usize).await;
            assert_eq!(*b.got.borrow(), (0..n).collect::<Vec<u32>>());
            assert!(a.peers.net.stats().messages_out < 12, "frames are shared");
        })
        .unwrap();
    }

    #[test]
    fn sessions_end_with_the_map_that_no_longer_shows_their_instance() {
        reactor::run_here(|_, _| async {
            let (a, b) = (osd(0, 11), osd(1, 22));
            let m = map(5, &[&a, &b]);
            a.peers.send(b.id, message(1), &m);
            until("delivered", || b.got.borrow().len() == 1).await;
            let again = osd(1, 33);
            // The new instance speaks before our map knows it: it has a session of its own.
            let m2 = map(7, &[&a, &again]);
            again.peers.send(a.id, message(9), &m2);
            until("heard", || a.got.borrow().len() == 1).await;
            a.peers.handle_map(&m);
            assert_eq!(a.peers.figures().0, 2);
            a.peers.handle_map(&m2);
            assert_eq!(a.peers.figures().0, 1, "the old one's session is over");
            a.peers.send(again.id, message(2), &m2);
            until("the new one got it", || again.got.borrow().len() == 1).await;
            assert_eq!(a.peers.figures().0, 1, "over the session it opened itself");
            // Nothing is sent to an OSD that is down.
            a.peers.send(OsdId(3), message(3), &m2);
            assert_eq!(a.peers.figures().0, 1);
        })
        .unwrap();
    }

    /// A queue above the bound holds the clients back, and none of its messages is lost.
    #[test]
    fn clients_wait_while_a_peer_does_not_read() {
        reactor::run_here(|_, _| async {
            let (a, b) = (osd(0, 11), osd(1, 22));
            let m = map(5, &[&a, &b]);
            a.peers.send(b.id, message(0), &m);
            until("delivered", || b.got.borrow().len() == 1).await;
            let conns: Vec<ConnId> = b.peers.sessions.borrow().keys().collect();
            conns.iter().for_each(|c| b.peers.net.hold(*c));
            let large = MPgPeer { data: vec![1; 4 << 20].into(), ..message(1) };
            for n in 1..=20 {
                a.peers.send(b.id, MPgPeer { epoch: Epoch(n), ..large.clone() }, &m);
            }
            assert_eq!(*a.slow.borrow(), [true], "once");
            conns.iter().for_each(|c| b.peers.net.release(*c));
            until("all is there", || b.got.borrow().len() == 21).await;
            until("clients go on", || a.slow.borrow().len() == 2).await;
            assert_eq!(*a.slow.borrow(), [true, false]);
            assert!(a.resets.borrow().is_empty());
        })
        .unwrap();
    }

    #[test]
    fn a_peer_that_forgot_the_session_is_reported() {
        reactor::run_here(|_, _| async {
            let (a, b) = (osd(0, 11), osd(1, 22));
            let m = map(5, &[&a, &b]);
            a.peers.send(b.id, message(1), &m);
            until("delivered", || b.got.borrow().len() == 1).await;
            // As if the peer saw us down: it closes the sessions, and does not know us when we come back.
            let conns: Vec<ConnId> = b.peers.sessions.borrow().keys().collect();
            for c in conns {
                b.peers.sessions.borrow_mut().forget(c);
                b.peers.net.close(c);
            }
            until("told", || !a.resets.borrow().is_empty()).await;
            a.peers.send(b.id, message(2), &m);
            until("a new session", || b.got.borrow().len() == 2).await;
        })
        .unwrap();
    }
}
