//! Does each profile allow and refuse at monitor and manager what it does on real clusters of 20.2 and 16.2?
//!
//! `interop/long/record_rights.sh` with `KEYS=profiles` recorded them: a command for each kind of right, and commands
//! whose arguments decide. Where the releases differ, this program follows the newer one ([`CHANGED`] lists these
//! cells). Where it refuses what Ceph grants, [`STRICTER`] says why. The rights of profiles at an OSD are in
//! `crates/cluster/tests/caps.rs`.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use base::{EntityKind, errno};
use bytes::Bytes;
use mon::command::{commands, flag};
use mon::core::session::Peer;
use mon::state::Role;
use mon::state::options::{MonOptions, PoolOptions};
use serde_json::Value;
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;

const NEWER: &str = "20.2.4";
const OLDER: &str = "16.2.15";

/// Rows and profiles that the two releases judge differently.
const CHANGED: &[(&str, &str, &str)] = &[
    ("balancer execute", "profile read-only", "16.2 asks for rw"),
    ("balancer optimize", "profile read-only", "16.2 asks for rw"),
    ("rbd task cancel", "profile rbd-read-only", "20.2 asks for rw"),
    ("rbd task cancel", "profile read-only", "20.2 asks for rw"),
];

/// Rows and profiles that this program refuses and Ceph grants.
const STRICTER: &[(&str, &str, &str)] = &[
    ("balancer execute", "profile read-only", NO_READ),
    ("balancer optimize", "profile read-only", NO_READ),
    ("osd blacklist", READ_ONLY, NO_LOCKS),
    ("osd blacklist #add", READ_ONLY, NO_LOCKS),
    ("osd blocklist", READ_ONLY, NO_LOCKS),
    ("osd blocklist #add", READ_ONLY, NO_LOCKS),
    ("osd blocklist #add range", READ_ONLY, NO_LOCKS),
    ("osd blocklist #add range", "profile rbd", ONE_ONLY),
    ("osd blocklist #add range", "profile rbd-mirror", ONE_ONLY),
    ("osd blocklist #add range", "profile rbd-mirror-peer", ONE_ONLY),
    ("osd blocklist #add range", "profile simple-rados-client-with-blocklist", ONE_ONLY),
];
const ONE_ONLY: &str =
    "who breaks a lock shuts out one client; with the word before it the same text is a whole network";
const NO_READ: &str = "20.2 judges by how the text of the command begins; a reader moves no data";
const READ_ONLY: &str = "profile rbd-read-only";
const NO_LOCKS: &str = "who only reads images takes no locks, and need shut out nobody";

/// Rows whose rights are judged after this test's answer: the task does not exist, so no sender is refused.
const LATER: &[(&str, &str)] = &[("rbd task cancel", "the manager asks for w in the pool of the task")];

struct Recording {
    /// Entity, caps at the monitor and at the manager, by profile.
    keys: BTreeMap<String, (String, String, String)>,
    /// The command sent, the profiles that were let through, and those that were refused.
    rows: BTreeMap<String, (Value, BTreeSet<String>, BTreeSet<String>)>,
}

fn recorded(kind: &str, release: &str) -> Recording {
    let path = format!("{}/../../vectors/rights/{kind}-profiles-{release}.json", env!("CARGO_MANIFEST_DIR"));
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let set = |v: &Value| v.as_array().unwrap().iter().map(text).collect();
    let keys = all["keys"].as_object().unwrap().iter();
    let rows = all["rows"].as_object().unwrap().iter();
    Recording {
        keys: keys
            .map(|(n, k)| (n.clone(), (text(&k["entity"]), text(&k["caps"]["mon"]), text(&k["caps"]["mgr"]))))
            .collect(),
        rows: rows.map(|(n, r)| (n.clone(), (r["send"].clone(), set(&r["allowed"]), set(&r["refused"])))).collect(),
    }
}

