//! Does the core divide work that grows with the number of PGs, so that a leader's lease is renewed in between?
//!
//! The test counts the PGs that a turn places and the rows that it makes; it measures no time.

mod support;

use std::collections::BTreeMap;

use base::{OsdId, PgId};
use mon::core::Event;
use serde_json::{Value, json};
use state::StateStore;
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;
use wire::{Features, WireMessage};

/// Most PGs that a turn places, and most rows that it makes.
const A_TURN: usize = 1024;
const PGS: u32 = 3000;

fn cluster(osds: i32) -> (Cluster, u64, Vec<u64>) {
    let (mut c, admin, sessions) = Cluster::with_osds(osds);
    c.core.change_options(|o| o.pools.max_pg_per_osd = 0);
    for s in &sessions {
        c.subscribe(*s, "osd_pg_creates", 0, false);
    }
    (c, admin, sessions)
}

fn make(pool: &str, pgs: u32) -> Value {
    json!({ "prefix": "osd pool create", "pool": pool, "pg_num": pgs, "pgp_num": pgs })
}

/// Gives the core a command without carrying out effects.
fn begin(c: &mut Cluster, admin: u64, tid: u64, cmd: &Value) {
    let m = MMonCommand { fsid: FSID, cmd: vec![cmd.to_string().into()], ..MMonCommand::default() };
    c.core.handle(Event::Message(admin, m.to_message(Features::PACIFIC).with_tid(tid)), c.now);
}

/// The PGs that OSDs are told to create, each with the OSDs that were told.
fn told(c: &mut Cluster, sessions: &[u64]) -> BTreeMap<PgId, Vec<i32>> {
    let mut all: BTreeMap<PgId, Vec<i32>> = BTreeMap::new();
    for (osd, s) in sessions.iter().enumerate() {
        for m in c.take::<MOsdPgCreate2>(*s) {
            m.pgs.keys().for_each(|id| all.entry(id.pg).or_default().push(osd as i32));
        }
    }
    all
}

#[test]
fn pgs_of_a_new_pool_are_placed_in_turns() {
    let (mut c, admin, sessions) = cluster(3);
    c.ok(admin, &make("p", PGS));
    assert_eq!(c.core.creating_work(), (PGS.into(), A_TURN));
    let all = told(&mut c, &sessions);
    assert_eq!(all.len(), PGS as usize);
    for (pg, to) in &all {
        assert_eq!(to, &[c.map().pg_to_up_acting(*pg).acting_primary.0], "{pg} is asked of its primary, once");
    }
    // Neither another pool nor a change that moves no PG places these PGs again.
    c.ok(admin, &make("q", 10));
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    assert_eq!(c.core.creating_work().0, u64::from(PGS) + 10);
    assert_eq!(told(&mut c, &sessions).len(), 10);
    // A change of weights places all PGs, in several turns.
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["1"] }));
    assert_eq!(c.core.creating_work(), (2 * (u64::from(PGS) + 10), A_TURN));
    let moved = told(&mut c, &sessions);
    assert!(!moved.is_empty() && moved.values().all(|to| to != &[1]), "those of osd.1 go to others");
    // All waiting PGs are assigned as in the map, also in a new process.
    c.restart();
    assert_eq!(c.core.creating_work(), (u64::from(PGS) + 10, A_TURN));
}

#[test]
fn between_two_turns_queries_are_answered_and_no_proposal_begins() {
    let (mut c, admin, sessions) = cluster(3);
    c.held = Some(Vec::new());
    c.ok_later(admin, &make("p", PGS));
    let commits = c.core.commit_latency().0;
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    while let Some(e) = c.store.poll() {
        c.core.handle(Event::State(e), c.now);
    }
    assert!(c.core.has_more());
    c.core.flush();
    assert!(c.core.has_more(), "one turn does not place all");
    begin(&mut c, admin, 500, &json!({ "prefix": "osd stat" }));
    begin(&mut c, admin, 501, &json!({ "prefix": "osd set", "key": "noout" }));
    let effects = c.core.take_effects();
    let answered = |tid: u64| {
        effects.iter().any(|e| {
            matches!(e, mon::core::Effect::Send(_, m) if m.header.kind == MMonCommandAck::KIND && m.header.tid == tid)
        })
    };
    assert!(answered(500) && !answered(501));
    assert_eq!(c.core.commit_latency().0, commits + 1);
    c.pump();
    assert_eq!(c.core.commit_latency().0, commits + 2, "the change follows");
    assert_eq!(told(&mut c, &sessions).len(), PGS as usize);
}

