//! Computes the alerts of clocks and daemons, and collects all others from the files `*_checks`.

use super::{Check, Checks, Severity};
use crate::state::clocks::clock_drift_allowed;
use crate::state::config::mon_option;
use crate::state::cuts::names;
use crate::state::{ClusterState, lost_tickets};
use base::{Now, OsdId};
use mgr::stats::DaemonHealth;
use std::time::Duration;

/// Mean time of a commit from which the store of a monitor is slow.
const COMMIT_SLOW: Duration = Duration::from_millis(500);
/// Time for which the last commits tell something about the present.
const COMMIT_AGE_MAX: Duration = Duration::from_secs(60);

/// The alerts collected so far.
pub(super) struct Adder {
    pub(super) checks: Checks,
}

impl Adder {
    /// Adds an alert.
    pub(super) fn add(&mut self, code: &str, severity: Severity, count: usize, summary: String, detail: Vec<String>) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.checks.insert(code.to_owned(), Check { severity, summary, detail, count });
    }

    /// Adds an alert unless `detail` is empty.
    pub(super) fn add_some(&mut self, code: &str, severity: Severity, what: &str, detail: Vec<String>) {
        if !detail.is_empty() {
            self.add(code, severity, detail.len(), format!("{} {what}", detail.len()), detail);
        }
    }
}

/// True if a boolean option of the monitor is set.
pub(super) fn on(state: &ClusterState, name: &str) -> bool {
    matches!(mon_option(state, name).as_str(), "true" | "1" | "yes")
}

/// Computes all alerts.
pub(super) fn all(state: &ClusterState, now: Now) -> Checks {
    let mut a = Adder { checks: Checks::new() };
    super::osd_checks::add(&mut a, state);
    super::pg_checks::add(&mut a, state, now);
    super::fs_checks::add(&mut a, state);
    super::size_checks::add(&mut a, state);
    super::daemon_checks::add(&mut a, state, now);
    daemons(&mut a, state, now);
    for (code, c) in state.separate_mgr.checks() {
        let severity = if c.severity == 0 { Severity::Err } else { Severity::Warn };
        let detail = c.detail.iter().map(|d| d.0.clone()).collect();
        let check = Check { severity, summary: c.summary.0.clone(), detail, count: c.count };
        a.checks.entry(code.clone()).or_insert(check);
    }
    a.checks
}

fn clocks(a: &mut Adder, state: &ClusterState) {
    let allowed = clock_drift_allowed(state);
    let skewed = || state.mons.clocks.differences().iter().filter(|(_, d)| d.skew.abs() > allowed);
    let names: Vec<String> = skewed().map(|(n, _)| format!("mon.{n}")).collect();
    if !names.is_empty() {
        let detail = skewed().map(|(n, d)| format!("mon.{n} {} {}", d.text(allowed), d.latency_text())).collect();
        let summary = format!("clock skew detected on {}", names.join(", "));
        a.add("MON_CLOCK_SKEW", Severity::Warn, names.len(), summary, detail);
    }
}

fn daemons(a: &mut Adder, state: &ClusterState, now: Now) {
    let name = &state.mon_name;
    let there = state.quorum();
    let missing: Vec<&String> = state.monmap.ranks.iter().filter(|n| !there.contains(n)).collect();
    if !missing.is_empty() {
        let (n, all) = (missing.len(), state.monmap.ranks.len());
        let summary = format!("{n}/{all} mons down, quorum {}", there.join(","));
        let line = |n: &&String| {
            let rank = state.monmap.ranks.iter().position(|r| r == *n).unwrap_or(0);
            let addr = state.monmap.mons.get(*n).map(|m| m.public_addrs.to_string()).unwrap_or_default();
            format!("mon.{n} (rank {rank}) addr {addr} is down (out of quorum)")
        };
        a.add("MON_DOWN", Severity::Warn, n, summary, missing.iter().map(line).collect());
    }
    clocks(a, state);
    super::store_checks::add(a, state);
    if !state.mgrmap.available {
        a.add("MGR_DOWN", Severity::Warn, 1, "no active mgr".into(), Vec::new());
    }
    let alien: Vec<String> = crate::command::mgr::modules_without_manager(state)
        .iter()
        .map(|n| format!("Module '{n}' has failed dependency: the built-in manager does not have it"))
        .collect();
    if let Some(first) = alien.first() {
        let many = format!("{} mgr modules have failed dependencies", alien.len());
        let summary = if alien.len() == 1 { first.clone() } else { many };
        a.add("MGR_MODULE_DEPENDENCY", Severity::Warn, alien.len(), summary, alien);
    }
    super::host_checks::add(a, state);
    rehearsal(a, state, now);
    crate::command::device::life::alerts(state, now, |code, severity, n, text, lines| {
        a.add(code, severity, n, text, lines)
    });
    crate::command::device::light::alerts(state, |code, severity, n, text, lines| {
        a.add(code, severity, n, text, lines)
    });
    let crashed = crate::command::mgr::crash::recent(state, now);
    a.add_some("RECENT_CRASH", Severity::Warn, "daemons have recently crashed", crashed);
    if state.options.auth.cephx
        && state.options.auth.allow_insecure_reclaim
        && on(state, "mon_warn_on_insecure_global_id_reclaim_allowed")
    {
        let detail = vec![format!("mon.{name} has auth_allow_insecure_global_id_reclaim set to true")];
        let summary = "mon is allowing insecure global_id reclaim".into();
        a.add("AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED", Severity::Warn, 1, summary, detail);
    }
    if state.options.osds.down_out_interval.is_zero() && on(state, "mon_warn_on_osd_down_out_interval_zero") {
        let detail = vec![format!("mon.{name} has mon_osd_down_out_interval set to 0")];
        let summary = format!("mon {name} has mon_osd_down_out_interval set to 0");
        a.add("OSD_NO_DOWN_OUT_INTERVAL", Severity::Warn, 1, summary, detail);
    }
    if let Some(e) = &state.store.error {
        let summary = format!("mon {name} cannot write its state; nothing can be changed");
        a.add("MON_DISK_CRIT", Severity::Err, 1, summary, vec![format!("mon.{name}: {e}")]);
    }
    keys(a, state, now);
    let mean = state.store.commit_mean;
    if mean >= COMMIT_SLOW && now.mono.since(state.store.committed) < COMMIT_AGE_MAX {
        let ms = mean.as_millis();
        let summary = format!("mon {name} takes {ms} ms to commit a change of its state");
        let detail = format!("mon.{name}: {ms} ms for a commit; maps, and OSDs that start or fail, wait for it");
        a.add("MON_STORE_SLOW", Severity::Warn, 1, summary, vec![detail]);
    }
    cut_links(a, state);
    slow_ops(a, state);
}

