//! An RBD image as its header describes it, and operations on it: class calls on the objects that librbd keeps.

use super::snap;
use base::errno::{EBUSY, EIO, EMLINK, ENOENT, EOPNOTSUPP, EPERM, ESTALE, Errno};
use base::{EntityAddr, PoolId, SnapId, Utime};
use bytes::Bytes;
use client::host::{Client, ClientError, ObjectRef};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::msg::{OpCode, OsdOp};
use wire::types::{ListWatchersReply, ObjectLocator, SnapContext};
use wire::{Decode, Features, Reader, Writer};

/// Snapshot id of the head.
pub(super) const NOSNAP: u64 = u64::MAX - 1;
/// Namespaces per request.
const NAMESPACES_PAGE: u64 = 1024;
/// Most namespaces of a pool that are read.
const NAMESPACES_MAX: usize = 65_536;
/// Deepest chain of parents that is read through (librbd's limit).
const PARENTS_MAX: u32 = 16;
/// Largest supported object order: 64 MiB.
const ORDER_MAX: u8 = 26;
/// Largest accepted stripe count.
const STRIPES_MAX: u64 = 1 << 20;
/// The length of a copied-up object is rounded up to a multiple of this.
const COPY_UP_UNIT: usize = 4096;
/// Name of the exclusive lock on an image header.
const LOCK: &[u8] = b"rbd_lock";
/// Most journal objects that are removed; a trimmed journal has fewer.
const JOURNAL_OBJECTS_MAX: u64 = 1 << 20;
/// Lock tag of librbd's internal lockers.
const TAG: &[u8] = b"internal";
/// Prefix of the manager's lock cookies.
pub(super) const COOKIE: &str = "manager ";
/// `WATCH_NOTIFY` payload: the header was updated.
const HEADER_UPDATE: u32 = 3;
/// Time limit for watchers to acknowledge, in seconds.
const NOTIFY_SECONDS: u32 = 5;

/// Feature bits of images.
pub(super) mod feature {
    pub(in super::super) const STRIPING: u64 = 2;
    pub(in super::super) const EXCLUSIVE_LOCK: u64 = 4;
    pub(in super::super) const OBJECT_MAP: u64 = 8;
    pub(in super::super) const FAST_DIFF: u64 = 16;
    pub(in super::super) const DEEP_FLATTEN: u64 = 32;
    pub(in super::super) const JOURNALING: u64 = 64;
    pub(in super::super) const DATA_POOL: u64 = 128;
    pub(in super::super) const OPERATIONS: u64 = 256;
    pub(in super::super) const MIGRATING: u64 = 512;
    pub(in super::super) const NON_PRIMARY: u64 = 1024;
}
/// Operation feature: the image is a clone of format 2.
const CLONE_CHILD: u64 = 2;
/// Object map state: the object exists.
const EXISTS: u8 = 1;
/// Object map state: the object exists and is unchanged since the previous snapshot.
const EXISTS_CLEAN: u8 = 3;

/// Result of a step.
pub(super) type Step<T> = Result<T, Errno>;

/// A pool and one of its namespaces, with a client.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) pool: PoolId,
    pub(super) nspace: Bytes,
}

/// Encodes input.
pub(super) fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

fn text(s: &str) -> Bytes {
    enc(|w| w.blob(s.as_bytes()))
}

pub(super) fn failed(e: ClientError) -> Errno {
    match e {
        ClientError::Errno(e) => e,
        ClientError::NoPool(_) => ENOENT,
        _ => base::errno::EIO,
    }
}

impl Place {
    pub(super) fn object(&self, name: &str) -> ObjectRef {
        let mut o = ObjectRef::new(self.pool, name);
        o.locator = ObjectLocator { nspace: self.nspace.clone(), ..o.locator };
        o
    }

    /// Runs one operation on an object, at a snapshot if it reads one.
    pub(super) async fn op(&self, o: &ObjectRef, op: OsdOp, snap: SnapId) -> Step<Bytes> {
        let r = self.client.op_at(o, vec![op], snap).await.map_err(failed)?;
        if r.result < 0 { Err(r.result) } else { Ok(r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default()) }
    }

