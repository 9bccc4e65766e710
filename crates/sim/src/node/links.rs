//! The connections of a process that uses the cluster: its monitor session and its objecter, on the simulated network.
//!
//! Invariant: `by_osd` is the inverse of `conns`.

use super::Timer;
use crate::net::{Arrival, Card, ConnKey, NodeId};
use crate::world::{Clock, Ctx};
use base::{Mono, Now, OsdId};
use client::core::maps;
use client::core::mon::{self, MonSession};
use client::core::objecter::{Objecter, Output};
use cluster::OsdMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MOsdMap, MOsdOpReply};
use wire::{DecodeError, Features, Message, WireMessage as _};

/// Longest time between two checks of deadlines, as in the real host.
const TICK: Duration = Duration::from_millis(500);
/// Interval at which a process that gets only maps that it asks for asks for a newer one.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Name of the clients with load.
pub const LOAD: &str = "load";

/// An arrival that the process acts on itself.
pub enum Seen {
    /// The session with a monitor is open.
    MonOpen,
    /// OSD maps of an OSD.
    Maps(MOsdMap),
}

/// An output that the process acts on itself.
pub enum Told {
    /// An event of the monitor session.
    Mon(mon::Event),
    /// The answer to an operation of the objecter, or an errno.
    Done(u64, Result<Box<MOsdOpReply>, i32>),
}

/// See the module.
pub struct Links {
    /// Number of the process.
    pub inc: u64,
    /// The monitor session.
    pub mon: MonSession,
    /// The connection of the monitor session.
    pub mon_conn: Option<ConnKey>,
    /// The objecter.
    pub objecter: Objecter,
    node: NodeId,
    card: Card,
    conns: BTreeMap<ConnKey, OsdId>,
    by_osd: BTreeMap<OsdId, ConnKey>,
    timer: Timer,
    next_tick: Mono,
    /// The time of the next question for a newer OSD map, if the process gets only maps that it asks for.
    ask: Option<Mono>,
}

impl Links {
    /// Connections of process `inc` of a node, which follows the maps of the given names and announces itself with
    /// `card`. `log` is the session's name in the log.
    #[must_use]
    pub fn new(node: NodeId, inc: u64, card: Card, log: String, maps: &[&str], now: Now, cx: &mut Ctx) -> Self {
        let once = cx.options.rough.once && card.name.id == LOAD;
        let mut mon = MonSession::new(cx.mon_addrs(), inc, log);
        for map in maps {
            mon.subscribe(map, 0, once);
        }
        Self {
            inc,
            mon,
            mon_conn: None,
            objecter: Objecter::new(0),
            node,
            card,
            conns: BTreeMap::new(),
            by_osd: BTreeMap::new(),
            timer: Timer::default(),
            next_tick: now.mono,
            ask: once.then_some(now.mono + ASK_EVERY),
        }
    }

    /// Handles the timer.
    pub fn fired(&mut self, now: Now, cx: &mut Ctx) {
        self.timer.fired(cx.queue.now());
        self.mon.tick(now);
        self.objecter.tick(now);
        if now.mono >= self.next_tick {
            self.next_tick = now.mono + TICK;
            if self.ask.is_some_and(|at| at <= now.mono) {
                self.ask = Some(now.mono + ASK_EVERY);
                let next = self.objecter.map().map_or(0, |m| u64::from(m.epoch.0) + 1);
                self.mon.subscribe("osdmap", next, true);
            }
        }
    }

