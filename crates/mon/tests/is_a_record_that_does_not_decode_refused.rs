//! Is every record that does not decode refused with its name, and does no record make a monitor panic?

mod support;

use std::rc::Rc;

use base::rng::Rng;
use bytes::Bytes;
use mon::core::MonCore;
use mon::core::quorum::front::Replica;
use mon::core::start::load::{self, Setup};
use mon::state::options::MonOptions;
use mon::state::records::key;
use serde_json::json;
use state::{Change, Entry, Op, Outcome, Range};
use support::*;

type Records = Vec<(Bytes, Entry)>;

/// A state with records of all kinds.
fn records() -> Records {
    let (mut c, admin, _) = Cluster::with_osds(2);
    for cmd in [
        json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "pgp_num": 8 }),
        json!({ "prefix": "osd pool create", "pool": "cephfs.meta", "pg_num": 8, "pgp_num": 8 }),
        json!({ "prefix": "osd pool create", "pool": "cephfs.data", "pg_num": 8, "pgp_num": 8 }),
        json!({ "prefix": "fs new", "fs_name": "f", "metadata": "cephfs.meta", "data": "cephfs.data" }),
        json!({ "prefix": "auth get-or-create", "entity": "client.new", "caps": ["mon", "allow r"] }),
        json!({ "prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "7" }),
        json!({ "prefix": "config-key set", "key": "k", "val": "v" }),
        json!({ "prefix": "health mute", "code": "OSD_DOWN" }),
        json!({ "prefix": "log", "logtext": ["hello", "there"] }),
    ] {
        c.command(admin, &cmd, "");
    }
    c.ticks(3);
    match ask(&mut c.store, Op::all(Range::prefix(b""))) {
        Outcome::Entries { entries, .. } => entries,
        o => panic!("{o:?}"),
    }
}

fn load(records: &Records) -> Result<MonCore, String> {
    // As the host does: first all records but the maps, then the maps that these name.
    load::map_ranges(records).map_err(|e| e.to_string())?;
    let setup = Setup {
        name: "a".into(),
        options: MonOptions::default(),
        mgr_addrs: None,
        random: Rc::new(TestRandom::new(1)),
    };
    let now = base::Now { mono: base::Mono(1), wall: base::Utime { sec: 1_700_000_100, nsec: 0 } };
    MonCore::load(records, records, setup, now).map_err(|e| e.to_string())
}

fn replica(records: &Records) -> Result<Replica, String> {
    Replica::load(records, 1, "a", &MonOptions::default()).map_err(|e| e.to_string())
}

/// Wrong values that a store may return in place of `v`.
fn lies(v: &Bytes, rng: &mut Rng) -> Vec<Bytes> {
    let mut flipped = v.to_vec();
    for _ in 0..4 {
        if !flipped.is_empty() {
            let at = rng.below(flipped.len() as u64) as usize;
            flipped[at] ^= 1 << rng.below(8);
        }
    }
    let huge: Vec<u8> = v.iter().map(|_| 0xff).chain([0xff; 16]).collect();
    vec![Bytes::new(), v.slice(..v.len() / 2), flipped.into(), huge.into(), Bytes::from_static(b"\0")]
}

#[test]
fn each_record_in_turn() {
    let good = records();
    assert!(load(&good).is_ok() && replica(&good).is_ok());
    let mut rng = Rng::new(3);
    let (mut kinds, mut refused, mut wrong) = (std::collections::BTreeSet::new(), 0, Vec::new());
    for i in 0..good.len() {
        let (k, e) = good[i].clone();
        let name = String::from_utf8_lossy(&k).into_owned();
        for lie in lies(&e.value, &mut rng) {
            let mut bad = good.clone();
            bad[i].1.value = lie.clone();
            if let Err(why) = load(&bad) {
                refused += 1;
                kinds.insert(name.split('/').take(2).collect::<Vec<_>>().join("/"));
                let named = [&name[..], "epoch", "format", "map"].iter().any(|w| why.contains(w));
                if !named {
                    wrong.push(format!("{name}: '{why}' does not tell which record it is"));
                }
            }
            // The same in a front monitor's copy: at its first read, and as a change that a watch reports.
            let first = replica(&bad);
            let mut copy = replica(&good).unwrap();
            let change = Change { key: k.clone(), entry: Some(Entry { value: lie, ..e.clone() }) };
            if copy.apply(2, &[change]).is_ok() != (first.is_ok() || name == key::FORMAT) {
                wrong.push(format!("{name}: a copy takes it up at one time and not at another"));
            }
        }
        // A record is absent.
        let mut bad = good.clone();
        bad.remove(i);
        let _ = (load(&bad), replica(&bad));
    }
    assert_eq!(wrong, [""; 0]);
    println!("{refused} lies about {} kinds of records were refused: {kinds:?}", kinds.len());
    for kind in ["auth/entity", "meta/format", "monmap", "mgrmap", "osdmap/bounds", "osdmap/full", "osd/metadata"] {
        assert!(kinds.contains(kind), "{kind}");
    }
}
