//! Live migration of images as background tasks: the data of a prepared migration is copied, and the migration is then
//! committed, which removes the source, or aborted, which removes the destination.
//!
//! Images with snapshots, parents, journals or mirrors need all of librbd: they are refused, and the `rbd` command does it. Invariant: the source is intact until a commit, and a copy never replaces what the destination has.

use super::image::{COOKIE, Image, NOSNAP, Parent, Place, Step, absent_is_fine, enc};
use super::mirror::ask_owner;
use super::task::{Running, each};
use base::errno::{EBUSY, EINVAL, EIO, ENOENT, EOPNOTSUPP, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Reader;
use wire::msg::{OpCode, OsdOp};

/// Which side a header is.
const DESTINATION: u8 = 2;
/// States.
pub(super) const PREPARED: u8 = 2;
pub(super) const EXECUTING: u8 = 3;
pub(super) const EXECUTED: u8 = 4;
const ABORTING: u8 = 5;
/// `WATCH_NOTIFY` payload: copy what is missing.
const MIGRATE: u32 = 16;
/// How long a client that has the lock is waited for before it is asked again.
const OWNER_SECONDS: u32 = 300;

/// A migration as its destination's header has it.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) pool: PoolId,
    pub(super) nspace: String,
    pub(super) image_name: String,
    pub(super) image_id: String,
    overlap: u64,
    pub(super) state: u8,
    /// The source is no image of this cluster.
    foreign: bool,
}

/// The migration that an image is the destination of.
pub(super) async fn status(place: &Place, id: &str) -> Step<Option<Spec>> {
    let b = match place.rbd(&format!("rbd_header.{id}"), "migration_get", Bytes::new()).await {
        Err(EINVAL | ENOENT) => return Ok(None),
        r => r?,
    };
    let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
    let spec = Reader::shared(&b).versioned("MigrationSpec", 3, |r, v| {
        let side = r.u8()?;
        let pool = PoolId(r.i64()?);
        let (nspace, image_name, image_id) = (text(r.blob()?), text(r.blob()?), text(r.blob()?));
        r.get::<BTreeMap<u64, u64>>()?;
        let overlap = r.u64()?;
        let (_flatten, _mirroring) = (r.bool()?, r.bool()?);
        let state = r.u8()?;
        r.blob()?;
        let mut foreign = false;
        if v >= 3 {
            r.u8()?;
            foreign = !r.blob()?.is_empty();
        }
        Ok((side, Spec { pool, nspace, image_name, image_id, overlap, state, foreign }))
    });
    let (side, spec) = spec.map_err(|_| EIO)?;
    Ok((side == DESTINATION).then_some(spec))
}

/// Source and destination, if they are of the kind that is done here.
async fn sides(place: &Place, id: &str) -> Step<(Spec, Image, Image)> {
    let Some(spec) = status(place, id).await? else { return Err(EINVAL) };
    if spec.foreign || spec.image_id.is_empty() {
        return Err(EOPNOTSUPP);
    }
    let theirs =
        Place { client: place.client.clone(), pool: spec.pool, nspace: Bytes::copy_from_slice(spec.nspace.as_bytes()) };
    let (from, to) = (Image::open(&theirs, &spec.image_id, None).await?, Image::open(place, id, None).await?);
    if [&from, &to].iter().any(|i| i.parent.is_some() || i.has_snapshots() || !i.is_plainly_migrating()) {
        return Err(EOPNOTSUPP);
    }
    Ok((spec, from, to))
}

/// Checks a request: the errno and the text that Ceph's manager gives.
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
    match sides(place, id).await {
        Ok(_) => Ok(status),
        Err(EOPNOTSUPP) => {
            Err((EOPNOTSUPP, format!("image {spec} has snapshots, a parent or a journal: use the rbd command")))
        }
        Err(e) => Err(super::errno_text(e)),
    }
}

async fn set_state(images: [&Image; 2], state: u8) -> Step<()> {
    for i in images {
        let input = enc(|w| {
            w.u8(state);
            w.blob(b"");
        });
        i.place.rbd(&i.header(), "migration_set_state", input).await?;
        i.notify().await?;
    }
    Ok(())
}

/// Copies what the destination has not.
pub(super) async fn execute(place: &Place, id: &str, task: &str, running: &Rc<Running>) -> Step<()> {
    let (spec, from, mut to) = sides(place, id).await?;
    if spec.state == EXECUTED {
        return Ok(());
    }
    set_state([&to, &from], EXECUTING).await?;
    let cookie = format!("{COOKIE}{task}");
    match to.lock(&cookie).await {
        Err(EBUSY) => ask_owner(&to, MIGRATE, OWNER_SECONDS, |w| (0..3).for_each(|_| w.u64(0))).await?,
        Err(e) => return Err(e),
        Ok(()) => {
            // The source is read as a parent is.
            to.parent = Some(Parent::head_of(&from, spec.overlap.min(from.size())));
            let n = to.objects(spec.overlap.min(to.size()));
            let r = each(&to, n, running, |image, n| async move { image.copy_up(n).await }).await;
            to.unlock(&cookie).await?;
            r?;
        }
    }
    set_state([&to, &from], EXECUTED).await
}

/// Makes the destination an image of its own and removes the source.
pub(super) async fn commit(place: &Place, id: &str, running: &Rc<Running>) -> Step<()> {
    let (spec, from, to) = sides(place, id).await?;
    if spec.state != EXECUTED {
        return Err(EINVAL);
    }
    from.check_unused().await?;
    place.rbd(&to.header(), "migration_remove", Bytes::new()).await?;
    to.notify().await?;
    let n = from.objects(from.size());
    each(&from, n, running, |image, n| async move { image.delete_object(n).await }).await?;
    from.remove_header(None).await
}

/// Removes the destination and gives the source its name back.
pub(super) async fn abort(place: &Place, id: &str, name: &str, running: &Rc<Running>) -> Step<()> {
    let (spec, from, to) = sides(place, id).await?;
    to.check_unused().await?;
    set_state([&to, &from], ABORTING).await?;
    let n = to.objects(to.size());
    each(&to, n, running, |image, n| async move { image.delete_object(n).await }).await?;
    to.remove_header(Some(name)).await?;
    // The destination is gone: from here on nothing may pass for "the image is not there".
    restore(&spec, &from).await.map_err(|e| if e == ENOENT { EIO } else { e })
}

/// Gives the source its name back and takes it out of the trash.
async fn restore(spec: &Spec, from: &Image) -> Step<()> {
    let there = |r: Step<Bytes>| match r {
        Ok(_) | Err(base::errno::EEXIST) => Ok(()),
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
    place.rbd(&from.header(), "migration_remove", Bytes::new()).await?;
    absent_is_fine(place.rbd("rbd_trash", "trash_remove", enc(|w| w.blob(from.id.as_bytes()))).await)?;
    from.notify().await
}

impl Parent {
    /// An image's head in the role of a parent.
    fn head_of(image: &Image, overlap: u64) -> Self {
        Self::new(image.place.pool, image.place.nspace.clone(), image.id.clone(), NOSNAP, overlap)
    }
}
