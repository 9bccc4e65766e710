//! Whole sessions of peers without rights, as random sequences of messages: does the state stay the same, and is the
//! monitor's memory for them bounded?
//!
//! The peers: a client without caps, one that may read, a `profile rbd` key, each bootstrap key, an OSD's name on a
//! client. Messages are every type of the protocol: well formed, truncated, and with bytes changed; commands are
//! drawn from the tables. Two things may change: lines of the audit log, which is bounded, and state that the peer's
//! own key allows to change, of which the lists here have none. `STRANGER_SEEDS=100` runs more of them.

mod support;

use base::rng::Rng;
use base::{EntityKind, Epoch};
use mon::command::{Needs, commands};
use mon::core::session::rights::{Topic, messages};
use mon::state::Role;
use serde_json::{Map, Value, json};
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;
use wire::{Features, Message, WireMessage};

const PEERS: [(&str, &str); 10] = [
    ("client.none", ""),
    ("client.r", "allow r"),
    ("client.rbd", "profile rbd"),
    ("client.bootstrap-mds", "profile bootstrap-mds"),
    ("client.bootstrap-mgr", "profile bootstrap-mgr"),
    ("client.bootstrap-rgw", "profile bootstrap-rgw"),
    ("client.bootstrap-rbd", "profile bootstrap-rbd"),
    ("client.bootstrap-rbd-mirror", "profile bootstrap-rbd-mirror"),
    ("client.crash", "profile crash"),
    ("osd.0", "allow r"),
];

/// The parts of the state that a stranger must not change.
fn state(c: &Cluster) -> String {
    let s = c.core.state();
    let map = mon::state::osdmap_blob(s);
    let auth: Vec<String> = s.auth.iter().map(|(n, e)| format!("{n} {} {:?}", e.key.to_base64(), e.caps)).collect();
    // What the monitor itself says of the health follows from time.
    let of_health = |t: &str| ["Health check ", "overall HEALTH_", "Cluster is now"].iter().any(|p| t.starts_with(p));
    let by_others = |e: &&wire::types::LogEntry| e.name.kind != EntityKind::MON || !of_health(&e.msg.0);
    let told = s.log.entries().into_iter().map(|(_, e)| e).filter(|e| e.channel != "audit" && by_others(e));
    let lines = told.count();
    let (config, kv, mutes) = (&s.config.values, s.kv.entries(), &s.mutes);
    // Any authenticated client may register a service, as in Ceph: gateways' keys have no caps at the manager.
    // Daemons of Ceph's own kinds may not be registered.
    let daemons = |name: &&String| EntityKind::from_word(name).is_some();
    let (mgr, services) = (&s.mgrmap, s.mgr.services.services.keys().filter(daemons).count());
    format!("{map:?} {auth:?} {config:?} {kv:?} {mutes:?} {mgr:?} {services:?} {:?} {lines}", s.osds.metadata)
}

fn command(rng: &mut Rng) -> String {
    let all: Vec<_> = commands().collect();
    let (sig, _) = all[rng.below(all.len() as u64) as usize];
    let mut j = Map::new();
    j.insert("prefix".into(), sig.prefix.clone().into());
    for a in &sig.args {
        let words =
            ["client.new", "osd.0", "p", "1", "client.admin", "mon", "allow *", "noout", "--yes-i-really-mean-it"];
        let w = words[rng.below(words.len() as u64) as usize];
        let v = match rng.below(6) {
            0 => json!(rng.below(10)),
            1 => json!(["mon", "allow *", "osd", "allow *"]),
            2 => json!(true),
            3 if !a.choices.is_empty() => json!(a.choices[0]),
            _ => json!(w),
        };
        j.insert(a.name.into(), v);
    }
    for k in ["caps_mon", "caps_osd", "caps_mds"] {
        if rng.chance(1, 4) {
            j.insert(k.into(), json!("profile rbd"));
        }
    }
    Value::Object(j).to_string()
}

