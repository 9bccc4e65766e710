//! The cluster log: the newest lines of each channel, for `ceph log last` and `log-*` subscribers.

use std::collections::{BTreeSet, VecDeque};

use base::{AuthName, EntityKind, EntityName, Now, Utime};

use super::ClusterState;

pub use wire::types::LogEntry;

/// Most lines kept of the audit channel, and of all others together.
pub const LOG_LINES: usize = 10_000;
/// Most bytes kept of each.
const LOG_BYTES: usize = 64 << 20;
/// Number of newest lines among which a repeated one is recognised.
pub const KNOWN_LINES: usize = 16_384;
/// Longest text of a line from a daemon or client, in bytes.
pub const LINE_MAX: usize = 16 << 10;
/// The channel of changes and refusals, which only monitors and the active manager write.
pub const AUDIT: &str = "audit";

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prio(pub u16);

impl Prio {
    /// Debugging output.
    pub const DEBUG: Self = Self(0);
    /// Information for the operator.
    pub const INFO: Self = Self(1);
    /// An event relevant to security.
    pub const SEC: Self = Self(2);
    /// A warning.
    pub const WARN: Self = Self(3);
    /// An error.
    pub const ERROR: Self = Self(4);

    /// The tag in the plain log, such as `[INF]`.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self.0 {
            0 => "[DBG]",
            1 => "[INF]",
            2 => "[SEC]",
            3 => "[WRN]",
            4 => "[ERR]",
            _ => "[???]",
        }
    }

    /// The severity of a word in `log last LEVEL` or `log-LEVEL`.
    #[must_use]
    pub fn from_word(w: &str) -> Option<Self> {
        Some(match w {
            "debug" => Self::DEBUG,
            "info" => Self::INFO,
            "sec" => Self::SEC,
            "warn" => Self::WARN,
            "error" => Self::ERROR,
            _ => return None,
        })
    }
}

/// A line of a monitor.
pub(crate) fn of_monitor(
    state: &ClusterState,
    name: &str,
    now: Now,
    prio: Prio,
    channel: &str,
    msg: String,
    seq: u64,
) -> LogEntry {
    let rank = state.monmap.ranks.iter().position(|n| n == name).unwrap_or(0);
    LogEntry {
        name: AuthName { kind: EntityKind::MON, id: name.to_owned() },
        rank: EntityName::new(EntityKind::MON, i64::try_from(rank).unwrap_or(0)),
        addrs: state.monmap.mons.get(name).map(|m| m.public_addrs.clone()).unwrap_or_default(),
        stamp: now.wall,
        seq,
        prio: prio.0,
        msg: msg.into(),
        channel: channel.to_owned(),
    }
}

/// Lines with their numbers, oldest first, and their bytes.
#[derive(Clone, Debug, Default)]
struct Lines {
    entries: VecDeque<(u64, LogEntry)>,
    bytes: usize,
}

fn size(e: &LogEntry) -> usize {
    e.msg.0.len() + e.channel.len() + 128
}

impl Lines {
    fn push(&mut self, n: u64, e: LogEntry) {
        self.bytes += size(&e);
        self.entries.push_back((n, e));
        let over = self.over(std::iter::empty());
        for (_, e) in self.entries.drain(..over) {
            self.bytes -= size(&e);
        }
    }

    /// Number of the oldest lines that leave when further ones are added.
    fn over<'a>(&self, more: impl Iterator<Item = &'a LogEntry>) -> usize {
        let (n, bytes) = more.fold((0, 0), |(n, b), e| (n + 1, b + size(e)));
        let (mut left, mut bytes) = (self.entries.len() + n, self.bytes + bytes);
        let mut out = 0;
        for (_, e) in &self.entries {
            if left <= LOG_LINES && bytes <= LOG_BYTES || left <= 1 {
                break;
            }
            left -= 1;
            bytes -= size(e);
            out += 1;
        }
        out
    }
}

/// The newest lines. The lines of the audit channel are kept apart, so that no others push them out.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    audit: Lines,
    others: Lines,
    /// Number of the next line. Clients drop lines whose number is not higher than the last, also after a restart of
    /// the monitor. Not every line is stored, so at start the number is at least the seconds since 1970.
    pub next: u64,
}

impl ClusterLog {
    /// Appends a line and returns its number. The oldest lines are dropped if there are too many.
    pub fn push(&mut self, e: LogEntry) -> u64 {
        let n = self.next;
        self.next += 1;
        let to = if e.channel == AUDIT { &mut self.audit } else { &mut self.others };
        to.push(n, e);
        n
    }

    /// Adds a stored line, at start.
    pub fn loaded(&mut self, n: u64, e: LogEntry) {
        self.next = n;
        self.push(e);
    }

