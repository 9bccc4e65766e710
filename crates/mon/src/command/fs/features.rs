//! Features of file systems: those that daemons need on disk, and those that clients must have.

use super::{changed, modify, seen, show};
use crate::command::{CommandOutcome, Ctx, Res, committed, done, invalid, refuse};
use crate::json::J;
use crate::obj;
use base::errno;

/// Names of client features (`cephfs_features.cc`), by bit.
pub(super) const FEATURES: [&str; 24] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
    "new_snaprealm_info",
    "has_owner_uidgid",
    "client_mds_auth_caps",
    "charmap",
    "blockdiff",
];

pub(super) fn features(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let tree = || FEATURES.iter().enumerate().map(|(i, n)| obj! { "index": i, "name": *n }).collect::<J>();
    let text = || FEATURES.iter().enumerate().map(|(i, n)| format!("{i} {n}\n")).collect::<String>();
    c.tree("features", tree).text(text)
}

pub(super) fn compat_show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = seen(c)?;
    let compat = &fs.mds_map.compat;
    c.tree("mds_compat", || show::compat_tree(compat)).text(|| show::compat_text(compat))
}

pub(super) fn compat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let subop = c.args.str("subop")?;
    let feature = c.args.int("feature").and_then(|n| u64::try_from(n).ok()).filter(|n| (1..64).contains(n));
    let Some(feature) = feature else { return invalid("Invalid feature") };
    if !fs.mds_map.up.is_empty() {
        return refuse(errno::EBUSY, "file system must be failed or down; use `ceph fs fail` to bring down");
    }
    let mut compat = fs.mds_map.compat.clone();
    let (kind, add) = (subop.trim_start_matches("add_").trim_start_matches("rm_"), subop.starts_with("add_"));
    let set = if kind == "compat" { &mut compat.compat } else { &mut compat.incompat };
    let text = if add {
        let Some(name) = c.args.opt("feature_str").filter(|s| !s.is_empty()) else {
            return invalid("adding a feature requires a feature string");
        };
        match set.names.get(&feature).filter(|_| set.contains(feature)) {
            Some(n) if *n == name => "feature already exists".to_owned(),
            Some(n) => return refuse(errno::EEXIST, format!("feature with differing name `{n}' exists")),
            None => {
                set.insert(feature, &name);
                format!("added {kind} feature F({feature}, \"{name}\")")
            }
        }
    } else if set.contains(feature) {
        set.remove(feature);
        format!("removed {kind} feature {feature}")
    } else {
        format!("already removed {kind} feature {feature}")
    };
    modify(c, fs.fscid, |f| f.mds_map.compat = compat);
    committed(text)
}

pub(super) fn required(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let (subop, val) = (c.args.str("subop")?, c.args.str("val")?);
    let named = FEATURES.iter().position(|n| *n == val && val != "reserved");
    let bit = match named {
        Some(b) => b,
        None => match val.parse::<i64>() {
            Err(_) => return invalid(format!("Invalid feature name: {val}")),
            Ok(n) => match usize::try_from(n) {
                Ok(b) if b < FEATURES.len() => b,
                _ => return invalid(format!("Invalid feature id: {n}")),
            },
        },
    };
    let name = FEATURES.get(bit).copied().unwrap_or("unknown");
    let (add, had) = (subop == "add", fs.mds_map.requires_client(bit));
    if add == had {
        return done(format!("feature '{name}' is already {}", if add { "set" } else { "unset" }));
    }
    modify(c, fs.fscid, |f| f.mds_map.require_client(bit, add));
    committed(if add {
        format!("added feature '{name}' to required_client_features")
    } else {
        format!("removed feature '{name}' from required_client_features")
    })
}
