//! Are all PGs served and clean after any two changes of placement, with OSDs down and up in between?
//!
//! A table: each change of placement follows each other one, on a pool of copies and on an erasure-coded one, over the
//! production monitor, mapping, OSDs and PGs. `PLACEMENT_TABLE=all` plays all pairs, `PLACEMENT_TABLE=3,13` one;
//! otherwise each change follows one other.

use base::OsdId;
use sim::placement::Operator;

/// Changes of placement. Each has a way back.
const CHANGES: [&str; 15] = [
    "affinity 0",
    "affinity half",
    "out one",
    "out two",
    "reweight",
    "primary-temp",
    "pg-temp other",
    "pg-temp swapped",
    "upmap-items",
    "upmap",
    "few places",
    "norebalance",
    "down",
    "kill",
    "fewer pgs",
];

/// PGs of the pool.
const PGS: u32 = 8;

fn ok(o: &mut Operator, json: &str) {
    o.command(json).unwrap();
}

fn list(v: &[OsdId]) -> String {
    let all: Vec<String> = v.iter().map(|o| format!("\"{}\"", o.0)).collect();
    all.join(",")
}

fn rule(o: &mut Operator, name: &str) {
    ok(o, &format!(r#"{{"prefix":"osd pool set","pool":"data","var":"crush_rule","val":"{name}"}}"#));
}

/// Makes a rule `few` that finds one place only.
fn prepare(o: &mut Operator, coded: bool) {
    ok(o, r#"{"prefix":"osd crush rm-device-class","ids":["0"]}"#);
    ok(o, r#"{"prefix":"osd crush set-device-class","class":"lonely","ids":["0"]}"#);
    if coded {
        let profile = r#""profile":["k=2","m=1","crush-device-class=lonely"]"#;
        ok(o, &format!(r#"{{"prefix":"osd erasure-code-profile set","name":"few",{profile}}}"#));
        ok(o, r#"{"prefix":"osd crush rule create-erasure","name":"few","profile":"few"}"#);
    } else {
        let place = r#""root":"default","type":"host","class":"lonely""#;
        ok(o, &format!(r#"{{"prefix":"osd crush rule create-replicated","name":"few",{place}}}"#));
    }
}

fn change(o: &mut Operator, what: &str, forth: bool) {
    let weight = |all, zero| if forth { zero } else { all };
    match what {
        "affinity 0" => {
            ok(o, &format!(r#"{{"prefix":"osd primary-affinity","id":0,"weight":{:.1}}}"#, weight(1.0, 0.0)));
        }
        "affinity half" => {
            ok(o, &format!(r#"{{"prefix":"osd primary-affinity","id":1,"weight":{:.1}}}"#, weight(1.0, 0.5)));
        }
        "out one" => ok(o, &format!(r#"{{"prefix":"osd {}","ids":["2"]}}"#, if forth { "out" } else { "in" })),
        "out two" => ok(o, &format!(r#"{{"prefix":"osd {}","ids":["1","3"]}}"#, if forth { "out" } else { "in" })),
        "reweight" => ok(o, &format!(r#"{{"prefix":"osd reweight","id":3,"weight":{:.1}}}"#, weight(1.0, 0.2))),
        "primary-temp" => primary_temp(o, forth),
        "pg-temp other" | "pg-temp swapped" => pg_temp(o, what == "pg-temp swapped", forth),
        "upmap-items" | "upmap" if forth => upmap(o, what == "upmap"),
        "upmap-items" | "upmap" => {
            let rm = if what == "upmap" { "rm-pg-upmap" } else { "rm-pg-upmap-items" };
            for pg in o.pgs() {
                ok(o, &format!(r#"{{"prefix":"osd {rm}","pgid":"{pg}"}}"#));
            }
        }
        "few places" if forth => rule(o, "few"),
        "few places" => {
            let map = o.map();
            let coded = map.pool_by_name("data").and_then(|p| map.pool(p)).is_some_and(|p| p.is_erasure());
            rule(o, if coded { "data" } else { "replicated_rule" });
        }
        "norebalance" => {
            ok(o, &format!(r#"{{"prefix":"osd {}","key":"norebalance"}}"#, if forth { "set" } else { "unset" }));
        }
        "down" if forth => {
            let osd = o.commands() % 3;
            ok(o, &format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
            // The next change may take another OSD away, and a pool survives one.
            assert!(o.wait_up(osd), "osd.{osd} comes back");
        }
        "down" => {}
        "kill" if forth => o.kill(3),
        "kill" => o.start(3),
        "fewer pgs" => {
            let n = if forth { 4 } else { PGS };
            ok(o, &format!(r#"{{"prefix":"osd pool set","pool":"data","var":"pg_num","val":"{n}"}}"#));
        }
        _ => unreachable!("{what}"),
    }
}

/// Makes the last member of each acting set its primary, or takes that back.
fn primary_temp(o: &mut Operator, forth: bool) {
    for pg in o.pgs() {
        let at = o.map().pg_to_up_acting(pg);
        let other = at.acting.iter().rev().find(|x| **x != OsdId::NONE && **x != at.acting_primary);
        if let Some(other) = other.filter(|_| forth) {
            ok(o, &format!(r#"{{"prefix":"osd primary-temp","pgid":"{pg}","id":"{}"}}"#, other.0));
        } else if !forth {
            ok(o, &format!(r#"{{"prefix":"osd primary-temp","pgid":"{pg}","id":"-1"}}"#));
        }
    }
}

/// Sets acting sets in reverse order, or with an OSD that has no data; or takes them back.
fn pg_temp(o: &mut Operator, swapped: bool, forth: bool) {
    for pg in o.pgs() {
        let map = o.map();
        let mut set: Vec<OsdId> = map.pg_to_up_acting(pg).acting.to_vec();
        if !forth {
            set.clear();
        } else if set.contains(&OsdId::NONE) || set.len() < 3 {
            continue;
        } else if swapped {
            set.reverse();
        } else if let Some(x) = map.osds().find(|x| map.is_up(*x) && !set.contains(x)) {
            set[0] = x;
        }
        ok(o, &format!(r#"{{"prefix":"osd pg-temp","pgid":"{pg}","id":[{}]}}"#, list(&set)));
    }
}

/// Gives the command of an upmap. The monitor refuses one that the present map would void.
fn unless_void(o: &mut Operator, json: &str) {
    if let Err(e) = o.command(json) {
        assert!(e.contains("would have no effect"), "{json}: {e}");
    }
}

/// Moves one copy of each PG to an OSD that it is not on.
fn upmap(o: &mut Operator, whole: bool) {
    for pg in o.pgs() {
        let map = o.map();
        let raw = map.pg_to_raw_upmap(pg).to_vec();
        let Some(x) = map.osds().find(|x| map.is_up(*x) && map.is_in(*x) && !raw.contains(x)) else { continue };
        let Some(from) = raw.iter().copied().find(|x| *x != OsdId::NONE) else { continue };
        let to: Vec<OsdId> = raw.iter().map(|y| if *y == from { x } else { *y }).collect();
        if whole && !to.contains(&OsdId::NONE) && to.len() > 2 {
            unless_void(o, &format!(r#"{{"prefix":"osd pg-upmap","pgid":"{pg}","id":[{}]}}"#, list(&to)));
        } else if !whole {
            let pair = list(&[from, x]);
            unless_void(o, &format!(r#"{{"prefix":"osd pg-upmap-items","pgid":"{pg}","id":[{pair}]}}"#));
        }
    }
}

fn play(coded: bool) {
    let mut o = Operator::new(4, 3, coded.then_some((2, 1)), PGS).unwrap();
    ok(&mut o, r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#);
    prepare(&mut o, coded);
    let wanted = std::env::var("PLACEMENT_TABLE").unwrap_or_default();
    let n = CHANGES.len();
    let pairs = (0..n * n).map(|at| (at / n, at % n)).filter(|(i, j)| match wanted.as_str() {
        "" => *j == (i + 5) % n,
        "all" => true,
        pair => pair == format!("{i},{j}"),
    });
    let mut wrong = Vec::new();
    for (i, j) in pairs {
        let (a, b) = (CHANGES[i], CHANGES[j]);
        for (what, forth) in [(a, true), (b, true), (a, false), (b, false)] {
            change(&mut o, what, forth);
            if let Err(e) = o.settle() {
                wrong.push(format!("{i},{j} {a} with {b}: {e}"));
            }
            let map = o.map();
            // Copies stay where they are while CRUSH has no place for them.
            if map.osds().all(|x| map.is_up(x)) && !o.wait_copies(3) {
                wrong.push(format!("{i},{j} {a} with {b}, {what} {forth}: {} copies", o.copies()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    o.judge().unwrap();
}

#[test]
fn copies_follow() {
    play(false);
}

#[test]
fn shards_follow() {
    play(true);
}

#[test]
fn a_named_primary_leads_while_its_pg_is_clean() {
    for coded in [false, true] {
        let mut o = Operator::new(4, 3, coded.then_some((2, 1)), PGS).unwrap();
        o.settle().unwrap();
        let before = o.map();
        primary_temp(&mut o, true);
        o.settle().unwrap();
        let map = o.map();
        for pg in o.pgs() {
            let (was, at) = (before.pg_to_up_acting(pg), map.pg_to_up_acting(pg));
            assert_eq!(at.acting, was.acting, "coded {coded}: {pg}");
            assert_eq!(Some(&at.acting_primary), at.acting.last(), "coded {coded}: {pg}");
        }
        primary_temp(&mut o, false);
        o.settle().unwrap();
        assert!(o.map().primary_temp.is_empty(), "coded {coded}");
        o.judge().unwrap();
    }
}
