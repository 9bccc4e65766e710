//! An image as its header describes it, and what is done to it: class calls on the objects that librbd keeps.

use base::errno::{EBUSY, EMLINK, ENOENT, EOPNOTSUPP, Errno};
use base::{PoolId, SnapId, Utime};
use bytes::Bytes;
use client::host::{Client, ClientError, ObjectRef};
use wire::msg::{OpCode, OsdOp};
use wire::types::ObjectLocator;
use wire::{Decode, Features, Reader, Writer};

/// The head, where a snapshot's id is asked for.
pub(super) const NOSNAP: u64 = u64::MAX - 1;
/// Namespaces per request.
const NAMESPACES_PAGE: u64 = 1024;
/// Namespaces looked at in a pool.
const NAMESPACES_MAX: usize = 65_536;
/// Deepest chain of parents that is read through (librbd's limit).
const PARENTS_MAX: u32 = 16;
/// Largest object order that is worked on: 64 MiB.
const ORDER_MAX: u8 = 26;
/// The lock that librbd takes on headers.
const LOCK: &[u8] = b"rbd_lock";
/// Tag of its internal lockers.
const TAG: &[u8] = b"internal";
/// What our cookies begin with.
pub(super) const COOKIE: &str = "manager ";
/// `WATCH_NOTIFY` payload: the header has changed.
const HEADER_UPDATE: u32 = 3;
/// How long watchers may take over it.
const NOTIFY_SECONDS: u32 = 5;

/// Feature bits of images.
pub(super) mod feature {
    pub(in super::super) const STRIPING: u64 = 2;
    pub(in super::super) const EXCLUSIVE_LOCK: u64 = 4;
    pub(in super::super) const OBJECT_MAP: u64 = 8;
    pub(in super::super) const FAST_DIFF: u64 = 16;
    pub(in super::super) const JOURNALING: u64 = 64;
    pub(in super::super) const DATA_POOL: u64 = 128;
    pub(in super::super) const OPERATIONS: u64 = 256;
    pub(in super::super) const MIGRATING: u64 = 512;
    pub(in super::super) const NON_PRIMARY: u64 = 1024;
}
/// The image is a clone of the second form.
const CLONE_CHILD: u64 = 2;

/// Result of a step.
pub(super) type Step<T> = Result<T, Errno>;

/// A pool and a namespace in it.
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

    /// Runs one operation on an object of this place, at a snapshot if it reads one.
    pub(super) async fn op(&self, o: &ObjectRef, op: OsdOp, snap: SnapId) -> Step<Bytes> {
        let r = self.client.op_at(o, vec![op], snap).await.map_err(failed)?;
        if r.result < 0 { Err(r.result) } else { Ok(r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default()) }
    }

    async fn call(&self, name: &str, class: &str, method: &str, input: Bytes) -> Step<Bytes> {
        self.op(&self.object(name), OsdOp::call(class, method, &input), SnapId::HEAD).await
    }

    pub(super) async fn rbd(&self, name: &str, method: &str, input: Bytes) -> Step<Bytes> {
        self.call(name, "rbd", method, input).await
    }

    pub(super) async fn rbd_as<T: Decode>(&self, name: &str, method: &str, input: Bytes) -> Step<T> {
        let b = self.rbd(name, method, input).await?;
        T::decode(&mut Reader::shared(&b)).map_err(|_| base::errno::EIO)
    }

    /// The pool's namespaces, the one without a name first.
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

    /// Removes an object; it may be gone already.
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

/// What an image is a clone of.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pool: PoolId,
    nspace: Bytes,
    id: String,
    snap: u64,
    /// Bytes that still show the parent.
    pub(super) overlap: u64,
}

impl Parent {
    pub(super) fn new(pool: PoolId, nspace: Bytes, id: String, snap: u64, overlap: u64) -> Self {
        Self { pool, nspace, id, snap, overlap }
    }
}

/// An image.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) place: Place,
    pub(super) id: String,
    size: u64,
    order: u8,
    pub(super) features: u64,
    op_features: u64,
    prefix: String,
    pub(super) data: Place,
    snaps: Vec<u64>,
    striped: bool,
    pub(super) parent: Option<Parent>,
}