/// Daemons with wrong keys, and the time in which clients keep their ids by their keys alone.
fn keys(a: &mut Adder, state: &ClusterState, now: Now) {
    let detail = state.refused.keys.shown().map(|(who, n)| {
        format!(
            "{who} came {n} time{} with a key that is not its own; write that of `ceph auth get {who}` to its keyring",
            if n == 1 { "" } else { "s" }
        )
    });
    a.add_some("DAEMON_KEY_REFUSED", Severity::Warn, "daemons come with a wrong key", detail.collect());
    if let Some(until) = state.lost_tickets.filter(|_| lost_tickets::holds(state.lost_tickets, now.wall)) {
        let summary = format!("clients keep their ids without tickets until {}", until.iso());
        let detail = "the monitors' state was made anew or is a backup, so tickets of before do not open; in this time a \
                      client with a valid key may take the id of a client that has not come back";
        a.add("MON_TICKETS_LOST", Severity::Warn, 1, summary, vec![detail.to_owned()]);
    }
}

/// Links between OSDs that are cut while both ends reach the monitors.
fn cut_links(a: &mut Adder, state: &ClusterState) {
    let apart = |x: &dyn std::fmt::Display, y: &str| format!("{x} and {y} do not reach each other");
    let cuts = &state.osds.cuts;
    let open = cuts.open().iter().map(|(x, y)| format!("{}; both are in service", apart(x, &y.to_string())));
    let out = cuts.out().iter().filter(|(o, _)| state.osdmap.is_down(**o));
    let out = out.map(|(o, peers)| format!("{}; {o} is out of service until they do", apart(o, &names(peers))));
    a.add_some("OSD_LINK_CUT", Severity::Warn, "links between osds are cut", open.chain(out).collect());
}

fn slow_ops(a: &mut Adder, state: &ClusterState) {
    let slow: Vec<_> = state.mgr.stats.health.iter().filter(|(_, h)| h.slow_ops > 0).collect();
    if !slow.is_empty() {
        let total: u64 = slow.iter().map(|(_, h)| u64::from(h.slow_ops)).sum();
        let oldest = slow.iter().map(|(_, h)| h.slow_oldest).max().unwrap_or(0);
        let names: Vec<String> = slow.iter().map(|(o, _)| o.to_string()).collect();
        let who = match names.as_slice() {
            [one] => format!("{one} has slow ops"),
            more => format!("daemons [{}] have slow ops.", more.join(",")),
        };
        let summary = format!("{total} slow ops, oldest one blocked for {oldest} sec, {who}");
        let cause = |(o, h): &(&OsdId, &DaemonHealth)| {
            let cause = h.slow_cause?.text();
            let behind = h.slow_behind.map_or_else(String::new, |b| format!(", of {b} in the end"));
            Some(format!("{o}: {} slow ops wait for {cause}{behind}", h.slow_ops))
        };
        let detail = slow.iter().filter_map(cause).collect();
        a.add("SLOW_OPS", Severity::Warn, slow.len(), summary, detail);
    }
    let waiting: Vec<_> = state.mgr.stats.health.iter().filter(|(_, h)| h.pending_creating > 0).collect();
    if !waiting.is_empty() {
        let total: u64 = waiting.iter().map(|(_, h)| h.pending_creating).sum();
        let detail = waiting.iter().map(|(o, h)| format!("{o} has {} PGs to create", h.pending_creating)).collect();
        a.add(
            "PENDING_CREATING_PGS",
            Severity::Warn,
            waiting.len(),
            format!("{total} PGs pending on creation"),
            detail,
        );
    }
}

/// A change in steps that nobody carries out and nobody commits: meanwhile the balancer rests.
fn rehearsal(a: &mut Adder, state: &ClusterState, now: Now) {
    let is_open = state.kv.contains_key(crate::command::rehearse::steps::KEY);
    if is_open && state.mgr.rehearsal().holder(now).is_none() {
        let summary = "a change by `belemnite rehearse --apply` is not committed".to_owned();
        let detail = "the balancer and the autoscaler rest until `belemnite rehearse commit` or `undo`; see `belemnite \
                      rehearse status`";
        a.add("REHEARSAL_OPEN", Severity::Warn, 1, summary, vec![detail.to_owned()]);
    }
}
