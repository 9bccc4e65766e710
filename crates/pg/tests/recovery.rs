//! Does recovery end, whatever the number and the size of what it carries?

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, hash, object_name};
use std::collections::BTreeMap;
use wire::msg::{OpCode, OsdOp};

fn write_full(c: &mut Cluster, object: usize, data: &Bytes) -> u64 {
    let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
    let primary = c.map().mapping().acting_primary.0;
    c.ask(primary, 1, object, 0, vec![op])
}

/// Writes the object; it must be acknowledged.
fn put(c: &mut Cluster, object: usize, data: &Bytes) {
    let tid = write_full(c, object, data);
    c.run(300);
    assert_eq!(c.answers.get(&tid).map(|a| a.result), Some(0), "object {object}");
}

/// Of `n` objects the one that recovery begins with.
fn first_of(n: usize) -> usize {
    (0..n).min_by_key(|i| hash(&object_name(*i)).reverse_bits()).unwrap()
}

/// A member that lacks one object of many parts and more small objects than it remembers pushes.
fn many_and_one_large(mut c: Cluster, small: usize) {
    let large = first_of(small);
    c.load = false;
    c.contended = false;
    c.keep_log = (10_000, 100);
    c.run(3_000);
    put(&mut c, large, &vec![1; 100].into());
    c.crash(2);
    c.run(25_000);
    put(&mut c, large, &(0..44 << 20).map(|i: u32| (i / 4096) as u8 | 1).collect::<Vec<u8>>().into());
    for n in (0..small).filter(|n| *n != large) {
        write_full(&mut c, n, &Bytes::from_static(b"x"));
        if n % 50 == 0 {
            c.run(300);
        }
    }
    c.run(2_000);
    c.restart(2);
    c.settle();
    let len = |c: &mut Cluster, osd: i32| {
        let all = c.contents(osd);
        let found = all.iter().find(|(k, _)| k.contains(&format!(":{}:", object_name(large))));
        (all.len(), found.map(|(_, v)| v.len()))
    };
    assert_eq!(len(&mut c, 0), len(&mut c, 2));
}

#[test]
fn an_object_of_many_parts_is_recovered_among_thousands() {
    many_and_one_large(Cluster::new(31, 3, 3, 2, 1, 0), 1_150);
}

/// Runs a vector on the object; it must be acknowledged.
fn run(c: &mut Cluster, object: usize, ops: Vec<OsdOp>) {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, object, 0, ops);
    c.run(3_000);
    assert_eq!(c.answers.get(&tid).map(|a| a.result), Some(0), "object {object}");
}

fn set_attr(c: &mut Cluster, object: usize, name: &[u8], len: usize) {
    let value = Bytes::from(vec![name[0]; len]);
    run(c, object, vec![OsdOp::with_xattr(OpCode::SETXATTR, name, &value, 0, 0)]);
}

/// The largest objects that clients can make, on a member that was away, on one that is filled anew, and in a scrub.
fn large_metadata(mut c: Cluster, omap: bool) {
    (c.load, c.contended) = (false, false);
    c.run(3_000);
    let write_all = |c: &mut Cluster| {
        set_attr(c, 1, b"a", 64 << 20);
        for name in [b"a", b"b", b"c"] {
            set_attr(c, 2, name, 25 << 20);
        }
        let data = Bytes::from(vec![5; 8 << 20]);
        run(c, 2, vec![OsdOp::with_extent(OpCode::WRITE, 0, data.len() as u64, data)]);
        if omap {
            let pairs: BTreeMap<Bytes, Bytes> =
                (0..70).map(|i: u8| (vec![i; 5].into(), vec![i; 1 << 20].into())).collect();
            let mut w = wire::Writer::new(wire::Features::PACIFIC);
            w.put(&pairs);
            run(c, 3, vec![OsdOp::with_indata(OpCode::OMAPSETVALS, w.into_bytes())]);
        }
    };
    write_all(&mut c);
    c.crash(2);
    c.run(25_000);
    write_all(&mut c);
    c.restart(2);
    c.settle();
    // A new copy is filled.
    c.change(|m| m.order.rotate_left(1));
    c.settle();
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{:?}", c.log);
}

#[test]
fn large_metadata_is_replicated_recovered_filled_and_scrubbed() {
    large_metadata(Cluster::new(32, 4, 3, 2, 1, 0), true);
}

#[test]
fn large_attributes_of_shards_are_rebuilt() {
    large_metadata(Cluster::coded(33, 8, (2, 2), 1, 0), false);
}
