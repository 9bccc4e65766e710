//! Tests that an OSD handles only messages that their sender may send, and runs commands only for the same
//! callers as Ceph.
//!
//! Each message type of `wire` × each lane that peers can open × the relevant keys. The expectation is written
//! here, independently of the OSD's own table. So a message that is accepted from more or fewer senders fails,
//! and a new accepted one has no row. Commands are compared with the answers of a real 16.2 and a real 20.2
//! (`vectors/rights`).

use auth::{AuthError, CapsInfo, Method, Principal};
use base::{AuthName, EntityKind, Utime};
use osd::core::admission::{self, Lane};
use serde_json::Value;
use std::collections::BTreeSet;
use wire::msg::registry;

/// Column, entity, caps at an OSD, claimed kind.
const KEYS: &[(&str, &str, &str, EntityKind)] = &[
    ("no-caps", "client.m_none", "", EntityKind::CLIENT),
    ("no-grants", "client.m_nothing", "", EntityKind::CLIENT),
    ("read-only", "client.m_ro", "", EntityKind::CLIENT),
    ("reader", "client.m_reader", "allow r", EntityKind::CLIENT),
    ("profile-rbd", "client.m_rbd", "profile rbd", EntityKind::CLIENT),
    ("bootstrap-osd", "client.bootstrap-osd", "", EntityKind::CLIENT),
    ("bootstrap-mds", "client.bootstrap-mds", "", EntityKind::CLIENT),
    ("bootstrap-rgw", "client.bootstrap-rgw", "", EntityKind::CLIENT),
    ("bootstrap-mgr", "client.bootstrap-mgr", "", EntityKind::CLIENT),
    ("bootstrap-rbd", "client.bootstrap-rbd", "", EntityKind::CLIENT),
    ("bootstrap-rbd-mirror", "client.bootstrap-rbd-mirror", "", EntityKind::CLIENT),
    ("all of one pool", "client.pool", "allow * pool=p", EntityKind::CLIENT),
    ("all from one network", "client.net", "allow * network 10.0.0.0/8", EntityKind::CLIENT),
    ("rwx", "client.rwx", "allow rwx", EntityKind::CLIENT),
    ("osd-key", "osd.0", "allow *", EntityKind::CLIENT),
    ("admin", "client.admin", "allow *", EntityKind::CLIENT),
    ("osd", "osd.0", "allow *", EntityKind::OSD),
    ("osd, caps taken", "osd.0", "allow r", EntityKind::OSD),
    ("mgr", "mgr.x", "allow *", EntityKind::MGR),
    ("mds", "mds.a", "allow rwx", EntityKind::MDS),
];

fn principal(name: &str, caps: &str, says: EntityKind) -> Result<Principal, AuthError> {
    let granted = auth::server::Granted {
        name: AuthName::parse(name).expect("name"),
        global_id: 4711,
        caps: CapsInfo::from_text(caps),
        expires: Utime { sec: u32::MAX, nsec: 0 },
        reply: Default::default(),
        session_key: None,
        connection_secret: Vec::new(),
        proved: None,
    };
    Principal::incoming(says, &granted, Method::CEPHX, ([10, 0, 0, 1], 4711).into())
}

/// Accepted senders, by Ceph's name of the message and the lane. All others are refused.
///
/// Sources, 16.2 `src/osd/OSD.cc`: `ms_fast_dispatch` and `OSD::enqueue_op` (operations: caps per operation,
/// `PrimaryLogPG::op_has_sufficient_caps`), `OSD::handle_command` (`allow *`), `OSD::require_osd_peer`, `OSD::handle_osd_map`
/// (monitors and OSDs), `OSD::heartbeat_dispatch`.
fn listens(lane: Lane, message: &str, column: &str) -> bool {
    match (lane, message) {
        (Lane::Public, "osd_op" | "osd_backoff" | "ping") => true,
        (Lane::Public, "command") => matches!(column, "osd-key" | "admin" | "osd" | "mgr"),
        (Lane::Public, "osd_map") => column == "osd",
        (Lane::Cluster, "osd_map" | "pg_peer" | "pg_peers") => column == "osd",
        (Lane::Heartbeat, "osd_ping" | "belemnite_osd_lease") => column == "osd",
        _ => false,
    }
}

#[test]
fn messages_are_accepted_only_from_permitted_senders() {
    let mut wrong = Vec::new();
    for (column, name, caps, says) in KEYS {
        let who = principal(name, caps, *says).unwrap();
        for lane in [Lane::Public, Lane::Cluster, Lane::Heartbeat] {
            for kind in registry::KINDS {
                let message = registry::name(*kind);
                let taken = admission::admit(lane, *kind, &who).is_ok();
                if taken != listens(lane, message, column) {
                    wrong.push(format!("{message} of '{column}' to {lane:?}: taken {taken}"));
                }
            }
            assert!(admission::admit(lane, 60_000, &who).is_err(), "an unknown type");
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The claimed kind of a peer gives no rights: a client that claims to be an OSD gets no session.
#[test]
fn a_claimed_kind_gives_no_rights() {
    for (_, name, caps, says) in KEYS.iter().filter(|k| k.3 == EntityKind::CLIENT) {
        for claim in [EntityKind::OSD, EntityKind::MGR, EntityKind::MON, EntityKind::MDS] {
            let own = AuthName::parse(name).unwrap().kind == claim;
            assert_eq!(principal(name, caps, claim).is_ok(), own, "{name} that says it is {claim:?} and not {says:?}");
        }
    }
}

#[test]
fn commands_are_allowed_and_refused_as_recorded() {
    for (release, least) in [("16.2.15", 80 * 8), ("20.2.4", 100 * 3)] {
        recorded(release, least);
    }
}

fn recorded(release: &str, least: usize) {
    let path = format!("{}/../../vectors/rights/osd-{release}.json", env!("CARGO_MANIFEST_DIR"));
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let unreachable: BTreeSet<&str> = all["unreachable"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut cells = 0;
    for (row, cell) in all["rows"].as_object().unwrap() {
        for (column, name, caps, says) in KEYS {
            let who = principal(name, caps, *says).unwrap();
            let has = |verdict: &str| cell[verdict].as_array().unwrap().iter().any(|k| k == column);
            let may = admission::COMMANDS.is_held_by(&who);
            if has("allowed") || has("refused") {
                assert_eq!(may, has("allowed"), "{release}: {row} by {column}");
                cells += 1;
            } else if unreachable.contains(column) {
                assert!(!may, "{release}: {row} by {column}");
            }
        }
    }
    assert!(cells >= least, "{release}: {cells} recorded cells");
}
