//! Is every command and every message refused to keys without the right to it, and to no others?
//!
//! The matrix has each command of the tables, each message and each subscription × the keys that matter. The cells of
//! commands were recorded from a real 16.2, and from a real 20.2 for newer commands (`vectors/rights`, by
//! `interop/py/record_rights.py`). They are compared with a live session of such a key. A command that was not
//! recorded has a row in [`OURS`] with its source, or the test fails. Where this program refuses what Ceph grants,
//! [`STRICTER`] says why.

mod support;

use base::{EntityKind, EntityName, errno};
use bytes::Bytes;
use mon::command::{commands, flag};
use mon::core::session::Peer;
use mon::core::session::rights::{Topic, messages};
use mon::state::Role;
use mon::state::options::{MonOptions, PoolOptions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;
use wire::{Message, MsgHeader};

/// A column: name in the recordings, entity, caps at the monitor and at the manager, announced entity type.
struct Key {
    column: &'static str,
    entity: &'static str,
    mon: &'static str,
    mgr: &'static str,
    says: EntityKind,
}

const fn key(column: &'static str, entity: &'static str, mon: &'static str, mgr: &'static str) -> Key {
    Key { column, entity, mon, mgr, says: EntityKind::CLIENT }
}

const KEYS: &[Key] = &[
    key("no-caps", "client.m_none", "", ""),
    key("no-grants", "client.m_nothing", "allow command nosuch", ""),
    key("read-only", "client.m_ro", "allow r", ""),
    key("reader", "client.m_reader", "allow r", "allow r"),
    key("profile-rbd", "client.m_rbd", "profile rbd", "profile rbd"),
    key("bootstrap-osd", "client.bootstrap-osd", "allow profile bootstrap-osd", ""),
    key("bootstrap-mds", "client.bootstrap-mds", "allow profile bootstrap-mds", ""),
    key("bootstrap-rgw", "client.bootstrap-rgw", "allow profile bootstrap-rgw", ""),
    key("bootstrap-mgr", "client.bootstrap-mgr", "allow profile bootstrap-mgr", ""),
    key("bootstrap-rbd", "client.bootstrap-rbd", "allow profile bootstrap-rbd", ""),
    key("bootstrap-rbd-mirror", "client.bootstrap-rbd-mirror", "allow profile bootstrap-rbd-mirror", ""),
    key("osd-key", "osd.0", "allow profile osd", "allow profile osd"),
    // The announced type is osd, but the key is a client's: the key decides.
    Key { column: "read-only", entity: "client.m_ro", mon: "allow r", mgr: "", says: EntityKind::OSD },
];

impl Key {
    fn open(&self, c: &mut Cluster, role: Role) -> u64 {
        let caps = if role == Role::Mgr { self.mgr } else { self.mon };
        let mut p = peer(self.entity, self.says, 7000 + c.next_conn, caps);
        p.entity = match self.says {
            EntityKind::OSD => EntityName::new(EntityKind::OSD, 0),
            kind => EntityName::new(kind, p.principal.global_id as i64),
        };
        c.open(Peer { role, ..p })
    }

    /// Columns of the message tables: the keys above, and daemons with their own keys.
    fn all() -> impl Iterator<Item = (String, Peer)> {
        let daemon = |column: &str, kind, name: &str, num, caps: &str| {
            let p = peer(name, kind, num, caps);
            (column.to_owned(), Peer { entity: EntityName::new(kind, num as i64), ..p })
        };
        KEYS.iter()
            .map(|k| {
                let mut p = peer(k.entity, k.says, 7000, k.mon);
                if k.says == EntityKind::OSD {
                    p.entity = EntityName::new(EntityKind::OSD, 0);
                }
                (k.title(), p)
            })
            .chain([
                daemon("osd", EntityKind::OSD, "osd.0", 0, "allow profile osd"),
                daemon("osd, caps taken", EntityKind::OSD, "osd.0", 0, "allow r"),
                daemon("osd that says it is another", EntityKind::OSD, "osd.0", 1, "allow profile osd"),
                daemon("mgr", EntityKind::MGR, "mgr.z", 9000, "allow profile mgr"),
                daemon("mds", EntityKind::MDS, "mds.z", 9001, "allow profile mds"),
                daemon("admin", EntityKind::CLIENT, "client.admin", 9002, "allow *"),
            ])
    }

    fn title(&self) -> String {
        if self.says == EntityKind::OSD { format!("{} that says it is osd.0", self.column) } else { self.column.into() }
    }
}

struct Row {
    send: Value,
    allowed: BTreeSet<String>,
    refused: BTreeSet<String>,
}

/// Rows where 20.2 answers otherwise than 16.2. This program follows 16.2.
const CHANGED: &[(&str, &str)] = &[
    ("balancer execute", "20.2 lets readers: it judges by how the text of the command begins"),
    ("balancer optimize", "20.2 lets readers: it judges by how the text of the command begins"),
    ("rbd task cancel", "20.2 asks for rw; here the manager asks for w in the pool of the task"),
];

/// Rows of 16.2, and rows of 20.2 that 16.2 does not have.
fn recorded(kind: &str) -> BTreeMap<String, Row> {
    let (mut old, new) = (of_release(kind, "16.2.15"), of_release(kind, "20.2.4"));
    for (name, row) in new {
        old.entry(name).or_insert(row);
    }
    old
}

/// Rows of one recording.
fn of_release(kind: &str, release: &str) -> BTreeMap<String, Row> {
    let path = format!("{}/../../vectors/rights/{kind}-{release}.json", env!("CARGO_MANIFEST_DIR"));
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).unwrap();
    let set = |v: &Value| v.as_array().unwrap().iter().map(|k| k.as_str().unwrap().to_owned()).collect();
    let row = |r: &Value| Row { send: r["send"].clone(), allowed: set(&r["allowed"]), refused: set(&r["refused"]) };
    all["rows"].as_object().unwrap().iter().map(|(name, r)| (name.clone(), row(r))).collect()
}

