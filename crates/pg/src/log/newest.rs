//! The newest operation of each client in a log, so that only older ones are looked up: see [`PgLog::find`].
//!
//! Invariant: no record of the log has a tid above its client's bound.
//!
//! Tests: below.
//!
//! [`PgLog::find`]: super::PgLog::find

use super::Slim;
use base::{EntityName, ReqId};

/// Upper bounds of the tids that the log has of each client. They never fall, so one that is too high costs a look-up
/// and no answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Newest {
    /// Clients as [`Slim::who`] names them, each with its bound; the client of the newest record first.
    of: Vec<(u64, u64)>,
    /// Bound of all other clients.
    others: u64,
}

impl Newest {
    const CLIENTS_MAX: usize = 16;

    /// Notes a record.
    #[inline]
    pub(super) fn push(&mut self, reqid: &ReqId) {
        let Some(who) = Slim::who(reqid.name) else {
            self.others = self.others.max(reqid.tid);
            return;
        };
        match self.of.iter().position(|(w, _)| *w == who) {
            Some(at) => self.of[..=at].rotate_right(1),
            None => self.enter(who),
        }
        if let Some((_, tid)) = self.of.first_mut() {
            *tid = (*tid).max(reqid.tid);
        }
    }

    /// Puts a client first. The one that leaves for it has its bound among the others.
    fn enter(&mut self, who: u64) {
        let tid = self.others;
        if self.of.len() == Self::CLIENTS_MAX
            && let Some((_, left)) = self.of.pop()
        {
            self.others = self.others.max(left);
        }
        self.of.insert(0, (who, tid));
    }

    /// Upper bound of the tids that the log has of this client, whatever its incarnation.
    #[inline]
    pub(super) fn bound(&self, name: EntityName) -> u64 {
        let known = Slim::who(name).and_then(|who| self.of.iter().find(|(w, _)| *w == who));
        known.map_or(self.others, |(_, tid)| *tid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dup, PgLog};
    use super::*;
    use base::rng::Rng;
    use base::{EntityKind, Eversion};
    use std::collections::VecDeque;

    fn dup(n: u64) -> Dup {
        let reqid = ReqId { name: EntityName::new(EntityKind::CLIENT, 9), tid: n, inc: 0 };
        Dup { reqid, version: Eversion::new(1, n), user_version: n, result: 0, returns: None }
    }

    /// A log with the records of more clients than it has bounds for finds each of them, by whatever order, incarnation
    /// and repetition of their tids. It looks nothing up for one client that counts upwards, also after a restart.
    #[test]
    fn only_older_operations_are_looked_up() {
        for seed in 0..20u64 {
            let mut rng = Rng::new(seed);
            let mut log = PgLog::default();
            let mut list: VecDeque<Dup> = VecDeque::new();
            let clients = [1, 2, 16, 17, 40][seed as usize % 5];
            let mut tids = vec![0u64; clients];
            for n in 1..1500u64 {
                let c = rng.below(clients as u64) as usize;
                let (kind, num) = match rng.below(20) {
                    0 => (EntityKind::OSD, c as i64),
                    1 => (EntityKind::CLIENT, -1 - c as i64),
                    _ => (EntityKind::CLIENT, c as i64),
                };
                tids[c] += 1 + rng.below(3);
                // Threads of a client overtake each other, and a new incarnation begins anew.
                let tid = tids[c].saturating_sub(rng.below(3)).max(1);
                let reqid = ReqId { name: EntityName::new(kind, num), tid, inc: rng.below(2) as i32 };
                if list.iter().any(|d| d.reqid == reqid) {
                    continue;
                }
                let all = [-2i64, -1, 0, 1, 2].map(|d| tid.saturating_add_signed(d)).into_iter();
                for reqid in all.flat_map(|tid| [0, 1].map(|inc| ReqId { tid, inc, ..reqid })) {
                    let wanted = list.iter().rev().find(|d| d.reqid == reqid && d.reqid.tid != 0);
                    assert_eq!(log.find(&reqid).as_ref(), wanted, "seed {seed}");
                }
                let d = Dup { reqid, ..dup(n) };
                list.push_back(d.clone());
                log.push(d);
                match rng.below(300) {
                    0 => {
                        let to = n - rng.below(5).min(n - log.tail.version);
                        log.rewind(Eversion::new(1, to));
                        list.retain(|d| d.version.version <= to);
                    }
                    1 => {
                        let to = log.tail.version + (n - log.tail.version) / 2;
                        log.trim(Eversion::new(1, to));
                        list.retain(|d| d.version.version > to);
                    }
                    // A restart.
                    2 => {
                        let mut new = PgLog::behind(log.tail);
                        list.iter().for_each(|d| new.push(d.clone()));
                        log = new;
                    }
                    _ => {}
                }
                assert!(log.newest.as_ref().is_none_or(|n| n.of.capacity() <= Newest::CLIENTS_MAX));
            }
        }
        let mut log = PgLog::default();
        for n in 1..200 {
            assert_eq!(log.find(&dup(n).reqid), None);
            log.push(dup(n));
        }
        assert_eq!(log.index.len(), 0, "nothing was looked up");
        assert_eq!(log.find(&dup(7).reqid), Some(dup(7)));
    }
}
