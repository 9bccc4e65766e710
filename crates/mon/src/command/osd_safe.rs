//! Safety checks before OSDs are stopped or destroyed: the copies that their PGs would have left.

use super::args::parse_osd;
use super::json::J;
use super::{Cmd, Ctx, Refused, Res, cmd, done, flag as cf, invalid, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::{OsdId, errno};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd ok-to-stop ids:String* max:Int[0]?",
        "osd",
        "r",
        cf::MGR,
        ok_to_stop,
        "check whether OSDs can stop without making PGs inactive",
    ),
    cmd(
        "osd safe-to-destroy ids:String*",
        "osd",
        "r",
        cf::MGR,
        safe_to_destroy,
        "check whether OSDs can be destroyed without losing copies",
    ),
];

/// Number of PGs whose up or acting set has the OSD.
pub(super) fn mapped(c: &Ctx<'_>, o: OsdId) -> usize {
    c.state.mgr.stats.pgs().filter(|(_, s)| s.acting.contains(&o) || s.up.contains(&o)).count()
}

fn ids(c: &Ctx<'_>) -> Res<Vec<OsdId>> {
    let v = c.args.list("ids");
    if v.is_empty() {
        return invalid("must specify one or more OSDs");
    }
    v.iter()
        .map(|w| {
            parse_osd(w).ok_or_else(|| {
                Refused::new(errno::EINVAL, format!("Expected option value to be integer, got '{w}'invalid osd id-1"))
            })
        })
        .collect()
}

fn ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let osds = ids(c)?;
    let map = c.state.osdmap.clone();
    let (mut ok, mut bad) = (Vec::new(), Vec::new());
    for (id, s) in c.state.mgr.stats.pgs().filter(|(_, s)| s.acting.iter().any(|o| osds.contains(o))) {
        let left = s.acting.iter().filter(|o| **o != OsdId::NONE && !osds.contains(o)).count();
        let need = map.pool(id.pool).map_or(1, |p| usize::from(p.min_size));
        if left < need { bad.push(id.to_string()) } else { ok.push(id.to_string()) }
    }
    let (n, m) = (ok.len(), bad.len());
    let mut j = obj! {
        "ok_to_stop": bad.is_empty(),
        "osds": osds.iter().map(|o| o.0).collect::<J>(),
        "num_ok_pgs": n,
        "num_not_ok_pgs": m,
    };
    if !bad.is_empty() {
        j.put("bad_become_inactive", bad);
    }
    if !ok.is_empty() {
        j.put("ok_become_degraded", ok);
    }
    let mut out = c.show_flat(&j)?;
    if m > 0 {
        out.rc = errno::EBUSY;
        out.rs = format!("unsafe to stop osd(s) at this time ({m} PGs are or would become offline)");
    }
    Ok(out)
}

fn safe_to_destroy(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let osds = ids(c)?;
    let map = c.state.osdmap.clone();
    let (mut safe, mut active, mut missing, mut stored) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut pgs = 0;
    for o in &osds {
        let n = mapped(c, *o);
        if !map.exists(*o) {
            safe.push(o.0);
        } else if n > 0 {
            pgs += n;
            active.push(o.0);
        } else {
            match c.state.mgr.stats.osd(*o) {
                None if map.is_in(*o) => missing.push(o.0),
                Some(s) if s.num_pgs > 0 => stored.push(o.0),
                _ => safe.push(o.0),
            }
        }
    }
    let text = |v: &[i32]| v.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let all_safe = active.is_empty() && missing.is_empty() && stored.is_empty();
    let list = |v: &[i32]| v.iter().copied().collect::<J>();
    let tree = || {
        obj! {
            "safe_to_destroy": list(&safe),
            "active": list(&active),
            "missing_stats": list(&missing),
            "stored_pgs": list(&stored),
        }
    };
    // A structured format lists the findings; the plain form is a verdict with its errno.
    let verdict = || {
        if all_safe {
            return done(format!("OSD(s) {} are safe to destroy without reducing data durability.", text(&safe)));
        }
        let mut s = String::new();
        if !active.is_empty() {
            s += &format!("OSD(s) {} have {pgs} pgs currently mapped to them. ", text(&active));
        }
        if !missing.is_empty() {
            s += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                text(&missing)
            );
        }
        if !stored.is_empty() {
            s += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure they aren't still needed.",
                text(&stored)
            );
        }
        refuse(if missing.is_empty() { errno::EBUSY } else { errno::EAGAIN }, s)
    };
    c.tree("osds", tree).text(verdict)
}