#[test]
fn only_created_pgs_leave_the_creation_queue() {
    let (mut c, admin, sessions) = cluster(2);
    c.ok(admin, &make("p", 40));
    c.ok(admin, &make("q", 40));
    told(&mut c, &sessions);
    let pool = c.map().pool_by_name("p").unwrap();
    for seed in 0..30 {
        let pgid = PgId { pool, seed };
        let primary = c.map().pg_to_up_acting(pgid).acting_primary.0 as usize;
        c.send(sessions[primary], &MOsdPgCreated { paxos: PaxosHeader::default(), pgid });
    }
    let waits = |c: &Cluster| -> Vec<PgId> { c.core.state().osds.creating.keys().copied().collect() };
    let before = waits(&c);
    assert_eq!(before.len(), 50);
    assert!(before.iter().all(|pg| pg.pool != pool || pg.seed >= 30));
    c.restart();
    assert_eq!(waits(&c), before, "the stored queue is the same");
    // An OSD that boots again is only asked for PGs that still wait.
    let mut asked = Vec::new();
    for osd in 0..2 {
        let s = c.boot(osd, &osd_addr(osd));
        c.out.clear();
        c.subscribe(s, "osd_pg_creates", 0, false);
        asked.extend(c.take::<MOsdPgCreate2>(s).iter().flat_map(|m| m.pgs.keys().map(|id| id.pg).collect::<Vec<_>>()));
    }
    asked.sort_unstable();
    assert_eq!(asked, before);
    c.core.change_options(|o| o.pools.allow_delete = true);
    let admin = c.admin();
    let rm = json!({ "prefix": "osd pool rm", "pool": "q", "pool2": "q", "yes_i_really_really_mean_it": true });
    c.ok(admin, &rm);
    assert_eq!(waits(&c).len(), 10);
    assert!(waits(&c).iter().all(|pg| pg.pool == pool));
}

#[test]
fn lists_of_pgs_are_made_in_turns() {
    let (mut c, admin, _) = cluster(2);
    c.ok(admin, &make("p", PGS));
    let mut show = |cmd: &str, format: &str| {
        let words: Vec<&str> = cmd.split(' ').collect();
        let mut j = match words[..] {
            ["pg", "dump", what] => json!({ "prefix": "pg dump", "dumpcontents": [what] }),
            _ => json!({ "prefix": cmd }),
        };
        j["format"] = format.into();
        let (rc, rs, out) = c.command(admin, &j, "");
        assert_eq!(rc, 0, "{cmd}: {rs}");
        out
    };
    for (cmd, at) in [
        ("pg dump all", &["pg_map", "pg_stats"][..]),
        ("pg dump pgs", &["pg_stats"]),
        ("pg dump pgs_brief", &["pg_stats"]),
        ("pg ls", &["pg_stats"]),
        ("pg dump_stuck", &["stuck_pg_stats"]),
    ] {
        let list = |j: &Value| at.iter().fold(j.clone(), |j, k| j[*k].clone());
        let compact: Value = serde_json::from_str(&show(cmd, "json")).unwrap();
        let pgs = list(&compact);
        let n = pgs.as_array().expect("a list").len();
        assert_eq!(n, if cmd == "pg dump_stuck" { 0 } else { PGS as usize }, "{cmd}");
        let text = show(cmd, "json-pretty");
        let pretty: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list(&pretty), pgs, "{cmd}");
        let xml = show(cmd, "xml");
        assert_eq!(xml.matches("<pgid>").count(), n, "{cmd}");
        if n > 0 {
            let depth = "    ".repeat(at.len());
            assert!(
                text.contains(&format!("\n{depth}\"pg_stats\": [\n{depth}    {{\n{depth}        \"pgid\": \"1.0\","))
            );
            assert!(text.contains(&format!("\n{depth}    }}\n{depth}]")), "{cmd}");
            assert!(xml.contains("<pg_stats><pg_stat><pgid>1.0</pgid>") && xml.contains("</pg_stat></pg_stats>"));
        } else {
            assert!(text.contains("\"stuck_pg_stats\": []"), "{text}");
        }
        let plain = show(cmd, "plain");
        assert_eq!(plain.lines().filter(|l| l.starts_with("1.")).count(), n, "{cmd}");
    }
    assert_eq!(c.core.listing_work(), A_TURN);
}

#[test]
fn a_long_list_delays_no_other_command_and_ends_with_its_session() {
    let (mut c, admin, _) = cluster(2);
    c.ok(admin, &make("p", PGS));
    let other = c.admin();
    c.out.clear();
    begin(&mut c, admin, 700, &json!({ "prefix": "pg dump", "format": "json" }));
    assert!(c.core.has_more());
    begin(&mut c, other, 701, &json!({ "prefix": "osd stat" }));
    let acks = |c: &mut Cluster| -> Vec<u64> {
        let effects = c.core.take_effects();
        let ack = |e: &mon::core::Effect| match e {
            mon::core::Effect::Send(_, m) if m.header.kind == MMonCommandAck::KIND => Some(m.header.tid),
            _ => None,
        };
        effects.iter().filter_map(ack).collect()
    };
    assert_eq!(acks(&mut c), [701], "the list is under way");
    c.core.handle(Event::Closed(admin), c.now);
    assert!(!c.core.has_more(), "nobody waits for it");
    // One session does not fill the memory with lists.
    for tid in 0..9 {
        begin(&mut c, other, tid, &json!({ "prefix": "pg dump", "format": "json" }));
    }
    assert_eq!(acks(&mut c), [8], "refused");
    c.pump();
    let answers = c.take::<MMonCommandAck>(other);
    assert_eq!(answers.iter().map(|a| a.r).collect::<Vec<_>>(), [0; 8]);
    assert!(answers.iter().all(|a| a.data == answers[0].data));
    assert!(c.map().exists(OsdId(0)));
}