/// Commands that are not recorded: Ceph does not have them, or never answers.
struct Own {
    prefix: &'static str,
    send: &'static str,
    allowed: &'static [&'static str],
    source: &'static str,
}

const NOBODY: &[&str] = &[];

/// A command of changes in steps. It gives an OSD's key nothing that its other commands do not give.
const fn step(prefix: &'static str, send: &'static str) -> Own {
    let source = "no command of Ceph; src/mon/MonCap.cc: profile osd has all of osd";
    Own { prefix, send, allowed: &["osd-key"], source }
}

const OURS: &[Own] = &[
    step("rehearse apply", r#"{"prefix":"rehearse apply","cmd":"{}","epoch":1,"by":"x"}"#),
    step("rehearse claim", r#"{"prefix":"rehearse claim","by":"x"}"#),
    step("rehearse release", r#"{"prefix":"rehearse release","by":"x"}"#),
    step("rehearse undo", r#"{"prefix":"rehearse undo"}"#),
    step("rehearse commit", r#"{"prefix":"rehearse commit"}"#),
    Own {
        prefix: "osd store-failed",
        send: r#"{"prefix":"osd store-failed","id":99,"reason":"x"}"#,
        allowed: &["osd-key"],
        source: "no command of Ceph; src/mon/MonCap.cc: profile osd has all of osd",
    },
    Own {
        prefix: "osd device-silent",
        send: r#"{"prefix":"osd device-silent","id":99,"reason":"x"}"#,
        allowed: &["osd-key"],
        source: "no command of Ceph; src/mon/MonCap.cc: profile osd has all of osd",
    },
    Own {
        prefix: "rehearse",
        send: r#"{"prefix":"rehearse"}"#,
        allowed: EVERYBODY.split_at(1).1,
        source: "no command of Ceph; reads as `mon stat` does, and each rehearsed command needs its own rights",
    },
    Own {
        prefix: "rehearse status",
        send: r#"{"prefix":"rehearse status"}"#,
        allowed: EVERYBODY.split_at(1).1,
        source: "no command of Ceph; reads as `mon stat` does",
    },
    Own {
        prefix: "heap",
        send: r#"{"prefix":"heap","heapcmd":"stats"}"#,
        allowed: NOBODY,
        source: "16.2 src/mon/Monitor.cc, Monitor::handle_tell_command: allow *",
    },
    Own {
        prefix: "dashboard create-self-signed-cert",
        send: r#"{"prefix":"dashboard create-self-signed-cert"}"#,
        allowed: NOBODY,
        source: "16.2 src/pybind/mgr/dashboard/module.py: CLIWriteCommand, mgr w",
    },
    Own {
        prefix: "dashboard set-ssl-certificate",
        send: r#"{"prefix":"dashboard set-ssl-certificate"}"#,
        allowed: NOBODY,
        source: "16.2 src/pybind/mgr/dashboard/module.py: CLIWriteCommand, mgr w",
    },
    Own {
        prefix: "dashboard set-ssl-certificate-key",
        send: r#"{"prefix":"dashboard set-ssl-certificate-key"}"#,
        allowed: NOBODY,
        source: "16.2 src/pybind/mgr/dashboard/module.py: CLIWriteCommand, mgr w",
    },
];

/// Cells where Ceph grants more than this program.
struct Stricter {
    row: &'static str,
    columns: &'static [&'static str],
    why: &'static str,
}

const EVERYBODY: &[&str] = &[
    "no-grants",
    "read-only",
    "reader",
    "profile-rbd",
    "bootstrap-osd",
    "bootstrap-mds",
    "bootstrap-rgw",
    "bootstrap-mgr",
    "bootstrap-rbd",
    "bootstrap-rbd-mirror",
    "osd-key",
];
const READERS: &[&str] =
    &["read-only", "reader", "profile-rbd", "bootstrap-osd", "bootstrap-mds", "bootstrap-rgw", "bootstrap-mgr"];

const STRICTER: &[Stricter] = &[
    Stricter {
        row: "osd in",
        columns: READERS,
        why: "16.2 finds a command by how its text begins: `osd in` is judged as `osd info`, and a reader may run it",
    },
    Stricter {
        row: "fs compat",
        columns: READERS,
        why: "16.2 finds a command by how its text begins: `fs compat` is judged as `fs compat show`",
    },
    Stricter {
        row: "osd blocklist #add range",
        columns: &["profile-rbd"],
        why: "who breaks a lock shuts out one client; with the word before it the same text is a whole network",
    },
    Stricter { row: "scrub", columns: EVERYBODY, why: "16.2 says that it is obsolete before it looks at caps" },
];

fn stricter(row: &str, column: &str) -> bool {
    STRICTER.iter().any(|s| s.row == row && s.columns.contains(&column) && !s.why.is_empty())
}

/// Sends a command in the way of its role and returns the answer's code and text, or `None` while the command waits.
fn send_command(c: &mut Cluster, conn: u64, kind: &str, cmd: &Value) -> Option<(i32, String)> {
    let fsid = c.core.state().fsid;
    let text = vec![cmd.to_string().into()];
    match kind {
        "mon" => {
            c.send(conn, &MMonCommand { paxos: PaxosHeader::default(), fsid, cmd: text, data: Bytes::new() });
            c.take::<MMonCommandAck>(conn).pop().map(|a| (a.r, a.rs.0))
        }
        "mgr" => {
            c.send(conn, &MMgrCommand { fsid, cmd: text, data: Bytes::new() });
            c.take::<MMgrCommandReply>(conn).pop().map(|a| (a.r, a.rs.0))
        }
        _ => {
            c.send(conn, &MCommand { fsid, cmd: text, data: Bytes::new() });
            c.take::<MCommandReply>(conn).pop().map(|a| (a.r, a.rs.0))
        }
    }
}

fn refused(answer: Option<&(i32, String)>) -> bool {
    let text = |rs: &str| rs.starts_with("access denied") || rs == "insufficient caps";
    answer.is_some_and(|(r, rs)| *r == errno::EACCES && text(rs))
}

fn role_of(kind: &str) -> Role {
    if kind.starts_with("mgr") { Role::Mgr } else { Role::Mon }
}

/// The tables that serve a command.
fn kinds_of(flags: u32) -> &'static [&'static str] {
    if flags & flag::TELL == flag::TELL {
        &["mon-tell", "mgr-tell"]
    } else if flags & flag::MGR != 0 {
        &["mon", "mgr"]
    } else {
        &["mon"]
    }
}

fn cluster() -> Cluster {
    let (mut c, ..) = {
        let mut c = Cluster::with(
            FSID,
            MonOptions { pools: PoolOptions { allow_delete: true, ..PoolOptions::default() }, ..MonOptions::default() },
        );
        let admin = c.admin();
        c.new_osd(admin, 0, "h0");
        (c, admin)
    };
    c.unchecked = true;
    c
}

fn tell_rows<'a>(rows: &'a BTreeMap<String, Row>, prefix: &str) -> Vec<(String, Value, Option<&'a Row>)> {
    rows.iter().filter(|(n, _)| *n == prefix).map(|(n, r)| (n.clone(), r.send.clone(), Some(r))).collect()
}

#[test]
fn releases_agree_but_for_a_few_rows() {
    let mut changed = BTreeSet::new();
    for kind in ["mon", "mgr", "mon-tell", "mgr-tell"] {
        let (old, new) = (of_release(kind, "16.2.15"), of_release(kind, "20.2.4"));
        let differs =
            |n: &&String| new.get(*n).is_some_and(|r| r.allowed != old[*n].allowed || r.refused != old[*n].refused);
        changed.extend(old.keys().filter(differs).cloned());
    }
    assert_eq!(changed, CHANGED.iter().map(|c| c.0.to_owned()).collect());
    assert!(CHANGED.iter().all(|c| !c.1.is_empty()));
}

#[test]
fn commands_are_allowed_and_refused_as_recorded() {
    let (mut wrong, mut cells, mut own_cells) = (Vec::new(), 0, 0);
    let (all_tell, of_manager) = (recorded("mon-tell"), recorded("mgr-tell"));
    assert!(OURS.iter().all(|o| !o.source.is_empty()));
    for kind in ["mon", "mgr", "mon-tell", "mgr-tell"] {
        let rows = recorded(kind);
        let mut c = cluster();
        let sessions: Vec<(&Key, u64)> = KEYS.iter().map(|k| (k, k.open(&mut c, role_of(kind)))).collect();
        for (sig, cmd) in commands().filter(|(_, c)| kinds_of(c.flags).contains(&kind)) {
            let prefix = &sig.prefix;
            let mine: Vec<(String, Value, Option<&Row>)> = rows
                .iter()
                .filter(|(_, r)| r.send["prefix"] == prefix.as_str())
                .map(|(n, r)| (n.clone(), r.send.clone(), Some(r)))
                .collect();
            // All `tell` commands need `allow *`, so the monitor's rows hold for the manager too, and the other way round.
            let mine = match kind {
                "mgr-tell" if mine.is_empty() => tell_rows(&all_tell, prefix),
                "mon-tell" if mine.is_empty() => tell_rows(&of_manager, prefix),
                _ => mine,
            };
            let own = OURS.iter().find(|o| o.prefix == prefix);
            assert!(own.is_none() || mine.is_empty(), "{prefix} is recorded: its row here says nothing");
            let mine = match (mine.is_empty(), own) {
                (false, _) => mine,
                (true, Some(o)) => vec![(prefix.clone(), serde_json::from_str(o.send).unwrap(), None)],
                (true, None) => {
                    wrong.push(format!("{kind} '{prefix}': no row; perm {} {}", cmd.module, cmd.perm));
                    continue;
                }
            };
            for (name, send, row) in mine {
                for (k, conn) in &sessions {
                    let want_refused = match row {
                        Some(r) if r.refused.contains(k.column) => true,
                        Some(r) if r.allowed.contains(k.column) => stricter(&name, k.column),
                        // Ceph closes the connection of a key without any caps for the daemon's service.
                        Some(r) => !r.allowed.contains("no-grants") || stricter(&name, "no-grants"),
                        None => own.is_some_and(|o| !o.allowed.contains(&k.column)),
                    };
                    if row.is_some() {
                        cells += 1
                    } else {
                        own_cells += 1
                    }
                    let answer = send_command(&mut c, *conn, kind, &send);
                    if refused(answer.as_ref()) != want_refused {
                        let how = if want_refused { "refused" } else { "allowed" };
                        wrong.push(format!("{kind} '{name}' by {}: should be {how}, was {answer:?}", k.title()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cells} + {own_cells} cells:\n{}", wrong.len(), wrong.join("\n"));
    assert!(own_cells * 9 <= cells, "more than a tenth not recorded: {own_cells} of {}", cells + own_cells);
}

/// The right that a message type needs, by Ceph's source, and the columns that have it.
struct MessageRow {
    name: &'static str,
    allowed: Who,
    source: &'static str,
}

/// A set of columns.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    /// Every session; the parts of the message are judged one by one.
    Session,
    /// `mon r`.
    MonR,
    /// `osd r`.
    OsdR,
    /// `pg r`.
    PgR,
    /// `log w`: daemons and the administrator.
    LogW,
    /// The session of an OSD.
    Osd,
    /// The session of an OSD at a manager, where its caps differ.
    OsdKey,
    /// The session of a manager.
    Mgr,
    /// The session of an MDS.
    Mds,
    /// No column: no such manager is active.
    Nobody,
}

impl Who {
    fn has(self, column: &str) -> bool {
        let reads = READERS.contains(&column.split(" that").next().unwrap_or(column));
        let osd = column.starts_with("osd") && column != "osd, caps taken";
        match self {
            Self::Session => true,
            Self::MonR => {
                reads
                    || column.starts_with("bootstrap-rbd")
                    || matches!(column, "osd-key" | "mgr" | "mds" | "admin")
                    || column.starts_with("osd")
            }
            Self::OsdR => reads || matches!(column, "mgr" | "mds" | "admin") || column.starts_with("osd"),
            Self::PgR => {
                matches!(column, "read-only" | "reader" | "profile-rbd" | "admin" | "osd, caps taken")
                    || column.starts_with("read-only that")
                    || osd
            }
            Self::LogW => osd || matches!(column, "mgr" | "mds" | "admin"),
            Self::Osd => column == "osd",
            Self::OsdKey => matches!(column, "osd" | "osd, caps taken"),
            Self::Mgr => column == "mgr",
            Self::Mds => column == "mds",
            Self::Nobody => false,
        }
    }
}

const fn row(name: &'static str, allowed: Who, source: &'static str) -> MessageRow {
    MessageRow { name, allowed, source }
}

const OSD_MONITOR: &str = "src/mon/OSDMonitor.cc, preprocess_*: osd x, and from an OSD; ours: from that OSD";

/// Messages to the monitor.
const AT_MONITOR: &[MessageRow] = &[
    row("ping", Who::Session, "src/mon/Monitor.cc, ms_dispatch: before caps"),
    row("mon_getmap", Who::Session, "Monitor.cc, dispatch_op: before caps, for clients that hunt"),
    row("auth", Who::Session, "AuthMonitor.cc: renewal of the session's own tickets"),
    row("get_config", Who::Session, "ConfigMonitor.cc: a daemon's own options, asked for before it is known"),
    row("mon_subscribe", Who::Session, "Monitor.cc, handle_subscribe: judged topic by topic"),
    row("mon_command", Who::Session, "Monitor.cc, handle_command: judged command by command"),
    row("command", Who::Session, "Monitor.cc, handle_tell_command: judged command by command"),
    row("mon_get_version", Who::MonR, "Monitor.cc, dispatch_op: mon r for what follows"),
    row("statfs", Who::PgR, "MgrStatMonitor.cc, preprocess_statfs: pg r"),
    row("getpoolstats", Who::PgR, "MgrStatMonitor.cc, preprocess_getpoolstats: pg r"),
    row("mon_get_osdmap", Who::OsdR, "OSDMonitor.cc asks for nothing; ours: as for a subscription to osdmap"),
    row("mon_get_purged_snaps", Who::OsdR, "OSDMonitor.cc asks for nothing; ours: osd r"),
    row("log", Who::LogW, "LogMonitor.cc, preprocess_log: log w"),
    row("poolop", Who::Session, "OSDMonitor.cc, preprocess_pool_op: judged by pool and operation"),
    row("osd_boot", Who::Osd, OSD_MONITOR),
    row("osd_failure", Who::Osd, OSD_MONITOR),
    row("osd_alive", Who::Osd, OSD_MONITOR),
    row("MOSDMarkMeDown", Who::Osd, OSD_MONITOR),
    row("MOSDMarkMeDead", Who::Osd, OSD_MONITOR),
    row("osd_full", Who::Osd, OSD_MONITOR),
    row("osd_pgtemp", Who::Osd, OSD_MONITOR),
    row("osd_pg_created", Who::Osd, OSD_MONITOR),
    row("osd_pg_ready_to_merge", Who::Osd, OSD_MONITOR),
    row("osd_beacon", Who::Osd, OSD_MONITOR),
    row("mgrbeacon", Who::Mgr, "MgrMonitor.cc, preprocess_beacon: mgr x"),
    row("monmgrreport", Who::Nobody, "MgrStatMonitor.cc: mgr x; ours: of the active manager"),
    row("mdsbeacon", Who::Mds, "MDSMonitor.cc, preprocess_beacon: mds x"),
    row("mds_load_targets", Who::Mds, "MDSMonitor.cc, preprocess_offload_targets: mds x"),
    row(
        "remove_snaps",
        Who::Session,
        "OSDMonitor.cc, preprocess_remove_snaps: the command osd pool rmsnap, asked for by the handler",
    ),
];

/// Messages to the manager.
const AT_MANAGER: &[MessageRow] = &[
    row("mgropen", Who::Session, "DaemonServer.cc, handle_open: whoever signed in reports as what it is"),
    row("mgrreport", Who::Session, "DaemonServer.cc, handle_report: of a session that opened"),
    row("mgrclose", Who::Session, "DaemonServer.cc, handle_close; ours: its own service"),
    row("pg_stats", Who::OsdKey, "DaemonServer.cc, ms_dispatch2 takes anybody's; ours: of an OSD"),
    row("mgr_command", Who::Session, "DaemonServer.cc, _handle_command: judged command by command"),
    row("command", Who::Session, "DaemonServer.cc, handle_command: judged command by command"),
];

fn bare(kind: u16) -> Message {
    Message { header: MsgHeader { kind, version: 1, compat: 1, ..MsgHeader::default() }, ..Message::default() }
}

/// True if a message without a body is decoded. From a sender with the right it is, which ends the session (or gets
/// an answer, if no body is needed). From other senders it is ignored.
fn is_looked_at(c: &mut Cluster, p: Peer, kind: u16) -> bool {
    let conn = c.open(p);
    c.out.clear();
    c.closed.clear();
    c.send_raw(conn, bare(kind));
    let closed = c.closed.iter().any(|(x, why)| *x == conn && why.starts_with("malformed"));
    let answered = c.out.iter().any(|(x, _)| *x == conn);
    if !closed {
        c.close(conn);
    }
    closed || answered
}

#[test]
fn messages_are_accepted_only_from_permitted_senders() {
    let mut wrong = Vec::new();
    for (role, table) in [(Role::Mon, AT_MONITOR), (Role::Mgr, AT_MANAGER)] {
        let mut c = cluster();
        for m in messages(role) {
            let Some(row) = table.iter().find(|r| r.name == m.name) else {
                wrong.push(format!("{role:?}: message {} has no row", m.name));
                continue;
            };
            for (column, p) in Key::all() {
                let looked_at = is_looked_at(&mut c, Peer { role, ..p }, m.kind);
                if looked_at != row.allowed.has(&column) {
                    wrong.push(format!("{role:?}: {} from '{column}': taken {looked_at} ({})", m.name, row.source));
                }
            }
        }
        for r in table {
            assert!(messages(role).iter().any(|m| m.name == r.name), "{} is no message of {role:?}", r.name);
        }
        // Message types outside the role's table are ignored, whoever sends them.
        for kind in wire::msg::registry::KINDS.iter().filter(|k| !messages(role).iter().any(|m| m.kind == **k)) {
            for (column, p) in Key::all() {
                if is_looked_at(&mut c, Peer { role, ..p }, *kind) {
                    wrong.push(format!("{role:?}: {} from '{column}'", wire::msg::registry::name(*kind)));
                }
            }
        }
        // Without a key there is no session.
        let before = c.core.state().osdmap.epoch;
        for kind in wire::msg::registry::KINDS {
            c.out.clear();
            c.send_raw(u64::MAX, bare(*kind));
            assert!(c.out.is_empty(), "an answer to nobody");
        }
        assert_eq!(c.core.state().osdmap.epoch, before);
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// True if the column may receive the topic.
fn topic_allows(topic: Topic, column: &str) -> bool {
    let fs = Who::MonR.has(column)
        && !column.starts_with("bootstrap")
        && !matches!(column, "profile-rbd" | "osd-key" | "osd" | "osd that says it is another");
    match topic {
        Topic::MonMap | Topic::Config => true,
        Topic::MgrMap | Topic::ServiceMap | Topic::Log => Who::MonR.has(column),
        Topic::OsdMap => Who::OsdR.has(column),
        Topic::FsMap | Topic::FsMapUser | Topic::MdsMap => fs,
        // Ceph asks for `mon r` only and so discloses stored secrets.
        Topic::Kv => matches!(column, "mgr" | "admin"),
        Topic::MgrDigest => column == "mgr",
        Topic::PgCreates => column == "osd",
    }
}

#[test]
fn subscriptions_bring_only_permitted_topics() {
    let mut c = cluster();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "mgr/secret", "val": "s" }));
    let mut wrong = Vec::new();
    for topic in Topic::ALL {
        for (column, p) in Key::all() {
            let conn = c.open(p);
            c.out.clear();
            c.subscribe(conn, topic.example(), 0, false);
            // A change of each topic: a refused subscription must bring nothing then, either.
            c.ok(admin, &json!({ "prefix": "config-key set", "key": "mgr/secret", "val": column }));
            let got = c.out.iter().any(|(x, _)| *x == conn);
            let want = topic_allows(topic, &column);
            // These topics send nothing while they are empty.
            let silent = matches!(topic, Topic::PgCreates | Topic::MgrDigest | Topic::MdsMap);
            if got != want && !(silent && want) {
                wrong.push(format!("{topic:?} to '{column}': got {got}"));
            }
            c.close(conn);
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
