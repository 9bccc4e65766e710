//! CPU time of the PG machine alone, for 4 KiB reads and writes over a store without I/O.
//!
//! `cargo run --release -p belemnite-pg --example op_cost [WRITES [READS]]`

use base::{EntityAddr, EntityKind, EntityName, Epoch, Eversion, Now, OsdId, PgId, PoolId, SnapId, SpgId, Utime};
use bytes::Bytes;
use pg::map::{AllUp, Mapping, NoBlocklist};
use pg::{CreateInfo, Effect, Event, MapView, OpRequest, Pg, PgConfig, PoolView, SessionId};
use std::collections::VecDeque;
use std::rc::Rc;
use store::api::OmapPage;
use store::{Cid, ObjectStat, ObjectStore, Oid, Op, ReadError, Statfs, Tag, Transaction};
use wire::msg::{MOsdOp, OpCode, OpVec, OsdOp, msg_flags};
use wire::types::{ObjectLocator, SnapContext};

/// A store that keeps only object infos.
#[derive(Default)]
struct Nothing {
    infos: std::collections::HashMap<Oid, Bytes>,
    events: VecDeque<store::Event>,
    data: Bytes,
}

type Read<T> = Result<T, ReadError>;

impl ObjectStore for Nothing {
    fn collections(&self) -> Vec<(Cid, u32)> {
        Vec::new()
    }
    fn stat(&mut self, _: Tag, _: Cid, _: &Oid) -> Read<ObjectStat> {
        Ok(ObjectStat::default())
    }
    fn read(&mut self, _: Tag, _: Cid, _: &Oid, _: u64, len: u64) -> Read<Bytes> {
        Ok(self.data.slice(..len as usize))
    }
    fn extents(&mut self, _: Tag, _: Cid, _: &Oid, off: u64, len: u64) -> Read<Vec<(u64, u64)>> {
        Ok(vec![(off, len)])
    }
    fn attr(&mut self, _: Tag, _: Cid, oid: &Oid, _: &[u8]) -> Read<Option<Bytes>> {
        self.infos.get(oid).cloned().map(Some).ok_or(ReadError::NoObject)
    }
    fn attrs(&mut self, _: Tag, _: Cid, _: &Oid) -> Read<Vec<(Bytes, Bytes)>> {
        Ok(Vec::new())
    }
    fn omap_header(&mut self, _: Tag, _: Cid, _: &Oid) -> Read<Bytes> {
        Ok(Bytes::new())
    }
    fn omap_get(&mut self, _: Tag, _: Cid, _: &Oid, _: &[u8]) -> Read<Option<Bytes>> {
        Ok(None)
    }
    fn omap_range(&mut self, _: Tag, _: Cid, _: &Oid, _: &[u8], _: bool, _: usize, _: usize) -> Read<OmapPage> {
        Ok(OmapPage::default())
    }
    fn list(&mut self, _: Tag, _: Cid, _: &Oid, _: Option<&Oid>, _: usize) -> Read<(Vec<Oid>, Option<Oid>)> {
        Ok((Vec::new(), None))
    }
    fn log_entries(&mut self, _: Tag, _: Cid, _: Eversion) -> Read<Vec<(Eversion, Bytes)>> {
        Ok(Vec::new())
    }
    fn kept(&mut self, _: Tag, _: Cid, _: &Oid, _: Eversion) -> Read<bool> {
        Ok(false)
    }
    fn pg_info(&mut self, _: Tag, _: Cid) -> Read<Option<Bytes>> {
        Ok(None)
    }
    fn prepare(&mut self, _: Tag, _: &Transaction) -> Read<()> {
        Ok(())
    }
    fn submit(&mut self, tag: Tag, txn: Transaction) {
        if self.infos.len() < 256 {
            for op in txn.ops {
                if let Op::SetAttrs { oid, attrs, .. } = op
                    && let Some((_, v)) = attrs.into_iter().find(|(k, _)| &k[..] == b"_")
                {
                    self.infos.insert(oid, v);
                }
            }
        }
        self.events.push_back(store::Event::Durable(tag, Ok(())));
    }
    fn release(&mut self, _: Tag) {}
    fn poll_event(&mut self) -> Option<store::Event> {
        self.events.pop_front()
    }
    fn statfs(&self) -> Statfs {
        Statfs::default()
    }
    fn beside(&self, _: Cid, _: Cid) -> bool {
        true
    }
    fn collection_usage(&self, _: Cid) -> (u64, u64, u64) {
        (0, 0, 0)
    }
}

