//! Live migration of images as background tasks. Execute copies the data of a prepared migration. Commit removes the
//! source. Abort copies the destination's changes back to the source and removes the destination.
//!
//! Sources outside the cluster are left to the `rbd` command, which can read them. Invariants: the source is intact
//! until a commit. A commit or abort that was interrupted at any step completes when it is repeated.
//!
//! Tests: `interop/tests/rbd.sh`, in which one migration is committed and one goes back.

use super::copy::{Back, Copy};
use super::image::{COOKIE, Image, Place, Step, absent_is_fine, enc};
use super::mirror::ask_owner;
use super::task::{Running, Task, each};
use super::{links, mirrored, snap};
use base::errno::{EBUSY, EEXIST, EINVAL, EIO, ENOENT, EOPNOTSUPP, EPERM, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Reader;
use wire::msg::{OpCode, OsdOp};

/// Roles of a header in a migration.
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;
/// States of a migration.
pub(super) const PREPARED: u8 = 2;
pub(super) const EXECUTING: u8 = 3;
pub(super) const EXECUTED: u8 = 4;
const ABORTING: u8 = 5;
/// State descriptions that record the progress of an abort: the destination had all data; the source has all data
/// again.
const WAS_WHOLE: &[u8] = b"after execution";
const BROUGHT_BACK: &[u8] = b"data brought back";
/// `WATCH_NOTIFY` payload: copy the missing data.
const MIGRATE: u32 = 16;
/// Time limit in seconds for a client that holds the lock, after which the manager asks again.
const OWNER_SECONDS: u32 = 300;

/// A migration as described in the destination's header.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) pool: PoolId,
    pub(super) nspace: String,
    pub(super) image_name: String,
    pub(super) image_id: String,
    /// Snapshot ids of the source, each with the destination's.
    pub(super) snaps: BTreeMap<u64, u64>,
    /// Bytes of the head that may be read from the source.
    pub(super) overlap: u64,
    /// Whether the destination has no parent, even if the source has one.
    pub(super) flatten: bool,
    /// The source's mirroring mode before the migration.
    mirroring: Option<u8>,
    pub(super) state: u8,
    description: Bytes,
    /// Whether the source is outside this cluster.
    foreign: bool,
}

/// The migration whose destination is this image.
pub(super) async fn status(place: &Place, id: &str) -> Step<Option<Spec>> {
    Ok(read(place, id).await?.filter(|(side, _)| *side == DESTINATION).map(|(_, spec)| spec))
}

/// True if the source's header names this destination, `EPERM` if it names another or none: the header of a destination
/// alone may name any image as its source. False without a source.
async fn is_mutual(theirs: &Place, source: &str, place: &Place, id: &str) -> Step<bool> {
    match theirs.rbd(&format!("rbd_header.{source}"), "get_object_prefix", Bytes::new()).await {
        Err(ENOENT) => return Ok(false),
        r => _ = r?,
    }
    match read(theirs, source).await? {
        Some((SOURCE, s)) if (s.pool, s.nspace.as_bytes(), s.image_id.as_str()) == (place.pool, &place.nspace, id) => {
            Ok(true)
        }
        _ => Err(EPERM),
    }
}

/// Role of an image in a migration, and the other image.
async fn read(place: &Place, id: &str) -> Step<Option<(u8, Spec)>> {
    let b = match place.rbd(&format!("rbd_header.{id}"), "migration_get", Bytes::new()).await {
        Err(EINVAL | ENOENT) => return Ok(None),
        r => r?,
    };
    let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
    let spec = Reader::shared(&b).versioned("MigrationSpec", 3, |r, v| {
        let side = r.u8()?;
        let pool = PoolId(r.i64()?);
        let (nspace, image_name, image_id) = (text(r.blob()?), text(r.blob()?), text(r.blob()?));
        let snaps = r.get()?;
        let overlap = r.u64()?;
        let (flatten, mirroring) = (r.bool()?, r.bool()?);
        let state = r.u8()?;
        let description = r.blob()?;
        let mode = if v >= 2 { r.u8()? } else { 0 };
        let foreign = v >= 3 && !r.blob()?.is_empty();
        let mirroring = mirroring.then_some(mode);
        let spec = Spec {
            pool,
            nspace,
            image_name,
            image_id,
            snaps,
            overlap,
            flatten,
            mirroring,
            state,
            description,
            foreign,
        };
        Ok((side, spec))
    });
    spec.map(Some).map_err(|_| EIO)
}

