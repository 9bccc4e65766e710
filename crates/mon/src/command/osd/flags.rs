//! Flags that suspend activity: `osd set`/`unset`, pause, and noup/nodown/noin/noout on OSDs, CRUSH nodes and device
//! classes.

use super::dump::flag_names;
use crate::command::language::args::parse_osd;
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, flag as cf, invalid, plain};
use base::OsdId;
use cluster::osdmap::{map_flag, osd_state};

const SET: &str = "osd set key:Choices(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit|noautoscale) yes_i_really_mean_it:Bool?";
const UNSET: &str = "osd unset key:Choices(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|noautoscale)";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(SET, "osd", "rw", 0, set, "set a flag of the OSD map"),
    cmd(UNSET, "osd", "rw", 0, unset, "clear a flag of the OSD map"),
    cmd("osd pause", "osd", "rw", 0, |c| change(c, "pause", true), "stop reads and writes"),
    cmd("osd unpause", "osd", "rw", 0, |c| change(c, "pause", false), "let reads and writes go on"),
    cmd(
        "osd set-group flags:String who:String*",
        "osd",
        "rw",
        0,
        |c| group(c, true),
        "set noup, nodown, noin or noout for OSDs, nodes or classes",
    ),
    cmd(
        "osd unset-group flags:String who:String*",
        "osd",
        "rw",
        0,
        |c| group(c, false),
        "clear noup, nodown, noin or noout for OSDs, nodes or classes",
    ),
    cmd(
        "osd add-noup ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOUP, true),
        "keep OSDs from being marked up",
    ),
    cmd(
        "osd add-nodown ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NODOWN, true),
        "keep OSDs from being marked down",
    ),
    cmd(
        "osd add-noin ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOIN, true),
        "keep OSDs from being marked in",
    ),
    cmd(
        "osd add-noout ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOOUT, true),
        "keep OSDs from being marked out",
    ),
    cmd(
        "osd rm-noup ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOUP, false),
        "let OSDs be marked up",
    ),
    cmd(
        "osd rm-nodown ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NODOWN, false),
        "let OSDs be marked down",
    ),
    cmd(
        "osd rm-noin ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOIN, false),
        "let OSDs be marked in",
    ),
    cmd(
        "osd rm-noout ids:String*",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| single(c, osd_state::NOOUT, false),
        "let OSDs be marked out",
    ),
];

/// Commands about the autoscaler of all pools; they change the flag `noautoscale`.
pub(in crate::command) const AUTOSCALE: &[Cmd] = &[
    cmd(
        "osd pool get noautoscale",
        "mgr",
        "w",
        cf::MGR,
        autoscale_is,
        "show whether the autoscaler is off for all pools",
    ),
    cmd(
        "osd pool set noautoscale",
        "mgr",
        "w",
        cf::MGR,
        |c| autoscale(c, false),
        "switch the autoscaler off for all pools",
    ),
    cmd("osd pool unset noautoscale", "mgr", "w", cf::MGR, |c| autoscale(c, true), "switch the autoscaler on again"),
];

fn autoscale_is(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let off = c.map().flags & map_flag::NOAUTOSCALE != 0;
    plain(format!("noautoscale is {}\n", if off { "on" } else { "off" }))
}

fn autoscale(c: &mut Ctx<'_>, on: bool) -> Res<CommandOutcome> {
    let off = c.map().flags & map_flag::NOAUTOSCALE != 0;
    if off != on {
        return plain(format!("noautoscale is already {}!\n", if on { "unset" } else { "set" }));
    }
    change(c, "noautoscale", !on)?;
    let (flag, all) = if on { ("unset", "on") } else { ("set", "off") };
    committed(format!("noautoscale is {flag}, all pools now have autoscale {all}"))
}

/// Flags that users may change.
const SETTABLE: [(&str, u32); 13] = [
    ("pause", map_flag::PAUSERD | map_flag::PAUSEWR),
    ("noup", map_flag::NOUP),
    ("nodown", map_flag::NODOWN),
    ("noout", map_flag::NOOUT),
    ("noin", map_flag::NOIN),
    ("nobackfill", map_flag::NOBACKFILL),
    ("norebalance", map_flag::NOREBALANCE),
    ("norecover", map_flag::NORECOVER),
    ("noscrub", map_flag::NOSCRUB),
    ("nodeep-scrub", map_flag::NODEEP_SCRUB),
    ("notieragent", map_flag::NOTIERAGENT),
    ("nosnaptrim", map_flag::NOSNAPTRIM),
    ("noautoscale", map_flag::NOAUTOSCALE),
];

