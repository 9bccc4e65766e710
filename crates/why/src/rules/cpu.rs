//! CPU that an OSD's threads do not get.

use super::names;
use crate::evidence::{Cpu, Evidence, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Part of its time that a reactor waits for a CPU from which it lacks CPU.
pub(crate) const WAITED_MIN: f64 = 0.2;
/// The same if operations are quick all the same.
const WAITED_QUICK_MIN: f64 = 0.5;
/// Mean time in milliseconds of operations that are quick.
const QUICK_MS: f64 = 5.0;
/// Part of the time in which a cgroup's quota stops threads from which it matters.
pub(crate) const THROTTLED_MIN: f64 = 0.1;
/// Part of the time in which the hypervisor takes the CPUs from which it matters.
const STOLEN_MIN: f64 = 0.15;

/// Share that these OSDs' lack of CPU has in the operations' time: their time in these OSDs, and of waiting for them, while
/// a reactor did not get its CPU.
fn lost(e: &Evidence, l: &Load, osds: &[&Osd], part: impl Fn(&Osd) -> f64) -> f64 {
    let own = |o: &Osd| {
        let us: u64 = o.us.iter().filter(|(c, _)| *c != "client" && *c != "replica").map(|(_, t)| *t).sum();
        us as f64 + l.blamed(e, o.osd)
    };
    l.share(osds.iter().map(|o| own(o) * part(o).min(1.0)).sum())
}

/// OSDs with operations, their own or those of other primaries, that lose at least this part of their time so.
fn lacking(e: &Evidence, us: fn(&Cpu) -> u64, min: f64) -> Vec<&Osd> {
    e.osds.iter().filter(|o| (o.ops > 0 || o.device.writes > 0) && o.worst(us) >= min).collect()
}

fn percent(o: &[&Osd], us: fn(&Cpu) -> u64) -> f64 {
    o.iter().map(|o| o.worst(us)).fold(0.0, f64::max) * 100.0
}

pub(super) fn taken(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let waited = |c: &Cpu| c.waited_us.saturating_sub(c.throttled_us);
    let quick = l.mean_ms < QUICK_MS && !l.is_slow();
    let osds = lacking(e, waited, if quick { WAITED_QUICK_MIN } else { WAITED_MIN });
    let osds: Vec<&Osd> = osds.into_iter().filter(|o| o.worst(|c| c.throttled_us) < THROTTLED_MIN).collect();
    if osds.is_empty() {
        return Vec::new();
    }
    let ids: Vec<i32> = osds.iter().map(|o| o.osd).collect();
    let mut hosts: Vec<&str> = osds.iter().map(|o| o.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let text = format!(
        "other programs have the CPU: a reactor is ready, but does not run, {:.0} % of the time",
        percent(&osds, waited)
    );
    let ran = percent(&osds, |c| c.ran_us);
    vec![
        Verdict::new(Kind::CpuTaken, names(&ids), lost(e, l, &osds, |o| o.worst(waited)), text)
            .osds(ids)
            .shows(format!("the reactor runs {ran:.0} % of the time itself (run delay of its thread in /proc)"))
            .remedy(format!(
                "look with `top` on {} for what runs on the OSD's CPUs; give the OSD cores of its own (CPUAffinity=)",
                hosts.join(", ")
            )),
    ]
}

pub(super) fn quota(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let osds = lacking(e, |c| c.throttled_us, THROTTLED_MIN);
    if osds.is_empty() {
        return Vec::new();
    }
    let ids: Vec<i32> = osds.iter().map(|o| o.osd).collect();
    let part = percent(&osds, |c| c.throttled_us);
    vec![
        Verdict::new(
            Kind::CpuQuota,
            names(&ids),
            lost(e, l, &osds, |o| o.worst(|c| c.waited_us.max(c.throttled_us))),
            format!("the CPU quota of its cgroup stops it {part:.0} % of the time"),
        )
        .osds(ids)
        .shows("throttled time in the cgroup's cpu.stat")
        .remedy("raise or remove the quota (CPUQuota= of the unit, limits.cpu of the container)"),
    ]
}

pub(super) fn stolen(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let osds = lacking(e, |c| c.steal_us, STOLEN_MIN);
    if osds.is_empty() {
        return Vec::new();
    }
    let ids: Vec<i32> = osds.iter().map(|o| o.osd).collect();
    let part = percent(&osds, |c| c.steal_us);
    vec![
        Verdict::new(
            Kind::CpuStolen,
            names(&ids),
            lost(e, l, &osds, |o| o.worst(|c| c.steal_us)),
            format!("the hypervisor gives the CPUs of its host to others {part:.0} % of the time"),
        )
        .osds(ids)
        .shows("steal in /proc/stat")
        .remedy("reserve CPUs for this virtual machine, or move it to another host"),
    ]
}
