//! Long calls: class calls on a large omap run in parts, in turns of the reactor, and leave it to others in between.
mod common;

use base::errno::{EBLOCKLISTED, ENOENT};
use base::rng::Rng;
use base::{EntityAddr, Utime};
use bytes::Bytes;
use cls::Room;
use common::*;
use pg::limits::LONG_CALLS_MAX;
use pg::map::Blocklist;
use pg::pace::Pacer;
use pg::{Event, SessionId};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::mem::MemStore;
use wire::msg::{MOsdOpReply, OpCode, OsdOp};
use wire::{Features, Reader, Writer};

fn v1(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    w.versioned(1, 1, f);
    w.into_bytes()
}

/// Adds buckets of class `user` with these sizes.
fn add_buckets(sizes: impl Iterator<Item = (u64, u64)>) -> OsdOp {
    let all: Vec<(u64, u64)> = sizes.collect();
    let input = v1(|w| {
        w.seq(all.iter(), |w, (name, size)| {
            w.versioned(9, 5, |w| {
                w.blob(b"");
                w.u64(*size);
                w.u32(5);
                w.u64(1);
                let name = format!("b{name:06}");
                w.versioned(9, 8, |w| [name.as_bytes(), b"m", b"i", b"p"].iter().for_each(|f| w.blob(f)));
                w.u64(*size);
                w.bool(false);
                w.put(&Utime { sec: 5, nsec: 0 });
            });
        });
        w.bool(true);
        w.put(&Utime::ZERO);
    });
    OsdOp::call("user", "set_buckets_info", &input)
}

/// A long call that writes: the sums of the buckets into the omap header.
fn reset() -> OsdOp {
    OsdOp::call("user", "reset_user_stats", &v1(|w| w.put(&Utime { sec: 7, nsec: 0 })))
}

/// Spoils the sums, so that a reset shows.
fn spoil() -> OsdOp {
    OsdOp::with_indata(OpCode::OMAPSETHEADER, Bytes::new())
}

/// Number of buckets in the sums.
fn header() -> OsdOp {
    OsdOp::call("user", "get_header", &v1(|_| {}))
}

fn counted(out: &Bytes) -> u64 {
    let inner =
        |r: &mut Reader<'_>| r.versioned("cls_user_header", 1, |r, _| r.versioned("cls_user_stats", 2, |r, _| r.u64()));
    Reader::shared(out).versioned("cls_user_get_header_ret", 1, |r, _| inner(r)).unwrap()
}

/// Image entries of class `rbd`, for the summary.
fn images(n: usize) -> OsdOp {
    let value = {
        let mut w = Writer::new(Features::PACIFIC);
        w.versioned(2, 1, |w| {
            w.blob(b"global");
            w.u8(1);
            w.u8(1);
        });
        w.into_bytes()
    };
    let all: BTreeMap<Bytes, Bytes> = (0..n).map(|i| (format!("image_{i:06}").into(), value.clone())).collect();
    encoded(OpCode::OMAPSETVALS, &all)
}

/// A long call that only reads: the images by state.
fn summary() -> OsdOp {
    OsdOp::call("rbd", "mirror_image_status_get_summary", b"")
}

fn images_counted(r: &MOsdOpReply) -> i32 {
    assert_eq!(r.result, 0);
    decode::<BTreeMap<u8, i32>>(&r.ops[0].outdata).values().sum()
}

struct Reactor {
    w: World,
    pacer: Rc<Pacer>,
    /// Most entries read in a turn.
    rows_max: usize,
}

impl Reactor {
    fn new(entries: usize) -> Self {
        Self::with(World::new(), entries)
    }

    fn with(mut w: World, entries: usize) -> Self {
        let pacer = Rc::<Pacer>::default();
        pacer.long.set_room(Room { entries, bytes: usize::MAX });
        w.pg.use_pacer(Rc::clone(&pacer));
        Self { w, pacer, rows_max: 0 }
    }

    /// Buckets in `user`, images in `images`.
    fn filled(entries: usize, n: usize) -> Self {
        let mut r = Self::new(entries);
        let set = add_buckets((0..n as u64).map(|i| (i, 10)));
        assert_eq!(r.w.op("user", vec![set]).result, 0);
        assert_eq!(r.w.op("user", vec![spoil()]).result, 0);
        assert_eq!(r.w.op("images", vec![images(n)]).result, 0);
        r.w.order.clear();
        r
    }

