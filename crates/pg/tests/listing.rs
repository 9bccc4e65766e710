//! Are the objects of a PG listed in order, once, by namespace and filter, at a bounded cost?
mod common;

use base::errno::*;
use bytes::Bytes;
use common::*;
use wire::Encode;
use wire::msg::{OpCode, OsdOp};
use wire::types::PgNlsReply;

/// A list of a namespace with few objects in a PG with many looks at a bounded number of them at once.
#[test]
fn a_list_that_finds_nothing_ends_its_page() {
    let mut w = World::new();
    let n = 2 * pg::limits::PGLS_LOOKS_MAX + 100;
    for i in 0..n {
        let mut r = w.request(1, &format!("o{i}"), vec![write(0, b"")]);
        r.msg.locator.nspace = Bytes::from_static(if i % 9000 == 17 { b"few" } else { b"many" });
        assert_eq!(w.call(r).result, 0);
    }
    let (mut found, mut pages, mut from) = (Vec::new(), 0, base::HObject::min());
    loop {
        let mut op = encoded(OpCode::PGNLS, &from);
        op.set_pgls(wire::msg::osd_op::PglsArgs { count: 100, start_epoch: 0 });
        let mut r = w.request(1, "", vec![op]);
        r.msg.hash = 0;
        r.msg.locator.nspace = Bytes::from_static(b"few");
        let r = w.call(r);
        let page: PgNlsReply = decode(&r.ops[0].outdata);
        found.extend(page.entries.into_iter().map(|e| e.oid));
        pages += 1;
        if r.result == 1 {
            break;
        }
        from = page.handle;
    }
    found.sort();
    assert_eq!((found, pages), (vec![bytes(b"o17"), bytes(b"o9017")], 3));
}

/// Input of a list with filter: two ignored names, the filter's type and its arguments.
fn filter_of(kind: &str, args: &impl wire::Encode) -> Bytes {
    let f = [
        ("pg".to_owned(), "filter".to_owned()).to_bytes(wire::Features::PACIFIC),
        kind.to_owned().to_bytes(wire::Features::PACIFIC),
    ];
    [&f[0][..], &f[1][..], &args.to_bytes(wire::Features::PACIFIC)[..]].concat().into()
}

/// Lists a namespace in pages of three.
fn listed(w: &mut World, nspace: &'static [u8], filter: Option<Bytes>) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), base::HObject::min());
    loop {
        let at = from.to_bytes(wire::Features::PACIFIC);
        let mut op = match &filter {
            None => OsdOp::with_indata(OpCode::PGNLS, at),
            Some(f) => OsdOp::with_indata(OpCode::PGNLS_FILTER, [&f[..], &at[..]].concat().into()),
        };
        op.set_pgls(wire::msg::osd_op::PglsArgs { count: 3, start_epoch: 0 });
        let mut r = w.request(1, "", vec![op]);
        r.msg.hash = 0;
        r.msg.locator.nspace = Bytes::from_static(nspace);
        let r = w.call(r);
        let page: PgNlsReply = decode(&r.ops[0].outdata);
        assert!(page.entries.len() <= 3);
        names.extend(page.entries.iter().map(|e| String::from_utf8_lossy(&e.oid).into_owned()));
        if r.result == 1 {
            assert!(page.handle.max);
            return names;
        }
        from = page.handle;
    }
}

#[test]
fn first_objects_of_files_are_listed_until_they_have_a_tag() {
    let mut w = World::new();
    let (tag, other) = ([&[1, 0, 0, 0][..], b"t"].concat(), [&[1, 0, 0, 0][..], b"u"].concat());
    let tags: [Option<&[u8]>; 5] = [None, Some(&tag), Some(&other), Some(b""), Some(b"\xff")];
    for (i, t) in tags.iter().enumerate() {
        for end in [".00000000", ".00000001", "00000000"] {
            let mut ops = vec![write(0, b"x")];
            ops.extend(t.map(|t| setxattr("scrub_tag", t)));
            assert_eq!(w.op(&format!("{i}{end}"), ops).result, 0);
        }
    }
    let mut find = |t: &str| {
        let args = ((1u8, 1u8), (t.len() + 4) as u32);
        let f = filter_of("cephfs.inode_tag", &(args, t.to_owned()));
        let mut names = listed(&mut w, b"", Some(f));
        names.sort();
        names.iter().map(|n| n.strip_suffix(".00000000").unwrap().to_owned()).collect::<String>()
    };
    assert_eq!(find(""), "01234");
    assert_eq!(find("t"), "0234");
    assert_eq!(find("u"), "0134");
    assert_eq!(find("v"), "01234");
}

#[test]
fn listing_goes_in_hash_order_by_namespace() {
    let mut w = World::new();
    for i in 0..10 {
        let mut r =
            w.request(1, &format!("o{i}"), vec![write(0, b"x"), setxattr("p", if i % 2 == 0 { b"e" } else { b"o" })]);
        r.msg.locator.nspace = if i < 7 { Bytes::new() } else { Bytes::from_static(b"ns") };
        assert_eq!(w.call(r).result, 0);
    }
    let walk = |w: &mut World, nspace: &'static [u8], filter: Option<&str>| {
        listed(w, nspace, filter.map(|v| filter_of("plain", &("_p".to_owned(), v.to_owned()))))
    };
    let all = walk(&mut w, b"\x01", None);
    let mut sorted = all.clone();
    sorted.sort_by_key(|n| hash(n).reverse_bits());
    assert_eq!(all.len(), 10);
    assert_eq!(walk(&mut w, b"", None).len(), 7);
    assert_eq!(walk(&mut w, b"ns", None).len(), 3);
    assert_eq!(walk(&mut w, b"\x01", Some("e")).len(), 5);
    let mut r = w.request(
        1,
        "",
        vec![encoded(OpCode::PGNLS_FILTER, &(("a".to_owned(), "b".to_owned()), "no.such".to_owned()))],
    );
    r.msg.hash = 0;
    assert_eq!(w.call(r).result, EINVAL);
}