/// The migration of a destination, with the pool and namespace of its source. `EOPNOTSUPP` if the source is outside the
/// cluster.
async fn started(place: &Place, id: &str) -> Step<(Spec, Place)> {
    let Some(spec) = status(place, id).await? else { return Err(EINVAL) };
    if spec.foreign || spec.image_id.is_empty() {
        return Err(EOPNOTSUPP);
    }
    let theirs =
        Place { client: place.client.clone(), pool: spec.pool, nspace: Bytes::copy_from_slice(spec.nspace.as_bytes()) };
    Ok((spec, theirs))
}

async fn sides(place: &Place, id: &str) -> Step<(Spec, Image, Image)> {
    let (spec, theirs) = started(place, id).await?;
    is_mutual(&theirs, &spec.image_id, place, id).await?;
    let (from, to) = (Image::open(&theirs, &spec.image_id, None).await?, Image::open(place, id, None).await?);
    Ok((spec, from, to))
}

/// Checks a request; an error has the errno and text of Ceph's manager.
pub(super) async fn check(place: &Place, id: &str, wanted: &[u8], spec: &str) -> Result<Spec, (Errno, String)> {
    let invalid = |why: &str| (EINVAL, format!("[errno 22] RBD invalid argument (Image {spec} {why})"));
    let status = match status(place, id).await {
        Ok(Some(s)) => s,
        Ok(None) => return Err(invalid("is not migrating")),
        Err(e) => return Err(super::errno_text(e)),
    };
    if !wanted.is_empty() && !wanted.contains(&status.state) {
        let why = if wanted.contains(&EXECUTED) { "has not completed migration" } else { "is not in ready state" };
        return Err(invalid(why));
    }
    match started(place, id).await {
        Ok(_) => Ok(status),
        Err(EOPNOTSUPP) => {
            Err((EOPNOTSUPP, format!("image {spec} comes from outside the cluster: use the rbd command")))
        }
        Err(e) => Err(super::errno_text(e)),
    }
}

async fn set_state(images: [&Image; 2], state: u8, description: &[u8]) -> Step<()> {
    for i in images {
        let input = enc(|w| {
            w.u8(state);
            w.blob(description);
        });
        i.place.rbd(&i.header(), "migration_set_state", input).await?;
        i.notify().await?;
    }
    Ok(())
}

/// Copies all missing objects to the destination.
pub(super) async fn execute(place: &Place, id: &str, task: &str, running: &Rc<Running>) -> Step<()> {
    let (spec, from, to) = sides(place, id).await?;
    match spec.state {
        EXECUTED => return Ok(()),
        PREPARED | EXECUTING => {}
        _ => return Err(EINVAL),
    }
    set_state([&to, &from], EXECUTING, b"").await?;
    let cookie = format!("{COOKIE}{task}");
    match to.lock(&cookie).await {
        Err(EBUSY) => ask_owner(&to, MIGRATE, OWNER_SECONDS, |w| (0..3).for_each(|_| w.u64(0))).await?,
        Err(e) => return Err(e),
        Ok(()) => {
            let r = match Copy::new(&spec, &from, &to).await {
                Ok(copy) => {
                    let copy = Rc::new(copy);
                    let step = |n| {
                        let copy = Rc::clone(&copy);
                        async move { copy.object(n).await }
                    };
                    each(copy.objects(), running, step).await
                }
                Err(e) => Err(e),
            };
            to.unlock(&cookie).await?;
            r?;
        }
    }
    set_state([&to, &from], EXECUTED, b"").await
}