    /// Handles an event of the network.
    ///
    /// # Errors
    /// A message does not decode.
    pub fn arrival(&mut self, a: Arrival, now: Now) -> Result<Option<Seen>, DecodeError> {
        match a {
            Arrival::Accept(..) => {}
            Arrival::Opened(k) if self.mon_conn == Some(k) => {
                self.mon.handle_open(Features::PACIFIC);
                return Ok(Some(Seen::MonOpen));
            }
            Arrival::Opened(k) => {
                if let Some(o) = self.conns.get(&k) {
                    self.objecter.handle_open(*o, Features::PACIFIC);
                }
            }
            Arrival::Closed(k, _) if self.mon_conn == Some(k) => {
                self.mon_conn = None;
                self.mon.handle_closed(now);
            }
            Arrival::Closed(k, _) => {
                if let Some(o) = self.conns.remove(&k) {
                    self.by_osd.remove(&o);
                    self.objecter.handle_closed(o, now);
                }
            }
            Arrival::Message(k, m) if self.mon_conn == Some(k) => self.mon.handle_message(m)?,
            Arrival::Message(k, m) => {
                if let Some(o) = self.conns.get(&k).copied() {
                    if m.header.kind == MOsdMap::KIND {
                        return Ok(Some(Seen::Maps(MOsdMap::from_message(&m)?)));
                    }
                    self.objecter.handle_message(o, &m)?;
                }
            }
        }
        Ok(None)
    }

    /// Gives the maps of a message to the objecter, and shows each to `see`. A map that is refused is a violation of
    /// the process `who`.
    pub fn maps(&mut self, m: &MOsdMap, who: &str, cx: &mut Ctx, mut see: impl FnMut(&OsdMap)) {
        let (new, refused) = maps::advance(self.objecter.map().cloned(), m);
        for (e, error) in refused {
            cx.violation(format!("{who}: OSD map {e} refused: {error}"));
        }
        for map in new {
            self.mon.got("osdmap", map.epoch.0.into());
            see(&map);
            self.objecter.handle_map(map);
        }
    }

    /// The newest OSD map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.objecter.map()
    }

    /// Carries out outputs of monitor session and objecter up to the next one that the process acts on; `None` if there
    /// are no more.
    pub fn poll(&mut self, cx: &mut Ctx) -> Option<Told> {
        let t = cx.now();
        loop {
            if let Some(o) = self.mon.poll_output() {
                match o {
                    mon::Output::Connect(a) => {
                        self.mon_conn = Some(cx.net.connect(self.node, self.inc, a, self.card.clone(), t));
                    }
                    mon::Output::Close => {
                        if let Some(k) = self.mon_conn.take() {
                            cx.net.close(k, self.node, self.inc, t);
                        }
                    }
                    mon::Output::Send(m) => self.send_mon(m, cx),
                    mon::Output::Event(e) => return Some(Told::Mon(e)),
                }
                continue;
            }
            match self.objecter.poll_output()? {
                Output::Connect(osd, addrs) => {
                    if let Some(a) = addrs.msgr2().copied() {
                        let k = cx.net.connect(self.node, self.inc, a, self.card.clone(), t);
                        self.conns.insert(k, osd);
                        self.by_osd.insert(osd, k);
                    }
                }
                Output::Close(osd) => {
                    if let Some(k) = self.by_osd.remove(&osd) {
                        self.conns.remove(&k);
                        cx.net.close(k, self.node, self.inc, t);
                    }
                }
                Output::Send(osd, m) => {
                    if let Some(k) = self.by_osd.get(&osd) {
                        cx.net.send(*k, self.node, self.inc, m, t);
                    }
                }
                Output::Done(tid, r) => return Some(Told::Done(tid, r)),
                Output::NeedMap(e) => self.mon.subscribe("osdmap", e.0.into(), self.ask.is_some()),
            }
        }
    }

    /// Sends a message to the monitor, if there is a connection.
    pub fn send_mon(&mut self, m: Message, cx: &mut Ctx) {
        if let Some(k) = self.mon_conn {
            cx.net.send(k, self.node, self.inc, m, cx.now());
        }
    }

    /// Sets the timer to the next deadline, of which `own` is the process's.
    pub fn schedule(&mut self, own: Option<Mono>, clock: &Clock, cx: &mut Ctx) {
        let deadlines = [self.mon.next_deadline(), self.objecter.next_deadline(), Some(self.next_tick), own];
        // The real host checks deadlines at least once in a tick.
        let last = clock.now(cx.now()).mono + TICK;
        let next = deadlines.into_iter().flatten().min().map(|d| d.min(last));
        self.timer.set(next, clock, self.node, self.inc, cx);
    }
}
