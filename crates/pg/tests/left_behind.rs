//! Objects that only copies which are to be filled have, after changes that do not write the head: is each found as it was
//! left?

mod cluster;

use base::SnapId;
use base::errno::{EAGAIN, ENOENT};
use bytes::Bytes;
use cluster::Cluster;
use cluster::shards::finish;
use wire::msg::{OpCode, OsdOp, msg_flags};

/// The object that is lacked.
const LACKED: usize = 900;

/// Runs an operation, which must succeed.
fn run(c: &mut Cluster, object: usize, op: OsdOp) {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, object, 0, vec![op]);
    c.run(3_000);
    let result = c.asked.answers.get(&tid).map(|a| a.result);
    assert_eq!(result, Some(0), "object {object}: {}", c.describe(primary as usize));
}

fn data(with: u8) -> Bytes {
    (0..30_000u32).map(|i| (i / 7) as u8 ^ with).collect::<Vec<u8>>().into()
}

fn write(c: &mut Cluster, object: usize, with: u8) {
    let data = data(with);
    run(c, object, OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data));
}

/// The object at a snapshot: result and bytes.
fn read(c: &mut Cluster, snap: SnapId) -> Option<(i32, Bytes)> {
    let primary = c.map().mapping().acting_primary.0;
    c.asked.at_snap = snap;
    let tid = c.ask(primary, 1, LACKED, 0, vec![OsdOp::with_extent(OpCode::READ, 0, 1 << 20, Bytes::new())]);
    c.asked.at_snap = SnapId::HEAD;
    c.run(5_000);
    c.asked.answers.get(&tid).map(|a| (a.result, a.ops[0].outdata.clone()))
}

/// How the object changes after the writes 1, 2 and 3, with a snapshot before each of the last two.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// The clone of the first snapshot is trimmed.
    Trim,
    /// The head is removed; the clones stay.
    Remove,
    /// The head is removed, then the clone of the first snapshot is trimmed.
    RemoveAndTrim,
}

/// Changes an object while the OSDs of `miss` are dead; they come back and lack it. Then the `unfilled` OSDs miss so many
/// other writes that they are to be filled, and the `dead` ones die, so that osd.1 leads.
fn left_behind(mut c: Cluster, change: Change, miss: &[i32], unfilled: &[i32], dead: &[i32]) -> Cluster {
    (c.load, c.contended) = (false, false);
    c.keep_logs(5, 10);
    c.run(3_000);
    c.asked.in_snaps = true;
    for n in 1..4 {
        if n > 1 {
            c.take_snapshot();
        }
        write(&mut c, LACKED, n);
    }
    c.settle();
    c.forbid_recovery(0..c.osds.len());
    if change == Change::RemoveAndTrim {
        run(&mut c, LACKED, OsdOp::new(OpCode::DELETE));
    }
    // Trimming goes on until the map shows that an OSD is down.
    if change != Change::Remove {
        c.remove_snapshot();
    }
    miss.iter().for_each(|o| c.crash(*o));
    c.run(25_000);
    if change == Change::Remove {
        run(&mut c, LACKED, OsdOp::new(OpCode::DELETE));
    }
    miss.iter().for_each(|o| c.restart(*o));
    c.run(20_000);
    for o in miss {
        assert_eq!(c.osds[*o as usize].pg.as_ref().unwrap().missing(), 1, "{change:?}: {}", c.describe(*o as usize));
    }
    for osd in unfilled {
        c.crash(*osd);
        c.run(25_000);
        (0..30).for_each(|n| write(&mut c, n, *osd as u8));
        c.restart(*osd);
        c.run(20_000);
        assert!(!c.osds[*osd as usize].pg.as_ref().unwrap().info().is_complete(), "{}", c.describe(*osd as usize));
    }
    for o in dead {
        c.crash(*o);
        c.run(25_000);
    }
    assert_eq!(c.map().mapping().acting_primary.0, 1, "{}", c.describe(1));
    c.osds.iter().for_each(|o| o.reserver.set(&pg::reserve::RecoveryConfig::default()));
    c.run(30_000);
    c
}

/// The object is found and shows what the change has left.
fn is_found(c: &mut Cluster, change: Change) {
    let p = c.primary().unwrap();
    assert_eq!((p.unfound_objects().len(), p.missing()), (0, 0), "{change:?}: {}", c.describe(1));
    let first = (ENOENT, Bytes::new());
    let head = if change == Change::Trim { (0, data(3)) } else { first.clone() };
    assert!(read(c, SnapId::HEAD) == Some(head), "{change:?}");
    let snaps = if change == Change::Remove { (Some((0, data(1))), 2) } else { (None, 2) };
    if let Some(old) = snaps.0 {
        assert!(read(c, SnapId(1)) == Some(old), "{change:?}");
    }
    assert!(read(c, SnapId(snaps.1)) == Some((0, data(2))), "{change:?}");
}

const CHANGES: [Change; 3] = [Change::Trim, Change::Remove, Change::RemoveAndTrim];

#[test]
fn a_copy_that_is_to_be_filled_gives_an_object_whose_clone_was_trimmed_or_whose_head_was_removed() {
    for (n, change) in CHANGES.into_iter().enumerate() {
        let mut c = left_behind(Cluster::new(40 + n as u64, 3, 3, 1, 1, 0), change, &[1], &[2], &[0]);
        is_found(&mut c, change);
        c.heal();
        c.settle();
        c.check();
        is_found(&mut c, change);
    }
}

#[test]
fn shards_that_are_to_be_filled_give_an_object_whose_clone_was_trimmed_or_whose_head_was_removed() {
    for (n, change) in CHANGES.into_iter().enumerate() {
        let mut c = left_behind(Cluster::coded(50 + n as u64, 6, (2, 4), 1, 0), change, &[1, 5], &[2, 3], &[0, 4]);
        is_found(&mut c, change);
        c.heal();
        finish(&mut c);
        is_found(&mut c, change);
    }
}

/// An object that an OSD has from before it is filled is no answer to a client, though it may be a last resort for the
/// primary.
#[test]
fn a_copy_that_is_to_be_filled_serves_no_balanced_read() {
    let mut c = Cluster::new(60, 3, 3, 1, 1, 0);
    (c.load, c.contended) = (false, false);
    c.keep_logs(5, 10);
    c.run(3_000);
    write(&mut c, LACKED, 1);
    c.settle();
    c.forbid_recovery(0..c.osds.len());
    c.crash(2);
    c.run(25_000);
    write(&mut c, LACKED, 2);
    (0..30).for_each(|n| write(&mut c, n, 9));
    c.restart(2);
    c.run(20_000);
    assert!(!c.osds[2].pg.as_ref().unwrap().info().is_complete(), "{}", c.describe(2));
    let of = OsdOp::with_extent(OpCode::READ, 0, 1 << 20, Bytes::new());
    for (osd, want) in [(1, Some(0)), (2, Some(EAGAIN))] {
        let tid = c.ask(osd, 1, LACKED, msg_flags::BALANCE_READS, vec![of.clone()]);
        c.run(5_000);
        let said = c.asked.answers.get(&tid).map(|a| a.result);
        assert_eq!(said, want, "{}", c.describe(osd as usize));
    }
}
