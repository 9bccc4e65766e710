//! The cluster log.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed};
use crate::json::J;
use crate::obj;
use crate::state::log::Prio;
use wire::types::LogEntry;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("log logtext:String*", "mon", "rw", 0, write, "write a line to the cluster log"),
    cmd(
        "log last num:Int[1]? level:Choices(debug|info|sec|warn|error)? channel:Choices(*|cluster|audit|cephadm)?",
        "mon",
        "r",
        0,
        last,
        "show the last lines of the cluster log",
    ),
];

/// Lines that `log last` shows if the command gives no number.
const LINES: usize = 20;
/// Longest line accepted, in bytes.
const LINE_MAX: usize = 64 << 10;

fn write(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut msg = c.args.list("logtext").join(" ");
    while msg.len() > LINE_MAX {
        msg.pop();
    }
    c.pending.add_log(LogEntry {
        name: c.session.principal.who.name.clone(),
        rank: c.session.entity,
        addrs: c.session.addrs.clone(),
        stamp: c.now.wall,
        seq: 0,
        prio: Prio::INFO.0,
        msg: msg.into(),
        channel: "cluster".into(),
    });
    committed("")
}

fn last(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = c.args.int("num").and_then(|n| usize::try_from(n).ok()).unwrap_or(LINES);
    let level = Prio::from_word(&c.args.str_or("level", "info")).unwrap_or(Prio::INFO);
    let channel = c.args.str_or("channel", "cluster");
    let lines = c.state.log.last(n, level, &channel);
    let tree = || {
        lines
            .iter()
            .map(|e| {
                obj! {
                    "name": e.name.to_string(),
                    "rank": e.rank.to_string(),
                    "addrs": crate::command::osd::dump::addrvec(Some(&e.addrs)),
                    "stamp": e.stamp.iso(),
                    "seq": e.seq,
                    "channel": &e.channel,
                    "priority": Prio(e.prio).tag(),
                    "message": e.msg.0.clone(),
                }
            })
            .collect::<J>()
    };
    let text = || {
        let text: String = lines
            .iter()
            .map(|e| {
                format!(
                    "{} {} ({}) {} : {} {} {}\n",
                    e.stamp.iso(),
                    e.name,
                    e.rank,
                    e.seq,
                    e.channel,
                    Prio(e.prio).tag(),
                    e.msg
                )
            })
            .collect();
        text
    };
    c.tree("tail", tree).text(text)
}
