//! Bounds on connections that have not signed in, fair to other addresses.
//!
//! Anyone who reaches a port may open connections, so their cost before sign-in is bounded per address and in
//! total. A connection that has signed in does not count. The table identifies an address by its IPv4 address
//! or its IPv6 /64 network.
//!
//! Invariants:
//!  1. An address has at most [`PER_ADDRESS`] connections that have not signed in; all addresses together have
//!     at most [`TOTAL`]. A new connection replaces the oldest of its own address, or of the address with the
//!     most.
//!  2. After [`FAILURES`] connections that ended without signing in within [`WINDOW`], [`FAILURES_A_SECOND`] more of
//!     that address may end so each second, and new ones beyond that are closed at once. So clients that share an
//!     address with somebody who fails all the time (behind address translation) sign in after some attempts.
//!  3. The table has at most [`ADDRESSES`] addresses; further ones share one entry.
//!  4. The log has a few lines per address and minute, and one line that counts the rest.
//!
//! Tests: below.

use crate::types::ConnId;
use base::Mono;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Most connections of one address that have not signed in.
pub const PER_ADDRESS: usize = 512;
/// Most connections of all addresses that have not signed in.
pub const TOTAL: usize = 2048;
/// Most connections of one address that may end without signing in, in each [`WINDOW`].
pub const FAILURES: u32 = 1000;
/// Connections of an address that may end without signing in, for each second of the window, beyond [`FAILURES`].
pub const FAILURES_A_SECOND: u32 = 100;
/// Length of the window of [`FAILURES`].
pub const WINDOW: Duration = Duration::from_secs(10);
/// Most addresses that are counted separately.
pub const ADDRESSES: usize = 4096;
/// Most log lines about one address in a minute.
const LINES: u32 = 5;
/// Interval of the log line that counts the failures without a line of their own.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Most addresses that a summary names.
const NAMED: usize = 5;

#[derive(Debug, Default)]
struct Entry {
    /// Connections that have not signed in, oldest first.
    open: VecDeque<ConnId>,
    /// Connections that ended without signing in, counted from `since`.
    failed: u32,
    since: Mono,
    /// Counters for the summary: failures without a line, connections closed to make room, connections refused.
    unlogged: u64,
    evicted: u64,
    refused: u64,
    lines: u32,
}

/// Decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Serve it. The given connection is to be closed to make room.
    Take(Option<ConnId>),
    /// Close it at once.
    Refuse,
}

/// Table of connections that have not signed in; see the module.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    by_addr: HashMap<IpAddr, Entry>,
    open: usize,
    reported: Mono,
}

/// Key of the entry that addresses beyond [`ADDRESSES`] share.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

impl Gate {
    fn key(&self, ip: IpAddr) -> IpAddr {
        let key = network(ip);
        if self.by_addr.len() < ADDRESSES || self.by_addr.contains_key(&key) { key } else { OTHERS }
    }

    fn entry(&mut self, ip: IpAddr, now: Mono) -> &mut Entry {
        let key = self.key(ip);
        let e = self.by_addr.entry(key).or_default();
        if now.since(e.since) >= WINDOW {
            (e.failed, e.since) = (0, now);
        }
        e
    }

    /// Decides about a connection accepted from `ip`. The caller calls [`Gate::began`] if it serves the
    /// connection.
    pub(crate) fn admit(&mut self, ip: IpAddr, now: Mono) -> Verdict {
        let full = self.open >= TOTAL;
        let e = self.entry(ip, now);
        let seconds = u32::try_from(now.since(e.since).as_secs()).unwrap_or(0);
        if e.failed >= FAILURES.saturating_add(FAILURES_A_SECOND.saturating_mul(seconds)) {
            e.refused += 1;
            return Verdict::Refuse;
        }
        if e.open.len() >= PER_ADDRESS {
            e.evicted += 1;
            return Verdict::Take(e.open.front().copied());
        }
        if !full {
            return Verdict::Take(None);
        }
        Verdict::Take(self.oldest())
    }

    /// The oldest connection of the address with the most that have not signed in: it makes room for another.
    pub(crate) fn oldest(&mut self) -> Option<ConnId> {
        let most = self.by_addr.values_mut().filter(|e| !e.open.is_empty()).max_by_key(|e| e.open.len())?;
        most.evicted += 1;
        most.open.front().copied()
    }