impl Recording {
    /// `Some(true)` if the command was let through, `None` if it was not answered.
    fn cell(&self, row: &str, key: &str) -> Option<bool> {
        let (_, allowed, refused) = self.rows.get(row)?;
        if allowed.contains(key) { Some(true) } else { refused.contains(key).then_some(false) }
    }
}

/// True if the command is refused for lack of rights. Most commands here fail for other reasons.
fn is_refused(c: &mut Cluster, conn: u64, role: Role, cmd: &Value) -> bool {
    let fsid = c.core.state().fsid;
    let text = vec![cmd.to_string().into()];
    let answer = if role == Role::Mgr {
        c.send(conn, &MMgrCommand { fsid, cmd: text, data: Bytes::new() });
        c.take::<MMgrCommandReply>(conn).pop().map(|a| (a.r, a.rs.0))
    } else {
        c.send(conn, &MMonCommand { paxos: PaxosHeader::default(), fsid, cmd: text, data: Bytes::new() });
        c.take::<MMonCommandAck>(conn).pop().map(|a| (a.r, a.rs.0))
    };
    answer.is_some_and(|(r, rs)| r == errno::EACCES && (rs.starts_with("access denied") || rs == "insufficient caps"))
}

#[test]
fn profiles_allow_and_refuse_what_was_recorded() {
    let (mut wrong, mut cells, mut changed, mut stricter) = (Vec::new(), 0, BTreeSet::new(), BTreeSet::new());
    for (kind, role) in [("mon", Role::Mon), ("mgr", Role::Mgr)] {
        let (new, old) = (recorded(kind, NEWER), recorded(kind, OLDER));
        let mine: BTreeSet<&str> = commands()
            .filter(|(_, c)| role == Role::Mon || c.flags & flag::MGR != 0)
            .map(|(sig, _)| sig.prefix.as_str())
            .collect();
        let mut c = Cluster::with(
            FSID,
            MonOptions { pools: PoolOptions { allow_delete: true, ..PoolOptions::default() }, ..MonOptions::default() },
        );
        let admin = c.admin();
        c.new_osd(admin, 0, "h0");
        c.unchecked = true;
        for (key, (entity, mon, mgr)) in &new.keys {
            let caps = if role == Role::Mgr { mgr } else { mon };
            let p = peer(entity, EntityKind::CLIENT, 7000 + c.next_conn, caps);
            let conn = c.open(Peer { role, ..p });
            // Rows of both releases; the older one's arguments take precedence, because the signatures here follow
            // it.
            let all = old.rows.iter().chain(new.rows.iter().filter(|(r, _)| !old.rows.contains_key(*r)));
            for (row, (send, ..)) in all {
                if !mine.contains(send["prefix"].as_str().unwrap()) {
                    continue;
                }
                let (Some(want), before) = (new.cell(row, key).or(old.cell(row, key)), old.cell(row, key)) else {
                    continue;
                };
                if before.is_some_and(|b| b != want) {
                    changed.insert((row.clone(), key.clone()));
                }
                cells += 1;
                let got = !is_refused(&mut c, conn, role, send);
                if want && !got && STRICTER.iter().any(|s| s.0 == row && s.1 == key) {
                    stricter.insert((row.as_str().to_owned(), key.clone()));
                } else if got != want && !LATER.iter().any(|l| l.0 == row && !l.1.is_empty()) {
                    wrong.push(format!("{kind} '{row}' by {key}: let through {got}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cells}:\n{}", wrong.len(), wrong.join("\n"));
    let listed = |l: &[(&str, &str, &str)]| -> BTreeSet<(String, String)> {
        assert!(l.iter().all(|x| !x.2.is_empty()));
        l.iter().map(|x| (x.0.to_owned(), x.1.to_owned())).collect()
    };
    assert_eq!(changed, listed(CHANGED), "what the releases judge otherwise");
    assert_eq!(stricter, listed(STRICTER), "what is refused here and not there");
    assert!(cells > 1000, "{cells}");
}
