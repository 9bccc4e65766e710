//! Commands whose output is made in pieces over several turns, one command after the other.

use std::collections::VecDeque;

use base::errno;
use bytes::Bytes;

use crate::command::CommandOutcome;
use crate::command::language::listing::{Listing, ROWS_A_TURN};
use crate::core::MonCore;
use crate::core::propose::waiter::CommandReply;
use crate::state::ConnKey;

/// Most such commands of one session at a time.
const OF_SESSION: usize = 8;

/// The commands under way.
#[derive(Debug, Default)]
pub(in crate::core) struct Listings {
    queue: VecDeque<(CommandReply, CommandOutcome, Box<Listing>)>,
    /// The most rows that one turn made.
    most: usize,
}

impl Listings {
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Drops the commands of a closed session.
    pub(in crate::core) fn forget(&mut self, c: ConnKey) {
        self.queue.retain(|(to, ..)| to.conn != c);
    }
}

impl MonCore {
    /// Begins an output; a short one is answered at once.
    pub(in crate::core) fn begin_listing(&mut self, to: &CommandReply, o: CommandOutcome, l: Box<Listing>) {
        let listings = self.answers.listings_mut();
        if listings.queue.iter().filter(|(x, ..)| x.conn == to.conn).count() >= OF_SESSION {
            let rs = "too many of its commands are under way".into();
            return self.answer_command(to, errno::EBUSY, rs, Bytes::new());
        }
        let first = listings.queue.is_empty();
        listings.queue.push_back((to.clone(), o, l));
        if first {
            self.continue_listings();
        }
    }

    /// Makes the next rows of the oldest command.
    pub(in crate::core) fn continue_listings(&mut self) {
        let listings = self.answers.listings_mut();
        let Some((_, _, l)) = listings.queue.front_mut() else { return };
        let (n, complete) = l.step(&self.state, ROWS_A_TURN);
        listings.most = listings.most.max(n);
        if complete && let Some((to, o, l)) = listings.queue.pop_front() {
            self.finish_now(&to, CommandOutcome { out: l.finish().into(), ..o });
        }
    }

    /// The most rows that one turn made for commands.
    #[must_use]
    pub fn listing_work(&self) -> usize {
        self.answers.listings().most
    }
}
