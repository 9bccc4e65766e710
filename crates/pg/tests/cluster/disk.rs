//! A store whose newest transactions a power cut may take back, for the tests.

use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use pg::object::{OI_ATTR, SS_ATTR, SnapSet};
use std::collections::{BTreeSet, VecDeque};
use store::api::OmapPage;
use store::mem::MemStore;
use store::{Cid, Event, ObjectStat, ObjectStore, Oid, Op, ReadError, Statfs, Tag, Transaction};

type Read<T> = Result<T, ReadError>;

/// The store: reads see `live`, and a power cut leaves `safe`.
pub struct Disk {
    live: MemStore,
    safe: MemStore,
    pending: VecDeque<(Tag, Transaction)>,
    events: VecDeque<Event>,
    /// Objects whose data is unreadable.
    pub spoiled: BTreeSet<Oid>,
    /// Objects with unreadable metadata: they can only be removed.
    pub rotten: BTreeSet<Oid>,
    /// Most operations in one transaction.
    pub frame: usize,
    /// Most bytes of metadata in one transaction.
    pub metadata: usize,
    /// Ranges of objects' data that were read; `writes` has those that transactions wrote.
    pub reads: BTreeSet<(Oid, u64, u64)>,
    pub writes: Vec<(Oid, u64, u64)>,
    /// Transactions that were submitted.
    pub transactions: usize,
    /// Number of further parts of pushed objects for which the disk has space; `None`: no limit.
    pub room: Option<usize>,
    /// The disk has no space for any transaction.
    pub full: bool,
    /// The OSD wants no growing writes of clients.
    pub short: bool,
    /// The submitted transaction that takes most of a log frame, if wanted.
    pub largest: Option<Transaction>,
    /// Nothing becomes durable.
    pub stalled: bool,
    /// Every transaction first waits, as for a read from the disk, until [`Disk::go_on`].
    pub waits: bool,
    /// The plans that have waited so.
    pub waited: BTreeSet<Tag>,
    /// Tags that wait so.
    pub waiting: BTreeSet<Tag>,
    /// Most operations and attributes in a transaction without log entries and info, such as a part of a push.
    pub step: usize,
    /// Such transactions that were too large.
    pub divided: usize,
    /// A head that always has clones, and the number of states of the disk that had it as an object without them.
    pub watched: Option<(Cid, HObject)>,
    pub torn: usize,
    /// Log entries that were read.
    pub log_reads: usize,
}

/// Operations and attributes of a transaction, if it has neither log entries nor info.
fn step(t: &Transaction) -> Option<usize> {
    let other = |o: &Op| matches!(o, Op::LogAppend { .. } | Op::PgInfo { .. } | Op::MakeCollection { .. });
    let cost = |o: &Op| if let Op::SetAttrs { attrs, .. } = o { attrs.len() } else { 1 };
    (!t.ops.iter().any(other)).then(|| t.ops.iter().map(cost).sum())
}

/// True if a head has object info, but lacks its snapset or a clone.
fn is_torn(s: &mut MemStore, cid: Cid, head: &HObject) -> bool {
    let (tag, of) = (Tag(u64::MAX - 3), Oid::new(head.clone()));
    if !matches!(s.attr(tag, cid, &of, OI_ATTR), Ok(Some(_))) {
        return false;
    }
    let Ok(Some(snaps)) = s.attr(tag, cid, &of, SS_ATTR) else { return true };
    let snaps = SnapSet::from_attr(&snaps).unwrap();
    snaps.clones.is_empty()
        || snaps.clones.iter().any(|c| {
            let clone = Oid::new(head.at_snap(SnapId(c.id)));
            !matches!(s.attr(tag, cid, &clone, OI_ATTR), Ok(Some(_)))
        })
}

/// True for a part of a pushed object: it writes data and has no log entry.
fn is_part(t: &Transaction) -> bool {
    let logs = t.ops.iter().any(|o| matches!(o, Op::LogAppend { .. }));
    !logs && t.ops.iter().any(|o| matches!(o, Op::Write { .. }))
}