fn message(rng: &mut Rng) -> Message {
    let f = Features::PACIFIC;
    let fsid = FSID;
    let cmd = vec![command(rng).into()];
    let data = bytes::Bytes::from_static(b"[client.new]\n\tkey = AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==\n");
    let n = rng.below(5) as u32;
    match rng.below(22) {
        0..=5 => MMonCommand { paxos: PaxosHeader::default(), fsid, cmd, data }.to_message(f),
        6 => MMgrCommand { fsid, cmd, data }.to_message(f),
        7 => MCommand { fsid, cmd, data }.to_message(f),
        8 => {
            let t = Topic::ALL[rng.below(Topic::ALL.len() as u64) as usize];
            let what = [(t.example().to_owned(), SubscribeItem::new(n.into(), rng.chance(1, 2)))].into();
            MMonSubscribe { what, hostname: "h".into() }.to_message(f)
        }
        9 => boot_message(fsid, 0, Epoch(n), n).to_message(f),
        10 => MOsdFailure {
            fsid,
            target_osd: base::OsdId(0),
            target_addrs: osd_addr(0),
            flags: 3,
            ..MOsdFailure::default()
        }
        .to_message(f),
        11 => MOsdMarkMeDown { fsid, target_addrs: osd_addr(0), request_ack: true, ..MOsdMarkMeDown::default() }
            .to_message(f),
        12 => MPoolOp { fsid, op: n, name: "q".into(), pool: 1, ..MPoolOp::default() }.to_message(f),
        13 => MPoolOp { fsid, op: [17, 18, 33, 34][n as usize % 4], name: "s".into(), pool: 1, ..MPoolOp::default() }
            .to_message(f),
        14 => {
            let entries = vec![wire::types::LogEntry { seq: 1, channel: "cluster".into(), ..Default::default() }];
            MLog { fsid, entries, ..MLog::default() }.to_message(f)
        }
        15 => {
            MMgrBeacon { fsid, gid: n.into(), name: "x".into(), available: true, ..MMgrBeacon::default() }.to_message(f)
        }
        16 => MMonMgrReport { gid: n.into(), ..MMonMgrReport::default() }.to_message(f),
        17 => MMgrOpen {
            service_name: "osd".into(),
            daemon_name: "0".into(),
            service_daemon: Some(Default::default()),
            ..MMgrOpen::default()
        }
        .to_message(f),
        18 => MOsdFull::default().to_message(f),
        19 => MMonGetOsdMap { full_first: Epoch(1), full_last: Epoch(99), ..MMonGetOsdMap::default() }.to_message(f),
        20 => MGetConfig { name: base::AuthName::parse("mgr.x").unwrap(), ..MGetConfig::default() }.to_message(f),
        _ => {
            // A message of any type with random bytes.
            let kinds = wire::msg::registry::KINDS;
            let mut m = MPing::with_text("x").to_message(f);
            m.header.kind = kinds[rng.below(kinds.len() as u64) as usize];
            let mut bytes = vec![0; rng.below(200) as usize];
            rng.fill(&mut bytes);
            m.front = bytes.into();
            m
        }
    }
}

fn damaged(rng: &mut Rng, mut m: Message) -> Message {
    if rng.chance(1, 8) && !m.front.is_empty() {
        let mut bytes = m.front.to_vec();
        match rng.below(2) {
            0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            _ => {
                let i = rng.below(bytes.len() as u64) as usize;
                bytes[i] ^= 1 << rng.below(8);
            }
        }
        m.front = bytes.into();
    }
    m
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p" }));
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "mgr/secret", "val": "sesame" }));
    let before = state(&c);
    for round in 0..60 {
        let (name, caps) = PEERS[rng.below(PEERS.len() as u64) as usize];
        // The announced entity gives no rights; the messenger accepts only the key's own kind or a client's.
        let kind = EntityKind::CLIENT;
        let mut p = peer(name, kind, 7000 + round, caps);
        p.role = if rng.chance(1, 4) { Role::Mgr } else { Role::Mon };
        if p.role == Role::Mgr {
            p.principal.caps = auth::CapsInfo::default();
        }
        let s = c.open(p);
        // Sometimes a commit is in flight, so that messages wait.
        if rng.chance(1, 4) {
            c.held = Some(Vec::new());
        }
        for step in 0..20 {
            let m = message(&mut rng);
            let m = damaged(&mut rng, m);
            let shown = format!("{} {:?}", m.header.kind, m.front);
            c.core.handle(mon::core::Event::Message(s, m), c.now);
            if c.held.is_none() {
                c.pump();
                let now = state(&c);
                assert!(now == before, "seed {seed:x} round {round} step {step}: {name} changed the state by {shown}");
            }
            assert!(c.core.waiting().1 < 1 << 20, "seed {seed:x}: what waits grows");
        }
        for r in c.held.take().into_iter().flatten() {
            use state::StateStore;
            c.store.submit(r);
        }
        c.pump();
        assert!(state(&c) == before, "seed {seed:x} round {round}: {name} changed the state");
        for (_, m) in c.out.drain(..) {
            let bytes = [m.front.as_ref(), m.data.as_ref()].concat();
            assert!(
                !bytes.windows(6).any(|w| w == b"sesame"),
                "seed {seed:x} round {round}: {name} read a stored secret"
            );
            let key = b"key = AQ";
            assert!(!bytes.windows(key.len()).any(|w| w == key), "seed {seed:x} round {round}: {name} read a key");
        }
        c.close(s);
        if rng.chance(1, 10) {
            c.ticks(1);
        }
    }
    c.ticks(61);
    let lines = c.core.state().log.entries().into_iter().filter(|(_, e)| e.channel == "audit").count();
    assert!(lines < 400, "seed {seed:x}: {lines} lines in the audit log");
    assert_eq!(c.core.session_count(), 2, "seed {seed:x}: sessions stay");
}

#[test]
fn random_sessions() {
    let n = std::env::var("STRANGER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    for i in 0..n {
        run(0x57a6_0000 + i);
    }
}

/// Lists the commands that need only a session, so that the test notices a new one.
#[test]
fn few_things_need_no_right() {
    let open: Vec<&str> =
        commands().filter(|(_, c)| c.needs() == Needs::Session).map(|(s, _)| s.prefix.as_str()).collect();
    assert_eq!(open, ["get_command_descriptions"]);
    let named = |role| -> Vec<&str> {
        let open = messages(role).into_iter().filter(|r| r.right == mon::core::session::rights::Right::Session);
        open.map(|r| r.name).collect()
    };
    assert_eq!(named(Role::Mon), ["ping", "mon_getmap", "auth"]);
    assert_eq!(named(Role::Mgr), ["mgropen", "mgrreport", "mgrclose"]);
}