    fn send(&mut self, session: u64, name: &str, ops: Vec<OsdOp>) -> (SessionId, u64) {
        let before = self.w.store.omap_rows;
        let r = self.w.request(session, name, ops);
        let key = self.w.send(r);
        self.rows_max = self.rows_max.max(self.w.store.omap_rows - before);
        key
    }

    /// Runs the part whose turn it is; false if no call waits for one.
    fn turn(&mut self) -> bool {
        let Some((machine, plan)) = self.pacer.long.take() else { return false };
        assert_eq!(machine, self.w.cfg.index);
        let before = self.w.store.omap_rows;
        self.w.handle(Event::Part(plan));
        self.rows_max = self.rows_max.max(self.w.store.omap_rows - before);
        true
    }

    /// Runs parts until none is left; returns their number.
    fn finish(&mut self) -> usize {
        let mut n = 0;
        while self.turn() {
            n += 1;
            assert!(n < 100_000, "the calls do not end");
        }
        assert_eq!(self.pacer.long.kept(), 0, "what was kept is dropped");
        n
    }

    fn answer(&mut self, key: (SessionId, u64)) -> MOsdOpReply {
        self.w.replies.remove(&key).unwrap_or_else(|| panic!("no answer: {:?}", self.w.pg.dump_ops(self.w.now.mono)))
    }

    fn sum(&mut self) -> u64 {
        let r = self.w.request(77, "user", vec![header()]);
        let r = self.w.call(r);
        counted(&r.ops[0].outdata)
    }
}

#[test]
fn a_turn_reads_a_bounded_number_of_entries() {
    let mut r = Reactor::filled(50, 2000);
    r.w.store.omap_rows = 0;
    let a = r.send(1, "user", vec![reset()]);
    let b = r.send(2, "images", vec![summary()]);
    assert!(r.w.replies.is_empty() && r.pacer.long.kept() == 2);
    let parts = r.finish();
    // A list reads one entry more, to see whether it goes on.
    assert!(r.rows_max <= 51, "{}", r.rows_max);
    assert!((78..=82).contains(&parts), "{parts}");
    assert!(r.w.store.omap_rows <= 4000 + parts + 2, "nothing is read twice: {}", r.w.store.omap_rows);
    assert_eq!(r.answer(a).result, 0);
    assert_eq!(images_counted(&r.answer(b)), 2000);
    assert_eq!(r.sum(), 2000);
}

/// A short call answers at once and keeps nothing.
#[test]
fn a_short_call_has_no_parts() {
    let mut r = Reactor::filled(256, 100);
    let a = r.send(1, "user", vec![reset()]);
    assert_eq!(r.answer(a).result, 0);
    assert!(!r.pacer.long.is_due() && r.pacer.long.kept() == 0);
    assert_eq!(r.sum(), 100);
}

#[test]
fn others_go_on_and_the_object_keeps_its_order() {
    let mut r = Reactor::filled(10, 100);
    let a = r.send(1, "user", vec![reset()]);
    let b = r.send(2, "user", vec![add_buckets([(500, 1)].into_iter())]);
    let c = r.send(2, "user", vec![header()]);
    let d = r.send(3, "other", vec![write(0, b"x")]);
    assert_eq!(r.w.order, [d], "another object goes on");
    for _ in 0..3 {
        assert!(r.turn());
    }
    let e = r.send(1, "other", vec![read(0, 0)]);
    assert_eq!(r.w.order, [d, e]);
    r.finish();
    assert_eq!(r.w.order, [d, e, a, b, c]);
    assert_eq!(counted(&r.w.replies[&c].ops[0].outdata), 101);

    // Beside a call that only reads, reads go on and writes wait.
    r.w.order.clear();
    let a = r.send(1, "images", vec![summary()]);
    let b = r.send(2, "images", vec![omap_vals("", 1, "")]);
    let c = r.send(2, "images", vec![encoded(OpCode::OMAPRMKEYS, &vec![bytes(b"image_000099")])]);
    let d = r.send(2, "images", vec![omap_vals("image_000098", 1, "")]);
    assert_eq!(r.w.order, [b]);
    r.finish();
    assert_eq!(r.w.order, [b, a, c, d]);
    assert_eq!(images_counted(&r.answer(a)), 100);
}

