//! The cluster log: the last lines of each channel, as `ceph log last` shows them and `log-*` subscribers get them.

use std::collections::VecDeque;

pub use wire::types::LogEntry;

/// Lines kept.
pub const LOG_KEEP: usize = 10_000;

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prio(pub u16);

impl Prio {
    /// Debug.
    pub const DEBUG: Self = Self(0);
    /// Information.
    pub const INFO: Self = Self(1);
    /// Security.
    pub const SEC: Self = Self(2);
    /// Warning.
    pub const WARN: Self = Self(3);
    /// Error.
    pub const ERROR: Self = Self(4);

    /// As the plain log shows it: `[INF]`.
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

    /// The word of `log last LEVEL` and of the `log-LEVEL` subscription.
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

/// Newest lines of all channels, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// Lines with their number in the log.
    pub entries: VecDeque<(u64, LogEntry)>,
    /// Number of the next line. Clients drop what has no higher number than the last, also after a restart of the monitor,
    /// and not every line is kept: at its start, the seconds since 1970 are the least.
    pub next: u64,
}

impl ClusterLog {
    /// Appends a line and drops the oldest over the bound; gives the line's number.
    pub fn push(&mut self, e: LogEntry) -> u64 {
        let n = self.next;
        self.next += 1;
        self.entries.push_back((n, e));
        if self.entries.len() > LOG_KEEP {
            self.entries.pop_front();
        }
        n
    }

    /// Takes a number for a line that is sent to who listens and not kept.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// The last `n` lines of at least `level` in `channel` (`*` for all), oldest first.
    #[must_use]
    pub fn last(&self, n: usize, level: Prio, channel: &str) -> Vec<&LogEntry> {
        let mut v: Vec<&LogEntry> = self
            .entries
            .iter()
            .rev()
            .map(|(_, e)| e)
            .filter(|e| e.prio >= level.0 && (channel == "*" || e.channel == channel))
            .take(n)
            .collect();
        v.reverse();
        v
    }
}
