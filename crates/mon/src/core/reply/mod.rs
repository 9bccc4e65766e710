//! Answers to sessions: queries, maps by subscription, and records that are read for them.
//!
//! | module | contents |
//! | --- | --- |
//! | `awaited` | clients that have lost an OSD and wait for news of it |
//! | `fetch` | reads of the state store for sessions: old maps and purged snapshots |
//! | `made` | messages that many sessions get, encoded once |
//! | `query` | queries that change nothing: versions, space, pool statistics, maps by epoch, configuration, tickets |
//! | `requests` | requests to the state store and to the host that are under way, by token |
//! | `subscribe` | subscriptions of sessions, and the messages they bring |

mod awaited;
pub(super) mod fetch;
mod made;
pub(super) mod query;
pub(super) mod requests;
pub(super) mod subscribe;

use super::commands::listings::Listings;
use super::propose::waiter::Waiter;

/// Answers under way, and those that many sessions get.
#[derive(Default)]
pub(super) struct Answers {
    /// Answers that wait for the commit of the proposal under construction.
    waiters: Vec<Waiter>,
    /// Commands whose output is made in pieces.
    listings: Listings,
    /// Messages that are encoded already.
    made: made::Made,
    /// Clients that wait for an OSD.
    awaited: awaited::Awaited,
}

impl Answers {
    /// Adds an answer that waits for the commit of the proposal under construction.
    pub(super) fn wait(&mut self, w: Waiter) {
        self.waiters.push(w);
    }

    /// Number of answers that wait for the commit.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Takes the answers that wait for the commit.
    pub(super) fn take_waiters(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.waiters)
    }

    /// Lets these answers wait again, for the proposal that takes the place of theirs.
    pub(super) fn put_back(&mut self, waiters: Vec<Waiter>) {
        debug_assert!(self.waiters.is_empty(), "a proposal takes all waiters, and nothing is handled before it ends");
        self.waiters = waiters;
    }

    /// Commands whose output is made in pieces.
    pub(super) fn listings(&self) -> &Listings {
        &self.listings
    }

    /// Commands whose output is made in pieces, to go on with them.
    pub(super) fn listings_mut(&mut self) -> &mut Listings {
        &mut self.listings
    }
}
