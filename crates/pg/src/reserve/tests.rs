//! Tests of the reservations.

use super::*;
use base::PgId;
use base::rng::Rng;

fn owner(reactor: usize, index: u32) -> Owner {
    Owner { reactor, index, spg: PgId::new(1, index).into() }
}

fn reserver(max_backfills: u32) -> Arc<Reserver> {
    Arc::new(Reserver::new(&RecoveryConfig { max_backfills, ..RecoveryConfig::default() }))
}

#[test]
fn places_go_by_priority_then_by_age_and_are_freed() {
    let r = reserver(1);
    let a = r.claim(Side::Local, owner(0, 1), 180);
    let b = r.claim(Side::Local, owner(0, 2), 100);
    let c = r.claim(Side::Local, owner(1, 3), 140);
    let d = r.claim(Side::Local, owner(0, 4), 140);
    let other = r.claim(Side::Remote, owner(0, 2), 100);
    assert_eq!([&a, &b, &c, &d, &other].map(Claim::phase), {
        use Phase::{Granted, Waiting};
        [Granted, Waiting, Waiting, Waiting, Granted]
    });
    assert!(!r.has_news(0) && !r.has_news(1), "who claims sees for itself");
    drop(a);
    assert_eq!(c.phase(), Phase::Granted);
    assert!(!r.has_news(0) && r.has_news(1));
    assert_eq!((r.others_with_news(0), r.woken(0)), (vec![1], vec![]));
    assert_eq!((r.others_with_news(0), r.woken(1)), (vec![], vec![3]), "said once");
    assert!(!r.has_news(1));
    drop(c);
    assert_eq!((d.phase(), r.woken(0)), (Phase::Granted, vec![4]));
    // A claim that is dropped while it waits leaves nothing behind.
    drop(b);
    drop(d);
    drop(other);
    assert!(r.dump().is_empty() && r.woken(0).is_empty());
}

#[test]
fn a_higher_priority_preempts_the_lowest_and_an_equal_one_does_not() {
    let r = reserver(2);
    let a = r.claim(Side::Remote, owner(0, 1), 100);
    let b = r.claim(Side::Remote, owner(0, 2), 140);
    let c = r.claim(Side::Remote, owner(0, 3), 100);
    assert_eq!([&a, &b, &c].map(Claim::phase), [Phase::Granted, Phase::Granted, Phase::Waiting]);
    let d = r.claim(Side::Remote, owner(0, 4), 255);
    assert_eq!([&a, &b, &c, &d].map(Claim::phase), {
        [Phase::Preempted, Phase::Granted, Phase::Waiting, Phase::Granted]
    });
    assert_eq!(r.woken(0), [1]);
    // A waiting claim is forced.
    c.set_priority(254);
    assert_eq!([&b, &c, &d].map(Claim::phase), [Phase::Preempted, Phase::Granted, Phase::Granted]);
    assert_eq!(r.woken(0), [2, 3]);
    // A preempted claim that is dropped frees no place.
    drop(a);
    let e = r.claim(Side::Remote, owner(0, 5), 200);
    assert_eq!(e.phase(), Phase::Waiting);
    drop(d);
    assert_eq!(e.phase(), Phase::Granted);
}

#[test]
fn a_change_of_max_backfills_takes_effect_at_once() {
    let r = reserver(0);
    let claims: Vec<Claim> = (1..=3).map(|i| r.claim(Side::Local, owner(0, i), 100 + i as u8)).collect();
    let phases = || claims.iter().map(Claim::phase).collect::<Vec<_>>();
    assert_eq!(phases(), [Phase::Waiting; 3]);
    r.set(&RecoveryConfig { max_backfills: 2, ..RecoveryConfig::default() });
    assert_eq!(phases(), [Phase::Waiting, Phase::Granted, Phase::Granted]);
    r.set(&RecoveryConfig { max_backfills: 1, ..RecoveryConfig::default() });
    assert_eq!(phases(), [Phase::Waiting, Phase::Preempted, Phase::Granted]);
}

#[test]
fn objects_in_recovery_are_bounded_over_all_pgs() {
    let r = Arc::new(Reserver::new(&RecoveryConfig { max_active: 2, ..RecoveryConfig::default() }));
    let a = r.start(owner(0, 1));
    let b = r.start(owner(1, 2));
    assert!(a.is_some() && b.is_some() && r.start(owner(1, 2)).is_none());
    assert!(!r.has_news(1));
    drop(a);
    assert_eq!(r.woken(1), [2]);
    assert!(r.start(owner(1, 2)).is_some());
}

#[test]
fn random_claims_keep_the_invariants() {
    for seed in 0..200u64 {
        let mut rng = Rng::new(seed);
        let mut next = |n: u64| rng.below(n);
        let r = reserver(2);
        let mut max = 2;
        let mut live: Vec<(Claim, u8)> = Vec::new();
        for step in 0..300 {
            match next(10) {
                0..=3 => {
                    let prio = 100 + next(4) as u8;
                    live.push((r.claim(Side::Local, owner(0, step), prio), prio));
                }
                4..=6 if !live.is_empty() => drop(live.remove(next(live.len() as u64) as usize)),
                7 if !live.is_empty() => {
                    let i = next(live.len() as u64) as usize;
                    let prio = 100 + next(4) as u8;
                    live[i].0.set_priority(prio);
                    live[i].1 = prio;
                }
                8 => {
                    max = next(4) as u32;
                    r.set(&RecoveryConfig { max_backfills: max, ..RecoveryConfig::default() });
                }
                _ => live.retain(|(c, _)| c.phase() != Phase::Preempted),
            }
            let of = |p: Phase| live.iter().filter(move |(c, _)| c.phase() == p).map(|(_, prio)| *prio);
            let granted = of(Phase::Granted).count();
            assert!(granted <= max as usize, "seed {seed}");
            if let Some(best) = of(Phase::Waiting).max() {
                assert!(granted == max as usize, "seed {seed}: a place is free");
                assert!(of(Phase::Granted).min().is_none_or(|low| low >= best), "seed {seed}: the wrong one waits");
            }
        }
    }
}
