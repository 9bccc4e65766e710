//! CPU time of the PG machine alone, for 4 KiB reads and writes over a store without I/O: of one copy, or of three
//! machines that hand each other their messages.
//!
//! `cargo run --release -p belemnite-pg --example op_cost [WRITES [READS [COPIES]]]`

use base::{EntityAddr, EntityKind, EntityName, Epoch, Eversion, Mono, Now, OsdId, PgId, PoolId, SnapId, SpgId, Utime};
use bytes::Bytes;
use pg::lease::{Held, LeaseUpdate, LeaseView};
use pg::map::{AllUp, Mapping, NoBlocklist};
use pg::peer::Orphan;
use pg::{CreateInfo, Effect, Event, Lane, MapView, OpRequest, Pg, PgConfig, PoolView, SessionId};
use std::collections::VecDeque;
use std::rc::Rc;
use store::api::OmapPage;
use store::{Cid, ObjectStat, ObjectStore, Oid, Op, ReadError, Statfs, Tag, Transaction};
use wire::msg::{MOsdOp, MPgPeer, OpCode, OpVec, OsdOp, msg_flags};
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

/// One OSD with its copy of the PG.
#[derive(Default)]
struct Node {
    pg: Option<Pg>,
    store: Nothing,
    leases: Rc<LeaseView>,
    out: Vec<Effect>,
}

/// The copies, and the messages between them: sender, receiver, message.
struct Copies {
    nodes: Vec<Node>,
    wire: VecDeque<(OsdId, OsdId, Box<MPgPeer>)>,
    now: Now,
    replies: u64,
}

impl Copies {
    /// The PG on `size` OSDs, active.
    fn new(spg: SpgId, size: u32) -> Self {
        let now = Now { wall: Utime { sec: 1, nsec: 0 }, ..Now::default() };
        let mut all = Self { nodes: Vec::new(), wire: VecDeque::new(), now, replies: 0 };
        for n in 0..size {
            let mut node =
                Node { store: Nothing { data: vec![1; 4096].into(), ..Nothing::default() }, ..Node::default() };
            for o in (0..size).filter(|o| *o != n) {
                let lease = Held { until: Mono(u64::MAX), epoch: Epoch(9) };
                node.leases.update(LeaseUpdate::Held(OsdId(o as i32), lease));
            }
            if n == 0 {
                let pg = Pg::create(config(spg, n), CreateInfo::default(), now, &mut node.store, &mut node.out);
                node.take(pg, size, now);
            }
            all.nodes.push(node);
        }
        all.carry_out();
        assert!(all.nodes[0].pg.as_ref().is_some_and(Pg::is_active));
        assert_eq!(all.nodes[0].pg.as_ref().unwrap().others().len() + 1, size as usize);
        all
    }

    /// Hands an operation to the primary, and everything that follows to its receiver.
    fn op(&mut self, req: Box<OpRequest>) {
        let Node { pg: Some(pg), store, out, .. } = &mut self.nodes[0] else { return };
        pg.handle(Event::Op(req), self.now, store, out);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        loop {
            let mut idle = true;
            for n in 0..self.nodes.len() {
                let Node { pg, store, out, .. } = &mut self.nodes[n];
                while let (Some(e), Some(pg)) = (store.poll_event(), pg.as_mut()) {
                    pg.handle(Event::Store(e), self.now, store, out);
                }
                out.extend(pg.as_mut().and_then(Pg::acknowledge));
                for e in out.drain(..) {
                    idle = false;
                    match e {
                        Effect::Reply(_, r) if r.result >= 0 => self.replies += 1,
                        Effect::Peer { to, msg, .. } => self.wire.push_back((OsdId(n as i32), to, msg)),
                        _ => {}
                    }
                }
            }
            while let Some((from, to, msg)) = self.wire.pop_front() {
                idle = false;
                let size = self.nodes.len() as u32;
                self.nodes[to.0 as usize].peer(from, to, msg, size, self.now);
            }
            if idle {
                return;
            }
        }
    }
}

impl Node {
    /// Takes over a new machine.
    fn take(&mut self, mut pg: Pg, size: u32, now: Now) {
        pg.use_leases(Rc::clone(&self.leases));
        pg.handle(Event::Map(view(size)), now, &mut self.store, &mut self.out);
        self.pg = Some(pg);
    }

    /// Handles a message of another OSD.
    fn peer(&mut self, from: OsdId, me: OsdId, msg: Box<MPgPeer>, size: u32, now: Now) {
        if self.pg.is_none() {
            match pg::peer::orphan(me, &view(size), from, &msg) {
                Orphan::Answer(msg) | Orphan::Ask(msg) => {
                    return self.out.push(Effect::Peer { to: from, lane: Lane::Data, msg });
                }
                Orphan::Create(theirs) => {
                    let cfg = config(msg.spg, me.0 as u32);
                    let (store, out) = (&mut self.store, &mut self.out);
                    let pg = Pg::adopt(cfg, CreateInfo::default(), &theirs, now, store, out);
                    self.take(pg, size, now);
                }
                Orphan::Ignore => {}
            }
        }
        let Some(pg) = &mut self.pg else { return };
        if !pg.handle_ack(from, &msg, now, &mut self.store, &mut self.out) {
            pg.handle(Event::Peer { from, msg }, now, &mut self.store, &mut self.out);
        }
    }
}

fn config(spg: SpgId, n: u32) -> PgConfig {
    PgConfig { spg, whoami: OsdId(n as i32), index: 1, seed: 7 }
}

/// The map with the first `size` OSDs.
fn view(size: u32) -> MapView {
    let osds: Vec<OsdId> = (0..size as i32).map(OsdId).collect();
    let pool = PoolView { id: PoolId(3), size, min_size: 1, pg_num: 1, ..PoolView::default() };
    let (up_primary, acting_primary) = (osds[0], osds[0]);
    MapView {
        epoch: Epoch(9),
        flags: 0,
        pool: Some(Rc::new(pool)),
        mapping: Mapping { up: osds.clone(), up_primary, acting: osds, acting_primary },
        up_thru: Epoch(9),
        up_from: Epoch(1),
        since: Epoch(0),
        osds: Rc::new(AllUp),
        blocklist: Rc::new(NoBlocklist),
    }
}

fn main() {
    let arg = |i, default| std::env::args().nth(i).map_or(default, |n| n.parse().expect("a number"));
    let spg: SpgId = PgId::new(3, 0).into();
    let mut copies = Copies::new(spg, arg(3, 1) as u32);
    let now = copies.now;
    let names: Vec<Bytes> = (0..256).map(|i| format!("rbd_data.10226b8b4567.{i:016x}").into()).collect();
    let payload: Bytes = vec![2; 4096].into();
    let mut tid = 0;
    let mut run = |what: &str, n: u64, write: bool| {
        let start = cpu_ns();
        copies.replies = 0;
        for i in 0..n {
            tid += 1;
            copies.op(request(spg, tid, i, write.then_some(&payload), &names, now));
        }
        assert_eq!(copies.replies, n);
        println!("{what}: {} ns of CPU per operation, making the request included", (cpu_ns() - start) / n.max(1));
    };
    run("first writes", 256, true);
    run("4 KiB write", arg(1, 400_000), true);
    run("4 KiB read", arg(2, 400_000), false);
}
