//! Operations of clients: rights, maps that they lack, and calls that take several turns.

use super::*;

/// Caps are checked for the pool of the PG that executes the operation, not for the pool in the locator.
#[test]
fn caps_are_checked_for_the_pool_that_is_written() {
    let (maps, mut pgs, mut store) = alone();
    let e = maps.now.epoch.0;
    let s = session_with(1, "client.q", "allow rw pool=q");
    pgs.op(&s, write(1, 1, e, 2), at(0), &mut store);
    assert_eq!(answers(&mut pgs).0, [EPERM]);
    pgs.op(&s, write(2, 1, e, 1), at(0), &mut store);
    assert_eq!(answers(&mut pgs).0, [EPERM]);
    pgs.op(&s, write(3, 2, e, 2), at(0), &mut store);
    assert!(answers(&mut pgs).0.is_empty(), "waits for its PG");
    assert_eq!(pgs.waiting().0, 1);
}

/// `network` caps apply to the address of the socket (10.0.0.7), not to the one that the client announces
/// (127.0.0.1).
#[test]
fn network_caps_use_the_socket_address() {
    let (maps, mut pgs, mut store) = alone();
    let e = maps.now.epoch.0;
    for (caps, want) in [("allow rw network 127.0.0.0/8", vec![EPERM]), ("allow rw network 10.0.0.0/24", vec![])] {
        pgs.op(&session_with(1, "client.n", caps), write(1, 1, e, 1), at(0), &mut store);
        assert_eq!(answers(&mut pgs).0, want, "{caps}");
    }
}

/// A session that names a map which does not exist fills its own share, and no other operation is lost. Nothing
/// is kept for a session without rights.
#[test]
fn operations_for_a_map_that_never_comes_close_only_their_own_session() {
    let (maps, mut pgs, mut store) = alone();
    let never = u32::MAX;
    for caps in ["", "allow r", "allow * network 127.0.0.0/8"] {
        pgs.op(&session_with(1, "client.none", caps), write(1, 1, never, 1), at(0), &mut store);
        assert_eq!((answers(&mut pgs), pgs.waiting().0), ((vec![EPERM], vec![], false), 0), "{caps}");
    }
    let honest = session_with(2, "client.h", "allow rw");
    pgs.op(&honest, write(1, 1, maps.now.epoch.0 + 1, 1), at(0), &mut store);
    let evil = session_with(3, "client.evil", "allow rw");
    let mut closed = Vec::new();
    for tid in 0..3 * waiting::SESSION_OPS_MAX as u64 {
        pgs.op(&evil, write(tid, 1, never, 1), at(0), &mut store);
        closed.extend(answers(&mut pgs).1);
        assert!(pgs.waiting().0 <= waiting::SESSION_OPS_MAX + 1);
    }
    assert!(!closed.is_empty() && closed.iter().all(|s| *s == evil.id));
    pgs.session_closed(evil.id, at(0), &mut store);
    assert_eq!(pgs.waiting().0, 1, "the other's operation still waits");
}

/// The OSD reads the source of a copy with its own key.
#[test]
fn a_copy_needs_the_right_to_read_its_source() {
    let (maps, mut pgs, mut store) = alone();
    let copy = |source: i64, nspace: &'static [u8]| {
        let mut w = wire::Writer::new(Features::PACIFIC);
        w.blob(b"secret");
        w.put(&wire::types::ObjectLocator {
            pool: PoolId(source),
            nspace: bytes::Bytes::from_static(nspace),
            ..Default::default()
        });
        let mut m = write(1, 2, maps.now.epoch.0, 2);
        m.ops = [OsdOp::with_indata(OpCode::COPY_FROM, w.into_bytes())].into_iter().collect();
        m
    };
    let mut refused = |caps: &str, m: Box<MOsdOp>| {
        pgs.op(&session_with(1, "client.c", caps), m, at(0), &mut store);
        let (results, ..) = answers(&mut pgs);
        // An operation that is not refused waits for its PG.
        assert!(results.is_empty() || results == [EPERM]);
        !results.is_empty()
    };
    assert!(refused("allow rw pool=q", copy(1, b"")), "a pool that it may not read");
    assert!(refused("allow rw pool=q, allow w pool=p", copy(1, b"")));
    assert!(
        refused("allow rw pool=q namespace=a", copy(2, b"b"))
            && refused("allow rw pool=q, allow r pool=p namespace=a", copy(1, b""))
    );
    assert!(!refused("allow rw pool=q, allow r pool=p", copy(1, b"")));
    assert!(!refused("allow rw pool=q", copy(2, b"")));
    assert!(!refused("allow *", copy(1, b"")));
    assert!(!refused("allow rw pool=q", copy(9, b"")), "a pool that is not there is for the PG to answer");
}

