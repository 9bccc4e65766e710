//! Does any command, with any arguments, panic, break the map history or leave a change behind after a refusal?
//!
//! Commands are drawn from the tables, with arguments that fit, nearly fit or do not fit. After each command the
//! support code applies every new incremental as an OSD would.

mod support;

use base::rng::Rng;
use mon::command::commands;
use mon::command::language::sig::{Arg, Kind};
use mon::state::options::{MonOptions, PoolOptions};
use serde_json::{Map, Value, json};
use support::*;

/// Commands for each seed. Each commit checks the whole map history, so cost grows with the square.
const ROUNDS: u64 = 500;

fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

fn odd(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => json!(null),
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!({ "a": 1 }),
        4 => json!([1, "x", null]),
        5 => json!(""),
        6 => json!("\u{0}\u{7f}é/=:~*[]{}"),
        _ => json!(1e308),
    }
}

fn value(rng: &mut Rng, a: &Arg) -> Value {
    if rng.chance(1, 12) {
        return odd(rng);
    }
    let one = |rng: &mut Rng| -> Value {
        match a.kind {
            Kind::Int => json!(rng.below(40) as i64 - 3),
            Kind::Float => json!(rng.below(30) as f64 / 10.0 - 0.5),
            Kind::Bool => json!(rng.chance(3, 4)),
            Kind::Choices => json!(pick(rng, &a.choices.iter().map(|c| &**c).collect::<Vec<_>>())),
            Kind::Poolname => json!(pick(rng, &["p0", "p1", "p2", "gone"])),
            Kind::Pgid => json!(pick(rng, &["1.0", "2.3", "1.ff", "99.0", "x"])),
            Kind::OsdName => match rng.below(3) {
                0 => json!(rng.below(6)),
                1 => json!(format!("osd.{}", rng.below(6))),
                _ => json!("-1"),
            },
            Kind::EntityAddr | Kind::IPAddr => json!(pick(rng, &["1.2.3.4", "1.2.3.4:5/6", "[::1]:0/0", "nope"])),
            Kind::Uuid => json!(osd_uuid(rng.below(6) as i32).to_string()),
            Kind::Name => json!(pick(rng, &["osd.0", "mon.a"])),
            Kind::Objectname => json!("o"),
            Kind::String => json!(pick(
                rng,
                &[
                    "p0",
                    "osd.0",
                    "0",
                    "all",
                    "default",
                    "h0",
                    "h1",
                    "host",
                    "rack",
                    "hdd",
                    "ssd",
                    "root=default",
                    "host=h9",
                    "rack=r1",
                    "client.x",
                    "client.admin",
                    "mon",
                    "allow r",
                    "osd",
                    "allow rw",
                    "global",
                    "osd_max_backfills",
                    "rbd_cache",
                    "debug_osd",
                    "3",
                    "1Gi",
                    "true",
                    "k=2",
                    "m=1",
                    "replicated_rule",
                    "noup,noout",
                    "OSD_DOWN",
                    "1h",
                    "size",
                    "{\"0\":65536}",
                    "luminous",
                    "active+clean",
                    "~",
                    "a/b"
                ]
            )),
        }
    };
    if a.many { Value::Array((0..rng.below(4)).map(|_| one(rng)).collect()) } else { one(rng) }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut c = Cluster::with(
        FSID,
        MonOptions { pools: PoolOptions { allow_delete: true, ..PoolOptions::default() }, ..MonOptions::default() },
    );
    let admin = c.admin();
    for id in 0..3 {
        c.new_osd(admin, id, &format!("h{id}"));
        c.boot(id, &osd_addr(id));
    }
    for p in ["p0", "p1", "p2"] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": p, "pg_num": 4 }));
    }
    let all: Vec<_> = commands().collect();
    let mut served = 0;
    for round in 0..ROUNDS {
        let (sig, _) = all[rng.below(all.len() as u64) as usize];
        // The test's own key must stay.
        if matches!(sig.prefix.as_str(), "auth rm" | "auth del" | "auth caps" | "auth import" | "auth rotate") {
            continue;
        }
        let mut cmd = Map::new();
        cmd.insert("prefix".into(), sig.prefix.clone().into());
        for a in &sig.args {
            if !a.optional || rng.chance(1, 2) {
                cmd.insert(a.name.into(), value(&mut rng, a));
            }
        }
        if rng.chance(1, 2) {
            cmd.insert("format".into(), pick(&mut rng, &["json", "json-pretty", "xml", "plain", "yaml"]).into());
        }
        let cmd = Value::Object(cmd);
        let input = pick(&mut rng, &["", "[client.y]\n\tkey = x\n", "{}", "\u{1}\u{2}"]);
        let before = c.map().epoch;
        let (rc, rs, out) = c.command(admin, &cmd, input);
        assert!(rc <= 0, "seed {seed:x} round {round} {cmd}: {rc}");
        // But for an entity that got another key.
        let closed: Vec<_> =
            c.closed.iter().filter(|(_, why)| !why.to_string().ends_with("has another key now")).collect();
        assert!(closed.is_empty(), "seed {seed:x} round {round} {cmd}: {closed:?}");
        if rc == 0 {
            served += 1;
        } else if !matches!(sig.prefix.as_str(), "osd rm") {
            assert_eq!(c.map().epoch, before, "seed {seed:x} round {round} {cmd}: refused ({rs}), yet the map changed");
        }
        // A stored value may be any text.
        let raw = sig.prefix == "config-key get";
        if rc == 0 && !raw && cmd["format"] == "json" && out.starts_with(['{', '[']) {
            let fine = serde_json::from_str::<Value>(out.trim()).is_ok();
            assert!(fine, "seed {seed:x} round {round} {cmd}: not JSON: {out}");
        }
    }
    assert!(served > ROUNDS / 3, "seed {seed:x}: only {served} of {ROUNDS} were served");
    c.restart();
}

#[test]
fn random_commands() {
    for seed in [0xbe1e_0001, 0xbe1e_0002, 0xbe1e_0003] {
        run(seed);
    }
}
