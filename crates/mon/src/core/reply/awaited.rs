//! Clients that have lost an OSD and wait for news of it.
//!
//! A client that loses its session with an OSD asks for one newer map, and asks again after ten seconds. If another change
//! of the map answers the question first, the client does not learn that the OSD is down, or up again at another address.
//! So for [`WAIT`] after such an answer it gets further maps unasked: when an OSD goes down or comes up, and once more
//! when one that went down has not come back in time, since peering may have changed acting sets meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use base::Mono;

use crate::core::MonCore;
use crate::state::ConnKey;

/// Time after an answer for which the client gets news; longer than its pause before the next question.
const WAIT: Duration = Duration::from_secs(15);
/// Most answers that are remembered. Clients beyond that ask again by themselves.
const REMEMBERED: usize = 16_384;
/// Most clients that get one map. The others ask again by themselves.
const CLIENTS_A_MAP: usize = 1024;

/// The answers of the last seconds to questions for one newer map, oldest first.
#[derive(Debug, Default)]
pub(in crate::core) struct Awaited(VecDeque<(Mono, ConnKey)>);

impl Awaited {
    /// Notes an answer.
    pub(in crate::core) fn answered(&mut self, c: ConnKey, now: Mono) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((now, c));
    }

    /// True if further clients might not be told unasked.
    pub(in crate::core) fn is_full(&self) -> bool {
        self.0.len() >= CLIENTS_A_MAP
    }

    /// The clients to be told now, those that asked last first.
    fn clients(&mut self, now: Mono) -> Vec<ConnKey> {
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > WAIT) {
            self.0.pop_front();
        }
        self.0.iter().rev().take(CLIENTS_A_MAP).map(|(_, c)| *c).collect()
    }
}

impl MonCore {
    /// Sends the newest map to clients that asked for one lately.
    pub(in crate::core) fn send_awaited_maps(&mut self) {
        let newest = self.state.osdmap.epoch;
        for c in self.answers.awaited.clients(self.now.mono) {
            // A client that asked several times gets it once.
            let from = self.sessions.get(&c).map(|s| s.osd_epoch()).filter(|e| e.0 > 0 && *e < newest);
            if let Some(from) = from {
                self.send_maps_to_client(c, from.next());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_remembered_for_a_while_and_within_bounds() {
        let mut a = Awaited::default();
        let at = |s: u64| Mono(s * 1_000_000_000);
        a.answered(1, at(0));
        a.answered(2, at(10));
        assert_eq!(a.clients(at(15)), [2, 1]);
        assert_eq!((a.clients(at(16)), a.is_full()), (vec![2], false));
        (0..3 * REMEMBERED as u64).for_each(|c| a.answered(c, at(20)));
        assert_eq!(a.0.len(), REMEMBERED);
        assert_eq!((a.clients(at(21)).len(), a.is_full()), (CLIENTS_A_MAP, true));
    }
}
