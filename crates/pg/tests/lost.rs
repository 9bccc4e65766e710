//! Objects that nobody has, and what an operator makes of them.

mod cluster;

use base::errno::EINVAL;
use cluster::Cluster;
use wire::types::pg_state;

/// Two copies; the newest writes of some objects are on an OSD that is gone. Returns what was written to object 0 before.
fn unfound(seed: u64) -> (Cluster, u64) {
    let mut c = Cluster::new(seed, 2, 2, 1, 4, 4);
    c.contended = false;
    // All of it is recovered by log.
    c.keep_log = (10_000, 10);
    if let Some(pg) = &mut c.osds[0].pg {
        pg.keep_log(10_000, 10);
    }
    c.run(4_000);
    c.settle();
    let before = c.objects[0].acked;
    assert!(before > 0);
    c.crash(1);
    c.load = true;
    c.run(26_000);
    c.load = false;
    c.run(5_000);
    // It comes back, learns what it lacks, and gets none of it.
    let none = pg::reserve::RecoveryConfig { max_backfills: 0, ..Default::default() };
    c.osds[0].reserver.set(&none);
    c.restart(1);
    c.run(20_000);
    assert!(c.osds[1].pg.as_ref().unwrap().missing() > 0, "{}", c.describe(1));
    c.crash(0);
    c.run(60_000);
    let p = c.primary().unwrap();
    assert_ne!(p.state_bits() & pg_state::RECOVERY_UNFOUND, 0, "{}", c.describe(1));
    (c, before)
}

#[test]
fn nothing_is_given_up_while_an_osd_may_have_it() {
    let (mut c, _) = unfound(3);
    let e = c.mark_lost(false).unwrap_err();
    assert_eq!(e.0, EINVAL);
    assert!(e.1.contains("we haven't probed all sources, not marking lost"), "{}", e.1);
    // It comes back with everything.
    c.heal();
    c.settle();
    assert_eq!(c.mark_lost(true).unwrap(), "pg has no unfound objects");
    c.check();
    c.final_reads();
}

#[test]
fn lost_objects_are_removed_or_go_back_and_a_copy_that_returns_follows() {
    for revert in [true, false] {
        let (mut c, before) = unfound(4);
        let n = c.primary().unwrap().unfound_objects().len();
        c.change(|m| m.lost = vec![0]);
        c.run(3_000);
        let said = c.mark_lost(revert).unwrap();
        assert_eq!(said, format!("pg has {n} objects unfound and apparently lost marking"));
        c.run(20_000);
        let p = c.primary().unwrap();
        assert_eq!((p.missing(), p.unfound_objects().len()), (0, 0), "{}", c.describe(1));
        let want = if revert { Some(before) } else { None };
        assert_eq!(c.writes_shown(0), want);
        // The one that was given up comes back with what was lost.
        c.heal();
        c.settle();
        assert_eq!(c.writes_shown(0), want, "revert {revert}");
        for o in &mut c.objects {
            o.acked = 0;
        }
        c.violations.clear();
        c.check();
    }
}
