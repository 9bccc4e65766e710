//! Clocks that differ, and the store of the monitors.

use crate::evidence::{Evidence, Mon, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Seconds of difference from which an OSD's clock is off.
const OSD_MAX: f64 = 0.5;
/// Seconds of difference from which a monitor's clock is off.
const MON_MAX: f64 = 0.05;

pub(super) fn off(e: &Evidence, _: &Load) -> Vec<Verdict> {
    let mut all = Vec::new();
    // The collector's own clock may be the one that is off: the median of all clocks is right.
    let mut ahead: Vec<f64> = e.osds.iter().map(|o| o.clock_ahead).collect();
    ahead.sort_by(f64::total_cmp);
    let right = ahead.get(ahead.len() / 2).copied().unwrap_or(0.0);
    let off = |o: &&Osd| (o.clock_ahead - right).abs() >= OSD_MAX;
    for o in e.osds.iter().filter(off) {
        all.push(clock(&format!("osd.{}", o.osd), &o.host, o.clock_ahead - right).osds([o.osd]));
    }
    let off: Vec<&Mon> = e.mons.iter().filter(|m| m.skew.abs() >= MON_MAX).collect();
    all.extend(off.into_iter().map(|m| clock(&format!("mon.{}", m.name), "its host", m.skew)));
    all
}

fn clock(daemon: &str, host: &str, ahead: f64) -> Verdict {
    let (by, side) = (ahead.abs(), if ahead > 0.0 { "ahead" } else { "behind" });
    Verdict::new(Kind::Clock, daemon, 0.0, format!("its clock is {by:.2} s {side}"))
        .shows("tickets expire too early or too late, stamps of objects and logs are wrong")
        .remedy(format!("start a time service on {host} (`systemctl enable --now chronyd`; `chronyc tracking`)"))
}

pub(super) fn mon_store(e: &Evidence, _: &Load) -> Vec<Verdict> {
    let slow = e.health.iter().filter(|c| c.code == "MON_STORE_SLOW");
    let verdict = |c: &crate::evidence::Check| {
        let detail = c.detail.first().cloned().unwrap_or_default();
        Verdict::new(Kind::MonStore, "monitors", 0.0, format!("their store is slow: {}", c.summary))
            .shows(detail)
            .remedy("give the state store (etcd, or the monitor's directory) a drive of its own with quick flushes")
    };
    slow.map(verdict).collect()
}
