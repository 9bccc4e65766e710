//! Do operations take effect in order, and do replies leave in order and only when durable?
mod common;

use base::rng::Rng;
use common::*;
use pg::keep::LogConfig;
use pg::reserve::Reserver;
use pg::{Event, SessionId};
use std::sync::Arc;
use store::ObjectStore;
use store::mem::MemStore;
use wire::msg::OpCode;

#[test]
fn nothing_is_shown_before_it_is_durable() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.manual = true;
    let r = w.request(1, "a", vec![write(0, b"new")]);
    let a = w.send(r);
    let r = w.request(2, "a", vec![read(0, 0)]);
    let b = w.send(r);
    let r = w.request(2, "b", vec![read(0, 0)]);
    let c = w.send(r);
    while w.step() {}
    assert!(w.replies.remove(&c).is_some(), "another object does not wait");
    assert!(w.replies.is_empty(), "a read must not show what a crash could undo");
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 2);
    w.store.end_turn();
    while w.step() {}
    assert_eq!(w.replies[&a].result, 0);
    assert_eq!(w.replies[&b].ops[0].outdata.len(), 3);
    assert_eq!(w.order, [c, a, b]);
}

#[test]
fn a_failed_compare_is_answered_only_when_its_data_is_durable() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.manual = true;
    let r = w.request(1, "a", vec![write(0, b"new")]);
    w.send(r);
    let r = w.request(2, "a", vec![with_flags(simple(OpCode::CREATE), 1)]);
    let b = w.send(r);
    while w.step() {}
    assert!(w.replies.is_empty());
    w.store.end_turn();
    while w.step() {}
    assert_eq!(w.replies[&b].result, base::errno::EEXIST);
}

/// Sessions send reads and appends to few objects while the store makes everything wait. Each read must show at least
/// the appends that its session sent before it. Replies to writes come in the order of sending.
#[test]
fn per_session_and_object_everything_keeps_its_order() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut w = World::with_store(MemStore::new().with_waits(seed).hold_durable());
        for name in ["a", "b"] {
            w.op(name, vec![write_full(b"")]);
        }
        w.order.clear();
        w.manual = true;
        let mut sent: Vec<((SessionId, u64), &str, bool, usize)> = Vec::new();
        let mut appended = std::collections::BTreeMap::new();
        for _ in 0..200 {
            match rng.below(6) {
                0 => {
                    w.step();
                }
                1 => w.store.end_turn(),
                _ => {
                    let session = 1 + rng.below(3);
                    let name = if rng.chance(1, 2) { "a" } else { "b" };
                    let reads = rng.chance(1, 2);
                    let ops = if reads { vec![read(0, 0)] } else { vec![append(b"x")] };
                    let n = appended.entry((session, name)).or_insert(0);
                    let r = w.request(session, name, ops);
                    let key = w.send(r);
                    sent.push((key, name, reads, *n));
                    *n += usize::from(!reads);
                }
            }
        }
        for _ in 0..1000 {
            w.store.end_turn();
            while w.step() {}
        }
        assert_eq!(w.order.len(), sent.len(), "seed {seed}: everything is answered");
        for s in 1..=3 {
            for name in ["a", "b"] {
                let mine: Vec<_> = sent.iter().filter(|x| x.0.0 == SessionId(s) && x.1 == name).collect();
                let at: Vec<usize> = mine.iter().map(|x| w.order.iter().position(|k| *k == x.0).unwrap()).collect();
                for (i, a) in mine.iter().enumerate() {
                    for (j, b) in mine.iter().enumerate().skip(i + 1) {
                        // Reads may overtake reads, since they show the same.
                        assert!(a.2 && b.2 || at[i] < at[j], "seed {seed}: order of answers");
                    }
                }
                for (key, _, reads, before) in mine {
                    let r = &w.replies[key];
                    assert!(
                        !reads || r.ops[0].outdata.len() >= *before,
                        "seed {seed}: a read misses its session's write"
                    );
                }
            }
        }
    }
}

#[test]
fn a_resend_while_the_first_is_under_way_waits_for_it() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.manual = true;
    let r = w.request(1, "a", vec![append(b"x")]);
    let mut again = r.clone();
    again.session = SessionId(7);
    w.send(r);
    w.send(again);
    while w.step() {}
    assert!(w.replies.is_empty());
    w.store.end_turn();
    while w.step() {}
    let both: Vec<_> = w.replies.values().map(|r| (r.result, r.user_version)).collect();
    assert_eq!(both, [(0, 1), (0, 1)]);
    w.manual = false;
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata.len(), 1, "applied once");
}

#[test]
fn a_write_lost_in_a_crash_is_applied_by_its_resend() {
    let mut w = World::new();
    w.op("a", vec![append(b"1")]);
    let before = w.store.clone();
    let r = w.request(1, "a", vec![append(b"2")]);
    let again = r.clone();
    w.call(r);
    // The power failed before the second write was durable.
    w.store = before;
    w.restart();
    let mut again = again;
    again.session = SessionId(2);
    again.msg.osdmap_epoch = w.view.epoch;
    assert_eq!(w.call(again.clone()).result, 0);
    w.restart();
    again.session = SessionId(3);
    again.msg.osdmap_epoch = w.view.epoch;
    assert_eq!(w.call(again).result, 0, "and now it is a duplicate");
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"12"[..]);
}

#[test]
fn stopping_waits_for_submitted_writes() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.manual = true;
    let r = w.request(1, "a", vec![write(0, b"x")]);
    let a = w.send(r);
    w.pg.handle(Event::Stop, w.now, &mut w.store, &mut w.effects);
    assert!(!w.effects.contains(&pg::Effect::Stopped));
    w.store.end_turn();
    let mut stopped = false;
    while let Some(e) = w.store.poll_event() {
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut w.effects);
        stopped |= w.effects.contains(&pg::Effect::Stopped);
        w.store.end_turn();
    }
    assert!(stopped);
    w.settle();
    assert_eq!(w.replies[&a].result, 0);
    w.manual = false;
    w.restart();
    assert_eq!(w.pg.info().stats.num_objects, 1);
}

#[test]
fn the_log_is_trimmed_and_still_loads() {
    let reserver = Arc::<Reserver>::default();
    reserver.set_log(&LogConfig { target: 800, min: 50, max: 500, dups: 0, ..LogConfig::default() });
    let mut w = World::new();
    w.pg.use_reserver(reserver.clone(), 0);
    let mut n = 0u32;
    let mut write_some = |w: &mut World, times| {
        for _ in 0..times {
            n += 1;
            assert_eq!(w.op("a", vec![write(0, &n.to_le_bytes())]).result, 0);
        }
        w.pg.report(w.now).log_size
    };
    let len = write_some(&mut w, 900);
    assert!((500..=600).contains(&len), "not beyond the most: {len}");
    // Other PGs take their share, and give it back.
    let others: Vec<World> = (0..3)
        .map(|_| {
            let mut other = World::new();
            other.pg.use_reserver(reserver.clone(), 0);
            other
        })
        .collect();
    let len = write_some(&mut w, 3);
    assert!((200..=300).contains(&len), "a quarter of 800: {len}");
    drop(others);
    let len = write_some(&mut w, 150);
    assert!((350..=450).contains(&len), "{len}");
    let stats = w.pg.info().stats;
    w.restart();
    assert_eq!(w.pg.report(w.now).log_size, len);
    assert_eq!((w.pg.info().stats.num_wr, w.pg.info().last_update.version), (stats.num_wr, 1053));
}
