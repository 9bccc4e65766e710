//! `health`: its rendering, and mutes. [`checks`] computes the alerts.
//!
//! | module | contents |
//! | --- | --- |
//! | `checks` | computes the alerts of clocks and daemons, and collects all others from the files `*_checks` |
//! | `daemon_checks` | alerts about daemons that run: old versions, OSDs outside the public network |
//! | `fs_checks` | alerts about file systems: ranks, standbys, and the warnings of MDS daemons |
//! | `host_checks` | the alert about hosts that became worse, from what the manager role keeps (`mgr::host::drift`) |
//! | `osd_checks` | alerts that follow from the OSD map alone: OSDs and hosts down, full ratios, flags, pools |
//! | `pg_checks` | alerts that follow from PG states and OSD reports |
//! | `scrub_checks` | alerts about late scrubs, and about OSDs that repaired many reads |
//! | `size_checks` | alerts about sizes: objects per PG, target sizes beyond the space, waiting snapshots |
//! | `store_checks` | alerts about what daemons run on: etcd or a file system, and limits of open descriptors |

use super::units::age;
use super::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed};
use crate::json::J;
use crate::obj;
use crate::state::{ClusterState, Mute};
use base::{Now, Utime, errno};
use std::collections::BTreeMap;
use std::time::Duration;

pub mod checks;
mod daemon_checks;
mod fs_checks;
mod host_checks;
mod osd_checks;
mod pg_checks;
mod scrub_checks;
mod size_checks;
mod store_checks;

pub(crate) use daemon_checks::versions_differ;
pub(super) use pg_checks::share as pg_share;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("health detail:Choices(detail)?", "mon", "r", 0, health, "show the health of the cluster"),
    cmd("health mute code:String ttl:String? sticky:Bool?", "mon", "w", 0, mute, "hide a health alert"),
    cmd("health unmute code:String?", "mon", "w", 0, unmute, "show a hidden health alert, or all of them, again"),
];

/// Severity of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Something needs attention.
    Warn,
    /// Data or service is at risk.
    Err,
}

impl Severity {
    /// `HEALTH_OK` and so on.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Self::Ok => "[OK]",
            Self::Warn => "[WRN]",
            Self::Err => "[ERR]",
        }
    }
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Severity of the alert.
    pub severity: Severity,
    /// The alert in one line.
    pub summary: String,
    /// Lines of `health detail`.
    pub detail: Vec<String>,
    /// The number of objects, PGs, OSDs or the like that the alert counts; a rise ends a mute.
    pub count: i64,
}

/// Alerts by code.
pub type Checks = BTreeMap<String, Check>;

/// All alerts that hold at the time `now`.
#[must_use]
pub fn checks(state: &ClusterState, now: Now) -> Checks {
    checks::all(state, now)
}

/// The worst alert that is not muted, as a word.
#[must_use]
pub fn health_word(state: &ClusterState, now: Now) -> &'static str {
    health_word_of(state, &checks(state, now), now)
}

/// The worst of these alerts that is not muted, as a word.
pub(crate) fn health_word_of(state: &ClusterState, checks: &Checks, now: Now) -> &'static str {
    let muted = |code: &String| state.mutes.get(code).is_some_and(|m| live(m, now));
    let worst = checks.iter().filter(|(c, _)| !muted(c)).map(|(_, k)| k.severity).max();
    worst.unwrap_or(Severity::Ok).word()
}

fn live(m: &Mute, now: Now) -> bool {
    m.until == Utime::ZERO || m.until > now.wall
}

/// Codes of mutes that have ended: the mute expired, its alert is gone (unless it is sticky), or the alert's count
/// rose.
#[must_use]
pub fn ended_mutes(state: &ClusterState, checks: &Checks, now: Now) -> Vec<String> {
    let over =
        |code: &String, m: &Mute| !live(m, now) || (!m.sticky && checks.get(code).is_none_or(|c| c.count > m.count));
    state.mutes.iter().filter(|(c, m)| over(c, m)).map(|(c, _)| c.clone()).collect()
}

/// The cluster's health: alerts and mutes.
pub(super) struct Health {
    /// All alerts, muted ones too.
    pub checks: Checks,
    mutes: BTreeMap<String, Mute>,
    now: Now,
}

impl Health {
    /// The health of the committed state at the command's time.
    pub(super) fn new(c: &Ctx<'_>) -> Self {
        let checks = checks(c.state, c.now);
        let mut mutes = c.state.mutes.clone();
        mutes.retain(|_, m| live(m, c.now));
        Self { checks, mutes, now: c.now }
    }

    fn muted(&self, code: &str) -> bool {
        self.mutes.contains_key(code)
    }

    /// Worst alert that is not muted.
    pub(super) fn status(&self) -> Severity {
        let shown = self.checks.iter().filter(|(c, _)| !self.muted(c));
        shown.map(|(_, k)| k.severity).max().unwrap_or(Severity::Ok)
    }

    /// Alerts that are not muted, the worst first.
    fn shown(&self) -> Vec<(&String, &Check)> {
        let mut v: Vec<_> = self.checks.iter().filter(|(c, _)| !self.muted(c)).collect();
        v.sort_by_key(|(_, k)| std::cmp::Reverse(k.severity));
        v
    }

