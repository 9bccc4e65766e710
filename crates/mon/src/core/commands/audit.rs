//! The audit log: changes and refusals, each with the entity that sent the command.
//!
//! A command that may change something or hands out keys is one line of the cluster log's `audit` channel, in the
//! same transaction as its change. Refusals and failures are lines too, but any client can cause them. So repeats
//! within [`WINDOW`] become one line with their number. At most [`LINES`] are written in a window, and
//! [`LINES_OF_ONE`] for one entity; further ones are only counted. Commands that only read are in the process's own
//! log, at debug level; clients that follow the cluster log at that level get at most [`READS`] of them in two seconds,
//! which are not stored. A line shows declared arguments without secrets
//! ([`Parsed::shown`](crate::command::Parsed::shown)), never the input or the output.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::{AuthName, Mono};

use crate::command::Parsed;
use crate::core::MonCore;
use crate::state::log::{self, LogEntry, Prio};
use crate::state::{ConnKey, Role, SessionInfo};

/// Length of a window, in which repeats are merged.
const WINDOW: Duration = Duration::from_secs(60);
/// Most lines about refusals in a window.
const LINES: usize = 30;
/// Most lines about refusals of one entity in a window.
const LINES_OF_ONE: usize = 10;
/// Most commands of which clients that follow the log at debug level are told at once.
const READS: usize = 50;
/// Longest text of a command in a line, in bytes.
const TEXT_MAX: usize = 4096;
/// Most different refusals tracked at once.
const FOLLOWED: usize = 1024;

/// Entity, address, and the refused command or message.
type Key = (AuthName, IpAddr, String);

/// Lines that the audit log merges or sends later.
#[derive(Debug, Default)]
pub(in crate::core) struct Audit {
    refusals: Refusals,
    reads: Reads,
}

/// The refusals of the current window.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Mono>,
    /// Number of repeats of each refusal after the line that was written.
    more: BTreeMap<Key, u64>,
    lines: usize,
    lines_of: BTreeMap<AuthName, usize>,
    unlisted: u64,
}

/// Lines about commands that only read, for clients that follow the log at debug level. They are sent together, because
/// each message takes a number of the log, and the numbers of lines that are not stored must stay below one a second.
#[derive(Debug, Default)]
struct Reads {
    /// True if a client follows the log at debug level.
    are_followed: bool,
    lines: Vec<LogEntry>,
}

impl Audit {
    /// Takes the lines about commands that only read, which are to be sent now. `followed`: a client still follows them.
    pub(in crate::core) fn take_reads(&mut self, followed: bool) -> Vec<LogEntry> {
        self.reads.are_followed = followed;
        std::mem::take(&mut self.reads.lines)
    }

    /// A client follows the log at debug level.
    pub(in crate::core) fn follow_reads(&mut self) {
        self.reads.are_followed = true;
    }
}

impl Refusals {
    /// Counts a refusal; true if its line is to be written now.
    fn note(&mut self, key: Key, now: Mono) -> bool {
        self.since.get_or_insert(now);
        if let Some(n) = self.more.get_mut(&key) {
            *n += 1;
            return false;
        }
        let of_one = self.lines_of.get(&key.0).copied().unwrap_or_default();
        if self.lines >= LINES || of_one >= LINES_OF_ONE || self.more.len() >= FOLLOWED {
            self.unlisted += 1;
            return false;
        }
        self.lines += 1;
        self.lines_of.insert(key.0.clone(), of_one + 1);
        self.more.insert(key, 0);
        true
    }

    /// Ends the window if it is over, and returns its summary lines.
    fn end(&mut self, now: Mono) -> Vec<String> {
        if self.since.is_none_or(|t| now.since(t) < WINDOW) {
            return Vec::new();
        }
        let last = std::mem::take(self);
        let mut out: Vec<String> = last
            .more
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|((name, ip, what), n)| {
                format!("from='{ip}' entity='{name}' {what}: {n} more times within {} s", WINDOW.as_secs())
            })
            .collect();
        if last.unlisted > 0 {
            out.push(format!("{} more refusals within {} s are not listed", last.unlisted, WINDOW.as_secs()));
        }
        out
    }
}

/// The text, truncated to the longest length of a line.
pub(in crate::core) fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let at = (0..=TEXT_MAX).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(at);
    }
    text
}

impl MonCore {
    fn audit_line(&mut self, line: String) {
        self.pending.log(&self.state, self.now, Prio::INFO, "audit", line);
    }

