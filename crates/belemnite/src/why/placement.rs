//! The places that CRUSH finds for a PG, computed from the map.

use base::{OsdId, PgId};
use cluster::OsdMap;
use cluster::crush::{Rule, op};
use why::Placement;

/// Bucket types that the rule's steps choose, from the outermost: `host`.
fn domain(map: &OsdMap, rule: &Rule) -> String {
    let chooses = [op::CHOOSE_FIRSTN, op::CHOOSE_INDEP, op::CHOOSELEAF_FIRSTN, op::CHOOSELEAF_INDEP];
    let mut all: Vec<&str> = Vec::new();
    for s in rule.steps.iter().filter(|s| chooses.contains(&s.op)) {
        let name = map.crush.type_name(s.arg2).unwrap_or("bucket");
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all.join("/")
}

/// The acting set of a PG under the map; `None` if the map has no such PG.
pub(super) fn acting(map: &OsdMap, pg: &str) -> Option<Vec<i32>> {
    let pg = PgId::parse(pg).filter(|pg| map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num))?;
    Some(map.pg_to_up_acting(pg).acting.iter().map(|o| o.0).collect())
}

/// The places of a PG; the default if the map has no such pool.
pub(super) fn of(map: &OsdMap, pg: &str) -> Placement {
    let Some((pg, pool)) = PgId::parse(pg).and_then(|pg| Some((pg, map.pool(pg.pool)?))) else {
        return Placement::default();
    };
    let rule = i32::from(pool.crush_rule);
    let shares = map.crush.rule_osd_shares(rule);
    let osds = shares.into_iter().filter(|(_, w)| *w > 0.0).map(|(o, _)| OsdId(o)).filter(|o| map.exists(*o));
    let (out, inside): (Vec<OsdId>, Vec<OsdId>) = osds.partition(|o| map.is_out(*o));
    Placement {
        pool: map.pool_name(pg.pool).unwrap_or_default().to_owned(),
        rule: map.crush.rule_name(rule).unwrap_or_default().to_owned(),
        domain: map.crush.rule(rule).map_or_else(String::new, |r| domain(map, r)),
        coded: pool.is_erasure(),
        osds: inside.len(),
        out: out.into_iter().map(|o| o.0).collect(),
        found: map.pg_to_raw_upmap(pg).iter().filter(|o| **o != OsdId::NONE).count(),
        wanted: usize::from(pool.size),
        min_size: usize::from(pool.min_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PoolId;
    use cluster::PgPool;
    use cluster::crush::{CrushMap, Location, RuleSpec};
    use cluster::osdmap::{Incremental, WEIGHT_IN, osd_state};
    use cluster::pool::{flag, kind};
    use std::sync::Arc;

    /// Three hosts with two OSDs each, and a pool of 4+2 shards on other buckets of this type.
    fn map_of(domain: &str) -> OsdMap {
        let mut crush = CrushMap::fresh("host");
        for n in 0..6 {
            let at: Location =
                [("root".to_owned(), "default".to_owned()), ("host".to_owned(), format!("h{}", n / 2))].into();
            crush.insert_item(n, 0x1_0000, &format!("osd.{n}"), &at).unwrap();
        }
        let spec =
            RuleSpec { name: "p42", failure_domain: domain, indep: true, kind: kind::ERASURE, ..RuleSpec::default() };
        let rule = crush.add_simple_rule(&spec).unwrap();
        let empty = OsdMap { crush: Arc::new(crush), ..OsdMap::default() };
        let mut inc = Incremental::new(empty.fsid, empty.epoch.next(), empty.modified);
        inc.new_max_osd = 6;
        let pool = PgPool {
            kind: kind::ERASURE,
            size: 6,
            min_size: 5,
            crush_rule: rule as u8,
            pg_num: 8,
            pgp_num: 8,
            pg_num_pending: 8,
            flags: flag::HASHPSPOOL,
            object_hash: 2,
            ..PgPool::default()
        };
        inc.new_pools.insert(PoolId(2), pool);
        inc.new_pool_names.insert(PoolId(2), "data".into());
        let mut map = empty.apply(&inc).unwrap();
        map.osd_state = Arc::new(vec![osd_state::EXISTS | osd_state::UP; 6]);
        map.osd_weight = Arc::new(vec![WEIGHT_IN; 6]);
        map
    }

    #[test]
    fn six_shards_find_three_hosts() {
        let p = of(&map_of("host"), "2.3");
        assert_eq!((p.found, p.wanted, p.min_size, p.osds), (3, 6, 5, 6));
        assert_eq!((p.pool.as_str(), p.rule.as_str(), p.domain.as_str(), p.coded), ("data", "p42", "host", true));
        assert!(p.is_short() && p.stops());
        let p = of(&map_of("osd"), "2.3");
        assert_eq!((p.domain.as_str(), p.found, p.is_short()), ("osd", 6, false));
        assert_eq!(of(&map_of("host"), "9.0"), Placement::default());
    }

    #[test]
    fn osds_that_are_out_give_no_place() {
        let mut map = map_of("host");
        map.osd_weight = Arc::new([WEIGHT_IN, WEIGHT_IN, WEIGHT_IN, WEIGHT_IN, 0, 0].to_vec());
        let p = of(&map, "2.0");
        assert_eq!((p.found, p.osds, p.out.as_slice()), (2, 4, [4, 5].as_slice()));
        // One that is down and in keeps its place.
        map.osd_state = Arc::new([osd_state::EXISTS; 6].to_vec());
        assert_eq!(of(&map, "2.0").found, 2);
    }
}