    /// Registers a served connection that has not signed in.
    pub(crate) fn began(&mut self, ip: IpAddr, conn: ConnId, now: Mono) {
        self.open += 1;
        self.entry(ip, now).open.push_back(conn);
    }

    /// Removes a connection that has signed in, or has ended before that.
    pub(crate) fn over(&mut self, ip: IpAddr, conn: ConnId, signed_in: bool, now: Mono) {
        // Its entry may be that of the address or the shared one.
        for key in [network(ip), OTHERS] {
            let Some(e) = self.by_addr.get_mut(&key) else { continue };
            let Some(at) = e.open.iter().position(|c| *c == conn) else { continue };
            e.open.remove(at);
            self.open -= 1;
            if !signed_in {
                e.failed += u32::from(now.since(e.since) < WINDOW);
            }
            return;
        }
    }

    /// True if a failure of that address may be logged; else the failure is counted.
    pub(crate) fn may_log(&mut self, ip: IpAddr, now: Mono) -> bool {
        let e = self.entry(ip, now);
        e.lines += 1;
        if e.lines > LINES {
            e.unlogged += 1;
        }
        e.lines <= LINES
    }

    /// Sums up, once a minute, the failures without a line of their own. Forgets quiet addresses.
    pub(crate) fn report(&mut self, now: Mono) -> Option<String> {
        if now.since(self.reported) < REPORT_EVERY {
            return None;
        }
        self.reported = now;
        let mut all: Vec<(IpAddr, [u64; 3])> = Vec::new();
        for (ip, e) in &mut self.by_addr {
            let figures = [e.refused, e.evicted, e.unlogged];
            (e.refused, e.evicted, e.unlogged, e.lines) = (0, 0, 0, 0);
            if figures != [0; 3] {
                all.push((*ip, figures));
            }
        }
        self.by_addr.retain(|_, e| !e.open.is_empty() || (e.failed > 0 && now.since(e.since) < WINDOW));
        if all.is_empty() {
            return None;
        }
        all.sort_by_key(|(_, f)| std::cmp::Reverse(f.iter().sum::<u64>()));
        let mut text = String::new();
        for (ip, [refused, evicted, failed]) in all.iter().take(NAMED) {
            let name = if *ip == OTHERS { "others".to_owned() } else { ip.to_string() };
            let sep = if text.is_empty() { "" } else { "; " };
            // Writing to a string does not fail.
            let _ = write!(text, "{sep}{name}: {refused} refused, {evicted} closed for room, {failed} failed");
        }
        if all.len() > NAMED {
            let _ = write!(text, "; and {} more addresses", all.len() - NAMED);
        }
        Some(text)
    }

