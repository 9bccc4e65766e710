//! Plans and states in words.

use super::{Error, Site, cluster};
use crate::cli::operate::{must, print};
use deploy::{ClusterState, Facts, HostFacts, Inventory, Planned, Problem, Reach, notes};
use serde_json::json;

/// Most lines of a stage that are shown.
const LINES_MAX: usize = 20;

/// Problems in one text.
pub(super) fn stopped(p: &[Problem]) -> String {
    p.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn time(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// A plan in one line.
pub(super) fn summary(p: &Planned) -> String {
    let steps: usize = p.lines.iter().map(Vec::len).sum();
    match steps {
        0 => "nothing is to be done".into(),
        _ => format!("{steps} steps in {} stages, about {}", p.stages.len(), time(p.total_seconds())),
    }
}

/// `belemnite deploy plan`
pub(super) fn plan(i: &Inventory, f: &Facts, p: &Planned) -> Result<(), Error> {
    for n in notes(i, f) {
        print(&format!("note: {n}"));
    }
    for ((stage, lines), seconds) in p.stages.iter().zip(&p.lines).zip(&p.seconds) {
        print(&format!("{} (about {}):", stage.title, time(*seconds)));
        lines.iter().take(LINES_MAX).for_each(|l| print(&format!("  {l}")));
        if lines.len() > LINES_MAX {
            print(&format!("  and {} more", lines.len() - LINES_MAX));
        }
    }
    print(&summary(p));
    if p.problems.is_empty() { Ok(()) } else { Err(stopped(&p.problems).into()) }
}

/// Daemons of a host, in words.
fn daemons(h: &HostFacts) -> String {
    let count = |prefix: &str| h.units.iter().filter(|(n, u)| n.starts_with(prefix) && u.active).count();
    let mut parts: Vec<String> = [
        ("belemnite-mon@", "monitor"),
        ("belemnite-etcd@", "etcd"),
        ("ceph-mds@", "metadata server"),
        ("ceph-radosgw@", "gateway"),
    ]
    .iter()
    .filter(|(p, _)| count(p) > 0)
    .map(|(_, name)| (*name).to_owned())
    .collect();
    if !h.stores.is_empty() {
        parts.push(format!("{} of {} OSDs", count("belemnite-osd@"), h.stores.len()));
    }
    let old = h.units.values().filter(|u| u.active && u.old_program).count();
    if old > 0 {
        parts.push(format!("{old} daemons with an earlier program"));
    }
    if parts.is_empty() { "nothing runs".into() } else { parts.join(", ") }
}

/// `belemnite deploy status`
pub(super) async fn status(site: &Site, f: &Facts) -> Result<(), Error> {
    let width = f.hosts.keys().map(String::len).max().unwrap_or_default();
    for (n, r) in &f.hosts {
        let what = match r {
            Reach::Answers(h) => daemons(h),
            Reach::Silent(why) => format!("does not answer: {why}"),
        };
        let release = match r {
            Reach::Answers(h) => h.packages.get("belemnite").map_or("-", String::as_str),
            Reach::Silent(_) => "-",
        };
        let former = if f.former.contains_key(n) { ", not in the inventory" } else { "" };
        print(&format!("{n:<width$}  {release}  {what}{former}"));
    }
    match &f.cluster {
        ClusterState::Absent => print("no cluster was made"),
        ClusterState::Silent(why) => print(&format!("no monitor answers: {why}")),
        ClusterState::Answers(_) => {
            let out = must(&cluster::connect(site).await?, json!({"prefix": "status"})).await?;
            print(&String::from_utf8_lossy(&out));
        }
    }
    for n in notes(&site.inventory, f) {
        print(&format!("note: {n}"));
    }
    let p = deploy::plan(&site.inventory, f, deploy::next);
    print(&format!("apply: {}", summary(&p)));
    p.problems.iter().for_each(|x| print(&format!("problem: {x}")));
    Ok(())
}
