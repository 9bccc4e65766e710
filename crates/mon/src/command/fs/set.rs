//! `fs set`: parameters of a file system.

use super::{Ctx, Filesystem, Refused, Res, changed, edit, invalid, refuse, truth};
use crate::command::units::strict_int;
use crate::command::{CommandOutcome, committed};
use base::errno;
use wire::types::{MdsMap, fs_flag};

/// Most ranks of a file system.
const MAX_MDS: i64 = 256;
/// Smallest `max_file_size` in bytes: a stripe unit.
const MIN_FILE_SIZE: i64 = 65_536;
/// Shortest session timeout, in seconds.
const MIN_SESSION: i64 = 30;
/// Text of the refusal to change `max_mds` while the file system has health warnings.
const TROUBLE: &str = "One or more file system health warnings are present. Modifying the file system setting variable \"max_mds\" may not help troubleshoot or recover from these warnings and may further destabilize the system. If you really wish to proceed, run again with --yes-i-really-mean-it";

/// The result of setting a parameter.
pub(super) struct Applied {
    /// Status line of the answer.
    pub(super) text: String,
    /// Standby-replay daemons of this file system must be removed.
    followers_go: bool,
}

pub(super) fn run(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut fs = changed(c)?;
    let (var, val) = (c.args.str("var")?, c.args.str("val")?);
    let sure = c.args.flag("yes_i_really_mean_it");
    if var == "max_mds" && !sure && c.state.fs.health.values().any(|h| !h.metrics.is_empty()) {
        return refuse(errno::EPERM, TROUBLE);
    }
    let done = apply(c, &mut fs, &var, &val)?;
    let id = fs.fscid;
    let mut e = edit(c);
    if done.followers_go {
        let followers: Vec<u64> =
            fs.mds_map.mds_info.values().filter(|i| i.is_follower()).map(|i| i.global_id).collect();
        for gid in followers {
            e.fail(gid);
            fs.mds_map.mds_info.remove(&gid);
        }
    }
    let now = e.wall();
    crate::state::fs::map::modify_fs(e.map_mut(), now, id, |f| *f = fs);
    committed(done.text)
}

fn integer(var: &str, val: &str, min: i64, least: &str) -> Res<i64> {
    let n = val.parse::<i64>().map_err(|_| Refused::new(errno::EINVAL, format!("{var} requires an integer value")))?;
    if n < min { refuse(errno::ERANGE, format!("{var} {least}")) } else { Ok(n) }
}

/// Sets or clears a flag of the operator. The map also records that it was ever set.
fn allow(m: &mut MdsMap, flag: u32, on: bool) {
    m.set_flag(flag, on);
    if on {
        // The two fields hold the lowest eight flags only.
        let bits = flag as u8;
        m.ever_allowed_features |= bits;
        m.explicitly_allowed_features |= bits;
    }
}

/// Sets a parameter of a file system in `fs`, and changes nothing else.
pub(super) fn apply(c: &Ctx<'_>, fs: &mut Filesystem, var: &str, val: &str) -> Res<Applied> {
    let m = &mut fs.mds_map;
    let mut followers_go = false;
    let text = match var {
        "max_mds" => set_max_mds(m, val)?,
        "inline_data" => set_inline_data(m, val, c.args.flag("yes_i_really_really_mean_it"))?,
        "balancer" => {
            m.balancer = val.to_owned();
            match val {
                "" => "unsetting the metadata load balancer".into(),
                v => format!("setting the metadata load balancer to {v}"),
            }
        }
        "bal_rank_mask" => set_rank_mask(m, val)?,
        "max_file_size" => {
            let least = format!("must at least {MIN_FILE_SIZE}");
            m.max_file_size = integer(var, val, MIN_FILE_SIZE, &least)? as u64;
            String::new()
        }
        "max_xattr_size" => {
            m.max_xattr_size = integer(var, val, 0, "must be non-negative")? as u64;
            String::new()
        }
        "allow_new_snaps" => {
            let on = truth(val)?;
            allow(m, fs_flag::ALLOW_SNAPS, on);
            format!("{} new snapshots", if on { "enabled" } else { "disabled" })
        }
        "allow_dirfrags" => {
            "Directory fragmentation is now permanently enabled. This command is DEPRECATED and will be REMOVED from future releases."
                .into()
        }
        "down" => set_down(m, truth(val)?),
        "cluster_down" => {
            let text = set_joinable(m, !truth(val)?);
            text + " WARNING: cluster_down flag is deprecated and will be removed in a future version. Please use \"joinable\"."
        }
        "joinable" => set_joinable(m, truth(val)?),
        "standby_count_wanted" => {
            m.standby_count_wanted = i32::try_from(integer(var, val, 0, "must be non-negative")?).unwrap_or(i32::MAX);
            String::new()
        }
        "session_timeout" | "session_autoclose" => {
            let n = integer(var, val, MIN_SESSION, "must be at least 30s")?;
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            let field = if var == "session_timeout" { &mut m.session_timeout } else { &mut m.session_autoclose };
            *field = n;
            String::new()
        }
        "allow_standby_replay" => {
            let on = truth(val)?;
            allow(m, fs_flag::ALLOW_STANDBY_REPLAY, on);
            followers_go = !on;
            String::new()
        }
        "balance_automate" => {
            allow(m, fs_flag::BALANCE_AUTOMATE, truth(val)?);
            String::new()
        }
        "min_compat_client" => set_oldest_client(m, val)?,
        "refuse_client_session" => refuse_sessions(m, truth(val)?),
        "refuse_standby_for_another_fs" => refuse_other_standbys(m, truth(val)?),
        _ => return invalid(format!("unknown variable {var}")),
    };
    Ok(Applied { text, followers_go })
}