    /// Number of connections that have not signed in.
    pub(crate) fn open(&self) -> usize {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    fn at(ms: u64) -> Mono {
        Mono((100_000 + ms) * 1_000_000)
    }

    #[test]
    fn one_address_pushes_out_its_own_and_leaves_room_for_others() {
        let mut g = Gate::default();
        for n in 0..5000 {
            match g.admit(ip(1), at(0)) {
                Verdict::Take(evict) => {
                    if let Some(c) = evict {
                        g.over(ip(1), c, false, at(0));
                    }
                    g.began(ip(1), ConnId(n), at(0));
                }
                Verdict::Refuse => {}
            }
            assert!(g.open() <= PER_ADDRESS);
        }
        assert_eq!(g.admit(ip(1), at(1)), Verdict::Refuse, "after so many failures");
        assert_eq!(g.admit(ip(2), at(1)), Verdict::Take(None), "another address is served");
        assert!(matches!(g.admit(ip(1), at(10_001)), Verdict::Take(Some(_))), "and so is this one, later");
        let said = g.report(at(60_000)).unwrap();
        assert!(said.starts_with("10.0.0.1: 3"), "{said}");
        assert_eq!(g.report(at(60_001)), None, "once a minute");
    }

    #[test]
    fn a_client_behind_the_address_of_one_who_fails_signs_in_after_some_attempts() {
        let (mut g, mut n, mut served, mut failed) = (Gate::default(), 0, 0, 0);
        // For 10 s, 1,000 attempts a second that fail at once; every tenth is that of an honest client.
        for ms in 0..10_000 {
            n += 1;
            if g.admit(ip(1), at(ms)) == Verdict::Take(None) {
                let honest = ms % 10 == 9;
                g.began(ip(1), ConnId(n), at(ms));
                g.over(ip(1), ConnId(n), honest, at(ms));
                if honest && ms > 2000 {
                    served += 1;
                } else {
                    failed += u32::from(!honest);
                }
            }
        }
        assert!(served > 50, "{served}");
        assert!(failed <= FAILURES + 10 * FAILURES_A_SECOND, "{failed}");
    }

    #[test]
    fn many_addresses_share_the_whole_and_the_largest_makes_room() {
        let mut g = Gate::default();
        for n in 0..2 * TOTAL as u64 {
            let from = if n < 400 { ip(1) } else { ip(2 + n as u32) };
            let Verdict::Take(evict) = g.admit(from, at(0)) else { panic!("refused") };
            if let Some(c) = evict {
                g.over(if c.0 < 400 { ip(1) } else { ip(2 + c.0 as u32) }, c, false, at(0));
            }
            g.began(from, ConnId(n), at(0));
            assert!(g.open() <= TOTAL && g.by_addr.len() <= ADDRESSES + 1);
        }
        // In the end every address has one connection, and any of them can make room.
        assert!(g.by_addr.get(&ip(1)).is_none_or(|a| a.open.len() <= 1));
    }

    #[test]
    fn signed_in_ones_do_not_count_and_addresses_are_forgotten() {
        let mut g = Gate::default();
        for n in 0..10_000 {
            assert_eq!(g.admit(ip(1), at(0)), Verdict::Take(None));
            g.began(ip(1), ConnId(n), at(0));
            g.over(ip(1), ConnId(n), true, at(0));
        }
        assert_eq!(g.open(), 0);
        assert_eq!(g.report(at(70_000)), None);
        assert!(g.by_addr.is_empty());
        let v6 = |s: &str| network(s.parse().unwrap());
        assert_eq!(v6("fe80::1:2:3:4"), v6("fe80::9"));
        assert_eq!(v6("::ffff:10.0.0.1"), ip(1));
    }

    #[test]
    fn the_log_has_a_few_lines_for_each_address() {
        let mut g = Gate::default();
        let lines = (0..100).filter(|_| g.may_log(ip(1), at(0))).count();
        assert_eq!(lines, LINES as usize);
        assert!(g.may_log(ip(2), at(0)));
        assert_eq!(g.report(at(60_000)).unwrap(), "10.0.0.1: 0 refused, 0 closed for room, 95 failed");
        assert!(g.may_log(ip(1), at(60_001)));
    }

    /// The limits of connections in docs/design/msgr.md are those of the code.
    #[test]
    fn the_document_has_these_limits() {
        let documented = crate::documented::rows(include_str!("../../../docs/design/msgr.md"), "limit of connections");
        let l = crate::Limits::default();
        let (mib, s) = (|n: usize| format!("{} MiB", n >> 20), |d: Duration| format!("{} s", d.as_secs()));
        let count = |n: usize| if n < 1000 { n.to_string() } else { format!("{},{:03}", n / 1000, n % 1000) };
        let failures = format!("connections of one address that end without sign-in in {} s", WINDOW.as_secs());
        let code = [
            ("bytes that a connection holds", mib(l.in_flight_bytes_max)),
            ("bytes queued for a peer that takes nothing", mib(l.output_bytes_max)),
            ("time without progress of a peer whose queue is too long", s(l.stall_max)),
            ("incoming connections", count(l.connections_max)),
            ("incoming connections of one entity", count(crate::entities::share(l.connections_max))),
            ("handshake", s(l.handshake_max)),
            ("silence of an incoming lossy connection", s(l.idle_max)),
            ("time for which a lossless session waits for its client", s(l.standby_max)),
            ("bytes that all connections of a reactor hold", mib(crate::IN_FLIGHT_BYTES_MAX)),
            ("connections of one address before sign-in", count(PER_ADDRESS)),
            ("connections of all addresses before sign-in", count(TOTAL)),
            (failures.as_str(), count(FAILURES as usize)),
            ("more of them in each second", count(FAILURES_A_SECOND as usize)),
            ("addresses that are counted separately", count(ADDRESSES)),
            ("log lines about one address in a minute", LINES.to_string()),
        ];
        assert_eq!(documented, code.each_ref().map(|(name, value)| [*name, value.as_str()]));
    }
}