    /// Numbers of the lines that leave when `more` are appended.
    #[must_use]
    pub fn leaving(&self, more: &[LogEntry]) -> Vec<u64> {
        let of = |lines: &Lines, audit: bool| -> Vec<u64> {
            let over = lines.over(more.iter().filter(|e| (e.channel == AUDIT) == audit));
            lines.entries.iter().take(over).map(|(n, _)| *n).collect()
        };
        let mut all = of(&self.audit, true);
        all.extend(of(&self.others, false));
        all
    }

    /// Uses up a number for a line that is sent to subscribers and not stored.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.audit.entries.len() + self.others.entries.len()
    }

    /// True if there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All lines with their numbers, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &(u64, LogEntry)> {
        let (mut a, mut b) = (self.audit.entries.iter().rev().peekable(), self.others.entries.iter().rev().peekable());
        std::iter::from_fn(move || match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) if x < y => b.next(),
            (None, _) => b.next(),
            _ => a.next(),
        })
    }

    /// All lines with their numbers, the oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<&(u64, LogEntry)> {
        let mut v: Vec<_> = self.newest_first().collect();
        v.reverse();
        v
    }

    /// The newest `n` lines, the newest first.
    pub fn newest(&self, n: usize) -> impl Iterator<Item = &LogEntry> {
        self.newest_first().take(n).map(|(_, e)| e)
    }

    /// The last `n` lines of at least `level` in `channel` (`*` for all), oldest first.
    #[must_use]
    pub fn last(&self, n: usize, level: Prio, channel: &str) -> Vec<&LogEntry> {
        let fits = |e: &&LogEntry| e.prio >= level.0 && (channel == "*" || e.channel == channel);
        let mut v: Vec<&LogEntry> = match channel {
            AUDIT => self.audit.entries.iter().rev().map(|(_, e)| e).filter(fits).take(n).collect(),
            _ => self.newest_first().map(|(_, e)| e).filter(fits).take(n).collect(),
        };
        v.reverse();
        v
    }
}

/// Name, running number and time of a line as its sender gave them.
pub type LineId = (AuthName, u64, Utime);

/// Identifies a line.
#[must_use]
pub fn line_id(e: &LogEntry) -> LineId {
    (e.name.clone(), e.seq, e.stamp)
}

/// Lines that senders may repeat: daemons repeat lines until they are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Known {
    stored: BTreeSet<LineId>,
    order: VecDeque<LineId>,
    /// Those of the proposal under construction.
    pending: BTreeSet<LineId>,
}

impl Known {
    /// The newest lines of the log, the newest first.
    pub(crate) fn of(newest: &[LogEntry]) -> Self {
        let mut me = Self::default();
        newest.iter().rev().for_each(|e| me.stored(e));
        me
    }

    /// Adds a line to the proposal under construction; false if it is known.
    pub(crate) fn add(&mut self, e: &LogEntry) -> bool {
        let id = line_id(e);
        !self.stored.contains(&id) && self.pending.insert(id)
    }

    /// Number of lines in the proposal under construction.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Forgets the lines of the proposal, which is committed or dropped.
    pub(crate) fn proposed(&mut self) {
        self.pending.clear();
    }

    /// Adds a committed line.
    pub(crate) fn stored(&mut self, e: &LogEntry) {
        let id = line_id(e);
        if self.stored.insert(id.clone()) {
            self.order.push_back(id);
        }
        while self.order.len() > KNOWN_LINES {
            if let Some(old) = self.order.pop_front() {
                self.stored.remove(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, channel: &str, len: usize) -> LogEntry {
        LogEntry { seq, channel: channel.to_owned(), msg: "x".repeat(len).into(), ..LogEntry::default() }
    }

    #[test]
    fn other_lines_do_not_push_out_audit_lines_and_bytes_are_bounded() {
        let mut log = ClusterLog::default();
        log.push(line(0, AUDIT, 10));
        let mut stored: BTreeSet<u64> = [0].into();
        for round in 0..30 {
            let more: Vec<LogEntry> =
                (0..1000).map(|n| line(n, "cluster", if round > 20 { 16_000 } else { 10 })).collect();
            for n in log.leaving(&more) {
                assert!(stored.remove(&n));
            }
            more.into_iter().for_each(|e| assert!(stored.insert(log.push(e))));
            assert_eq!(log.entries().iter().map(|(n, _)| *n).collect::<BTreeSet<_>>(), stored);
            assert!(log.others.bytes <= LOG_BYTES && log.len() <= LOG_LINES + 1);
        }
        assert_eq!(log.last(10, Prio::DEBUG, AUDIT).len(), 1);
        assert_eq!(log.entries()[0].0, 0);
        assert!(log.others.entries.len() < 5000, "long lines");
    }

    #[test]
    fn a_line_is_known_once_it_is_pending_or_stored() {
        let mut k = Known::default();
        let (a, b) = (line(1, "cluster", 1), line(2, "cluster", 1));
        assert!(k.add(&a) && !k.add(&a) && k.add(&b));
        assert_eq!(k.pending(), 2);
        k.proposed();
        k.stored(&a);
        assert!(!k.add(&a) && k.add(&b), "a dropped proposal's line is new");
    }
}