impl Image {
    /// Reads the header, as of a snapshot or the head (`None`).
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
        let mut striped = order > ORDER_MAX;
        if features & feature::STRIPING != 0 {
            let (unit, count): (u64, u64) = place.rbd_as(&header, "get_stripe_unit_count", Bytes::new()).await?;
            striped |= count != 1 || 1u64.checked_shl(order.into()) != Some(unit);
        }
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
            order,
            features,
            op_features,
            prefix: String::from_utf8_lossy(&prefix).into_owned(),
            data,
            snaps,
            striped,
            parent,
        })
    }

    pub(super) fn header(&self) -> String {
        format!("rbd_header.{}", self.id)
    }

    fn data_object(&self, n: u64) -> String {
        format!("{}.{n:016x}", self.prefix)
    }

    fn object_size(&self) -> u64 {
        1 << self.order.min(ORDER_MAX)
    }

    /// Data objects of an image of `bytes`.
    pub(super) fn objects(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.object_size())
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// True if it has snapshots.
    pub(super) fn has_snapshots(&self) -> bool {
        !self.snaps.is_empty()
    }

    /// Fails where more than the sequences here would be needed: journals, mirroring, migration, striping.
    pub(super) async fn check_plain(&self) -> Step<()> {
        let special = feature::JOURNALING | feature::MIGRATING | feature::NON_PRIMARY;
        if self.features & special != 0 || self.striped {
            return Err(EOPNOTSUPP);
        }
        match self.place.rbd("rbd_mirroring", "mirror_image_get", text(&self.id)).await {
            Err(ENOENT) => Ok(()),
            Ok(_) => Err(EOPNOTSUPP),
            Err(e) => Err(e),
        }
    }

    /// True if it migrates and nothing else about it is special.
    pub(super) fn is_plainly_migrating(&self) -> bool {
        let other = feature::JOURNALING | feature::NON_PRIMARY;
        self.features & feature::MIGRATING != 0 && self.features & other == 0 && !self.striped
    }

    /// Fails if the image is open somewhere or belongs to a group.
    pub(super) async fn check_unused(&self) -> Step<()> {
        let header = self.place.object(&self.header());
        let watchers = self.place.op(&header, OsdOp::new(OpCode::LIST_WATCHERS), SnapId::HEAD).await?;
        let n = Reader::shared(&watchers).versioned("obj_list_watch_response_t", 1, |r, _| r.u32());
        if n.map_err(|_| base::errno::EIO)? > 0 {
            return Err(EBUSY);
        }
        let b = self.place.rbd(&self.header(), "image_group_get", Bytes::new()).await?;
        let group = Reader::shared(&b).versioned("GroupSpec", 1, |r, _| r.i64());
        if group.map_err(|_| base::errno::EIO)? >= 0 { Err(EMLINK) } else { Ok(()) }
    }

    /// Takes the exclusive lock, if the image has that feature. A lock that an earlier task left is taken over.
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
        // The first locker's name and cookie are at the head of the answer.
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

    /// Gives the lock back.
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

    /// Data of an object as this image shows it at `snap`; empty where there is nothing.
    async fn read_object(&self, n: u64, snap: Option<u64>, depth: u32) -> Step<Bytes> {
        let o = self.data.object(&self.data_object(n));
        let at = snap.map_or(SnapId::HEAD, SnapId);
        match self.data.op(&o, OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new()), at).await {
            Err(ENOENT) => self.read_parent(n, depth).await,
            r => r,
        }
    }

    /// What the parent shows in the place of an object.
    async fn read_parent(&self, n: u64, depth: u32) -> Step<Bytes> {
        let Some(p) = &self.parent else { return Ok(Bytes::new()) };
        let size = self.object_size();
        let start = n * size;
        let end = (start + size).min(p.overlap);
        if start >= end {
            return Ok(Bytes::new());
        }
        if depth >= PARENTS_MAX {
            return Err(base::errno::ELOOP);
        }
        let place = Place { client: self.place.client.clone(), pool: p.pool, nspace: p.nspace.clone() };
        let parent = Box::pin(Self::open(&place, &p.id, Some(p.snap))).await?;
        if parent.striped {
            return Err(EOPNOTSUPP);
        }
        let theirs = parent.object_size();
        let end = end.min(parent.size);
        let mut out = vec![0; end.saturating_sub(start) as usize];
        let mut at = start;
        while at < end {
            let (k, off) = (at / theirs, at % theirs);
            let len = (theirs - off).min(end - at);
            let bytes = Box::pin(parent.read_object(k, Some(p.snap), depth + 1)).await?;
            let part = bytes.get(off as usize..).unwrap_or_default();
            let part = &part[..part.len().min(len as usize)];
            let to = (at - start) as usize;
            out[to..to + part.len()].copy_from_slice(part);
            at += len;
        }
        Ok(out.into())
    }

    /// Copies an object up from the parent, unless the image has it or it is all zeros.
    pub(super) async fn copy_up(&self, n: u64) -> Step<()> {
        let name = self.data_object(n);
        match self.data.op(&self.data.object(&name), OsdOp::new(OpCode::STAT), SnapId::HEAD).await {
            Ok(_) => return Ok(()),
            Err(ENOENT) => {}
            Err(e) => return Err(e),
        }
        let data = self.read_parent(n, 0).await?;
        if data.iter().all(|b| *b == 0) {
            return Ok(());
        }
        if self.features & feature::OBJECT_MAP != 0 {
            // The map says so before the object exists: it may only err on that side.
            let input = enc(|w| {
                w.u64(n);
                w.u64(n + 1);
                w.u8(1);
                w.u8(0);
            });
            absent_is_fine(self.place.rbd(&format!("rbd_object_map.{}", self.id), "object_map_update", input).await)?;
        }
        self.data.rbd(&name, "copyup", data).await.map(|_| ())
    }

    /// Ends the relation to the parent on both sides, the child's first.
    pub(super) async fn detach(&self) -> Step<()> {
        let Some(p) = &self.parent else { return Ok(()) };
        absent_is_fine(self.place.rbd(&self.header(), "parent_detach", Bytes::new()).await)?;
        self.forget_at_parent(p).await
    }

    /// Removes the image from its parent's list of children.
    async fn forget_at_parent(&self, p: &Parent) -> Step<()> {
        if self.op_features & CLONE_CHILD == 0 {
            let input = enc(|w| {
                w.i64(p.pool.0);
                w.blob(p.id.as_bytes());
                w.u64(p.snap);
                w.blob(self.id.as_bytes());
            });
            return absent_is_fine(self.place.rbd("rbd_children", "remove_child", input).await);
        }
        let place = Place { client: self.place.client.clone(), pool: p.pool, nspace: p.nspace.clone() };
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
        place.notify_header(&header).await
    }

    /// Tells those who have the image open that its header has changed.
    pub(super) async fn notify(&self) -> Step<()> {
        self.place.notify_header(&self.header()).await
    }

    /// Removes what is left of an image without data: map, header, and its entry in the directory or the trash.
    pub(super) async fn remove_header(&self, name: Option<&str>) -> Step<()> {
        self.place.delete(&format!("rbd_object_map.{}", self.id)).await?;
        if let Some(p) = &self.parent {
            self.forget_at_parent(p).await?;
        }
        self.place.delete(&self.header()).await?;
        match name {
            Some(name) => {
                self.place.delete(&format!("rbd_id.{name}")).await?;
                let input = enc(|w| {
                    w.blob(name.as_bytes());
                    w.blob(self.id.as_bytes());
                });
                absent_is_fine(self.place.rbd("rbd_directory", "dir_remove_image", input).await)
            }
            None => absent_is_fine(self.place.rbd("rbd_trash", "trash_remove", text(&self.id)).await),
        }
    }
}

impl Place {
    async fn notify_header(&self, header: &str) -> Step<()> {
        let payload = enc(|w| w.versioned(7, 1, |w| w.u32(HEADER_UPDATE)));
        let mut op = OsdOp::with_indata(
            OpCode::NOTIFY,
            enc(|w| {
                w.u32(1);
                w.u32(NOTIFY_SECONDS);
                w.blob(&payload);
            }),
        );
        op.set_notify_cookie(1);
        absent_is_fine(self.op(&self.object(header), op, SnapId::HEAD).await)
    }
}