/// A single OSD whose PG serves.
fn serving() -> (Maps, Pgs, MemStore) {
    let mut maps = Maps::new(1, 1, 1);
    let first = Arc::new(maps.now.clone());
    let serves = maps.next(|i| _ = i.new_up_thru.insert(OsdId(0), Epoch(3)));
    let (mut store, mut pgs) = (MemStore::new().without_waits(), empty(OsdId(0)));
    pgs.handle_maps(&[first], maps.feed(), at(0), &mut store);
    let create = PgCreate { pgid: PgId::new(1, 0).into(), stamp: Default::default(), extra: None };
    pgs.create(&[create], at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    pgs.handle_maps(&[serves], maps.feed(), at(30_000), &mut store);
    settle(&mut pgs, &mut store, 30_000);
    (maps, pgs, store)
}

/// The client learned of the map before, so nothing but the drop can tell it of the merge. The walk is in its midst then.
#[test]
fn a_dropped_operation_brings_the_map_that_dropped_it() {
    let mut maps = Maps::new(1, 1, 2);
    let first = Arc::new(maps.now.clone());
    let serves = maps.next(|i| _ = i.new_up_thru.insert(OsdId(0), Epoch(3)));
    let (mut store, mut pgs) = (MemStore::new().without_waits(), empty(OsdId(0)));
    pgs.handle_maps(&[first], maps.feed(), at(0), &mut store);
    let create = |seed| PgCreate { pgid: PgId::new(1, seed).into(), stamp: Default::default(), extra: None };
    pgs.create(&[0, 1].map(create), at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    pgs.handle_maps(&[serves], maps.feed(), at(30_000), &mut store);
    settle(&mut pgs, &mut store, 30_000);
    let mut p = (*maps.now.pools[&POOL]).clone();
    (p.pg_num_pending, p.last_change) = (1, maps.now.epoch.next());
    let announced = maps.next(|i| drop(i.new_pools.insert(POOL, p)));
    pgs.handle_maps(&[announced], maps.feed(), at(60_000), &mut store);
    settle(&mut pgs, &mut store, 60_000);

    let (s, known) = (session_with(1, "client.a", "allow *"), KnownMap::default());
    let mut m = write(1, 1, maps.now.epoch.0, 1);
    m.pgid = PgId::new(1, 1).into();
    assert!(known.share(m.osdmap_epoch, pgs.feed().map(|f| &**f), s.features).is_none());
    pgs.op(&s, m, at(90_000), &mut store);
    assert_eq!(answers(&mut pgs).0, [0; 0], "it is held");

    pgs.set_walk_step(1);
    let merged = maps.pg_num(1);
    pgs.handle_maps(&[merged], maps.feed(), at(90_001), &mut store);
    let mut told = None;
    while told.is_none() {
        while let Some(o) = pgs.poll_output() {
            if let Output::Dropped(to, tid, feed) = o {
                assert_eq!((to, tid), (s.id, 1));
                told = Some(known.share(Epoch(0), feed.as_deref(), s.features));
            }
        }
        assert!(told.is_some() || pgs.is_walking(), "the operation is neither dropped nor answered");
        pgs.walk_on(at(90_002), &mut store);
    }
    let maps_told: Vec<Epoch> = told.flatten().unwrap().incremental_maps.into_keys().collect();
    assert_eq!(maps_told, [maps.now.epoch]);
}

/// Runs an operation. Returns its result and the version of its object.
fn done(pgs: &mut Pgs, store: &mut MemStore, s: &Arc<SessionInfo>, m: Box<MOsdOp>) -> (i32, u64) {
    let tid = m.tid;
    pgs.op(s, m, at(60_000), store);
    store.end_turn();
    while let Some(e) = store.poll_event() {
        pgs.store_event(e, at(60_000), store);
    }
    while let Some(o) = pgs.poll_output() {
        if let Output::Reply(to, r) = o {
            assert_eq!((to, r.tid), (s.id, tid));
            return (r.result, r.user_version);
        }
    }
    panic!("no answer");
}

/// A client with rights on the same pool, even in another namespace, must not use another client's reqid.
/// Otherwise that client's next operation would be answered as done.
#[test]
fn a_client_cannot_use_another_clients_reqids() {
    let (maps, mut pgs, mut store) = serving();
    let victim = session_with(4, "client.v", "allow rw");
    let write = |tid, oid: &[u8], nspace: &[u8]| {
        let data = OsdOp::with_extent(OpCode::WRITEFULL, 0, 1, b"x".to_vec().into());
        let mut m = write(tid, 1, maps.now.epoch.0, 1);
        m.oid = oid.to_vec().into();
        m.locator.nspace = nspace.to_vec().into();
        m.ops = [data].into_iter().collect();
        m
    };
    let evil = session_with(5, "client.e", "allow rw namespace=e");
    let mut forged = write(77, b"bait", b"e");
    forged.reqid = base::ReqId { name: victim.entity, tid: 2, inc: 0 };
    let (result, first) = done(&mut pgs, &mut store, &evil, forged);
    assert_eq!(result, 0, "it is an operation of its own");
    let (result, second) = done(&mut pgs, &mut store, &victim, write(2, b"o", b""));
    assert!(result == 0 && second > first, "{second} after {first}: the victim's is carried out");
    let stat = OsdOp { op: OpCode::STAT, ..OsdOp::default() };
    let mut read = write(3, b"o", b"");
    (read.ops, read.flags) = ([stat].into_iter().collect(), msg_flags::READ);
    assert_eq!(done(&mut pgs, &mut store, &victim, read).0, 0, "the object is there");
    // An OSD may do so for a client.
    let (name, kind) = (base::AuthName::parse("osd.3").unwrap(), base::EntityKind::OSD);
    let mut osd = (*session_with(6, "osd.3", "allow *")).clone();
    (osd.principal.name, osd.principal.kind) = (name, kind);
    let mut proxied = write(9, b"o", b"");
    proxied.reqid = base::ReqId { name: victim.entity, tid: 2, inc: 0 };
    assert_eq!(done(&mut pgs, &mut store, &Arc::new(osd), proxied), (0, second), "it is the one that was done");
}

/// Class calls on large omaps in several PGs: each turn runs one part, whatever the number of calls.
#[test]
fn long_calls_of_all_pgs_share_the_turns() {
    const PGS: u32 = 4;
    const IMAGES: usize = 1000;
    let mut maps = Maps::new(1, 1, PGS);
    let (mut store, mut pgs) = (MemStore::new(), empty(OsdId(0)));
    pgs.handle_maps(&[Arc::new(maps.now.clone())], maps.feed(), at(0), &mut store);
    let create = |seed| PgCreate { pgid: PgId::new(1, seed).into(), stamp: Default::default(), extra: None };
    pgs.create(&[0, 1, 2, 3].map(create), at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    let alive = maps.next(|i| i.new_up_thru = [(OsdId(0), Epoch(2))].into());
    pgs.handle_maps(&[alive], maps.feed(), at(20_002), &mut store);
    settle(&mut pgs, &mut store, 20_002);
    assert!(pgs.iter().all(pg::Pg::is_active));
    let client = session_with(1, "client.a", "allow *");
    let op = |tid: u64, seed: u32, ops: Vec<OsdOp>| {
        let mut m = write(tid, 1, maps.now.epoch.0, 1);
        (m.pgid, m.hash, m.ops) = (PgId::new(1, seed).into(), seed, ops.into_iter().collect());
        m
    };
    let image = {
        let mut w = wire::Writer::new(Features::PACIFIC);
        w.versioned(2, 1, |w| {
            w.blob(b"global");
            w.u8(1);
            w.u8(1);
        });
        w.into_bytes()
    };
    let all: std::collections::BTreeMap<bytes::Bytes, bytes::Bytes> =
        (0..IMAGES).map(|i| (format!("image_{i:06}").into(), image.clone())).collect();
    let set = OsdOp::with_indata(OpCode::OMAPSETVALS, wire::Encode::to_bytes(&all, Features::PACIFIC));
    for seed in 0..PGS {
        pgs.op(&client, op(u64::from(seed), seed, vec![set.clone()]), at(40_000), &mut store);
    }
    settle(&mut pgs, &mut store, 40_000);

    let summary = OsdOp::call("rbd", "mirror_image_status_get_summary", b"");
    let calls: u32 = 3 * PGS;
    for n in 0..calls {
        let mut m = op(100 + u64::from(n), n % PGS, vec![summary.clone()]);
        m.flags = msg_flags::READ;
        pgs.op(&client, m, at(70_000), &mut store);
    }
    assert_eq!(answers(&mut pgs).0, [0; 0]);
    let room = cls::Room::default().entries;
    let (mut turns, mut results) = (0, Vec::new());
    while pgs.has_part() {
        let before = store.omap_rows;
        pgs.next_part(at(70_000), &mut store);
        // A list reads one entry more, to see whether it goes on.
        assert!(store.omap_rows - before <= room + 1, "{}", store.omap_rows - before);
        turns += 1;
        // Others are served in between.
        pgs.op(&client, op(1000 + turns, (turns % 4) as u32, vec![OsdOp::new(OpCode::STAT)]), at(70_000), &mut store);
        results.extend(answers(&mut pgs).0);
    }
    assert_eq!(turns as usize, calls as usize * (IMAGES.div_ceil(room) - 1));
    assert_eq!(results.len(), turns as usize + calls as usize);
}

/// Caps that name a class, or pools by a tag of their application, decide about each method by what it does.
#[test]
fn class_calls_need_the_rights_of_the_pool_that_its_tag_gives() {
    let (mut maps, mut pgs, mut store) = alone();
    let create = |pool| PgCreate { pgid: PgId::new(pool, 0).into(), stamp: Default::default(), extra: None };
    pgs.create(&[1, 2].map(create), at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    let tagged = |maps: &mut Maps, value: &str| {
        let mut p = (*maps.now.pools[&POOL]).clone();
        let tag = [("data".to_owned(), value.to_owned())].into();
        (p.application_metadata, p.last_change) = ([("cephfs".to_owned(), tag)].into(), maps.now.epoch.next());
        maps.next(|i| {
            i.new_pools.insert(POOL, p);
            i.new_up_thru = [(OsdId(0), Epoch(3))].into();
        })
    };
    let map = tagged(&mut maps, "files");
    pgs.handle_maps(&[map], maps.feed(), at(20_002), &mut store);
    settle(&mut pgs, &mut store, 20_002);
    assert!(pgs.iter().all(pg::Pg::is_active));

    let mut tid = 0;
    let mut ask = |pgs: &mut Pgs, store: &mut MemStore, epoch: Epoch, caps: &str, pool: i64, method: &str| {
        tid += 1;
        let mut m = write(tid, pool, epoch.0, pool);
        let (class, method) = method.split_once('.').unwrap();
        m.ops = [OsdOp::call(class, method, b"")].into_iter().collect();
        pgs.op(&session_with(tid, "client.a", caps), m, at(50_000), store);
        for ms in [50_000, 50_001] {
            store.end_turn();
            while let Some(e) = store.poll_event() {
                pgs.store_event(e, at(ms), store);
            }
        }
        let (results, ..) = answers(pgs);
        assert_eq!(results.len(), 1, "{caps}, pool {pool}, {method}: {results:?}");
        results[0] != EPERM
    };
    let epoch = maps.now.epoch;
    // A method that writes, and one that reads.
    let (writes, reads) = ("hello.record_hello", "hello.say_hello");
    for (caps, may_write, may_read) in [
        ("allow rwx tag cephfs data=files", true, true),
        ("allow rwx tag cephfs data=*", true, true),
        ("allow rwx tag cephfs *=*", true, true),
        ("allow rwx tag cephfs data=other", false, false),
        ("allow rwx tag rbd data=files", false, false),
        ("allow rw tag cephfs data=files", false, false),
        ("allow class-read tag cephfs data=files", false, true),
        ("allow class-write tag cephfs data=files", true, false),
        ("allow tag cephfs data=files class hello", true, true),
        ("allow tag cephfs data=files class hello say_hello", false, true),
        ("allow tag cephfs data=files class lock", false, false),
    ] {
        let got = [writes, reads].map(|m| ask(&mut pgs, &mut store, epoch, caps, 1, m));
        assert_eq!(got, [may_write, may_read], "{caps}");
        let other = [writes, reads].map(|m| ask(&mut pgs, &mut store, epoch, caps, 2, m));
        assert_eq!(other, [false, false], "{caps}, on a pool without the tag");
    }
    // The map that changes the tag changes the rights.
    let caps = "allow rwx tag cephfs data=files";
    let map = tagged(&mut maps, "other");
    pgs.handle_maps(&[map], maps.feed(), at(60_000), &mut store);
    settle(&mut pgs, &mut store, 60_000);
    assert!(!ask(&mut pgs, &mut store, maps.now.epoch, caps, 1, writes));
}
