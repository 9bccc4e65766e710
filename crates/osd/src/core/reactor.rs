//! One reactor of an OSD as a machine: its PGs, its store, the OSD's own transactions, the watch over its device, and
//! the order of its loop turn. (The crate `reactor` has the thread on which it runs.)
//!
//! A host, real or simulated, has sockets, disk and clock. In a turn it hands in what came ([`Reactor::handle`],
//! [`Reactor::take_op`], [`Reactor::take_peer`], [`Reactor::handle_io`]), carries out the outputs of
//! [`Reactor::poll_output`] until there is none, and ends the turn ([`Reactor::end_turn`], [`Reactor::poll_io`]). It calls
//! [`Reactor::tick`] every [`TICK`], and [`Reactor::proceed`] in another turn while [`Reactor::wants_turn`] says so, or at
//! [`Reactor::next_deadline`].
//!
//! `common` has the state that all reactors of an OSD share, and the start of each.
//!
//! Invariants:
//!  1. Outputs leave only when all events of the store are handled, so that they are of one state of the PGs.
//!  2. A failure of the store or its device is reported once.
//!
//! Tests: `tests/reactor.rs`.

mod common;

use super::clients::Client;
use super::control::Report;
use super::mgr::Stats;
use super::own::{Need, OwnQueue};
use super::pgs::{Input, Output, Pgs, StoreNews};
use super::silence::{self, News, Silence};
use base::device::{IoCompletion, IoRequest};
use base::{Epoch, Mono, Now, OsdId};
pub use common::Common;
use std::collections::VecDeque;
use std::time::Duration;
use store::engine::Store;
use store::{ObjectStore as _, Tag, Transaction};
use wire::msg::{MOsdMap, MOsdOp, MPgPeer};
use wire::types::StoreStatfs;

/// Interval at which the host calls [`Reactor::tick`].
pub const TICK: Duration = Duration::from_millis(500);
/// Messages or events announced before the first of them is handled. Their prefetched memory fits the CPU
/// caches with room.
pub const PREFETCHED: usize = 16;

/// The reactor that must handle an input, and the input.
pub type Elsewhere = Option<(usize, Input)>;

/// One reactor; see the module.
pub struct Reactor {
    index: usize,
    pgs: Pgs,
    store: Store,
    /// Transactions of the OSD itself on this store.
    own: OwnQueue,
    /// Outputs that are not of the PGs.
    news: VecDeque<Output>,
    silence: Silence,
    /// True once the store has failed, or the OSD abandons it.
    failed: bool,
}

impl Reactor {
    /// Reactor `index` of an OSD. A device without an answer for `device_timeout` counts as failed.
    #[must_use]
    pub fn new(index: usize, pgs: Pgs, store: Store, device_timeout: Duration) -> Self {
        let silence = Silence::new(device_timeout);
        Self { index, pgs, store, own: OwnQueue::default(), news: VecDeque::new(), silence, failed: false }
    }

