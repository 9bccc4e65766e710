//! Measures the monitor's core at 10,000 OSDs and 1,000,000 PGs.
//!
//! `cargo run --release -p belemnite-mon --example mon_bench [OSDS] [PGS]`. It measures boots, statistics and the
//! commands that read all PGs or OSDs, then the cost of two front monitors and the way of a map change to all OSDs; one
//! line each. There is no network and no disk: the state is in memory. Times are processor time of one thread.

#[path = "../tests/support/mod.rs"]
mod support;

use base::id::Uuid;
use base::{AddrVec, EntityAddr, EntityKind, EntityName, Epoch, OsdId, PgId, PoolId};
use bytes::Bytes;
use cluster::crush::{CrushMap, WEIGHT_ONE};
use cluster::{Incremental, OsdMap};
use mon::core::Event;
use mon::core::quorum::front::Replica;
use mon::core::relay::{Front, FrontEffect, Hub, HubEffect};
use mon::core::session::Peer;
use mon::state::Role;
use mon::state::options::{AuthOptions, MonOptions, PoolOptions};
use serde_json::json;
use state::{Op, Outcome, Range};
use std::collections::BTreeMap;
use std::time::Duration;
use support::{Cluster, ask, boot_message, who};
use wire::msg::{MMonCommand, MMonSubscribe, MOsdMap, MOsdPgCreated, MPgStats, SubscribeItem};
use wire::types::{OsdStat, PaxosHeader, PgStat, StoreStatfs, pg_state};
use wire::{Features, Message, WireMessage as _};

const OSDS_PER_HOST: i32 = 10;
/// Commands or boots handled before a commit, as if they arrived while the last commit is in flight.
const BATCH: usize = 250;
const PGS_PER_POOL: u32 = 65_536;
/// PGs of an OSD: a million PGs of three copies on 10,000 OSDs.
const PGS_OF_OSD: usize = 300;

/// Processor time used by this process, in nanoseconds.
#[derive(Clone, Copy)]
struct Instant(u64);

impl Instant {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
        Self(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
    }

    fn elapsed(self) -> Duration {
        Duration::from_nanos(Self::now().0 - self.0)
    }
}

fn report(what: &str, n: usize, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / n.max(1) as f64;
    println!("{what:<40} {each:>12.1} us each   ({n} in {:.2} s; {} MiB resident)", took.as_secs_f64(), resident());
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0);
    (pages * 4096) >> 20
}

fn uuid(id: i32) -> Uuid {
    let mut b = [7; 16];
    b[..4].copy_from_slice(&id.to_le_bytes());
    Uuid(b)
}

fn addrs(id: i32, port: u16) -> AddrVec {
    let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 + id as u32);
    AddrVec::from(EntityAddr::msgr2((ip, port).into(), id as u32 + 1))
}

/// All OSDs on hosts below the root.
fn crush(osds: i32) -> Bytes {
    let mut crush = CrushMap::fresh("host");
    let root = crush.id_of("default").expect("root");
    let mut hosts = Vec::new();
    for host in 0..osds / OSDS_PER_HOST {
        let id = crush.add_bucket(&format!("host{host}"), "host").expect("host");
        let devices: Vec<i32> = (host * OSDS_PER_HOST..(host + 1) * OSDS_PER_HOST).collect();
        crush.item_names.extend(devices.iter().map(|d| (*d, format!("osd.{d}"))));
        let weights = vec![WEIGHT_ONE; devices.len()];
        crush.bucket_mut(id).expect("host").set_items(devices, weights, 1).expect("items");
        hosts.push(id);
    }
    crush.max_devices = osds;
    let weights = vec![WEIGHT_ONE * OSDS_PER_HOST as u32; hosts.len()];
    crush.bucket_mut(root).expect("root").set_items(hosts, weights, 1).expect("items");
    crush.encode_blob(cluster::osdmap::CANONICAL)
}

fn batches(osds: i32) -> Vec<Vec<i32>> {
    (0..osds).collect::<Vec<_>>().chunks(BATCH).map(<[i32]>::to_vec).collect()
}

/// A cluster under measurement.
struct Bench {
    c: Cluster,
    admin: u64,
    fsid: Uuid,
    osds: i32,
    pgs: u32,
    /// Sessions of the OSDs with the monitor.
    sessions: Vec<u64>,
}

