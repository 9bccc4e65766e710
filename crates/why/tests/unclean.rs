//! PGs that are not clean: each group gets its cause, and a remedy that ends it.

use why::unclean::{Reason, Unclean, explain};
use why::{Check, Placement};

const NONE: i32 = i32::MAX;

fn pg(pg: &str, state: &str, up: &[i32], acting: &[i32], down: &[i32]) -> Unclean {
    Unclean {
        pg: pg.into(),
        state: state.into(),
        up: up.to_vec(),
        acting: acting.to_vec(),
        down: down.to_vec(),
        placement: Placement::default(),
    }
}

/// A pool of 4+2 shards on other hosts, of which there are three with two OSDs each.
fn coded() -> Placement {
    Placement {
        pool: "data".into(),
        rule: "p42".into(),
        domain: "host".into(),
        coded: true,
        osds: 6,
        out: Vec::new(),
        found: 3,
        wanted: 6,
        min_size: 5,
    }
}

/// A pool of three copies on other hosts, of which one is out.
fn copies() -> Placement {
    Placement { coded: false, osds: 4, out: vec![4, 5], found: 2, wanted: 3, min_size: 2, ..coded() }
}

/// The only reason.
fn only(p: &Unclean, placement: Placement) -> Reason {
    let mut all = explain(&[Unclean { placement, ..p.clone() }], &[]);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn pgs_are_grouped_by_the_reason() {
    let all = [
        pg("1.0", "active+undersized+degraded", &[0, 1], &[0, 1], &[2]),
        pg("1.1", "active+undersized+degraded", &[1, 0], &[1, 0], &[2]),
        pg("1.2", "active+undersized+degraded+remapped+backfilling", &[1, 3], &[1, 0], &[2]),
        pg("1.3", "active+remapped+backfill_toofull", &[1, 3], &[1, 0], &[]),
        pg("1.4", "down", &[1], &[1], &[2]),
    ];
    let r = explain(&all, &[]);
    assert_eq!(r.len(), 4);
    assert_eq!(r[0].pgs, ["1.0", "1.1"]);
    assert!(r[0].text.contains("osd.2 is down"), "{}", r[0]);
    let of = |pg: &str| r.iter().find(|r| r.pgs.iter().any(|p| p == pg)).unwrap().text.as_str();
    assert_eq!(of("1.2"), "copies are being made");
    assert_eq!(of("1.3"), "their target OSDs have no space");
    assert!(of("1.4").contains("newest writes"));
    assert!(explain(&[], &[]).is_empty());
}

#[test]
fn a_coded_pool_with_more_shards_than_hosts() {
    let up = [0, 2, NONE, 4, NONE, NONE];
    for state in ["incomplete", "creating+incomplete", "unknown", "creating+peering", "undersized+peered"] {
        let r = only(&pg("2.0", state, &up, &up, &[]), coded());
        assert_eq!(r.text, "CRUSH finds 3 of 6 places for pool data with rule p42 (failure domain host)", "{state}");
        assert!(r.remedy.starts_with("add hosts with OSDs, or take a rule with failure domain osd"), "{r}");
        assert!(r.remedy.contains("crush rule create-erasure") && r.remedy.contains("pool set data crush_rule"), "{r}");
    }
    // With places enough to serve, the missing shards alone are explained by them.
    let enough = Placement { found: 5, ..coded() };
    let up = [0, 2, NONE, 4, 6, 8];
    let r = only(&pg("2.0", "active+undersized", &up, &up, &[]), enough.clone());
    assert!(r.text.starts_with("CRUSH finds 5 of 6 places"), "{r}");
    let r = only(&pg("2.0", "incomplete", &up, &up, &[]), enough);
    assert_eq!(r.text, "no reachable OSD has a complete copy");
}

#[test]
fn a_rule_with_the_domain_osd_does_not_help_where_osds_are_too_few() {
    let p = pg("2.0", "incomplete", &[0, NONE], &[0, NONE], &[]);
    let r = only(&p, Placement { osds: 4, ..coded() });
    assert_eq!(r.remedy, "add hosts with OSDs; the rule has 4 OSDs to choose from");
    assert_eq!(only(&p, Placement { domain: "osd".into(), ..coded() }).remedy, "add OSDs");
    assert!(only(&p, Placement { domain: "chassis".into(), ..coded() }).remedy.starts_with("add chassis with"));
}

#[test]
fn osds_that_are_down_come_before_new_hosts() {
    let p = pg("2.0", "active+undersized+degraded", &[0, 2], &[0, 2], &[4]);
    let r = only(&p, copies());
    assert!(r.text.ends_with("(failure domain host), and osd.4 is down"), "{r}");
    assert!(r.remedy.starts_with("bring osd.4, osd.5 back, which are out (`ceph osd in`, and start those"), "{r}");
    let r = only(&p, Placement { out: Vec::new(), ..copies() });
    assert!(r.remedy.starts_with("start the OSDs that are down; if that is not enough, add hosts"), "{r}");
    assert!(r.remedy.contains("create-replicated NEW default osd"), "{r}");
}

#[test]
fn copies_that_stay_on_an_osd_without_a_place() {
    let p = pg("2.0", "active+clean+remapped", &[0, 2], &[0, 2, 4], &[]);
    let r = only(&p, copies());
    assert!(r.text.contains("CRUSH finds 2 of 3 places") && r.text.contains("(pg_temp)"), "{r}");
    assert!(
        r.remedy.contains("the data is safe as it is") && r.remedy.contains("osd.4, osd.5 back, which are out"),
        "{r}"
    );
    // A place on an OSD that is down.
    let whole = Placement { found: 3, ..copies() };
    let r = only(&Unclean { down: vec![3], ..p.clone() }, whole.clone());
    assert!(r.text.contains("osd.3 is down") && r.remedy.contains("mark them out"), "{r}");
    let r = only(&p, whole);
    assert!(r.text.starts_with("no copy is missing") && r.remedy.starts_with("wait some seconds"), "{r}");
}

#[test]
fn an_old_state_of_the_monitors_comes_first() {
    let detail = |o: i32| {
        format!(
            "osd.{o} has map 55, the monitor has 20: its state is an old copy; stop the monitors and run `belemnite state \
             advance`"
        )
    };
    let health = [Check {
        code: "OSD_MAP_AHEAD".into(),
        summary: "3 osds have newer maps than the monitor".into(),
        detail: (0..3).map(detail).collect(),
    }];
    let r = explain(&[], &health);
    assert_eq!(r.len(), 1, "also without PGs that show it");
    assert!(r[0].to_string().starts_with("the cluster: the monitors' state is an old copy"), "{}", r[0]);
    let all = [
        pg("1.0", "unknown", &[0], &[0], &[]),
        pg("1.1", "active+undersized+degraded", &[1], &[1], &[0, 2]),
        pg("1.2", "active+remapped+backfilling", &[1, 2], &[1, 0], &[]),
        pg("1.3", "active+remapped+backfilling", &[1, 2], &[1, 0], &[]),
        pg("1.4", "active+remapped+backfilling", &[1, 2], &[1, 0], &[]),
    ];
    let r = explain(&all, &health);
    assert_eq!((r.len(), r[0].pgs.as_slice()), (2, ["1.0".to_owned(), "1.1".to_owned()].as_slice()));
    assert!(r[0].text.ends_with("osd.0 has map 55, the monitor has 20, and 2 more OSDs"), "{}", r[0]);
    assert!(r[0].remedy.contains("`belemnite state advance`") && r[0].remedy.contains("monitor-lost.md"), "{}", r[0]);
}
