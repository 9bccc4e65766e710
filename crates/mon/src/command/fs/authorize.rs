//! `fs authorize`: makes a key for paths of a file system, with the capabilities it needs at each service.

use super::{Ctx, Refused, Res, edit, invalid, may_change, refuse};
use crate::command::{Cmd, CommandOutcome, When, cmd, done};
use crate::state::AuthEntry;
use base::{AuthName, errno};
use std::collections::BTreeMap;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[cmd(
    "fs authorize filesystem:String entity:String caps:String* key_type:String?",
    "auth",
    "rwx",
    0,
    run,
    "make or extend a key for paths of a file system",
)];

fn run(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("entity")?;
    let entity = AuthName::parse(&name).ok_or_else(|| Refused::new(errno::EINVAL, "bad entity name"))?;
    if entity.kind != base::EntityKind::CLIENT {
        return invalid("file systems can be authorized for clients only");
    }
    let fs = c.args.str("filesystem")?;
    let all = fs == "*" || fs == "all";
    if !all && edit(c).map().fs_by_name(&fs).is_none() {
        return invalid(format!("filesystem {fs} does not exist."));
    }
    if !may_change(c, &fs) {
        return refuse(errno::EPERM, format!("Permission denied: '{fs}'"));
    }
    let wanted = caps(&c.args.list("caps"), if all { None } else { Some(&fs) })?;
    let have = c.pending.auth(c.state, &entity).cloned();
    let (entry, note) = match have {
        None => (AuthEntry { key: super::super::auth::new_key(c)?, pending_key: None, caps: wanted }, String::new()),
        Some(e) => {
            let mut merged = e.caps.clone();
            for (service, text) in &wanted {
                let old = merged.get(service).cloned().unwrap_or_default();
                merged.insert(service.clone(), merge(&old, text));
            }
            if merged == e.caps {
                return done(format!("no update for caps of {entity}"));
            }
            (AuthEntry { caps: merged, ..e }, format!("updated caps for {entity}"))
        }
    };
    c.pending.set_auth(entity.clone(), Some(entry.clone()));
    let out = super::super::auth::keyring(c, &[(entity, entry)])?;
    Ok(CommandOutcome { rs: note, when: When::Committed, ..out })
}

/// Capabilities for pairs of path and permission, each followed by `root_squash` if the pair has it.
fn caps(list: &[String], fs: Option<&str>) -> Res<BTreeMap<String, String>> {
    let mut mds: Vec<String> = Vec::new();
    let mut write = false;
    let mut rest = list;
    while let [path, perm, more @ ..] = rest {
        rest = more;
        let squash = rest.first().is_some_and(|w| w == "root_squash");
        if squash {
            rest = rest.get(1..).unwrap_or_default();
        }
        write |= check_permission(perm)?;
        if path.chars().any(|c| c == '"' || c == ',' || c.is_whitespace() || c.is_control()) {
            return invalid(format!("path '{path}' has characters that a capability cannot hold"));
        }
        let mut t = format!("allow {perm}");
        if let Some(f) = fs {
            t += &format!(" fsname={f}");
        }
        if path != "/" {
            t += &format!(" path={path}");
        }
        if squash {
            t += " root_squash";
        }
        mds.push(t);
    }
    if mds.is_empty() || !rest.is_empty() {
        return invalid("a path and its permission are needed");
    }
    let mon = fs.map_or_else(|| "allow r".to_owned(), |f| format!("allow r fsname={f}"));
    let osd = format!("allow {} tag cephfs data={}", if write { "rw" } else { "r" }, fs.unwrap_or("*"));
    Ok([("mds", mds.join(", ")), ("mon", mon), ("osd", osd)].into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

/// Checks a permission; true if it allows writes.
fn check_permission(perm: &str) -> Res<bool> {
    let mut last = '\0';
    let mut write = false;
    for ch in perm.chars() {
        if last >= ch {
            return invalid("Permission flags (except 'rw') must be specified in alphabetical order.");
        }
        last = if last == 'r' && ch == 'w' { '\0' } else { ch };
        match ch {
            'r' | 'p' | 's' => {}
            'w' => write = true,
            '*' if perm == "*" => write = true,
            '*' => return invalid("Permission '*' implies all, remove other caps."),
            _ => return invalid(format!("Unknown permission flag '{ch}'.")),
        }
    }
    if perm.is_empty() { invalid("a path and its permission are needed") } else { Ok(write) }
}

/// The words of a grant without its permission: file system and path. Grants with equal subjects replace each other.
fn subject(grant: &str) -> Vec<&str> {
    let mut words: Vec<&str> = grant.split_whitespace().filter(|w| *w != "root_squash").collect();
    if words.len() >= 2 {
        words.remove(1);
    }
    words
}

/// The old capability with the new grants. A new grant replaces the old one with the same subject.
fn merge(old: &str, new: &str) -> String {
    let split = |t: &str| t.split(',').map(|g| g.trim().to_owned()).filter(|g| !g.is_empty()).collect::<Vec<_>>();
    let mut grants = split(old);
    for g in split(new) {
        match grants.iter_mut().find(|o| subject(o) == subject(&g)) {
            Some(o) => *o = g,
            None => grants.push(g),
        }
    }
    grants.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(t: &str) -> Vec<String> {
        t.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn capabilities_for_paths() {
        let c = caps(&words("/ r /tmp rwp root_squash"), Some("home")).unwrap();
        assert_eq!(c["mds"], "allow r fsname=home, allow rwp fsname=home path=/tmp root_squash");
        assert_eq!((c["mon"].as_str(), c["osd"].as_str()), ("allow r fsname=home", "allow rw tag cephfs data=home"));
        assert_eq!(caps(&words("/ r"), None).unwrap()["osd"], "allow r tag cephfs data=*");
        for bad in ["/", "/ wr", "/ q", "/ r*", "/ r /x", "/a,allow r"] {
            assert!(caps(&words(bad), Some("home")).is_err(), "{bad}");
        }
    }

    #[test]
    fn grants_about_the_same_path_are_replaced() {
        assert_eq!(
            merge("allow rw fsname=home", "allow rw fsname=home root_squash"),
            "allow rw fsname=home root_squash"
        );
        assert_eq!(merge("allow r fsname=a", "allow rw fsname=b"), "allow r fsname=a, allow rw fsname=b");
        assert_eq!(merge("", "allow r"), "allow r");
    }
}