    /// Logs a command that was run: `how` is "finished", or "dispatch" if its answer comes later.
    pub(in crate::core) fn audit_command(&mut self, info: &SessionInfo, cmd: &Parsed, rc: i32, how: &str) {
        let who = &info.principal.who;
        let text = || cut(cmd.shown());
        if !cmd.cmd.is_audited() {
            tracing::debug!(entity = %who.name, rc, "mon: command {}", text());
            return self.tell_of_read(info, cmd);
        }
        let head = format!("from='{} {}' entity='{}'", info.entity, who.socket, who.name);
        if rc == 0 {
            return self.audit_line(format!("{head} cmd=[{}]: {how}", text()));
        }
        let how = if rc == base::errno::EACCES { "access denied" } else { base::errno::name(rc) };
        let what = format!("cmd '{}': {how}", cmd.sig.prefix);
        if self.audit.refusals.note((who.name.clone(), who.socket.ip(), what), self.now.mono) {
            self.audit_line(format!("{head} cmd=[{}]: {how}", text()));
        }
    }

    /// Tells clients that follow the log at debug level of a command that only reads, in Ceph's words.
    fn tell_of_read(&mut self, info: &SessionInfo, cmd: &Parsed) {
        if !self.audit.reads.are_followed || self.audit.reads.lines.len() >= READS {
            return;
        }
        let line = if info.role == Role::Tell {
            let args: Vec<String> = cmd.args.iter().filter_map(|(k, _)| cmd.args.opt(k)).collect();
            let args = cut(args.join(", "));
            format!("from='admin socket' entity='admin socket' cmd='{}' args=[{args}]: dispatch", cmd.sig.prefix)
        } else {
            let who = &info.principal.who;
            let text = cut(cmd.shown());
            format!("from='{} {}' entity='{}' cmd=[{text}]: dispatch", info.entity, who.socket, who.name)
        };
        let seq = self.state.log.next;
        // The monitor that was asked, which may be one that relays the session.
        let name = info.by.as_ref().unwrap_or(&self.state.mon_name);
        self.audit.reads.lines.push(log::of_monitor(&self.state, name, self.now, Prio::DEBUG, "audit", line, seq));
    }

    /// Logs a command that was refused for lack of caps.
    pub(in crate::core) fn audit_refused(&mut self, info: &SessionInfo, cmd: &Parsed) {
        let who = &info.principal.who;
        let what = format!("cmd '{}': access denied", cmd.sig.prefix);
        if self.audit.refusals.note((who.name.clone(), who.socket.ip(), what), self.now.mono) {
            tracing::warn!(entity = %who.name, socket = %who.socket, command = cmd.sig.prefix, "command refused: caps");
            let text = cut(cmd.shown());
            self.audit_line(format!(
                "from='{} {}' entity='{}' cmd=[{text}]: access denied",
                info.entity, who.socket, who.name
            ));
        }
    }

    /// Logs a command for a separate manager that was refused for lack of caps.
    pub(in crate::core) fn audit_forward(&mut self, info: &SessionInfo, prefix: &str, head: String) {
        let who = &info.principal.who;
        let prefix: String = prefix.chars().take(128).collect();
        let what = format!("cmd '{prefix}': access denied");
        if self.audit.refusals.note((who.name.clone(), who.socket.ip(), what), self.now.mono) {
            self.audit_line(format!("{head}: access denied"));
        }
    }

    /// Logs a message or subscription that was dropped for lack of caps.
    pub(in crate::core) fn audit_dropped(&mut self, c: ConnKey, what: &str, why: &str) {
        let Some(s) = self.sessions.get(&c) else { return };
        let (who, entity) = (s.who().clone(), s.entity());
        let what: String = what.chars().take(64).collect();
        let key = (who.name.clone(), who.socket.ip(), format!("{what}: access denied"));
        if self.audit.refusals.note(key, self.now.mono) {
            tracing::warn!("mon: dropping {what} of {}: {why}", self.who(c));
            self.audit_line(format!("from='{entity} {}' entity='{}' {what}: access denied", who.socket, who.name));
        }
    }

    /// Writes the summary lines of merged refusals.
    pub(in crate::core) fn tick_audit(&mut self) {
        for line in self.audit.refusals.end(self.now.mono) {
            self.audit_line(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_merged_and_floods_are_counted() {
        let mut r = Refusals::default();
        let key =
            |name: &str, what: &str| (AuthName::parse(name).unwrap(), IpAddr::from([10, 0, 0, 1]), what.to_owned());
        let start = Mono(1_000_000_000);
        assert!(r.note(key("client.a", "x"), start));
        for _ in 0..5 {
            assert!(!r.note(key("client.a", "x"), start));
        }
        let written = (0..100).filter(|i| r.note(key("client.a", &i.to_string()), start)).count();
        assert_eq!(written, LINES_OF_ONE - 1);
        let written = (0..100).filter(|i| r.note(key(&format!("client.b{i}"), "x"), start)).count();
        assert_eq!(written, LINES - LINES_OF_ONE);
        assert!(r.end(start).is_empty());
        let later = start + WINDOW;
        assert_eq!(
            r.end(later),
            [
                "from='10.0.0.1' entity='client.a' x: 5 more times within 60 s",
                "171 more refusals within 60 s are not listed"
            ]
        );
        assert!(r.note(key("client.a", "x"), later), "a new window");
    }
}
