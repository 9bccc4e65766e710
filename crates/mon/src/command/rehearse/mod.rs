//! `rehearse`: the change of the OSD map that commands would make, without making it.
//!
//! The commands run as they always do, on a proposal that is thrown away, and their change of the map is the answer.
//! `belemnite rehearse` places the PGs on the map after it; that takes longer than a monitor's turn, so it is done there.
//!
//! `steps` has the commands of a rehearsed change that is carried out in steps: `apply`, `release`, `undo`, …
//!
//! Invariants:
//!  1. The sender must have the rights of each command. Its output is not in the answer, only its errno and status line.
//!  2. Nothing is proposed, and no effect of a command is carried out.
//!
//! Tests: `tests/does_a_rehearsal_foretell_the_map.rs` (1, `only_who_may_run_a_command_may_rehearse_it`; 2,
//! `only_changes_of_the_map_are_rehearsed`).

pub(crate) mod steps;

use super::{Cmd, CommandOutcome, Ctx, Parsed, Refused, Request, Res, When, cmd, parse, refuse, run};
use crate::json::J;
use crate::obj;
use crate::state::balance::{self, may_hold};
use crate::state::{Pending, Role};
use base::errno;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cluster::osdmap::CANONICAL;

/// The words of the command.
pub(crate) const PREFIX: &str = "rehearse";
/// The undo of a rehearsed change can be rehearsed, too.
const UNDO: &str = "rehearse undo";
/// Most commands that are rehearsed together.
const COMMANDS_MAX: usize = 64;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[cmd(
    "rehearse cmds:String*?",
    "mon",
    "r",
    0,
    rehearse,
    "show the change of the OSD map that commands (as JSON) would make; `belemnite rehearse` tells what it does",
)];

/// The commands of a rehearsal that can be parsed.
pub(crate) fn rehearsed(cmd: &Parsed) -> Vec<Parsed> {
    let texts = cmd.args.list("cmds").into_iter().take(COMMANDS_MAX);
    texts.filter_map(|text| parse(&[text], Role::Mon).ok()).filter(is_of_map).collect()
}

/// True for commands whose change is one of the OSD map.
pub(super) fn is_of_map(p: &Parsed) -> bool {
    p.sig.prefix.starts_with("osd ") || p.sig.prefix == UNDO
}

fn rehearse(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let texts = c.args.list("cmds");
    if texts.len() > COMMANDS_MAX {
        return refuse(errno::E2BIG, format!("at most {COMMANDS_MAX} commands are rehearsed together"));
    }
    let mut pending = Pending::default();
    let mut results = Vec::new();
    for text in texts {
        let p = parse(&[text], Role::Mon)?;
        if !is_of_map(&p) {
            return refuse(errno::EOPNOTSUPP, format!("'{}' is no command that changes the OSD map", p.sig.prefix));
        }
        let (state, session, input, now, random, ops) = (c.state, c.session, c.input, c.now, c.random, c.ops);
        let done = run(Request { state, pending: &mut pending, session, cmd: &p, input, now, random, ops });
        let (rc, rs) = match done {
            Ok(o) => match o.when {
                When::Now | When::Committed => (o.rc, o.rs),
                When::Retry => {
                    let text = format!("'{}' goes on after a commit: rehearse it by itself", p.sig.prefix);
                    return refuse(errno::EAGAIN, text);
                }
                When::NeedMap(_) | When::Host => {
                    return refuse(errno::EOPNOTSUPP, format!("'{}' cannot be rehearsed", p.sig.prefix));
                }
            },
            Err(Refused { rc, rs }) => (rc, rs),
        };
        results.push(obj! { "prefix": p.sig.prefix.as_str(), "rc": rc, "status": rs });
        if rc < 0 {
            break;
        }
    }
    answer(c, &mut pending, results)
}

fn answer(c: &mut Ctx<'_>, pending: &mut Pending, results: Vec<J>) -> Res<CommandOutcome> {
    let change = pending.take_inc().map(|mut inc| {
        inc.encode_features = CANONICAL.0;
        BASE64.encode(inc.encode_blob(CANONICAL, 0))
    });
    let options = balance::options(c.state);
    let mut j = obj! {
        "epoch": c.state.osdmap.epoch.0,
        "results": J::Arr(results),
        "incremental": change.unwrap_or_default(),
        "hold_growth": may_hold(c.state),
        "hold_pools": options.pools.iter().map(|p| J::from(p.0)).collect::<J>(),
        "target_max_misplaced_ratio": c.state.options.target_max_misplaced_ratio,
    };
    if let Some(r) = c.state.mgr.stats.recovered() {
        j.put("recovery_bytes_per_sec", r.bytes_per_sec);
        j.put("recovery_measured_ago", c.now.mono.since(r.at).as_secs());
    }
    c.json_unless_asked();
    c.show_flat(&j)
}