fn main() {
    let number = |i: usize, d: u32| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let mut b = Bench::new(number(1, 10_000) as i32, number(2, 1_000_000));
    b.make_osds();
    b.boot_osds();
    b.make_pools();
    let by_osd = b.pgs_by_primary();
    b.create_pgs(&by_osd);
    b.report_pgs(&by_osd);
    let start = Instant::now();
    b.c.ticks(5);
    b.c.out.clear();
    report("tick", 5, start.elapsed());
    let sessions = std::mem::take(&mut b.sessions);
    several(&mut b.c, b.admin, sessions, b.osds);
    b.run_commands();
}

impl Bench {
    fn new(osds: i32, pgs: u32) -> Self {
        let options = MonOptions {
            auth: AuthOptions { cephx: false, ..AuthOptions::default() },
            pools: PoolOptions { max_pg_per_osd: 100_000, default_size: 1, ..PoolOptions::default() },
            ..MonOptions::default()
        };
        let mut c = Cluster::with(Uuid([3; 16]), options);
        c.unchecked = true;
        let (admin, fsid) = (c.admin(), c.core.state().fsid);
        Self { c, admin, fsid, osds, pgs, sessions: Vec::new() }
    }

    fn message(&mut self, session: u64, m: &impl wire::WireMessage) {
        self.c.core.handle(Event::Message(session, m.to_message(Features::PACIFIC)), self.c.now);
    }

    /// Handles what waits, and drops the answers.
    fn pump(&mut self) {
        self.c.pump();
        self.c.out.clear();
    }

    fn send(&mut self, text: String, data: Bytes) {
        let m = MMonCommand { paxos: PaxosHeader::default(), fsid: self.fsid, cmd: vec![text.into()], data };
        self.message(self.admin, &m);
    }

    fn make_osds(&mut self) {
        let start = Instant::now();
        for batch in batches(self.osds) {
            for id in batch {
                let new = json!({"prefix": "osd new", "uuid": uuid(id).to_string(), "id": format!("osd.{id}")});
                self.send(new.to_string(), Bytes::new());
            }
            self.pump();
        }
        report("osd new, 250 a commit", self.osds as usize, start.elapsed());
        let start = Instant::now();
        self.send(json!({"prefix": "osd setcrushmap"}).to_string(), crush(self.osds));
        self.c.pump();
        report("osd setcrushmap", 1, start.elapsed());
        self.c.out.clear();
    }

    fn boot_osds(&mut self) {
        self.sessions = (0..self.osds).map(|id| self.c.osd_session(id, addrs(id, 6800), Role::Mon)).collect();
        let start = Instant::now();
        for batch in batches(self.osds) {
            for id in batch {
                let mut m = boot_message(self.fsid, 0, Epoch(1), 0);
                m.sb.whoami = OsdId(id);
                m.sb.osd_fsid = uuid(id);
                m.cluster_addrs = addrs(id, 6801);
                m.hb_back_addrs = addrs(id, 6802);
                m.hb_front_addrs = addrs(id, 6803);
                self.message(self.sessions[id as usize], &m);
            }
            self.pump();
        }
        report("boots, 250 a commit", self.osds as usize, start.elapsed());
        let up = (0..self.osds).filter(|o| self.c.map().is_up(OsdId(*o))).count();
        assert_eq!(up, self.osds as usize, "all OSDs are up");
    }

    fn make_pools(&mut self) {
        let start = Instant::now();
        let (pgs, pools) = (self.pgs, self.pgs.div_ceil(PGS_PER_POOL));
        let in_pool = |p: u32| (pgs - p * PGS_PER_POOL).min(PGS_PER_POOL);
        for p in 0..pools {
            let make = json!({
                "prefix": "osd pool create", "pool": format!("p{p}"), "pg_num": in_pool(p), "pgp_num": in_pool(p),
                "size": 1, "yes_i_really_mean_it": true,
            });
            self.c.ok(self.admin, &make);
            self.c.out.clear();
        }
        report("osd pool create", pools as usize, start.elapsed());
        assert_eq!(self.c.map().pools.len(), pools as usize, "{:?}", PoolId(1));
    }

    fn pgs_by_primary(&self) -> Vec<Vec<PgId>> {
        let map = self.c.map();
        let mut by_osd: Vec<Vec<PgId>> = vec![Vec::new(); self.osds as usize];
        for (pool, p) in map.pools.iter() {
            for seed in 0..p.pg_num {
                let pg = PgId { pool: *pool, seed };
                let primary = map.pg_to_up_acting(pg).acting_primary;
                by_osd[usize::try_from(primary.0).expect("every PG has a primary")].push(pg);
            }
        }
        by_osd
    }

