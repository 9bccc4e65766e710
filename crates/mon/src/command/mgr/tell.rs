//! Commands to the manager role as a process: `ceph tell mgr.X …` and its admin socket.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf, invalid};
use crate::json::J;
use crate::obj;
use base::{OsdId, Utime};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "dump_osd_network value:Int?",
        "mon",
        "r",
        cf::TELL,
        network,
        "show the slow heartbeats between OSDs, or those of at least so many milliseconds",
    ),
    cmd("mgr_status", "mon", "r", cf::TELL, status, "show the state of the manager role"),
];

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.mgrmap;
    c.show("mgr_status", &obj! { "mgrmap_epoch": m.epoch.0, "initialized": m.available })
}

/// Ping times between OSDs, slowest first. Without a value the threshold is that of the health check.
fn network(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = &c.state.options;
    let usual = if o.slow_ping_ms > 0.0 {
        o.slow_ping_ms
    } else {
        o.osds.heartbeat_grace.as_secs_f64() * 1000.0 * o.slow_ping_ratio
    };
    let least = match c.args.opt("value") {
        None => usual,
        Some(v) => match v.trim().parse::<u32>() {
            Ok(n) => f64::from(n),
            Err(_) => return invalid("'value' is a number of milliseconds"),
        },
    };
    let ms = |us: u32| f64::from(us) / 1000.0;
    let mut all: Vec<(u32, J)> = Vec::new();
    let from = |o: &OsdId| o.0;
    for (osd, st) in c.state.mgr.stats.osds() {
        for (peer, t) in &st.hb_pingtime {
            let links = [
                ("back", t.back_pingtime, t.back_min, t.back_max, t.back_last),
                ("front", t.front_pingtime, t.front_min, t.front_max, t.front_last),
            ];
            for (interface, mean, min, max, last) in links {
                let worst = mean.into_iter().max().unwrap_or(0);
                if ms(worst) < least {
                    continue;
                }
                let three = |v: [u32; 3]| {
                    let [one, five, fifteen] = v.map(ms);
                    obj! { "1min": one, "5min": five, "15min": fifteen }
                };
                let entry = obj! {
                    "last update": Utime { sec: t.last_update, nsec: 0 }.iso(),
                    "stale": !c.state.osdmap.is_up(*peer),
                    "from osd": from(osd),
                    "to osd": from(peer),
                    "interface": interface,
                    "average": three(mean),
                    "min": three(min),
                    "max": three(max),
                    "last": ms(last),
                };
                all.push((worst, entry));
            }
        }
    }
    all.sort_by_key(|(worst, _)| std::cmp::Reverse(*worst));
    let entries: J = all.into_iter().map(|(_, e)| e).collect();
    c.show("network", &obj! { "threshold": least as i64, "entries": entries })
}