/// CPU time of this thread, so that other load on the machine does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0)
}

/// Request `tid`: a read of 4 KiB, or a write of `write`, at place `i` of the images' objects.
fn request(spg: SpgId, tid: u64, i: u64, write: Option<&Bytes>, names: &[Bytes], now: Now) -> Box<OpRequest> {
    let code = if write.is_some() { OpCode::WRITE } else { OpCode::READ };
    let data = write.cloned().unwrap_or_default();
    let off = (i * 4096) % (4 << 20);
    let mut ops = OpVec::new();
    ops.push(OsdOp::with_extent(code, off, 4096, data));
    Box::new(OpRequest {
        owner: 0,
        session: SessionId(1),
        client: EntityName::new(EntityKind::CLIENT, 4100),
        addr: EntityAddr::default(),
        features: 0,
        received: now,
        ledger: base::ledger::Ledger::begin(now.mono, now.wall, base::Utime::ZERO),
        msg: Box::new(MOsdOp {
            tid,
            pgid: spg,
            hash: (i as u32).wrapping_mul(0x9e37_79b9) & 255,
            osdmap_epoch: Epoch(9),
            flags: if write.is_some() { msg_flags::WRITE } else { msg_flags::READ },
            mtime: Utime { sec: 5, nsec: 0 },
            locator: ObjectLocator::new(PoolId(3)),
            oid: names[(i % 256) as usize].clone(),
            ops,
            snapid: SnapId::HEAD,
            snapc: SnapContext::default(),
            ..MOsdOp::default()
        }),
    })
}

fn main() {
    let cfg = PgConfig { spg: PgId::new(3, 0).into(), whoami: OsdId(0), index: 1, seed: 7 };
    let now = Now { wall: Utime { sec: 1, nsec: 0 }, ..Now::default() };
    let mut store = Nothing { data: vec![1; 4096].into(), ..Nothing::default() };
    let mut out = Vec::new();
    let mut pg = Pg::create(cfg, CreateInfo::default(), now, &mut store, &mut out);
    let me = OsdId(0);
    let pool = PoolView { id: PoolId(3), size: 1, min_size: 1, pg_num: 1, ..PoolView::default() };
    pg.handle(
        Event::Map(MapView {
            epoch: Epoch(9),
            flags: 0,
            pool: Some(Rc::new(pool)),
            mapping: Mapping { up: vec![me], up_primary: me, acting: vec![me], acting_primary: me },
            up_thru: Epoch(9),
            up_from: Epoch(1),
            since: Epoch(0),
            osds: Rc::new(AllUp),
            blocklist: Rc::new(NoBlocklist),
        }),
        now,
        &mut store,
        &mut out,
    );
    while let Some(e) = store.poll_event() {
        pg.handle(Event::Store(e), now, &mut store, &mut out);
    }
    assert!(pg.is_active());
    let names: Vec<Bytes> = (0..256).map(|i| format!("rbd_data.10226b8b4567.{i:016x}").into()).collect();
    let payload: Bytes = vec![2; 4096].into();
    let mut tid = 0;
    let mut run = |what: &str, n: u64, write: bool, pg: &mut Pg, store: &mut Nothing| {
        let mut replies = 0;
        let start = cpu_ns();
        for i in 0..n {
            tid += 1;
            let req = request(cfg.spg, tid, i, if write { Some(&payload) } else { None }, &names, now);
            pg.handle(Event::Op(req), now, store, &mut out);
            while let Some(e) = store.poll_event() {
                pg.handle(Event::Store(e), now, store, &mut out);
            }
            replies += out.iter().filter(|e| matches!(e, Effect::Reply(_, r) if r.result >= 0)).count();
            out.clear();
        }
        assert_eq!(replies as u64, n);
        println!("{what}: {} ns of CPU per operation, making the request included", (cpu_ns() - start) / n.max(1));
    };
    run("first writes", 256, true, &mut pg, &mut store);
    let arg = |i| std::env::args().nth(i).map_or(400_000, |n| n.parse().expect("a number of operations"));
    run("4 KiB write", arg(1), true, &mut pg, &mut store);
    run("4 KiB read", arg(2), false, &mut pg, &mut store);
}