    /// Runs write operations on an object with the snapshot context `snaps`, newest first.
    pub(super) async fn write(&self, o: &ObjectRef, ops: Vec<OsdOp>, snaps: &[u64]) -> Step<()> {
        let snaps: Vec<SnapId> = snaps.iter().map(|s| SnapId(*s)).collect();
        let snapc = SnapContext { seq: snaps.first().copied().unwrap_or(SnapId(0)), snaps };
        let r = self.client.op_in(o, ops, snapc).await.map_err(failed)?;
        if r.result < 0 { Err(r.result) } else { Ok(()) }
    }

    pub(super) async fn call(&self, name: &str, class: &str, method: &str, input: Bytes) -> Step<Bytes> {
        self.op(&self.object(name), OsdOp::call(class, method, &input), SnapId::HEAD).await
    }

    pub(super) async fn rbd(&self, name: &str, method: &str, input: Bytes) -> Step<Bytes> {
        self.call(name, "rbd", method, input).await
    }

    pub(super) async fn rbd_as<T: Decode>(&self, name: &str, method: &str, input: Bytes) -> Step<T> {
        let b = self.rbd(name, method, input).await?;
        T::decode(&mut Reader::shared(&b)).map_err(|_| base::errno::EIO)
    }

    /// The pool's namespaces, the default namespace first.
    pub(super) async fn namespaces(&self) -> Step<Vec<String>> {
        let mut all = vec![String::new()];
        loop {
            let after = all.last().cloned().unwrap_or_default();
            let input = enc(|w| {
                w.blob(after.as_bytes());
                w.u64(NAMESPACES_PAGE);
            });
            let page: Vec<Bytes> = match self.rbd_as("rbd_namespace", "namespace_list", input).await {
                Err(ENOENT) => return Ok(all),
                r => r?,
            };
            let full = page.len() as u64 >= NAMESPACES_PAGE && all.len() < NAMESPACES_MAX;
            all.extend(page.iter().map(|n| String::from_utf8_lossy(n).into_owned()));
            if !full {
                return Ok(all);
            }
        }
    }

    /// Removes an object, which may not exist.
    pub(super) async fn delete(&self, name: &str) -> Step<()> {
        absent_is_fine(self.op(&self.object(name), OsdOp::new(OpCode::DELETE), SnapId::HEAD).await)
    }

    /// The id of an image by its name.
    pub(super) async fn image_id(&self, name: &str) -> Step<String> {
        let id: Bytes = self.rbd_as(&format!("rbd_id.{name}"), "get_id", Bytes::new()).await?;
        Ok(String::from_utf8_lossy(&id).into_owned())
    }

