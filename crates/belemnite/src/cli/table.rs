//! Tables and progress of commands, as text.

use base::size;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A table with aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns with numbers, which are aligned at their end.
    numbers: Vec<bool>,
}

impl Table {
    /// A table with these headings; those that begin with `>` are of numbers.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let numbers = headings.iter().map(|h| h.starts_with('>')).collect();
        let first = headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![first], numbers }
    }

    /// Adds a row. Control characters, which could change the terminal, are replaced.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let clean = |c: String| c.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The table, with a line end after each row.
    pub(crate) fn text(&self) -> String {
        let width = |i: usize| self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let w = width(i);
                let _ = match self.numbers.get(i) {
                    Some(true) => write!(line, "{cell:>w$}  "),
                    _ => write!(line, "{cell:<w$}  "),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Time after which a command tells how far it is.
const QUIET: Duration = Duration::from_secs(1);
/// Interval of the lines on a terminal.
const EVERY: Duration = Duration::from_millis(250);

/// Progress of a command on the terminal: amount, rate and the time that is left. Nothing is written if standard error is
/// no terminal, and in the first second.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// Progress of `what`, in bytes, of `total` if that is known.
    pub(crate) fn new(what: impl Into<String>, total: Option<u64>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { what: what.into(), total, done: 0, began: Instant::now(), shown: None, is_terminal }
    }

    /// Adds bytes that were done.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let now = Instant::now();
        let due = self.shown.is_none_or(|s| now - s >= EVERY);
        if self.is_terminal && due && now - self.began >= QUIET {
            let line = line(&self.what, self.done, self.total, now - self.began);
            self.say(&line);
        }
    }

    /// Shows a line in place of the last one.
    pub(crate) fn say(&mut self, line: &str) {
        if self.is_terminal {
            self.shown = Some(Instant::now());
            // The command goes on if nobody reads it.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A line of progress.
fn line(what: &str, done: u64, total: Option<u64>, time: Duration) -> String {
    let rate = done as f64 / time.as_secs_f64().max(1e-3);
    let mut out = format!("{what}: {}", size::show(done));
    if let Some(t) = total.filter(|t| *t > 0) {
        let _ = write!(out, " of {} ({:.0} %)", size::show(t), 100.0 * done as f64 / t as f64);
    }
    let _ = write!(out, ", {}/s", size::show(rate as u64));
    if let Some(left) = total.and_then(|t| t.checked_sub(done)).filter(|_| rate >= 1.0) {
        let _ = write!(out, ", {} left", duration(left as f64 / rate));
    }
    out
}

/// A time in two units: `3 min 20 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 1e9).round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut t = Table::new(&["NAME", ">SIZE", "STATE"]);
        t.row(["a".into(), "1".into(), "up".into()]);
        t.row(["long\x1b".into(), "1000".into(), String::new()]);
        assert_eq!(t.text(), "NAME   SIZE  STATE\na         1  up\nlong?  1000\n");
    }

    #[test]
    fn a_line_has_rate_and_rest() {
        let two = Duration::from_secs(2);
        assert_eq!(line("put a", 1 << 20, Some(4 << 20), two), "put a: 1 MiB of 4 MiB (25 %), 512 KiB/s, 6 s left");
        assert_eq!(line("get a", 1 << 20, None, two), "get a: 1 MiB, 512 KiB/s");
        assert_eq!(line("x", 0, Some(5), two), "x: 0 B of 5 B (0 %), 0 B/s");
        assert_eq!(line("x", 9, Some(5), Duration::ZERO), "x: 9 B of 5 B (180 %), 8.8 KiB/s");
        let all = [5.0, 200.0, 7300.0, 200_000.0, f64::INFINITY];
        assert_eq!(all.map(duration), ["5 s", "3 min 20 s", "2 h 1 min", "2 d 7 h", "11574 d 1 h"]);
    }
}