    fn create_pgs(&mut self, by_osd: &[Vec<PgId>]) {
        let start = Instant::now();
        for (i, mine) in by_osd.iter().enumerate() {
            for pgid in mine {
                let m = MOsdPgCreated { paxos: PaxosHeader::default(), pgid: *pgid };
                self.message(self.sessions[i], &m);
            }
            if i % BATCH == 0 || i + 1 == by_osd.len() {
                self.pump();
            }
        }
        report("a PG is created, those of 250 OSDs a commit", self.pgs as usize, start.elapsed());
    }

    /// Reports as OSDs send them every five seconds: the statistics of each PG that the OSD leads.
    fn report_pgs(&mut self, by_osd: &[Vec<PgId>]) {
        let (osds, epoch, fsid) = (self.osds, self.c.map().epoch, self.fsid);
        let mgr: Vec<u64> = (0..osds).map(|id| self.c.osd_session(id, addrs(id, 6800), Role::Mgr)).collect();
        for round in 1..=2u64 {
            let mut took = Duration::ZERO;
            for (id, mine) in by_osd.iter().enumerate() {
                let statfs = StoreStatfs { total: 4 << 40, available: 3 << 40, ..StoreStatfs::default() };
                let osd_stat = OsdStat { statfs, up_from: epoch, ..OsdStat::default() };
                let pg_stat = mine.iter().map(|pg| (*pg, pg_stat(OsdId(id as i32), epoch, round))).collect();
                let m = MPgStats { fsid, pg_stat, osd_stat, ..MPgStats::default() }.to_message(Features::PACIFIC);
                let start = Instant::now();
                self.c.core.handle(Event::Message(mgr[id], m), self.c.now);
                self.c.pump();
                took += start.elapsed();
                self.c.out.clear();
            }
            report(if round == 1 { "first report of an OSD" } else { "further report of an OSD" }, osds as usize, took);
        }
    }

    fn run_commands(&mut self) {
        let commands = [
            json!({"prefix": "status", "format": "json"}),
            json!({"prefix": "status"}),
            json!({"prefix": "health", "detail": "detail"}),
            json!({"prefix": "pg stat"}),
            json!({"prefix": "osd df", "format": "json"}),
            json!({"prefix": "osd tree"}),
            json!({"prefix": "df"}),
            json!({"prefix": "osd dump", "format": "json"}),
            json!({"prefix": "pg dump", "format": "json"}),
            json!({"prefix": "pg dump"}),
            json!({"prefix": "osd perf"}),
        ];
        for cmd in commands {
            let start = Instant::now();
            let (r, rs, out) = self.c.command(self.admin, &cmd, "");
            let format = cmd.get("format").map_or("", |_| ", json");
            let what = format!("{}{format} ({} KiB)", cmd["prefix"].as_str().unwrap_or_default(), out.len() >> 10);
            report(&what, 1, start.elapsed());
            if r != 0 {
                println!("    {r}: {rs}");
            }
        }
    }
}

/// Statistics of a clean PG with one copy.
fn pg_stat(osd: OsdId, epoch: Epoch, seq: u64) -> PgStat {
    let mut s = PgStat {
        reported_seq: seq,
        reported_epoch: epoch,
        up: vec![osd],
        acting: vec![osd],
        up_primary: osd,
        acting_primary: osd,
        ..PgStat::default()
    };
    s.stats.sum.num_objects = 100;
    s.stats.sum.num_bytes = 400 << 20;
    s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
    s
}

/// Bytes of keys and values in the state.
fn state_bytes(c: &mut Cluster, prefix: &[u8]) -> usize {
    match ask(&mut c.store, Op::all(Range::prefix(prefix))) {
        Outcome::Entries { entries, .. } => entries.iter().map(|(k, e)| k.len() + e.value.len()).sum(),
        _ => 0,
    }
}

