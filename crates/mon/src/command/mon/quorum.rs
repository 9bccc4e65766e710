//! The monitors in commands: the quorum, and the clocks of its members.

use crate::command::health::Severity;
use crate::command::{CommandOutcome, Ctx, Res};
use crate::json::J;
use crate::obj;
use crate::state::clocks::{Difference, clock_drift_allowed};
use std::collections::BTreeMap;

/// Seconds for which this monitor has been in quorum.
pub(super) fn quorum_age(c: &Ctx<'_>) -> u64 {
    c.now.mono.since(c.state.started.mono).as_secs()
}

/// Ranks of the monitors in quorum.
pub(super) fn quorum_ranks(c: &Ctx<'_>) -> J {
    c.state.quorum_ranks().into_iter().collect()
}

pub(super) fn quorum_tree(c: &Ctx<'_>) -> J {
    obj! {
        "election_epoch": c.state.election_epoch(),
        "quorum": quorum_ranks(c),
        "quorum_names": c.state.quorum(),
        "quorum_leader_name": c.state.leader(),
        "quorum_age": quorum_age(c),
        "features": obj! {
            "quorum_con": wire::Features::PACIFIC.0.to_string(),
            "quorum_mon": super::feature_names(c.state.monmap.persistent_features),
        },
        "monmap": super::monmap_tree(&c.state.monmap),
    }
}

pub(super) fn quorum_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = quorum_tree(c);
    // Without a format Ceph answers on one line, which users of the CLI parse.
    c.tree("quorum_status", || &j).line().text(|| j.compact() + "\n")
}

pub(super) fn mon_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let names = c.state.quorum();
    // The client may be connected to a monitor other than the leader; the answer is about that one.
    let name = c.session.by.as_ref().unwrap_or(&c.state.mon_name);
    let rank = c.state.monmap.rank_of(name).unwrap_or(0);
    let leads = c.state.leader() == *name;
    let outside: J = c.state.monmap.ranks.iter().filter(|n| !names.contains(n)).cloned().collect();
    let j = obj! {
        "name": name,
        "rank": rank,
        "state": if leads { "leader" } else { "peon" },
        "election_epoch": c.state.election_epoch(),
        "quorum": quorum_ranks(c),
        "quorum_age": quorum_age(c),
        "features": obj! {
            "required_con": "0",
            "required_mon": super::feature_names(c.state.monmap.persistent_features),
            "quorum_con": wire::Features::PACIFIC.0.to_string(),
            "quorum_mon": super::feature_names(c.state.monmap.persistent_features),
        },
        "outside_quorum": outside,
        "extra_probe_peers": Vec::<J>::new(),
        "sync_provider": Vec::<J>::new(),
        "monmap": super::monmap_tree(&c.state.monmap),
        "feature_map": J::object(),
        "stretch_mode": false,
    };
    c.show("mon_status", &j)
}

pub(super) fn time_sync(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut j = J::object();
    let clocks = &c.state.mons.clocks;
    if c.state.mons.up.is_some() {
        let allowed = clock_drift_allowed(c.state);
        let own = (&c.state.mon_name, &Difference { skew: 0.0, latency: 0.0 });
        let mut all: BTreeMap<_, _> = clocks.differences().iter().collect();
        all.insert(own.0, own.1);
        let mut of = J::object();
        for (name, d) in all {
            let skewed = d.skew.abs() > allowed;
            let health = if skewed { Severity::Warn } else { Severity::Ok };
            let mut one = obj! { "skew": d.skew, "latency": d.latency, "health": health.word() };
            if skewed {
                one.put("details", d.text(allowed));
            }
            of.put(name.clone(), one);
        }
        j.put("time_skew_status", of);
    }
    // A single monitor compares its clock with no other. Ceph counts start and end of a round as two, hence the
    // factor.
    let timechecks =
        obj! { "epoch": c.state.election_epoch(), "round": clocks.rounds() * 2, "round_status": "finished" };
    j.put("timechecks", timechecks);
    c.show_line_if_asked("time_sync", &j)
}