/// A call is an operation of its vector: what is before it and behind it happens once, with it or not at all.
#[test]
fn a_vector_with_a_long_call_is_one_change() {
    let mut r = Reactor::filled(10, 100);
    let a = r.send(1, "user", vec![append(b"x"), reset(), append(b"y"), reset()]);
    r.finish();
    assert_eq!(r.answer(a).result, 0);
    assert_eq!(r.w.op("user", vec![read(0, 0)]).ops[0].outdata, bytes(b"xy"));
    let a = r.send(1, "user", vec![append(b"z"), reset(), xattr(OpCode::GETXATTR, "none")]);
    r.finish();
    assert!(r.answer(a).result < 0);
    assert_eq!(r.w.op("user", vec![read(0, 0)]).ops[0].outdata, bytes(b"xy"));
}

/// Statistics, versions and results are those of a call in one part.
#[test]
fn parts_leave_no_trace() {
    let mut after = Vec::new();
    for entries in [usize::MAX, 300, 7] {
        let mut r = Reactor::filled(entries, 300);
        for ops in [vec![reset()], vec![append(b"abc"), reset()], vec![spoil(), reset(), header()]] {
            let key = r.send(1, "user", ops);
            r.finish();
            let a = r.answer(key);
            after.push((a.result, a.user_version, a.ops.iter().map(|o| o.outdata.clone()).collect::<Vec<_>>()));
        }
        let stats = r.w.pg.info().stats;
        after.push((0, r.w.pg.info().last_user_version, vec![format!("{stats:?}").into()]));
    }
    let (first, rest) = after.split_at(4);
    assert_eq!(first, &rest[..4]);
    assert_eq!(first, &rest[4..]);
}

#[test]
fn a_new_interval_ends_the_call_and_it_begins_again() {
    let mut r = Reactor::filled(10, 100);
    let a = r.send(1, "user", vec![append(b"x"), reset()]);
    assert!(r.turn() && r.turn() && r.pacer.long.kept() == 1);
    // This OSD stays the primary, so it takes the operation up again itself.
    r.w.view.up_from = r.w.view.epoch.next();
    r.w.next_map();
    assert!(!r.w.replies.contains_key(&a));
    r.finish();
    assert_eq!(r.answer(a).result, 0);
    assert_eq!((r.sum(), r.w.op("user", vec![read(0, 0)]).ops[0].outdata.len()), (100, 1));

    // Another OSD becomes the primary: nothing is left, and the client sends the call there.
    let a = r.send(1, "user", vec![append(b"x"), reset()]);
    assert!(r.turn() && r.pacer.long.kept() == 1);
    let other = base::OsdId(1);
    r.w.view.mapping.acting = vec![other, base::OsdId(0)];
    r.w.view.mapping.up = vec![other, base::OsdId(0)];
    r.w.view.mapping.acting_primary = other;
    r.w.view.mapping.up_primary = other;
    r.w.next_map();
    assert!(r.pacer.long.kept() == 0 && !r.pacer.long.is_due() && !r.w.replies.contains_key(&a));
}

#[test]
fn a_stop_ends_the_call() {
    let mut r = Reactor::filled(10, 100);
    r.send(1, "user", vec![reset()]);
    assert!(r.turn() && r.pacer.long.kept() == 1);
    r.w.handle(Event::Stop);
    assert_eq!(*r.w.pg.state(), pg::State::Stopped);
    assert!(r.pacer.long.kept() == 0 && !r.pacer.long.is_due() && r.w.replies.is_empty());
}

/// A client sends a call again that is still running: it runs once, and both are answered.
#[test]
fn a_call_that_is_sent_again_runs_once() {
    let mut r = Reactor::filled(10, 100);
    let first = r.w.request(1, "user", vec![append(b"x"), reset()]);
    let mut again = first.clone();
    again.session = SessionId(9);
    let a = r.w.send(first);
    assert!(r.turn());
    let b = r.w.send(again);
    r.finish();
    assert_eq!((r.answer(a).result, r.answer(b).result), (0, 0));
    assert_eq!(r.w.op("user", vec![read(0, 0)]).ops[0].outdata.len(), 1);
    assert_eq!(r.w.pg.counters().dups, 1);
}