    /// `(muted: CODE(59m) CODE)`; `None` if nothing is muted.
    pub(super) fn muted_text(&self) -> Option<String> {
        let list: Vec<String> = self
            .mutes
            .iter()
            .filter(|(c, _)| self.checks.contains_key(*c))
            .map(|(c, m)| if m.until == Utime::ZERO { c.clone() } else { format!("{c}({})", self.left(m)) })
            .collect();
        (!list.is_empty()).then(|| format!("(muted: {})", list.join(" ")))
    }

    fn left(&self, m: &Mute) -> String {
        age(m.until.to_unix().saturating_sub(self.now.wall.to_unix()).as_secs())
    }

    /// Summaries of the alerts that are not muted, one line each, as `status` lists them.
    pub(super) fn summaries(&self) -> Vec<String> {
        self.shown().into_iter().map(|(_, k)| k.summary.clone()).collect()
    }

    /// Health as a tree, with details if wanted.
    pub(super) fn tree(&self, detail: bool) -> J {
        let mut checks = J::object();
        for (code, k) in &self.checks {
            let mut j = obj! {
                "severity": k.severity.word(),
                "summary": obj! { "message": &k.summary, "count": k.count },
            };
            if detail {
                j.put("detail", k.detail.iter().map(|d| obj! { "message": d }).collect::<J>());
            }
            j.put("muted", self.muted(code));
            checks.put(code.clone(), j);
        }
        let mutes: J = self
            .mutes
            .iter()
            .map(|(code, m)| {
                let mut j = obj! { "code": code };
                if m.until != Utime::ZERO {
                    j.put("ttl", m.until.iso());
                }
                j.put("sticky", m.sticky).put("summary", &m.summary).put("count", m.count);
                j
            })
            .collect();
        obj! { "status": self.status().word(), "checks": checks, "mutes": mutes }
    }

    fn text(&self, detail: bool) -> String {
        let mut out = self.status().word().to_owned();
        let s = self.summaries();
        if !s.is_empty() {
            out += " ";
            out += &s.join("; ");
        }
        if let Some(m) = self.muted_text() {
            out += " ";
            out += &m;
        }
        out.push('\n');
        if detail {
            let mut all: Vec<_> = self.checks.iter().collect();
            all.sort_by_key(|(_, k)| std::cmp::Reverse(k.severity));
            for (code, k) in all {
                if let Some(m) = self.mutes.get(code) {
                    out += "(MUTED";
                    if m.until != Utime::ZERO {
                        out += &format!(" ttl {}", self.left(m));
                    }
                    if m.sticky {
                        out += ", STICKY";
                    }
                    out += ") ";
                }
                out += &format!("{} {code}: {}\n", k.severity.tag(), k.summary);
                for d in &k.detail {
                    out += &format!("    {d}\n");
                }
            }
        }
        out
    }
}

fn health(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let h = Health::new(c);
    let detail = c.args.opt("detail").is_some();
    c.tree("health", || h.tree(detail)).text(|| h.text(detail))
}

/// Parses a duration like `1h30m`, `90`, `2d`.
fn parse_ttl(s: &str) -> Res<Duration> {
    let bad = |why: &str| Refused::new(errno::EINVAL, format!("invalid duration: {s} ({why})"));
    let (mut total, mut number) = (0u64, String::new());
    let mut chars = s.chars().filter(|c| !c.is_whitespace()).peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        if number.is_empty() {
            return Err(bad("expected digit"));
        }
        let mut unit = c.to_string();
        while let Some(n) = chars.next_if(|n| n.is_ascii_alphabetic()) {
            unit.push(n);
        }
        let scale = match unit.as_str() {
            "s" | "sec" | "secs" | "second" | "seconds" => 1u64,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "wks" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "yrs" | "year" | "years" => 31_536_000,
            _ => return Err(bad("unrecognized unit")),
        };
        let n: u64 = number.parse().map_err(|_| bad("number too large"))?;
        total = total.saturating_add(n.saturating_mul(scale));
        number.clear();
    }
    if !number.is_empty() {
        total = total.saturating_add(number.parse().map_err(|_| bad("number too large"))?);
    }
    if total == 0 {
        return Err(bad("expected digit"));
    }
    Ok(Duration::from_secs(total))
}

fn mute(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let code = c.args.str("code")?;
    let until = match c.args.opt("ttl") {
        Some(t) => c.now.wall.plus(parse_ttl(&t)?),
        None => Utime::ZERO,
    };
    let sticky = c.args.flag("sticky");
    let all = checks(c.state, c.now);
    let (summary, count) = match all.get(&code) {
        Some(k) => (k.summary.clone(), k.count),
        None if sticky => (String::new(), 0),
        None => {
            return Err(Refused::new(errno::ENOENT, format!("health alert {code} is not currently raised")));
        }
    };
    c.pending.mute(code, Mute { until, sticky, summary, count });
    committed("")
}

fn unmute(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    match c.args.opt("code") {
        Some(code) => {
            c.pending.unmute(code);
        }
        None => {
            let all: Vec<String> = c.state.mutes.keys().chain(c.pending.mutes.keys()).cloned().collect();
            all.into_iter().for_each(|code| c.pending.unmute(code));
        }
    }
    committed("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_ttl("1h").unwrap(), Duration::from_secs(3600));
        assert_eq!(parse_ttl("1h 30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_ttl("90").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_ttl("zz").unwrap_err().rs, "invalid duration: zz (expected digit)");
        assert!(parse_ttl("5q").is_err());
        assert!(parse_ttl("99999999999999999999s").is_err());
    }
}
