//! Snapshots of images: their kinds, and their removal.
//!
//! Invariant: a snapshot's record is removed before its data, so that no client reads a snapshot whose data is being
//! trimmed.

use super::image::{COOKIE, Image, Place, Step, absent_is_fine, enc, failed, feature};
use super::mirror::{self, ask_owner};
use base::SnapId;
use base::errno::{EBUSY, EIO, ENOENT, ENOEXEC, EOPNOTSUPP};
use bytes::Bytes;
use wire::Reader;

/// `WATCH_NOTIFY` payload: remove a snapshot.
const SNAP_REMOVE: u32 = 9;
/// Time limit in seconds for the client that holds the lock.
const OWNER_SECONDS: u32 = 60;

/// Protection status: unprotected.
const UNPROTECTED: u8 = 0;

/// Snapshot namespace type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Group,
    /// Trash: removed by the user, but kept for its clones.
    Trash,
    Mirror,
}

/// Record of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snap {
    pub(super) id: u64,
    pub(super) name: Bytes,
    pub(super) kind: Kind,
    /// Encoded snapshot namespace: type and type-specific fields.
    pub(super) nspace: Bytes,
    /// Number of clones.
    pub(super) children: u32,
}

/// Name of the object map of a snapshot, or of the head for `None`.
pub(super) fn map_name(image: &str, snap: Option<u64>) -> String {
    match snap {
        Some(s) => format!("rbd_object_map.{image}.{s:016x}"),
        None => format!("rbd_object_map.{image}"),
    }
}

/// Reads the record of a snapshot.
async fn get(place: &Place, image: &str, id: u64) -> Step<Snap> {
    let b = place.rbd(&format!("rbd_header.{image}"), "snapshot_get", enc(|w| w.u64(id))).await?;
    let read = Reader::shared(&b).versioned("SnapshotInfo", 1, |r, _| {
        let id = r.u64()?;
        let (kind, nspace) = r.versioned("SnapshotNamespace", 1, |r, _| {
            let rest = r.rest();
            let kind = Reader::shared(&rest).u32()?;
            Ok((kind, rest))
        })?;
        let name = r.blob()?;
        r.u64()?;
        r.get::<base::Utime>()?;
        Ok((id, kind, nspace, name, r.u32()?))
    });
    let (id, kind, nspace, name, children) = read.map_err(|_| EIO)?;
    let kind = match kind {
        0 => Kind::User,
        1 => Kind::Group,
        2 => Kind::Trash,
        3 => Kind::Mirror,
        _ => return Err(EOPNOTSUPP),
    };
    Ok(Snap { id, name, kind, nspace, children })
}

/// All snapshots of an image, newest first.
pub(super) async fn all(place: &Place, image: &str) -> Step<Vec<Snap>> {
    let (_, ids): (u64, Vec<u64>) =
        place.rbd_as(&format!("rbd_header.{image}"), "get_snapcontext", Bytes::new()).await?;
    let mut out = Vec::new();
    for id in ids {
        match get(place, image, id).await {
            // The snapshot was removed meanwhile.
            Err(ENOENT) => {}
            r => out.push(r?),
        }
    }
    Ok(out)
}

/// Removes a snapshot in the trash after its last clone is gone.
pub(super) async fn remove_unused(place: &Place, image: &str, id: u64) -> Step<()> {
    let snap = match get(place, image, id).await {
        Err(ENOENT) => return Ok(()),
        r => r?,
    };
    if snap.kind != Kind::Trash || snap.children > 0 {
        return Ok(());
    }
    remove(place, image, &snap).await
}

/// Removes a snapshot, or asks the client that holds the image's lock to do it.
pub(super) async fn remove(place: &Place, image: &str, s: &Snap) -> Step<()> {
    let image = Image::open(place, image, None).await?;
    let cookie = format!("{COOKIE}snapshot {}", super::uuid());
    match image.lock(&cookie).await {
        Err(EBUSY) => {
            let r = ask_owner(&image, SNAP_REMOVE, OWNER_SECONDS, |w| {
                w.blob(&s.name);
                w.versioned(1, 1, |w| w.raw(&s.nspace));
            })
            .await;
            return if r == Err(ENOENT) { Ok(()) } else { r };
        }
        Err(e) => return Err(e),
        Ok(()) => {}
    }
    let r = remove_locked(&image, s).await;
    image.unlock(&cookie).await?;
    r?;
    image.notify().await
}

/// Removes a snapshot of an image whose lock the manager holds.
pub(super) async fn remove_locked(image: &Image, s: &Snap) -> Step<()> {
    let (place, id) = (&image.place, s.id);
    if s.kind == Kind::Mirror {
        mirror::remove_state(image, id).await?;
    }
    let parent = match Image::open(place, &image.id, Some(id)).await {
        Err(ENOENT) => None,
        r => r?.parent,
    };
    if image.features & feature::OBJECT_MAP != 0 {
        let map = map_name(&image.id, Some(id));
        if image.features & feature::FAST_DIFF != 0 {
            match place.rbd(&map, "object_map_load", Bytes::new()).await {
                // Objects changed since this snapshot have also changed since the previous one.
                Ok(bits) => {
                    let after = next_map(image, id).await?;
                    absent_is_fine(place.rbd(&after, "object_map_snap_remove", bits).await)?;
                }
                Err(ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        place.delete(&map).await?;
    }
    absent_is_fine(place.rbd(&image.header(), "snapshot_remove", enc(|w| w.u64(id))).await)?;
    if let Some(p) = parent {
        let now = Image::open(place, &image.id, None).await?;
        let mut used = now.parent.as_ref().is_some_and(|q| q.is(&p));
        for other in &now.snaps {
            let theirs = Image::open(place, &image.id, Some(*other)).await?.parent;
            used |= theirs.is_some_and(|q| q.is(&p));
        }
        if !used {
            now.forget_at_parent(&p).await?;
        }
    }
    place.client.remove_snap(image.data.pool, SnapId(id)).await.map_err(failed)
}

/// Removes all user snapshots, also protected ones, of an image whose lock the manager holds.
pub(super) async fn remove_all(image: &Image) -> Step<()> {
    for s in all(&image.place, &image.id).await? {
        if s.kind != Kind::User {
            return Err(EBUSY);
        }
        let input = enc(|w| {
            w.u64(s.id);
            w.u8(UNPROTECTED);
        });
        match image.place.rbd(&image.header(), "set_protection_status", input).await {
            // Without layering no snapshot can be protected.
            Ok(_) | Err(ENOENT | ENOEXEC) => {}
            Err(e) => return Err(e),
        }
        remove_locked(image, &s).await?;
    }
    Ok(())
}

/// Name of the object map that follows a snapshot's: the next snapshot's, or the head's.
async fn next_map(image: &Image, snap: u64) -> Step<String> {
    let (_, ids): (u64, Vec<u64>) = image.place.rbd_as(&image.header(), "get_snapcontext", Bytes::new()).await?;
    Ok(map_name(&image.id, ids.into_iter().filter(|i| *i > snap).min()))
}