fn change(c: &mut Ctx<'_>, key: &str, on: bool) -> Res<CommandOutcome> {
    let bits = match SETTABLE.iter().find(|(n, _)| *n == key) {
        Some((_, b)) => *b,
        None if key == "pglog_hardlimit" && on => map_flag::PGLOG_HARDLIMIT,
        None => return invalid(format!("unrecognized flag '{key}'")),
    };
    let have = c.map().flags;
    let want = if on { have | bits } else { have & !bits };
    c.inc().new_flags = i32::try_from(want).unwrap_or(-1);
    committed(format!("{} is {}", flag_names(bits), if on { "set" } else { "unset" }))
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?;
    change(c, &key, true)
}

fn unset(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?;
    change(c, &key, false)
}

const HOLDS: [(&str, u32); 4] =
    [("noup", osd_state::NOUP), ("nodown", osd_state::NODOWN), ("noin", osd_state::NOIN), ("noout", osd_state::NOOUT)];

/// Sets or clears state bits of an OSD in the pending map change.
pub(in crate::command) fn set_state(c: &mut Ctx<'_>, osd: OsdId, bits: u32, on: bool) {
    let have = c.map().state(osd);
    let flip = if on { bits & !have } else { bits & have };
    if flip != 0 {
        // A map increment holds one entry for each OSD, whose bits are toggled.
        let e = c.inc().new_state.entry(osd).or_insert(0);
        *e ^= flip;
        if *e == 0 {
            c.inc().new_state.remove(&osd);
        }
    }
}

fn group(c: &mut Ctx<'_>, on: bool) -> Res<CommandOutcome> {
    let mut bits = 0;
    for f in c.args.str("flags")?.split(',').map(str::trim).filter(|f| !f.is_empty()) {
        match HOLDS.iter().find(|(n, _)| *n == f) {
            Some((_, b)) => bits |= b,
            None => return invalid(format!("unrecognized flag '{f}', must be one of {{noup,nodown,noin,noout}}")),
        }
    }
    if bits == 0 {
        return invalid("must specify flag(s) {noup,nodwon,noin,noout} to set/unset");
    }
    let who = c.args.list("who");
    if who.is_empty() {
        return invalid("must specify at least one or more targets to set/unset");
    }
    mark(c, &who, bits, on)
}

/// Sets or clears flags of OSDs, CRUSH nodes and device classes.
fn mark(c: &mut Ctx<'_>, who: &[String], bits: u32, on: bool) -> Res<CommandOutcome> {
    enum Who {
        Osd(OsdId),
        Node(i32),
        Class(i32),
    }
    let map = c.map();
    let mut list = Vec::new();
    for w in who {
        if matches!(w.as_str(), "all" | "any" | "*") {
            list.extend(map.osds().map(Who::Osd));
        } else if let Some(o) = parse_osd(w).filter(|o| map.exists(*o)) {
            list.push(Who::Osd(o));
        } else if let Some(id) = map.crush.id_of(w) {
            list.push(Who::Node(id));
        } else if let Some(id) = map.crush.class_id(w) {
            list.push(Who::Class(id));
        } else {
            return invalid(format!("unable to parse osd id or crush node or device class: \"{w}\". "));
        }
    }
    for w in list {
        match w {
            Who::Osd(o) => set_state(c, o, bits, on),
            Who::Node(id) => {
                let have = c.map().crush_node_flags.get(&id).copied().unwrap_or(0);
                c.inc().new_crush_node_flags.insert(id, if on { have | bits } else { have & !bits });
            }
            Who::Class(id) => {
                let have = c.map().device_class_flags.get(&id).copied().unwrap_or(0);
                c.inc().new_device_class_flags.insert(id, if on { have | bits } else { have & !bits });
            }
        }
    }
    committed("")
}

/// The old form, with the flag in the command's name.
fn single(c: &mut Ctx<'_>, bit: u32, on: bool) -> Res<CommandOutcome> {
    let ids = c.args.list("ids");
    mark(c, &ids, bit, on)
}
