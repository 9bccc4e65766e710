//! Do watches and notifies disturb nothing else on several OSDs?

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, object_name};
use wire::Encode as _;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{OpCode, OsdOp, msg_flags, watch_event};
use wire::types::NotifyArgs;

fn read() -> Vec<OsdOp> {
    vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())]
}

fn watch(cookie: u64, timeout: u32) -> OsdOp {
    let mut o = OsdOp::new(OpCode::WATCH);
    // Without pings the open session keeps the watch alive.
    o.set_watch(WatchArgs { cookie, op: WatchArgs::LEGACY_WATCH, timeout, ..WatchArgs::default() });
    o
}

fn notify(cookie: u64) -> OsdOp {
    let args = NotifyArgs { prot_ver: 1, timeout_seconds: 5, payload: Bytes::from_static(b"x") };
    let mut o = OsdOp::with_indata(OpCode::NOTIFY, args.to_bytes(wire::Features::PACIFIC));
    o.set_notify_cookie(cookie);
    o
}

/// Three copies, two objects with a watch of ten seconds, and no other client.
fn watched() -> Cluster {
    let mut c = Cluster::new(21, 3, 3, 2, 2, 2);
    c.run(10_000);
    c.load = false;
    c.run(10_000);
    for object in 0..2 {
        let t = c.ask(0, 1, object, 0, vec![watch(7, 10)]);
        c.run(1_000);
        assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0), "{}", object_name(object));
    }
    // Members hear that the write is stable.
    c.run(7_000);
    c
}

/// A member must not expire a watch by a log record of its own, which would conflict with the primary's next write.
#[test]
fn a_watched_object_that_a_member_reads_stays_writable() {
    let mut c = watched();
    for member in 1..3 {
        for object in 0..2 {
            let t = c.ask(member, 2, object, msg_flags::BALANCE_READS, read());
            c.run(100);
            assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0), "read on osd.{member}");
        }
    }
    // Longer than the watch's timeout.
    c.run(30_000);
    for object in 0..2 {
        let op = OsdOp::with_xattr(OpCode::SETXATTR, b"a", b"b", 0, 0);
        let t = c.ask(0, 3, object, 0, vec![op]);
        c.run(2_000);
        let r = c.asked.answers.remove(&t).map(|r| r.result);
        assert_eq!(r, Some(0), "{}\n{}\n{}", c.describe(0), c.describe(1), c.describe(2));
    }
    c.load = true;
    c.run(5_000);
    c.settle();
    c.check();
    c.final_reads();
}

/// Only the primary has watches: a member would complete the notify without telling any watcher.
#[test]
fn a_member_starts_no_notify() {
    let mut c = watched();
    for ops in [vec![notify(3)], vec![read().remove(0), notify(3)]] {
        let t = c.ask(1, 2, 0, msg_flags::BALANCE_READS, ops.clone());
        c.run(100);
        let r = c.asked.answers.remove(&t).map(|r| r.result);
        assert_eq!(r, Some(base::errno::EAGAIN), "the client asks the primary");
        assert!(c.asked.watch_messages.is_empty(), "{:?}", c.asked.watch_messages);
        let t = c.ask(0, 2, 0, msg_flags::BALANCE_READS, ops);
        c.run(100);
        assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0));
        let told = std::mem::take(&mut c.asked.watch_messages);
        assert!(told.iter().any(|(who, m)| *who == 1 && m.opcode == watch_event::NOTIFY), "{told:?}");
        c.run(6_000);
        c.asked.watch_messages.clear();
    }
}

/// No map sends a client to another member, so a member that can't serve a read must say so, whatever its state.
#[test]
fn a_read_that_any_member_may_serve_is_always_answered() {
    let mut c = watched();
    let flags = msg_flags::BALANCE_READS;
    // A new copy and a stray answer `EAGAIN`, and so does a failed copy.
    // The primary does not reach the stray, and so can't remove it.
    c.net.blocked.insert((0, 2));
    c.change(|m| (m.order, m.size) = (vec![0, 1], 2));
    c.run(100);
    let t = c.ask(2, 2, 0, flags, read());
    c.run(100);
    assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(base::errno::EAGAIN), "a stray");
    c.may_fail = true;
    c.withdraw(1);
    let t = c.ask(1, 2, 0, flags, read());
    c.run(10);
    assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(base::errno::EAGAIN), "a copy that failed");
}

/// A client may have a map before the member that it asks.
#[test]
fn a_balanced_read_with_a_newer_map_is_answered_once_the_map_comes() {
    let mut c = watched();
    c.osds[1].cut = true;
    c.change(|_| {});
    c.run(500);
    let t = c.ask(1, 2, 0, msg_flags::BALANCE_READS, read());
    c.run(1_000);
    assert!(!c.asked.answers.contains_key(&t), "its map is older than the client's");
    c.osds[1].cut = false;
    c.change(|_| {});
    c.run(2_000);
    assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0), "{}", c.describe(1));
}

/// A member applies writes without regard to the reads that it serves, so it serves none in parts.
#[test]
fn a_member_serves_no_long_call() {
    let mut c = watched();
    let image = {
        let mut w = wire::Writer::new(wire::Features::PACIFIC);
        w.versioned(2, 1, |w| {
            w.blob(b"global");
            w.u8(1);
            w.u8(1);
        });
        w.into_bytes()
    };
    let summary = || vec![OsdOp::call("rbd", "mirror_image_status_get_summary", b"")];
    for (object, images, result) in [(0, 100, 0), (1, 1000, base::errno::EAGAIN)] {
        let all: std::collections::BTreeMap<bytes::Bytes, bytes::Bytes> =
            (0..images).map(|i| (format!("image_{i:06}").into(), image.clone())).collect();
        let set = OsdOp::with_indata(OpCode::OMAPSETVALS, wire::Encode::to_bytes(&all, wire::Features::PACIFIC));
        let t = c.ask(0, 3, object, 0, vec![set]);
        // Members hear that the write is stable.
        c.run(7_000);
        assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0));
        let t = c.ask(1, 2, object, msg_flags::BALANCE_READS, summary());
        c.run(100);
        assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(result), "{images} images");
    }
}
