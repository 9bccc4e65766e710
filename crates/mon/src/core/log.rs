//! The cluster log: the newest lines of each channel, for `ceph log last` and `log-*` subscribers.

use std::collections::VecDeque;

pub use wire::types::LogEntry;

/// Most lines kept.
pub const LOG_KEEP: usize = 10_000;

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

/// The newest lines of all channels, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// The lines with their number in the log.
    pub entries: VecDeque<(u64, LogEntry)>,
    /// Number of the next line. Clients drop lines whose number is not higher than the last, also after a restart of
    /// the monitor. Not every line is stored, so at start the number is at least the seconds since 1970.
    pub next: u64,
}

impl ClusterLog {
    /// Appends a line and returns its number. The oldest line is dropped if there are too many.
    pub fn push(&mut self, e: LogEntry) -> u64 {
        let n = self.next;
        self.next += 1;
        self.entries.push_back((n, e));
        if self.entries.len() > LOG_KEEP {
            self.entries.pop_front();
        }
        n
    }

    /// Uses up a number for a line that is sent to subscribers and not stored.
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