    /// True if the trash holds an image of this id.
    pub(super) async fn in_trash(&self, id: &str) -> Step<bool> {
        match self.rbd("rbd_trash", "trash_get", text(id)).await {
            Ok(_) => Ok(true),
            Err(ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

pub(super) fn absent_is_fine(r: Step<Bytes>) -> Step<()> {
    match r {
        Ok(_) | Err(ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Clones in a reply of `children_list`: pool, namespace and id.
fn children(answer: &Bytes) -> Step<Vec<(PoolId, Bytes, String)>> {
    let all = Reader::shared(answer).vec_with("children", |r| {
        r.versioned("ChildImageSpec", 2, |r, _| {
            let (pool, id) = (PoolId(r.i64()?), r.blob()?);
            Ok((pool, r.blob()?, String::from_utf8_lossy(&id).into_owned()))
        })
    });
    all.map_err(|_| EIO)
}

/// Parent snapshot of a cloned image.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) pool: PoolId,
    pub(super) nspace: Bytes,
    pub(super) id: String,
    pub(super) snap: u64,
    /// Bytes of the child that may read from the parent.
    pub(super) overlap: u64,
}

impl Parent {
    /// Pool and namespace of the parent.
    fn place(&self, child: &Place) -> Place {
        Place { client: child.client.clone(), pool: self.pool, nspace: self.nspace.clone() }
    }

    /// A snapshot of an image as a parent.
    pub(super) fn snapshot(image: &Image, snap: u64) -> Self {
        let (pool, nspace) = (image.place.pool, image.place.nspace.clone());
        Self { pool, nspace, id: image.id.clone(), snap, overlap: 0 }
    }

    /// True if both are the same snapshot.
    pub(super) fn is(&self, o: &Self) -> bool {
        (self.pool, &self.nspace, &self.id, self.snap) == (o.pool, &o.nspace, &o.id, o.snap)
    }
}

/// Striping of an image over its data objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripes {
    pub(super) object: u64,
    pub(super) unit: u64,
    count: u64,
}

impl Stripes {
    /// Striping from the object order and the header's stripe unit and count, if it has them.
    fn new(order: u8, fancy: Option<(u64, u64)>) -> Step<Self> {
        if order > ORDER_MAX {
            return Err(EOPNOTSUPP);
        }
        let object = 1u64 << order;
        let (unit, count) = fancy.unwrap_or((object, 1));
        let s = if count == 1 { Self { object, unit: object, count } } else { Self { object, unit, count } };
        let fits = unit > 0 && object.is_multiple_of(unit) && (1..=STRIPES_MAX).contains(&count);
        if fits { Ok(s) } else { Err(EIO) }
    }

    /// Number of data objects of an image of `bytes` bytes.
    pub(super) fn objects(&self, bytes: u64) -> u64 {
        let set = self.object * self.count;
        let rest = bytes % set;
        (bytes / set) * self.count + rest.div_ceil(self.unit).min(self.count)
    }

    /// Location of a byte of the image: object number, offset in it, and contiguous bytes from there.
    pub(super) fn find(&self, at: u64) -> (u64, u64, u64) {
        let (unit, within) = (at / self.unit, at % self.unit);
        let (stripe, column) = (unit / self.count, unit % self.count);
        let per_object = self.object / self.unit;
        let (set, row) = (stripe / per_object, stripe % per_object);
        (set * self.count + column, row * self.unit + within, self.unit - within)
    }

    /// Positions in the image of the stripe units of object `n`, in the order of the object.
    pub(super) fn pieces(&self, n: u64) -> impl Iterator<Item = u64> + use<> {
        let Self { object, unit, count } = *self;
        let (set, column) = (n / count, n % count);
        let per_object = object / unit;
        (0..per_object).map(move |row| ((set * per_object + row) * count + column) * unit)
    }
}

/// True for the prefix that an image of this id gets for its data. The header is written by clients, which may have no
/// right to what another prefix or pool would make the manager remove.
fn is_own_prefix(prefix: &[u8], place: PoolId, data: PoolId, id: &str) -> bool {
    let is = |own: String| prefix == own.as_bytes();
    is(format!("rbd_data.{}.{id}", place.0)) || place == data && is(format!("rbd_data.{id}"))
}

/// Links to parents in other pools or namespaces that the parents confirm.
type Links = Rc<RefCell<BTreeSet<(PoolId, Bytes, String, PoolId, Bytes, String, u64)>>>;

/// An open image.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) place: Place,
    pub(super) id: String,
    size: u64,
    pub(super) features: u64,
    op_features: u64,
    prefix: String,
    pub(super) data: Place,
    /// Ids of the snapshots, newest first.
    pub(super) snaps: Vec<u64>,
    pub(super) stripes: Stripes,
    pub(super) parent: Option<Parent>,
    links: Links,
}

impl Image {
    /// Reads the header at a snapshot, or the head for `None`. `EPERM` if it claims data that is not the image's.
    pub(super) async fn open(place: &Place, id: &str, snap: Option<u64>) -> Step<Self> {
        let at = snap.unwrap_or(NOSNAP);
        let header = format!("rbd_header.{id}");
        let (order, size): (u8, u64) = place.rbd_as(&header, "get_size", enc(|w| w.u64(at))).await?;
        let input = enc(|w| {
            w.u64(NOSNAP);
            w.u8(1);
        });
        let (features, _): (u64, u64) = place.rbd_as(&header, "get_features", input).await?;
        let prefix: Bytes = place.rbd_as(&header, "get_object_prefix", Bytes::new()).await?;
        let (_, snaps): (u64, Vec<u64>) = place.rbd_as(&header, "get_snapcontext", Bytes::new()).await?;
        let mut data = place.clone();
        if features & feature::DATA_POOL != 0 {
            data.pool = PoolId(place.rbd_as::<i64>(&header, "get_data_pool", Bytes::new()).await?);
        }
        if !is_own_prefix(&prefix, place.pool, data.pool, id) {
            return Err(EPERM);
        }
        let mut fancy = None;
        if features & feature::STRIPING != 0 {
            fancy = Some(place.rbd_as(&header, "get_stripe_unit_count", Bytes::new()).await?);
        }
        let stripes = Stripes::new(order, fancy)?;
        let mut op_features = 0;
        if features & feature::OPERATIONS != 0 {
            op_features = place.rbd_as(&header, "op_features_get", Bytes::new()).await?;
        }
        let b = place.rbd(&header, "parent_get", Bytes::new()).await?;
        let spec = Reader::shared(&b)
            .versioned("ParentImageSpec", 1, |r, _| Ok((r.i64()?, r.blob()?, r.blob()?, r.u64()?)))
            .map_err(|_| base::errno::EIO)?;
        let overlap: Option<u64> = place.rbd_as(&header, "parent_overlap_get", enc(|w| w.u64(at))).await?;
        let parent = overlap.filter(|_| spec.0 >= 0).map(|overlap| Parent {
            pool: PoolId(spec.0),
            nspace: spec.1,
            id: String::from_utf8_lossy(&spec.2).into_owned(),
            snap: spec.3,
            overlap,
        });
        Ok(Self {
            place: place.clone(),
            id: id.to_owned(),
            size,
            features,
            op_features,
            prefix: String::from_utf8_lossy(&prefix).into_owned(),
            data,
            snaps,
            stripes,
            parent,
            links: Links::default(),
        })
    }

    pub(super) fn header(&self) -> String {
        format!("rbd_header.{}", self.id)
    }

    pub(super) fn data_object(&self, n: u64) -> String {
        format!("{}.{n:016x}", self.prefix)
    }

    /// True if data object `n` exists as of `snap`.
    pub(super) async fn has_object(&self, n: u64, snap: Option<u64>) -> Step<bool> {
        let o = self.data.object(&self.data_object(n));
        match self.data.op(&o, OsdOp::new(OpCode::STAT), snap.map_or(SnapId::HEAD, SnapId)).await {
            Ok(_) => Ok(true),
            Err(ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Marks object `n` as existing in the object map of the head or a snapshot. `clean`: it is unchanged since the
    /// previous snapshot.
    pub(super) async fn map_exists(&self, n: u64, snap: Option<u64>, clean: bool) -> Step<()> {
        if self.features & feature::OBJECT_MAP == 0 {
            return Ok(());
        }
        let clean = clean && self.features & feature::FAST_DIFF != 0;
        let input = enc(|w| {
            w.u64(n);
            w.u64(n + 1);
            w.u8(if clean { EXISTS_CLEAN } else { EXISTS });
            w.u8(0);
        });
        absent_is_fine(self.place.rbd(&snap::map_name(&self.id, snap), "object_map_update", input).await)
    }

    /// Number of data objects of an image of `bytes` bytes.
    pub(super) fn objects(&self, bytes: u64) -> u64 {
        self.stripes.objects(bytes)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// True if the image has snapshots.
    pub(super) fn has_snapshots(&self) -> bool {
        !self.snaps.is_empty()
    }

    /// True if the image is the source or destination of a migration.
    pub(super) fn is_migrating(&self) -> bool {
        self.features & feature::MIGRATING != 0
    }

    /// True if the image has journaling enabled, so that a change must be recorded in the journal.
    pub(super) fn is_journaled(&self) -> bool {
        self.features & feature::JOURNALING != 0
    }

    /// Addresses of the watchers of an object.
    async fn watchers(&self, name: &str) -> Step<Vec<EntityAddr>> {
        let b = match self.place.op(&self.place.object(name), OsdOp::new(OpCode::LIST_WATCHERS), SnapId::HEAD).await {
            Err(ENOENT) => return Ok(Vec::new()),
            r => r?,
        };
        let all: ListWatchersReply = Reader::shared(&b).get().map_err(|_| EIO)?;
        Ok(all.entries.into_iter().map(|w| w.addr).collect())
    }

    /// Fails if a client has the image open, other than to mirror it.
    pub(super) async fn check_closed(&self) -> Step<()> {
        let watchers = self.watchers(&self.header()).await?;
        if watchers.is_empty() {
            return Ok(());
        }
        let mirroring = self.watchers("rbd_mirroring").await?;
        if watchers.iter().all(|w| mirroring.contains(w)) { Ok(()) } else { Err(EBUSY) }
    }

    /// Fails if a client has the image open or if it belongs to a group.
    pub(super) async fn check_unused(&self) -> Step<()> {
        self.check_closed().await?;
        let b = self.place.rbd(&self.header(), "image_group_get", Bytes::new()).await?;
        let group = Reader::shared(&b).versioned("GroupSpec", 1, |r, _| r.i64());
        if group.map_err(|_| base::errno::EIO)? >= 0 { Err(EMLINK) } else { Ok(()) }
    }

    /// Takes the exclusive lock, if the image has that feature. The lock of an earlier manager task is broken.
    pub(super) async fn lock(&self, cookie: &str) -> Step<()> {
        if self.features & feature::EXCLUSIVE_LOCK == 0 {
            return Ok(());
        }
        let input = enc(|w| {
            w.versioned(1, 1, |w| {
                w.blob(LOCK);
                w.u8(1);
                w.blob(cookie.as_bytes());
                w.blob(TAG);
                w.blob(b"");
                w.put(&Utime::ZERO);
                w.u8(0);
            });
        });
        match self.place.call(&self.header(), "lock", "lock", input.clone()).await {
            Err(EBUSY) => {
                self.break_own_lock().await?;
                self.place.call(&self.header(), "lock", "lock", input).await.map(|_| ())
            }
            r => r.map(|_| ()),
        }
    }

    async fn break_own_lock(&self) -> Step<()> {
        let name = enc(|w| w.versioned(1, 1, |w| w.blob(LOCK)));
        let b = self.place.call(&self.header(), "lock", "get_info", name).await?;
        // The first locker's name and cookie stand at the start of the reply.
        let first = Reader::shared(&b).versioned("cls_lock_get_info_reply", 1, |r, _| {
            if r.u32()? == 0 {
                return Ok(None);
            }
            r.versioned("locker_id_t", 1, |r, _| Ok(Some((r.get::<base::EntityName>()?, r.blob()?))))
        });
        let Ok(Some((who, cookie))) = first else { return Err(EBUSY) };
        if !cookie.starts_with(COOKIE.as_bytes()) {
            return Err(EBUSY);
        }
        let input = enc(|w| {
            w.versioned(1, 1, |w| {
                w.blob(LOCK);
                w.put(&who);
                w.blob(&cookie);
            });
        });
        self.place.call(&self.header(), "lock", "break_lock", input).await.map(|_| ())
    }

    /// Releases the exclusive lock.
    pub(super) async fn unlock(&self, cookie: &str) -> Step<()> {
        if self.features & feature::EXCLUSIVE_LOCK == 0 {
            return Ok(());
        }
        let input = enc(|w| {
            w.versioned(1, 1, |w| {
                w.blob(LOCK);
                w.blob(cookie.as_bytes());
            });
        });
        absent_is_fine(self.place.call(&self.header(), "lock", "unlock", input).await)
    }

    /// Removes one data object.
    pub(super) async fn delete_object(&self, n: u64) -> Step<()> {
        self.data.delete(&self.data_object(n)).await
    }

    /// Reads bytes of the image at `snap`. Where neither the image nor a parent has an object, `out` is unchanged.
    pub(super) async fn read(&self, at: u64, out: &mut [u8], snap: Option<u64>, depth: u32) -> Step<()> {
        let mut done = 0;
        while done < out.len() {
            let from = at + done as u64;
            let (n, off, run) = self.stripes.find(from);
            let end = out.len().min(done + usize::try_from(run).unwrap_or(usize::MAX));
            let part = &mut out[done..end];
            let o = self.data.object(&self.data_object(n));
            let read = OsdOp::with_extent(OpCode::READ, off, part.len() as u64, Bytes::new());
            match self.data.op(&o, read, snap.map_or(SnapId::HEAD, SnapId)).await {
                Err(ENOENT) => Box::pin(self.read_parent(from, part, depth)).await?,
                r => {
                    let bytes = r?;
                    let len = bytes.len().min(part.len());
                    part[..len].copy_from_slice(&bytes[..len]);
                    part[len..].fill(0);
                }
            }
            done = end;
        }
        Ok(())
    }

    /// Reads bytes through the parent; where it has no data, `out` is unchanged.
    async fn read_parent(&self, at: u64, out: &mut [u8], depth: u32) -> Step<()> {
        let Some(p) = &self.parent else { return Ok(()) };
        if at >= p.overlap {
            return Ok(());
        }
        if depth >= PARENTS_MAX {
            return Err(base::errno::ELOOP);
        }
        self.check_parent(p).await?;
        let mut parent = Box::pin(Self::open(&p.place(&self.place), &p.id, Some(p.snap))).await?;
        parent.links = Rc::clone(&self.links);
        let len = p.overlap.min(parent.size).saturating_sub(at).min(out.len() as u64) as usize;
        Box::pin(parent.read(at, &mut out[..len], Some(p.snap), depth + 1)).await
    }

    /// Fails unless the parent lists this image as its clone: the child's header alone may name any image as its parent,
    /// which the manager would read. Clones of format 1 are listed nowhere at the parent.
    pub(super) async fn check_parent(&self, p: &Parent) -> Step<()> {
        let mine = (self.place.pool, self.place.nspace.clone(), self.id.clone());
        if (mine.0, &mine.1) == (p.pool, &p.nspace) {
            return Ok(());
        }
        let link = (mine.0, mine.1.clone(), mine.2.clone(), p.pool, p.nspace.clone(), p.id.clone(), p.snap);
        if self.links.borrow().contains(&link) {
            return Ok(());
        }
        if self.op_features & CLONE_CHILD == 0 {
            return Err(EOPNOTSUPP);
        }
        let header = format!("rbd_header.{}", p.id);
        let listed = match p.place(&self.place).rbd(&header, "children_list", enc(|w| w.u64(p.snap))).await {
            Err(ENOENT) => return Err(EPERM),
            r => children(&r?)?,
        };
        if !listed.contains(&mine) {
            return Err(EPERM);
        }
        self.links.borrow_mut().insert(link);
        Ok(())
    }

    /// Copies an object up from the parent, unless the image already has it or it is all zeros.
    pub(super) async fn copy_up(&self, n: u64) -> Step<()> {
        let name = self.data_object(n);
        if self.has_object(n, None).await? {
            return Ok(());
        }
        let mut data = vec![0; self.stripes.object as usize];
        let unit = self.stripes.unit as usize;
        for (from, part) in self.stripes.pieces(n).zip(data.chunks_mut(unit)) {
            self.read_parent(from, part, 0).await?;
        }
        let Some(last) = data.iter().rposition(|b| *b != 0) else { return Ok(()) };
        // The object may be shorter or longer than the parent's data: the rest is zeros.
        data.truncate((last + 1).next_multiple_of(unit.min(COPY_UP_UNIT)).min(data.len()));
        // Object maps first: a map may list an object that does not exist, but never the reverse. A copy-up without a
        // snapshot context belongs to all snapshots, and the oldest has it as a new object.
        let oldest = self.snaps.last().copied();
        for snap in self.snaps.iter().copied().map(Some).chain([None]) {
            self.map_exists(n, snap, oldest.is_some() && snap != oldest).await?;
        }
        self.data.rbd(&name, "copyup", data.into()).await.map(|_| ())
    }

    /// Detaches the image from its parent, in the child's header first. Without deep-flatten, snapshots keep the
    /// parent, and the parent's list of children keeps the image.
    pub(super) async fn detach(&self) -> Step<()> {
        let Some(p) = &self.parent else { return Ok(()) };
        absent_is_fine(self.place.rbd(&self.header(), "parent_detach", Bytes::new()).await)?;
        if self.features & feature::DEEP_FLATTEN == 0 && self.has_snapshots() {
            return Ok(());
        }
        self.forget_at_parent(p).await
    }

    /// Removes the image from its parent's list of children. A parent snapshot in the trash goes with its last child.
    pub(super) async fn forget_at_parent(&self, p: &Parent) -> Step<()> {
        if self.op_features & CLONE_CHILD == 0 {
            let input = enc(|w| {
                w.i64(p.pool.0);
                w.blob(p.id.as_bytes());
                w.u64(p.snap);
                w.blob(self.id.as_bytes());
            });
            return absent_is_fine(self.place.rbd("rbd_children", "remove_child", input).await);
        }
        let place = p.place(&self.place);
        let input = enc(|w| {
            w.u64(p.snap);
            w.versioned(2, 1, |w| {
                w.i64(self.place.pool.0);
                w.blob(self.id.as_bytes());
                w.blob(&self.place.nspace);
            });
        });
        let header = format!("rbd_header.{}", p.id);
        absent_is_fine(place.rbd(&header, "child_detach", input).await)?;
        place.notify_header(&header).await?;
        Box::pin(snap::remove_unused(&place, &p.id, p.snap)).await
    }

    /// Removes the journal: entries first, so that a repetition still finds them.
    async fn remove_journal(&self) -> Step<()> {
        let header = format!("journal.{}", self.id);
        let get = async |method: &str| self.place.call(&header, "journal", method, Bytes::new()).await;
        let bad = |_| EIO;
        let first: u64 = match get("get_minimum_set").await {
            Err(ENOENT) => return Ok(()),
            r => Reader::shared(&r?).u64().map_err(bad)?,
        };
        let last = Reader::shared(&get("get_active_set").await?).u64().map_err(bad)?;
        let splay = u64::from(Reader::shared(&get("get_splay_width").await?).u8().map_err(bad)?);
        let pool = Reader::shared(&get("get_pool_id").await?).i64().map_err(bad)?;
        let entries = Place { pool: if pool < 0 { self.place.pool } else { PoolId(pool) }, ..self.place.clone() };
        let objects = first.saturating_mul(splay)..last.saturating_add(1).saturating_mul(splay);
        if objects.end - objects.start.min(objects.end) > JOURNAL_OBJECTS_MAX {
            return Err(EIO);
        }
        for n in objects {
            entries.delete(&format!("journal_data.{}.{}.{n}", self.place.pool.0, self.id)).await?;
        }
        self.place.delete(&header).await
    }

    /// Notifies the watchers of the header that it was updated.
    pub(super) async fn notify(&self) -> Step<()> {
        self.place.notify_header(&self.header()).await
    }

    /// Removes an image without data: object map, header, and its entry in the directory or the trash.
    pub(super) async fn remove_header(&self, name: Option<&str>) -> Step<()> {
        self.remove_header_only().await?;
        match name {
            Some(name) => self.remove_name(name).await,
            None => absent_is_fine(self.place.rbd("rbd_trash", "trash_remove", text(&self.id)).await),
        }
    }

    /// Removes an image's name from the directory.
    pub(super) async fn remove_name(&self, name: &str) -> Step<()> {
        // When this is repeated, another image may have the name by now.
        if self.place.image_id(name).await.is_ok_and(|id| id == self.id) {
            self.place.delete(&format!("rbd_id.{name}")).await?;
        }
        let input = enc(|w| {
            w.blob(name.as_bytes());
            w.blob(self.id.as_bytes());
        });
        match self.place.rbd("rbd_directory", "dir_remove_image", input).await {
            Err(ESTALE) => Ok(()),
            r => absent_is_fine(r),
        }
    }

    /// Removes journal, object map, header and the entry in the parent's list of children.
    pub(super) async fn remove_header_only(&self) -> Step<()> {
        if self.is_journaled() {
            self.remove_journal().await?;
        }
        self.place.delete(&snap::map_name(&self.id, None)).await?;
        if let Some(p) = &self.parent {
            self.forget_at_parent(p).await?;
        }
        self.place.delete(&self.header()).await
    }
}

impl Place {
    async fn notify_header(&self, header: &str) -> Step<()> {
        self.notify_object(header, &enc(|w| w.versioned(7, 1, |w| w.u32(HEADER_UPDATE)))).await
    }

    /// Sends a notification to the watchers of an object; missing acknowledgements are ignored.
    pub(super) async fn notify_object(&self, name: &str, payload: &[u8]) -> Step<()> {
        let mut op = OsdOp::with_indata(
            OpCode::NOTIFY,
            enc(|w| {
                w.u32(1);
                w.u32(NOTIFY_SECONDS);
                w.blob(payload);
            }),
        );
        op.set_notify_cookie(1);
        absent_is_fine(self.op(&self.object(name), op, SnapId::HEAD).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_claims_no_data_but_its_own() {
        let (a, b) = (PoolId(3), PoolId(4));
        assert!(is_own_prefix(b"rbd_data.x", a, a, "x"));
        assert!(is_own_prefix(b"rbd_data.3.x", a, b, "x"));
        for (prefix, data) in [("rbd_data.victim", a), ("rbd_data.x", b), ("rbd_data.4.x", b), ("rbd_data.3.y", b)] {
            assert!(!is_own_prefix(prefix.as_bytes(), a, data, "x"), "{prefix} in {data:?}");
        }
    }

    #[test]
    fn a_parent_lists_its_clones() {
        let all = enc(|w| {
            w.u32(1);
            w.versioned(2, 1, |w| {
                w.i64(3);
                w.blob(b"x");
                w.blob(b"t");
            });
        });
        assert_eq!(children(&all), Ok(vec![(PoolId(3), Bytes::from_static(b"t"), "x".to_owned())]));
        assert_eq!(children(&all.slice(..all.len() - 1)), Err(EIO));
    }

    #[test]
    fn stripes_are_found_and_counted() {
        let plain = Stripes::new(22, None).unwrap();
        assert_eq!(plain.find((4 << 20) + 5), (1, 5, (4 << 20) - 5));
        assert_eq!((plain.objects(0), plain.objects(1), plain.objects((4 << 20) + 1)), (0, 1, 2));
        // Sixteen units of 256 KiB in each of 3 objects.
        let s = Stripes::new(22, Some((256 << 10, 3))).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for n in 0..6 {
            for (k, from) in s.pieces(n).enumerate() {
                assert_eq!(s.find(from), (n, k as u64 * s.unit, s.unit));
                assert!(seen.insert(from, n).is_none());
            }
        }
        let places: Vec<u64> = seen.into_keys().collect();
        assert_eq!(places, (0..96).map(|i| i * s.unit).collect::<Vec<_>>(), "all of two sets, none twice");
        for bytes in [1, s.unit, s.unit + 1, 3 * s.unit + 1, 12 << 20, (12 << 20) + 1, (12 << 20) + 2 * s.unit] {
            let used = (0..bytes.div_ceil(s.unit)).map(|i| s.find(i * s.unit).0 + 1).max().unwrap();
            assert_eq!(s.objects(bytes), used, "{bytes}");
        }
        assert!(Stripes::new(22, Some((0, 3))).is_err());
        assert!(Stripes::new(22, Some((3000, 2))).is_err());
        assert!(Stripes::new(60, None).is_err());
    }
}