#[test]
fn the_calls_of_an_ended_session_are_dropped_with_what_follows_them() {
    let mut r = Reactor::filled(10, 100);
    let a = r.send(1, "user", vec![reset()]);
    let b = r.send(1, "user", vec![append(b"from 1")]);
    let c = r.send(2, "user", vec![append(b"from 2")]);
    let d = r.send(1, "images", vec![summary()]);
    assert!(r.turn());
    assert!([1, 2].iter().all(|s| r.w.pg.knows_session(SessionId(*s))) && !r.w.pg.knows_session(SessionId(3)));
    r.w.handle(Event::SessionClosed(SessionId(1)));
    assert_eq!(r.w.order, [c]);
    assert!(!r.pacer.long.is_due());
    r.finish();
    assert!([a, b, d].iter().all(|k| !r.w.replies.contains_key(k)));
    assert_eq!(r.w.op("user", vec![read(0, 0)]).ops[0].outdata, bytes(b"from 2"));
    assert!(r.w.pg.dump_ops(r.w.now.mono).is_empty());
}

struct Blocked(u32);

impl Blocklist for Blocked {
    fn is_empty(&self) -> bool {
        false
    }
    fn contains(&self, a: &EntityAddr) -> bool {
        a.nonce == self.0
    }
}

/// After the map that blocklists a client, nothing of it takes effect, also if it waited.
#[test]
fn a_blocklisted_client_gets_no_further_part() {
    let mut r = Reactor::filled(10, 100);
    let a = r.send(1, "user", vec![reset()]);
    let b = r.send(2, "user", vec![append(b"from 2")]);
    let c = r.send(3, "images", vec![summary()]);
    let d = r.send(1, "images", vec![images(1)]);
    assert!(r.turn());
    r.w.view.blocklist = Rc::new(Blocked(1));
    r.w.next_map();
    r.finish();
    assert_eq!(r.answer(a).result, EBLOCKLISTED);
    assert_eq!(r.answer(d).result, EBLOCKLISTED, "it waited behind the call of another client");
    assert_eq!((r.answer(b).result, images_counted(&r.answer(c))), (0, 100));
    assert_eq!(r.sum(), 0, "the sums are as they were");
}

#[test]
fn calls_beyond_the_limit_wait_and_are_answered() {
    let mut r = Reactor::filled(10, 60);
    let n = LONG_CALLS_MAX + 20;
    let all: Vec<_> = (0..n).map(|i| r.send(i as u64, "images", vec![summary()])).collect();
    assert_eq!(r.pacer.long.kept(), LONG_CALLS_MAX);
    while r.turn() {
        assert!(r.pacer.long.kept() <= LONG_CALLS_MAX);
    }
    for key in all {
        assert_eq!(images_counted(&r.answer(key)), 60);
    }
    assert_eq!(r.finish(), 0);
}

/// COPY_GET ignores locks, so the object may change under a call in the same vector. The call then begins again: its
/// result is that of one state.
#[test]
fn a_call_on_a_changed_object_begins_again() {
    let mut r = Reactor::filled(10, 40);
    let cursor = {
        let mut w = Writer::new(Features::PACIFIC);
        w.versioned(1, 1, |w| {
            w.bool(true);
            w.u64(0);
            w.bool(true);
            w.blob(b"");
            w.bool(true);
        });
        w.u64(1 << 20);
        w.into_bytes()
    };
    let get = OsdOp::with_indata(OpCode::COPY_GET, cursor);
    let a = r.send(1, "images", vec![summary(), get]);
    assert!(r.turn() && r.turn() && r.pacer.long.kept() == 1);
    let keys: Vec<Bytes> = (0..20).map(|i| format!("image_{i:06}").into()).collect();
    assert_eq!(r.w.op("images", vec![encoded(OpCode::OMAPRMKEYS, &keys)]).result, 0);
    r.finish();
    assert_eq!(images_counted(&r.answer(a)), 20);
}