/// Bytes of metadata that a log frame holds of an operation.
fn metadata(op: &Op) -> usize {
    let pairs = |v: &[(Bytes, Bytes)]| v.iter().map(|(k, v)| k.len() + v.len() + 10).sum();
    match op {
        Op::SetAttrs { attrs, .. } => pairs(attrs),
        Op::OmapSet { entries, .. } => pairs(entries),
        Op::OmapRmKeys { keys, .. } => keys.iter().map(|k| k.len() + 10).sum(),
        Op::OmapSetHeader { header, .. } => header.len(),
        Op::LogAppend { entry, .. } => entry.len(),
        Op::PgInfo { info, .. } => info.len(),
        _ => 0,
    }
}

impl Disk {
    pub fn new(seed: u64) -> Self {
        let live = MemStore::new().with_waits(seed);
        Self {
            safe: MemStore::new(),
            live,
            pending: VecDeque::new(),
            events: VecDeque::new(),
            spoiled: BTreeSet::new(),
            rotten: BTreeSet::new(),
            frame: usize::MAX,
            metadata: usize::MAX,
            reads: BTreeSet::new(),
            writes: Vec::new(),
            transactions: 0,
            room: None,
            full: false,
            short: false,
            largest: None,
            stalled: false,
            waits: false,
            waited: BTreeSet::new(),
            waiting: BTreeSet::new(),
            step: usize::MAX,
            divided: 0,
            watched: None,
            torn: 0,
            log_reads: 0,
        }
    }

    /// An error if the object's metadata is unreadable.
    fn check(&self, o: &Oid) -> Read<()> {
        let bad = self.rotten.contains(o);
        if bad { Err(ReadError::Io { what: format!("{o:?}"), errno: base::errno::EIO }) } else { Ok(()) }
    }

    /// Number of transactions that are not durable.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Makes the oldest `n` transactions durable.
    pub fn sync(&mut self, n: usize) {
        for _ in 0..n {
            let Some((tag, t)) = self.pending.pop_front() else { return };
            self.safe.submit(tag, t);
            while self.safe.poll_event().is_some() {}
            if let Some((cid, head)) = &self.watched {
                self.torn += usize::from(is_torn(&mut self.safe, *cid, head));
            }
            self.events.push_back(Event::Durable(tag, Ok(())));
        }
    }

    /// Ends the waits of `waits`.
    pub fn go_on(&mut self) {
        self.waits = false;
        self.events.extend(std::mem::take(&mut self.waiting).into_iter().map(Event::Ready));
    }

    /// Cuts the power; the oldest `keep` transactions reached the disk without a durable event.
    pub fn power_cut(&mut self, keep: usize, seed: u64) {
        self.sync(keep);
        self.pending.clear();
        self.events.clear();
        self.waiting.clear();
        self.live = self.safe.clone().with_waits(seed);
    }
}