    /// Number of this reactor.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The PGs.
    #[must_use]
    pub fn pgs(&self) -> &Pgs {
        &self.pgs
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, for settings and the host's own reads.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// The PGs with their store, for settings and for orders of operators.
    pub fn parts(&mut self) -> (&mut Pgs, &mut Store) {
        (&mut self.pgs, &mut self.store)
    }

    /// True once the store has failed, or the OSD abandons it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Handles an input from the control machine or another reactor.
    pub fn handle(&mut self, input: Input, now: Now) {
        // Reactors share the device, so all have failed.
        self.failed |= matches!(input, Input::Stop { abandon: true });
        self.pgs.handle(input, now, &mut self.store);
    }

    /// Takes an operation from a connection of this reactor. Returns the maps that the client lacks, which are sent
    /// before any answer, and the reactor that must handle the operation, if that is another one.
    #[must_use]
    pub fn take_op<R>(&mut self, c: &Client<R>, m: Box<MOsdOp>, now: Now) -> (Option<MOsdMap>, Elsewhere) {
        let maps = c.lacks(m.osdmap_epoch, self.pgs.feed().map(|f| &**f));
        (maps, self.pgs.take_op(&c.info, m, now, &mut self.store))
    }

    /// Takes a message of another OSD from a session of this reactor. Returns the reactor that must handle it, if that
    /// is another one.
    #[must_use]
    pub fn take_peer(&mut self, from: OsdId, m: Box<MPgPeer>, now: Now) -> Elsewhere {
        self.pgs.take_peer(from, m, now, &mut self.store)
    }

    /// Prefetches the machine of an operation's PG, and the store's data of its object.
    pub fn prefetch_op(&mut self, m: &MOsdOp) {
        self.pgs.prefetch(m.pgid.pg);
        // Hints only make sense before the operations.
        self.store.prefetch(m.hash, m.ops.last().map_or(0, |o| o.extent().offset));
    }

    /// Prefetches the machine of the PG of another OSD's message, and the store's data of the object that it writes or
    /// reads.
    pub fn prefetch_peer(&mut self, m: &MPgPeer) {
        self.pgs.prefetch(m.spg.pg);
        if let Some((hash, off)) = pg::peer::peek_object(&m.body) {
            self.store.prefetch(hash, off);
        }
    }

    /// Prefetches the rest of what the messages announced so far need.
    pub fn prefetch_rest(&mut self) {
        self.store.prefetch_rest();
    }

    /// Prefetches the machines of the store's next events.
    pub fn prefetch_events(&self) {
        self.store.events().take(PREFETCHED).for_each(|e| self.pgs.prefetch_event(e));
    }

    /// Handles completed I/O.
    pub fn handle_io(&mut self, c: IoCompletion) {
        self.store.handle_io(c);
    }

    /// Handles the store's events, then gives the next output.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        while let Some(e) = self.store.poll_event() {
            match self.pgs.store_event(e, now, &mut self.store) {
                None => {}
                Some(StoreNews::Own(tag, _)) if self.own.awaits(tag) => self.submit_own(),
                Some(StoreNews::Own(tag, result)) => self.news.push_back(Output::Own(tag, result)),
                Some(StoreNews::Failed(errno, what)) => {
                    let failure = self.fail(format!("{what} ({})", base::errno::name(errno)));
                    self.news.extend(failure);
                }
            }
        }
        self.news.pop_front().or_else(|| self.pgs.poll_output())
    }

    /// Closes the store's open frame. The host then carries out what [`Reactor::poll_io`] and [`Store::poll_fill`] give.
    pub fn end_turn(&mut self) {
        self.store.end_turn();
    }

    /// Next disk request.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.store.poll_io()
    }

    /// True if the host must end another turn soon, although no input comes: the store goes on with a checkpoint while
    /// nothing is in flight.
    #[must_use]
    pub fn wants_end_of_turn(&self) -> bool {
        self.store.wants_turn()
    }

    /// True if [`Reactor::proceed`] must be called in another turn, after input of sockets and disk.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.pgs.is_walking() || self.pgs.has_part()
    }

    /// Time of the next [`Reactor::proceed`] for background work that waits for its share of the reactor.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.pgs.paced_until()
    }

    /// Shows new maps to more PGs, runs the next part of a long call, and lets background work continue that is due.
    pub fn proceed(&mut self, now: Now) {
        self.pgs.walk_on(now, &mut self.store);
        self.pgs.next_part(now, &mut self.store);
        if self.next_deadline().is_some_and(|t| t <= now.mono) {
            self.pgs.pace(now, &mut self.store);
        }
    }

    /// Handles elapsed time: every [`TICK`].
    pub fn tick(&mut self, now: Now) {
        if !self.own.is_empty() {
            self.submit_own();
        }
        self.store.confirm();
        self.store.shrink_data();
        self.pgs.tick(now, &mut self.store);
        self.pgs.note_members();
    }

    /// Begins due scrubs. `idle` tells whether the machine's load allows it.
    pub fn schedule_scrubs(&mut self, now: Now, idle: impl FnOnce() -> bool) {
        self.pgs.schedule_scrubs(now, idle, &mut self.store);
    }

    /// Judges the device by the age of its oldest request in flight, so that waiting clients are served by other OSDs
    /// if it does not answer. Returns what is to be reported.
    pub fn judge_device(&mut self, oldest: Option<Duration>) -> Option<Output> {
        match self.silence.judge(oldest)? {
            News::Silent(t) => Some(Output::Silent(Some(silence::reason(t)))),
            News::Answers => Some(Output::Silent(None)),
            News::Failed(t) => self.fail(silence::reason(t)),
        }
    }

    /// Returns once that the store has failed.
    fn fail(&mut self, why: String) -> Option<Output> {
        (!std::mem::replace(&mut self.failed, true)).then_some(Output::StoreFailed(why))
    }

    /// Statistics for the manager, and the lowest `last_epoch_clean` of the PGs led here.
    pub fn stats(&mut self, all: bool, now: Now) -> (Stats, Epoch) {
        let (mut stats, lec) = self.pgs.stats(all, now, &self.store);
        if self.index != 0 {
            // All reactors share one device.
            stats.statfs = StoreStatfs::default();
        }
        (stats, lec)
    }

    /// Report about the OSDs that share PGs with this reactor, whether or not they have changed; for the start.
    pub fn pg_peers(&mut self) -> Report {
        self.pgs.news_of_pg_peers().unwrap_or_else(|| Report::PgPeers(Default::default(), Default::default()))
    }

    /// A new tag for a read of the host's.
    pub fn own_tag(&mut self) -> Tag {
        self.own.tag()
    }

    /// Submits a transaction of the OSD itself after the earlier ones. [`Output::Own`] with this tag tells its result.
    pub fn submit(&mut self, t: Transaction, need: Need) -> Tag {
        let tag = self.own.push(t, need);
        self.submit_own();
        tag
    }

    /// Submits a transaction that frees space before those that wait; those that need not happen are dropped.
    pub fn make_room(&mut self, t: Transaction) {
        self.own.make_room(t, &mut self.store);
        self.submit_own();
    }

    /// Submits the OSD's own transactions as far as the store is ready for them. A refused one that must happen is a
    /// failure: PGs would go on with maps that the next start lacks.
    fn submit_own(&mut self) {
        for r in self.own.submit(&mut self.store) {
            let told = match r.need {
                Need::Must => self.fail(format!("cannot store maps ({})", base::errno::name(r.errno))),
                Need::May => Some(Output::Own(r.tag, Err(r.errno))),
            };
            self.news.extend(told);
        }
    }
}