#[test]
fn a_call_of_a_removed_object() {
    let mut r = Reactor::filled(10, 40);
    let a = r.send(1, "images", vec![summary()]);
    let b = r.send(1, "images", vec![simple(OpCode::DELETE)]);
    let c = r.send(1, "images", vec![summary()]);
    r.finish();
    assert_eq!(images_counted(&r.answer(a)), 40);
    assert_eq!((r.answer(b).result, r.answer(c).result), (0, ENOENT));
}

/// A snapshot shows the object as it was, however many parts the call has.
#[test]
fn a_call_at_a_snapshot() {
    let mut r = Reactor::filled(10, 40);
    r.w.set_snaps(1, &[1]);
    assert_eq!(r.w.op("images", vec![images(60)]).result, 0);
    let mut req = r.w.request(1, "images", vec![summary()]);
    req.msg.snapid = base::SnapId(1);
    let a = r.w.send(req);
    assert!(r.turn());
    let b = r.send(2, "images", vec![summary()]);
    r.finish();
    assert_eq!((images_counted(&r.answer(a)), images_counted(&r.answer(b))), (40, 60));
}

/// A scrub holds several objects at a time. While one of them is busy with a long call, writes to the others do not
/// wait for the call.
#[test]
fn a_scrub_behind_a_long_call_lets_other_objects_go_on() {
    let mut r = Reactor::filled(10, 100);
    r.w.advance(1000);
    let a = r.send(1, "user", vec![reset()]);
    r.w.handle(Event::Scrub(pg::scrub::ScrubRequest { deep: false, repair: false, required: true }));
    assert!(r.w.pg.is_scrubbing());
    let b = r.send(2, "images", vec![append(b"x")]);
    assert!(!r.w.replies.contains_key(&b), "held by the scrub");
    for _ in 0..3 {
        r.w.advance(100);
    }
    assert!(r.w.replies.contains_key(&b) && !r.w.replies.contains_key(&a));
    let deadline = r.w.pg.next_deadline().expect("the scrub tries again");
    assert!(deadline > r.w.now.mono);
    r.finish();
    assert_eq!(r.answer(a).result, 0);
    r.w.advance(10_000);
    assert!(!r.w.pg.is_scrubbing(), "it ends with the call");
    assert_eq!(r.sum(), 100);
}

/// Random operations of several sessions on few objects, on a store that lets reads wait: the answers are those of a
/// world in which every call runs in one part.
#[test]
fn calls_in_parts_equal_calls_in_one() {
    let mut parts = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let waits = |waits: bool| {
            let store = if waits { MemStore::new().with_waits(seed) } else { MemStore::new() };
            World::with_store(store.hold_durable())
        };
        let mut small = Reactor::with(waits(true), 1 + rng.below(30) as usize);
        let mut whole = Reactor::with(waits(false), usize::MAX);
        let mut keys = Vec::new();
        for _ in 0..120 {
            let session = 1 + rng.below(3);
            let name = if rng.chance(1, 2) { "a" } else { "b" };
            let ops = match rng.below(7) {
                0 | 1 => {
                    let from = rng.below(60);
                    vec![add_buckets((from..from + 1 + rng.below(20)).map(|i| (i, i)))]
                }
                2 => vec![append(b"x"), reset()],
                3 => vec![reset(), reset(), spoil(), append(b"y")],
                4 => vec![header(), read(0, 0)],
                5 => vec![spoil()],
                _ => vec![read(0, 0), omap_vals("", 1000, "")],
            };
            keys.push(small.send(session, name, ops.clone()));
            whole.send(session, name, ops);
            while rng.chance(1, 2) && small.turn() {
                parts += 1;
            }
        }
        parts += small.finish();
        whole.finish();
        for key in keys {
            let (a, b) = (small.answer(key), whole.answer(key));
            let outputs = |r: &MOsdOpReply| r.ops.iter().map(|o| (o.rval, o.outdata.clone())).collect::<Vec<_>>();
            assert_eq!((a.result, outputs(&a)), (b.result, outputs(&b)), "seed {seed}, {key:?}");
        }
        let stats = |r: &Reactor| {
            let s = &r.w.pg.info().stats;
            (s.num_objects, s.num_bytes, s.num_wr, s.num_wr_kb)
        };
        assert_eq!(stats(&small), stats(&whole), "seed {seed}");
    }
    assert!(parts > 2000, "{parts}");
}