/// Messages of a front monitor to the leader.
fn to_leader(c: &mut Cluster, hub: &mut Hub, link: u64, front: &mut Front) {
    for e in front.take_effects() {
        let FrontEffect::ToLeader(m) = e else { continue };
        match hub.message(link, &m, c.now.mono) {
            Ok(Some(HubEffect::Open(k, peer, _))) => c.core.handle(Event::OpenElsewhere(k, peer), c.now),
            Ok(Some(HubEffect::Message(k, m))) => c.core.handle(Event::Message(k, m), c.now),
            Ok(_) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// Measures front monitors: a third of the OSDs are connected to the leader, the others to two front monitors.
fn several(c: &mut Cluster, admin: u64, sessions: Vec<u64>, osds: i32) {
    println!(
        "in the state: {} KiB, of which maps are {} KiB",
        state_bytes(c, b"") >> 10,
        state_bytes(c, b"osdmap/") >> 10
    );
    let replica = copy_state(c);
    // As after a change of the leader: all sessions open at once, and each wants the epochs after its newest map.
    for s in sessions {
        c.close(s);
    }
    let (mut hub, mut fronts) = (Hub::default(), [Front::default(), Front::default()]);
    for (link, f) in (1..).zip(&mut fronts) {
        hub.link_open(link);
        f.link_open(c.now.mono);
        to_leader(c, &mut hub, link, f);
    }
    open_sessions(c, &mut hub, &mut fronts, osds);
    for round in 0..3 {
        let cmd = json!({"prefix": if round == 1 { "osd in" } else { "osd out" }, "ids": ["7"]});
        change_map(c, admin, &mut hub, &mut fronts, &cmd);
    }
    drop(replica);
}

/// Makes a front monitor's copy of the state.
fn copy_state(c: &mut Cluster) -> Replica {
    let before = resident();
    let start = Instant::now();
    let mut records = Vec::new();
    for r in Replica::ranges() {
        if let Outcome::Entries { entries, .. } = ask(&mut c.store, Op::all(r)) {
            records.extend(entries);
        }
    }
    let replica = Replica::load(&records, 1, "b", &MonOptions::default()).expect("a copy");
    report("copy of the state in a front monitor", 1, start.elapsed());
    println!(
        "    {} KiB of records, {} MiB",
        records.iter().map(|(k, e)| k.len() + e.value.len()).sum::<usize>() >> 10,
        resident() - before
    );
    replica
}

/// Opens a session of each OSD, with its subscriptions.
fn open_sessions(c: &mut Cluster, hub: &mut Hub, fronts: &mut [Front; 2], osds: i32) {
    let next = u64::from(c.map().epoch.0) + 1;
    let wish = |what: &str, start| ((what.to_owned()), SubscribeItem::new(start, false));
    let what = [wish("osdmap", next), wish("osd_pg_creates", 0), wish("monmap", 2), wish("config", 0)];
    let subscribe = MMonSubscribe { what: what.into(), hostname: "host".into() }.to_message(Features::PACIFIC);
    let (mut leader, mut front, mut direct) = (Duration::ZERO, Duration::ZERO, 0);
    let before = resident();
    for id in 0..osds {
        let peer = Peer {
            principal: who(EntityKind::OSD, &format!("osd.{id}"), 4500 + id as u64, "allow profile osd"),
            entity: EntityName::new(EntityKind::OSD, id.into()),
            addrs: addrs(id, 6800),
            features: Features::PACIFIC,
            role: Role::Mon,
        };
        let start = Instant::now();
        let at = id as usize % 3;
        if at == 2 {
            let s = c.open(peer);
            c.core.handle(Event::Message(s, subscribe.clone()), c.now);
            direct += 1;
            leader += start.elapsed();
        } else {
            let (link, f) = (1 + at as u64, &mut fronts[at]);
            f.open(id as u64, peer, c.now.mono);
            f.message(id as u64, subscribe.clone());
            front += start.elapsed();
            let start = Instant::now();
            to_leader(c, hub, link, f);
            c.pump();
            leader += start.elapsed();
        }
        let start = Instant::now();
        deliver(c, hub);
        leader += start.elapsed();
        let start = Instant::now();
        hear(hub, fronts);
        front += start.elapsed();
    }
    report("an OSD comes again: the leader", osds as usize, leader);
    report("a session of an OSD is resumed: front monitor", (osds - direct) as usize, front);
    println!("    {} MiB more", resident() - before);
}

/// Changes the map by a command, and follows the change to all OSDs.
fn change_map(c: &mut Cluster, admin: u64, hub: &mut Hub, fronts: &mut [Front; 2], cmd: &serde_json::Value) {
    let old = c.core.state().osdmap.clone();
    let start = Instant::now();
    c.ok(admin, cmd);
    let made = start.elapsed();
    let bytes: usize = c.out.iter().map(|(_, m)| m.cost()).sum();
    let maps: Vec<&(u64, Message)> = c.out.iter().filter(|(_, m)| m.header.kind == MOsdMap::KIND).collect();
    let (told, one) = (maps.len(), maps.first().map(|(_, m)| m.clone()));
    let to: Vec<(usize, usize)> = maps.into_iter().map(|(k, m)| (way(*k), m.cost())).collect();
    let start = Instant::now();
    deliver(c, hub);
    let sent = start.elapsed();
    let start = Instant::now();
    let heard = hear(hub, fronts);
    let front = start.elapsed();
    println!(
        "a change of the map for {told} OSDs ({} KiB): {:.1} ms until the leader has all messages, {:.1} ms more \
         until they are on links, {:.1} ms in each front monitor ({heard} sessions)",
        bytes >> 10,
        made.as_secs_f64() * 1e3,
        sent.as_secs_f64() * 1e3,
        front.as_secs_f64() * 1e3 / 2.0,
    );
    let osd = osd_takes(&old, &one.expect("an OSD is told"));
    reached(&to, made, sent / told as u32, front / heard.max(1) as u32, osd);
}

/// Time of one message from one machine to another, in the model of the network.
const HOP: Duration = Duration::from_micros(500);
/// Bytes that a machine's network sends in a second: 10 Gbit/s.
const WIRE: f64 = 1.25e9;

/// Processor time that an OSD takes for a new map: applying it, encoding it for the store, and placing its PGs.
fn osd_takes(old: &OsdMap, m: &Message) -> Duration {
    let m = MOsdMap::from_message(m).expect("maps");
    let start = Instant::now();
    let inc = m.incremental_maps.values().next_back().expect("an incremental");
    let inc = Incremental::decode_blob(inc).expect("an incremental");
    let (map, _) = old.apply_checked(&inc).expect("the map");
    let pgs = map.pools.iter().flat_map(|(pool, p)| (0..p.pg_num).map(|seed| PgId { pool: *pool, seed }));
    for pg in pgs.take(PGS_OF_OSD) {
        std::hint::black_box(map.pg_to_up_acting(pg));
    }
    start.elapsed()
}

/// The times at which a committed change reaches the first and the last OSD, from measured processor times and a model
/// of the network. Each hop takes [`HOP`], and each machine sends at the rate [`WIRE`]. Each message has a way (0 and
/// 1: front monitors, 2: the leader itself) and its bytes.
fn reached(to: &[(usize, usize)], made: Duration, send: Duration, front: Duration, osd: Duration) {
    let wire = |bytes: usize| Duration::from_secs_f64(bytes as f64 / WIRE);
    // The answer of etcd travels to the leader.
    let mut leader = HOP + made;
    let mut fronts = BTreeMap::<usize, Duration>::new();
    let mut at: Vec<Duration> = Vec::new();
    for (by, bytes) in to {
        leader += send + wire(*bytes);
        at.push(
            osd + if *by < 2 {
                let f = fronts.entry(*by).or_default();
                *f = (*f).max(leader + HOP) + front + wire(*bytes);
                *f + HOP
            } else {
                leader + HOP
            },
        );
    }
    at.sort_unstable();
    let ms = |i: usize| at.get(i).map_or(0.0, |d| d.as_secs_f64() * 1e3);
    println!(
        "    the change is with the first OSD {:.1} ms after its commit, with half {:.1} ms, with all {} {:.1} ms \
         ({:.1} ms of them in the OSD)",
        ms(0),
        ms(at.len() / 2),
        at.len(),
        ms(at.len() - 1),
        osd.as_secs_f64() * 1e3,
    );
}

/// The way of a session's messages: relayed sessions alternate between the two front monitors.
fn way(session: u64) -> usize {
    if Hub::is_relayed(session) { (session & 1) as usize } else { 2 }
}

/// Delivers the leader's messages: those of relayed sessions go to their links, those to the leader's own sessions
/// are dropped.
fn deliver(c: &mut Cluster, hub: &mut Hub) {
    let out: Vec<(u64, Message)> = std::mem::take(&mut c.out);
    for (k, m) in out {
        if Hub::is_relayed(k) {
            hub.send(k, m).expect("it can be carried");
        }
    }
}

/// Lets the front monitors pass on the leader's messages; returns the number of sessions that got one.
fn hear(hub: &mut Hub, fronts: &mut [Front; 2]) -> usize {
    let mut n = 0;
    loop {
        let out = hub.take_out();
        if out.is_empty() {
            return n;
        }
        for (link, m) in out {
            let f = &mut fronts[link as usize - 1];
            f.from_leader(&m).expect("what the leader said");
            for e in f.take_effects() {
                match e {
                    FrontEffect::ToClient(..) => n += 1,
                    FrontEffect::ToLeader(m) => drop(hub.message(link, &m, base::Mono::default())),
                    _ => {}
                }
            }
        }
    }
}