impl ObjectStore for Disk {
    fn frame_max(&self) -> usize {
        self.metadata
    }
    fn is_short(&self) -> bool {
        self.short
    }
    fn collections(&self) -> Vec<(Cid, u32)> {
        self.live.collections()
    }
    fn stat(&mut self, t: Tag, c: Cid, o: &Oid) -> Read<ObjectStat> {
        self.check(o)?;
        self.live.stat(t, c, o)
    }
    fn read(&mut self, t: Tag, c: Cid, o: &Oid, off: u64, len: u64) -> Read<Bytes> {
        self.check(o)?;
        let data = self.live.read(t, c, o, off, len)?;
        if self.spoiled.contains(o) {
            return Err(ReadError::Io { what: format!("{o:?}"), errno: base::errno::EIO });
        }
        // A parked plan reads the same range again.
        self.reads.insert((o.clone(), off, len));
        Ok(data)
    }
    fn extents(&mut self, t: Tag, c: Cid, o: &Oid, off: u64, len: u64) -> Read<Vec<(u64, u64)>> {
        self.live.extents(t, c, o, off, len)
    }
    fn attr(&mut self, t: Tag, c: Cid, o: &Oid, name: &[u8]) -> Read<Option<Bytes>> {
        self.check(o)?;
        self.live.attr(t, c, o, name)
    }
    fn attrs(&mut self, t: Tag, c: Cid, o: &Oid) -> Read<Vec<(Bytes, Bytes)>> {
        self.check(o)?;
        self.live.attrs(t, c, o)
    }
    fn omap_header(&mut self, t: Tag, c: Cid, o: &Oid) -> Read<Bytes> {
        self.live.omap_header(t, c, o)
    }
    fn omap_get(&mut self, t: Tag, c: Cid, o: &Oid, key: &[u8]) -> Read<Option<Bytes>> {
        self.live.omap_get(t, c, o, key)
    }
    fn omap_range(
        &mut self,
        t: Tag,
        c: Cid,
        o: &Oid,
        from: &[u8],
        after: bool,
        entries: usize,
        bytes: usize,
    ) -> Read<OmapPage> {
        // The PG's own objects have only omap.
        if o.hobj.oid.is_empty() && self.spoiled.contains(o) {
            return Err(ReadError::Io { what: format!("{o:?}"), errno: base::errno::EIO });
        }
        self.live.omap_range(t, c, o, from, after, entries, bytes)
    }
    fn list(&mut self, t: Tag, c: Cid, start: &Oid, end: Option<&Oid>, max: usize) -> Read<(Vec<Oid>, Option<Oid>)> {
        self.live.list(t, c, start, end, max)
    }
    fn log_entries(&mut self, t: Tag, c: Cid, after: Eversion) -> Read<Vec<(Eversion, Bytes)>> {
        let all = self.live.log_entries(t, c, after)?;
        self.log_reads += all.len();
        Ok(all)
    }
    fn kept(&mut self, t: Tag, c: Cid, o: &Oid, version: Eversion) -> Read<bool> {
        self.live.kept(t, c, o, version)
    }
    fn pg_info(&mut self, t: Tag, c: Cid) -> Read<Option<Bytes>> {
        self.live.pg_info(t, c)
    }
    fn prepare(&mut self, t: Tag, txn: &Transaction) -> Read<()> {
        if txn.ops.len() > self.frame {
            return Err(ReadError::Io { what: format!("{} operations", txn.ops.len()), errno: base::errno::E2BIG });
        }
        if let Some(n) = step(txn).filter(|n| *n > self.step) {
            self.divided += 1;
            return Err(ReadError::Io { what: format!("{n} steps"), errno: base::errno::E2BIG });
        }
        let metadata: usize = txn.ops.iter().map(metadata).sum();
        if metadata > self.metadata {
            return Err(ReadError::Io { what: format!("{metadata} bytes"), errno: base::errno::E2BIG });
        }
        if self.waits {
            self.waiting.insert(t);
            self.waited.insert(t);
            return Err(ReadError::Wait);
        }
        if self.full {
            return Err(ReadError::Io { what: "a transaction".into(), errno: base::errno::ENOSPC });
        }
        for (at, op) in txn.ops.iter().enumerate() {
            let gone = |o: &Oid| {
                let earlier = txn.ops.iter().take(at + 1);
                earlier.into_iter().any(|op| matches!(op, Op::Remove { oid, .. } if oid == o))
            };
            if let Some(o) = op.oid().filter(|o| !gone(o)) {
                self.check(o)?;
            }
        }
        if self.room == Some(0) && is_part(txn) {
            return Err(ReadError::Io { what: "a part of an object".into(), errno: base::errno::ENOSPC });
        }
        self.live.prepare(t, txn)
    }
    fn submit(&mut self, t: Tag, txn: Transaction) {
        self.transactions += 1;
        let bytes = |t: &Transaction| t.ops.iter().map(Op::frame_bytes).sum::<usize>();
        if self.largest.as_ref().is_some_and(|l| bytes(l) < bytes(&txn)) {
            self.largest = Some(txn.clone());
        }
        for op in &txn.ops {
            match op {
                Op::Remove { oid, .. } => {
                    self.spoiled.remove(oid);
                    self.rotten.remove(oid);
                }
                Op::Write { oid, off, data, .. } => self.writes.push((oid.clone(), *off, data.len() as u64)),
                _ => {}
            }
        }
        if let (Some(n), true) = (&mut self.room, is_part(&txn)) {
            *n = n.saturating_sub(1);
        }
        self.live.submit(t, txn.clone());
        self.pending.push_back((t, txn));
    }
    fn release(&mut self, t: Tag) {
        self.waiting.remove(&t);
        self.live.release(t);
    }
    fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.live.poll_event() {
                // `sync` makes transactions durable.
                Some(Event::Durable(..)) => {}
                Some(e) => return Some(e),
                None => return self.events.pop_front(),
            }
        }
    }
    fn statfs(&self) -> Statfs {
        self.live.statfs()
    }
    fn beside(&self, a: Cid, b: Cid) -> bool {
        self.live.beside(a, b)
    }
    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64) {
        self.live.collection_usage(cid)
    }
}
