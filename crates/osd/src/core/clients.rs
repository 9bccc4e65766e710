//! A client's connection at its reactor: operations that have no answer yet, and maps that the client lacks.

use super::known::KnownMap;
use super::maps::MapFeed;
use super::session::SessionInfo;
use super::unanswered::{Forgotten, InFlight, Unanswered};
use base::{Epoch, Mono};
use std::sync::Arc;
use wire::msg::MOsdMap;

/// A client's connection; `R` is the host's data for an operation.
#[derive(Debug)]
pub struct Client<R> {
    /// The session.
    pub info: Arc<SessionInfo>,
    map: KnownMap,
    unanswered: Unanswered<R>,
}

impl<R> Client<R> {
    /// A connection that has just opened.
    #[must_use]
    pub fn new(info: Arc<SessionInfo>) -> Self {
        Self { info, map: KnownMap::default(), unanswered: Unanswered::default() }
    }

    /// Registers an operation, whose cost the connection counts. Returns the bytes to give back.
    #[must_use]
    pub fn came(&mut self, tid: u64, cost: usize, request: R, now: Mono, of_all: &mut Forgotten) -> usize {
        self.unanswered.came(tid, cost, request, now, of_all)
    }

    /// Maps to send before the answer to an operation that was made with map `made_with`, if the client lacks any.
    #[must_use]
    pub fn lacks(&self, made_with: Epoch, feed: Option<&MapFeed>) -> Option<MOsdMap> {
        self.map.share(made_with, feed, self.info.features)
    }

    /// Ends an operation that is answered. Also returns the bytes to give back.
    pub fn answered(&mut self, tid: u64, of_all: &mut Forgotten) -> Option<(InFlight<R>, usize)> {
        self.unanswered.take(tid, of_all)
    }

    /// Ends an operation that gets no answer. `feed` has the map for which it was dropped: the client sends it again only
    /// when it has that map, and does not ask for one for ten seconds. Returns the bytes to give back, and the maps to
    /// send.
    pub fn dropped(
        &mut self,
        tid: u64,
        feed: Option<&MapFeed>,
        of_all: &mut Forgotten,
    ) -> Option<(usize, Option<MOsdMap>)> {
        let (_, back) = self.unanswered.take(tid, of_all)?;
        Some((back, self.lacks(Epoch(0), feed)))
    }

    /// Returns the bytes to give back for operations whose answer takes too long.
    #[must_use]
    pub fn forget_old(&mut self, now: Mono, of_all: &mut Forgotten) -> usize {
        self.unanswered.forget_old(now, of_all)
    }

    /// Ends the session, together with its connection.
    pub fn end(&mut self, of_all: &mut Forgotten) {
        self.unanswered.end(of_all);
    }

    /// Operations without an answer.
    #[must_use]
    pub fn unanswered(&self) -> &Unanswered<R> {
        &self.unanswered
    }
}
