//! The fault `Place`: the operator overrides where PGs are, and which copies lead them.

use super::Faults;
use crate::oracle;
use crate::world::World;
use base::{OsdId, PgId};
use cluster::OsdMap;

/// Overrides of one PG at an end.
const ENDED_MAX: usize = 1000;

fn list(v: &[OsdId]) -> String {
    v.iter().map(|o| format!("\"{}\"", o.0)).collect::<Vec<_>>().join(",")
}

/// An OSD that is up, in, and not in the set.
fn other(map: &OsdMap, set: &[OsdId]) -> Option<OsdId> {
    map.osds().find(|x| map.is_up(*x) && map.is_in(*x) && !set.contains(x))
}

/// The commands that end all overrides of a PG.
fn ends(pg: PgId) -> impl Iterator<Item = String> {
    let rm = ["rm-primary-temp", "rm-pg-upmap", "rm-pg-upmap-items"];
    let temp = format!(r#"{{"prefix":"osd pg-temp","pgid":"{pg}","id":[]}}"#);
    rm.into_iter().map(move |c| format!(r#"{{"prefix":"osd {c}","pgid":"{pg}"}}"#)).chain([temp])
}

impl Faults {
    /// Changes the placement of a random PG, the affinity of a random OSD, or the pool's rule.
    pub(super) fn place(&mut self, w: &mut World) -> bool {
        let Some(map) = oracle::map(w) else { return false };
        let Some(pool) = map.pool_by_name("data") else { return false };
        let Some(p) = map.pool(pool) else { return false };
        if !self.kinds.contains_key(&crate::options::Fault::Place) {
            self.prepare(p.is_erasure(), w);
        }
        let pg = PgId { pool, seed: self.rng.below(p.pg_num.into()) as u32 };
        let acting = map.pg_to_up_acting(pg).acting.to_vec();
        let raw = map.pg_to_raw_upmap(pg).to_vec();
        let some =
            |v: &[OsdId], n: u64| v.get((n % v.len().max(1) as u64) as usize).copied().filter(|o| *o != OsdId::NONE);
        let n = self.rng.next_u64();
        let json = match self.rng.below(8) {
            0 => {
                let (osd, weight) = (n % w.ctx.options.size.osds as u64, [0.0, 0.5, 1.0][(n >> 32) as usize % 3]);
                Some(format!(r#"{{"prefix":"osd primary-affinity","id":{osd},"weight":{weight:.1}}}"#))
            }
            1 => some(&acting, n).map(|o| format!(r#"{{"prefix":"osd primary-temp","pgid":"{pg}","id":"{}"}}"#, o.0)),
            2 => {
                let mut set = acting;
                set.reverse();
                Some(format!(r#"{{"prefix":"osd pg-temp","pgid":"{pg}","id":[{}]}}"#, list(&set)))
            }
            3 => other(&map, &acting).filter(|_| !acting.is_empty()).map(|x| {
                let mut set = acting;
                let at = n as usize % set.len();
                set[at] = x;
                format!(r#"{{"prefix":"osd pg-temp","pgid":"{pg}","id":[{}]}}"#, list(&set))
            }),
            4 => some(&raw, n).zip(other(&map, &raw)).map(|(from, to)| {
                format!(r#"{{"prefix":"osd pg-upmap-items","pgid":"{pg}","id":[{}]}}"#, list(&[from, to]))
            }),
            5 => some(&raw, n).zip(other(&map, &raw)).map(|(from, to)| {
                let set: Vec<OsdId> = raw.iter().map(|o| if *o == from { to } else { *o }).collect();
                format!(r#"{{"prefix":"osd pg-upmap","pgid":"{pg}","id":[{}]}}"#, list(&set))
            }),
            6 => Some(rule("few")),
            _ => {
                for c in ends(pg).chain([self.usual_rule(w)]) {
                    self.command(w, &c);
                }
                None
            }
        };
        if let Some(json) = &json {
            self.command(w, json);
        }
        true
    }

    /// Makes the rule `few`, which finds two places.
    fn prepare(&mut self, coded: bool, w: &mut World) {
        let mut all = vec![
            r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#.to_owned(),
            r#"{"prefix":"osd crush rm-device-class","ids":["0","1"]}"#.to_owned(),
            r#"{"prefix":"osd crush set-device-class","class":"lonely","ids":["0","1"]}"#.to_owned(),
        ];
        if coded {
            let profile = r#""profile":["k=2","m=1","crush-device-class=lonely"]"#;
            all.push(format!(r#"{{"prefix":"osd erasure-code-profile set","name":"few",{profile}}}"#));
            all.push(r#"{"prefix":"osd crush rule create-erasure","name":"few","profile":"few"}"#.to_owned());
        } else {
            let place = r#""root":"default","type":"host","class":"lonely""#;
            all.push(format!(r#"{{"prefix":"osd crush rule create-replicated","name":"few",{place}}}"#));
        }
        for c in all {
            self.command(w, &c);
        }
    }

    fn usual_rule(&self, w: &World) -> String {
        rule(if w.ctx.options.pool.code.is_some() { "data" } else { "replicated_rule" })
    }

    /// The operator ends all overrides.
    pub fn end_places(&mut self, w: &mut World) {
        let Some(map) = oracle::map(w) else { return };
        let mut all = vec![self.usual_rule(w)];
        all.extend(map.overridden_after(None, ENDED_MAX).into_iter().flat_map(ends));
        for o in 0..w.ctx.options.size.osds {
            all.push(format!(r#"{{"prefix":"osd primary-affinity","id":{o},"weight":1.0}}"#));
        }
        for c in all {
            self.command(w, &c);
        }
        for (at, e) in w.ctx.net.take_events() {
            w.ctx.queue.at(at, crate::world::Event::Net(e));
        }
    }
}

fn rule(name: &str) -> String {
    format!(r#"{{"prefix":"osd pool set","pool":"data","var":"crush_rule","val":"{name}"}}"#)
}