fn set_max_mds(m: &mut MdsMap, val: &str) -> Res<String> {
    let n = strict_int(val).map_err(|e| Refused::new(errno::EINVAL, e.to_string()))?;
    if n <= 0 {
        return invalid("You must specify at least one MDS");
    }
    if n > MAX_MDS {
        return invalid(format!("may not have more than {MAX_MDS} MDS ranks"));
    }
    m.set_flag(fs_flag::NOT_JOINABLE, false);
    m.max_mds = n as i32;
    Ok(String::new())
}

fn set_inline_data(m: &mut MdsMap, val: &str, sure: bool) -> Res<String> {
    let on = truth(val)?;
    if on && !sure {
        return refuse(
            errno::EPERM,
            "Inline data support is deprecated and will be removed in a future release. Add --yes-i-really-really-mean-it if you are certain you want this enabled.",
        );
    }
    m.inline_data_enabled = on;
    Ok(format!("inline data {}", if on { "enabled" } else { "disabled" }))
}

/// Sets the ranks of the balancer: a name, or a hexadecimal mask.
fn set_rank_mask(m: &mut MdsMap, val: &str) -> Res<String> {
    let hex = val.strip_prefix("0x").unwrap_or(val);
    let special = matches!(val, "-1" | "all" | "0" | "0x0");
    if val.is_empty() {
        return invalid("bal_rank_mask may not be empty");
    }
    if !special && (hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit())) {
        return invalid("invalid hex value ");
    }
    if !special && hex.trim_start_matches('0').len() > MAX_MDS as usize / 4 {
        return invalid(format!("a value exceeds max_mds {MAX_MDS}"));
    }
    if !special && hex.bytes().all(|b| b == b'0') {
        return invalid("at least one rank must be set");
    }
    m.bal_rank_mask = val.to_owned();
    Ok(format!("setting the metadata balancer rank mask to {val}"))
}

/// Takes all ranks of the file system down, or brings them up again.
fn set_down(m: &mut MdsMap, down: bool) -> String {
    let name = &m.fs_name;
    if down {
        if m.max_mds > 0 {
            m.old_max_mds = m.max_mds;
            m.max_mds = 0;
        }
        format!("{name} marked down. ")
    } else if m.max_mds > 0 {
        format!("{name} is already online")
    } else {
        m.max_mds = m.old_max_mds.max(1);
        format!("{name} marked up, max_mds = {}", m.max_mds)
    }
}

fn set_joinable(m: &mut MdsMap, joinable: bool) -> String {
    m.set_flag(fs_flag::NOT_JOINABLE, !joinable);
    let name = &m.fs_name;
    if joinable {
        format!("{name} marked joinable; MDS may join as newly active.")
    } else {
        format!("{name} marked not joinable; MDS cannot join as newly active.")
    }
}

/// Requires the features of a release from all clients.
fn set_oldest_client(m: &mut MdsMap, val: &str) -> Res<String> {
    // The client feature bit that stands for each release.
    const BITS: [(&str, usize); 6] =
        [("jewel", 5), ("kraken", 6), ("luminous", 7), ("mimic", 8), ("nautilus", 12), ("octopus", 13)];
    const LATER: [&str; 6] = ["pacific", "quincy", "reef", "squid", "tentacle", "umbrella"];
    const BEFORE: [&str; 9] =
        ["argonaut", "bobtail", "cuttlefish", "dumpling", "emperor", "firefly", "giant", "hammer", "infernalis"];
    let bit = match BITS.iter().find(|(n, _)| *n == val) {
        Some((_, b)) => Some(*b),
        None if LATER.contains(&val) => Some(13),
        None if BEFORE.contains(&val) => None,
        None => return invalid(format!("version {val} is not recognized")),
    };
    m.required_client_features = bytes::Bytes::new();
    if let Some(b) = bit {
        m.require_client(b, true);
    }
    Ok(
        "WARNING: setting min_compat_client is deprecated and may not do what you want.\nThe oldest release to set is octopus.\nPlease migrate to `ceph fs required_client_features ...`."
            .into(),
    )
}

fn refuse_sessions(m: &mut MdsMap, on: bool) -> String {
    let already = if m.has_flag(fs_flag::REFUSE_CLIENT_SESSION) == on { "already " } else { "" };
    m.set_flag(fs_flag::REFUSE_CLIENT_SESSION, on);
    if on {
        format!("client(s) {already}blocked from establishing new session(s)")
    } else {
        format!("client(s) {already}allowed to establish new session(s)")
    }
}

fn refuse_other_standbys(m: &mut MdsMap, on: bool) -> String {
    let had = m.has_flag(fs_flag::REFUSE_STANDBY_FOR_ANOTHER_FS);
    m.set_flag(fs_flag::REFUSE_STANDBY_FOR_ANOTHER_FS, on);
    match (on, had) {
        (true, false) => "set to refuse standby for another fs".into(),
        (true, true) => "to refuse standby for another fs is already set".into(),
        (false, true) => "allowed to use standby for another fs".into(),
        (false, false) => "to use standby for another fs is already allowed".into(),
    }
}