/// Makes the destination independent of the source and removes the source.
pub(super) async fn commit(place: &Place, task: &mut Task, running: &Rc<Running>) -> Step<()> {
    let id = task.image_id.clone();
    match started(place, &id).await {
        // An earlier attempt began the commit; the name now belongs to another migration.
        Ok((spec, _)) if task.source.as_ref().is_some_and(|s| s.2 != spec.image_id) => {}
        Ok((spec, theirs)) => {
            if spec.state != EXECUTED {
                return Err(EINVAL);
            }
            match Image::open(&theirs, &spec.image_id, None).await {
                Ok(from) => from.check_unused().await?,
                Err(ENOENT) => {}
                Err(e) => return Err(e),
            }
            is_mutual(&theirs, &spec.image_id, place, &id).await?;
            // From here on only the task knows the source.
            task.source = Some((spec.pool, spec.nspace.clone(), spec.image_id.clone(), spec.mirroring));
            task.store(place).await?;
            let to = Image::open(place, &id, None).await?;
            place.rbd(&to.header(), "migration_remove", Bytes::new()).await?;
            to.notify().await?;
        }
        // An earlier attempt began the commit.
        Err(EINVAL) if task.source.is_some() => {}
        Err(e) => return Err(e),
    }
    let Some((pool, nspace, source, mirroring)) = &task.source else { return Err(EINVAL) };
    let theirs = Place { client: place.client.clone(), pool: *pool, nspace: Bytes::copy_from_slice(nspace.as_bytes()) };
    is_mutual(&theirs, source, place, &id).await?;
    match Image::open(&theirs, source, None).await {
        Ok(from) => {
            snap::remove_all(&from).await?;
            let from = Image::open(&theirs, source, None).await?;
            remove_data(&from, running).await?;
            from.remove_header(None).await?;
        }
        Err(ENOENT) => {
            absent_is_fine(theirs.rbd("rbd_trash", "trash_remove", enc(|w| w.blob(source.as_bytes()))).await)?;
        }
        Err(e) => return Err(e),
    }
    // A user may have removed the source by now.
    match Image::open(place, &id, None).await {
        Ok(to) => mirrored::enable(&to, &task.image, *mirroring).await,
        Err(ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

async fn remove_data(image: &Image, running: &Rc<Running>) -> Step<()> {
    let step = |n| {
        let image = image.clone();
        async move { image.delete_object(n).await }
    };
    each(image.objects(image.size()), running, step).await
}

/// Copies the destination's changes back to the source, removes the destination, and restores the source's name. The
/// destination's header goes last, because only it names the source.
pub(super) async fn abort(place: &Place, id: &str, name: &str, running: &Rc<Running>) -> Step<()> {
    let (spec, from, to) = match sides(place, id).await {
        // An earlier attempt restored the source, which names no destination since then.
        Err(EPERM)
            if status(place, id).await?.is_some_and(|s| s.state == ABORTING && s.description == BROUGHT_BACK) =>
        {
            return Image::open(place, id, None).await?.remove_header_only().await;
        }
        r => r?,
    };
    to.check_closed().await?;
    let mut how_far = spec.description.clone();
    if spec.state != ABORTING {
        how_far = Bytes::from_static(if spec.state == EXECUTED { WAS_WHOLE } else { b"" });
        set_state([&from, &to], ABORTING, &how_far).await?;
    }
    if how_far != BROUGHT_BACK {
        let back = Rc::new(Back::new(&from, &to, how_far == WAS_WHOLE));
        let step = |n| {
            let back = Rc::clone(&back);
            async move { back.object(n).await }
        };
        each(back.objects(), running, step).await?;
        set_state([&from, &to], ABORTING, BROUGHT_BACK).await?;
    }
    let there: BTreeMap<u64, u64> = spec.snaps.iter().map(|(theirs, ours)| (*ours, *theirs)).collect();
    links::move_children(&to, &from, &there).await?;
    links::move_group(&to, &from).await?;
    snap::remove_all(&to).await?;
    let to = Image::open(place, id, None).await?;
    remove_data(&to, running).await?;
    to.remove_name(name).await?;
    restore(&spec, &from).await?;
    to.remove_header_only().await
}

/// Restores the source's name and takes it out of the trash.
async fn restore(spec: &Spec, from: &Image) -> Step<()> {
    let there = |r: Step<Bytes>| match r {
        Ok(_) | Err(EEXIST) => Ok(()),
        Err(e) => Err(e),
    };
    let place = &from.place;
    let id = format!("rbd_id.{}", spec.image_name);
    place.op(&place.object(&id), OsdOp::new(OpCode::CREATE), SnapId::HEAD).await?;
    there(place.rbd(&id, "set_id", enc(|w| w.blob(from.id.as_bytes()))).await)?;
    let input = enc(|w| {
        w.blob(spec.image_name.as_bytes());
        w.blob(from.id.as_bytes());
    });
    there(place.rbd("rbd_directory", "dir_add_image", input).await)?;
    absent_is_fine(place.rbd("rbd_trash", "trash_remove", enc(|w| w.blob(from.id.as_bytes()))).await)?;
    mirrored::enable(from, &spec.image_name, spec.mirroring).await?;
    // Last: from here on the source names no destination that may change it.
    if from.is_migrating() {
        place.rbd(&from.header(), "migration_remove", Bytes::new()).await?;
    }
    from.notify().await
}
