//! References to an image from its group and its clones, and their move to another image.
//!
//! Invariant: the new reference is written before the old one is removed. So a move can be repeated, and a reader never
//! sees an image without its dependents.

use super::image::{Image, Parent, Place, Step, absent_is_fine, enc};
use base::PoolId;
use base::errno::{EEXIST, EIO, ENOENT, ESTALE};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Reader, Writer};

/// State of an image in its group: incomplete, or a member.
const INCOMPLETE: u8 = 1;
const ATTACHED: u8 = 0;

fn there_is_fine(r: Step<Bytes>) -> Step<()> {
    match r {
        Ok(_) | Err(EEXIST) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes `to` a member of a group in place of `from`.
pub(super) async fn move_group(from: &Image, to: &Image) -> Step<()> {
    let b = from.place.rbd(&from.header(), "image_group_get", Bytes::new()).await?;
    let spec = Reader::shared(&b).versioned("GroupSpec", 1, |r, _| Ok((r.i64()?, r.blob()?)));
    let (pool, group) = spec.map_err(|_| EIO)?;
    if pool < 0 {
        return Ok(());
    }
    let place = Place { pool: PoolId(pool), ..from.place.clone() };
    let header = format!("rbd_group_header.{}", String::from_utf8_lossy(&group));
    let member = |i: &Image, state: Option<u8>| {
        let spec = |w: &mut Writer| {
            w.versioned(1, 1, |w| {
                w.blob(i.id.as_bytes());
                w.i64(i.place.pool.0);
            });
        };
        enc(|w| match state {
            None => spec(w),
            Some(s) => w.versioned(1, 1, |w| {
                spec(w);
                w.u8(s);
            }),
        })
    };
    let group = enc(|w| {
        w.versioned(1, 1, |w| {
            w.i64(pool);
            w.blob(&group);
        });
    });
    place.rbd(&header, "group_image_set", member(to, Some(INCOMPLETE))).await?;
    to.place.rbd(&to.header(), "image_group_add", group.clone()).await?;
    place.rbd(&header, "group_image_set", member(to, Some(ATTACHED))).await?;
    absent_is_fine(place.rbd(&header, "group_image_remove", member(from, None)).await)?;
    absent_is_fine(from.place.rbd(&from.header(), "image_group_remove", group).await)
}

/// A clone, and the list that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Child {
    pool: PoolId,
    nspace: Bytes,
    id: Bytes,
    /// Whether the pool's list of children names the clone (format 1), not the parent's header (format 2).
    listed_by_pool: bool,
}

/// Key of a snapshot in a pool's list of children, with the child if one is given.
fn listed(parent: &Image, snap: u64, child: Option<&Bytes>) -> Bytes {
    enc(|w| {
        w.i64(parent.place.pool.0);
        w.blob(parent.id.as_bytes());
        w.u64(snap);
        if let Some(c) = child {
            w.blob(c);
        }
    })
}

/// Clones of a snapshot, of both formats.
async fn children(parent: &Image, snap: u64) -> Step<BTreeSet<Child>> {
    let mut out = BTreeSet::new();
    match parent.place.rbd(&parent.header(), "children_list", enc(|w| w.u64(snap))).await {
        Err(ENOENT) => {}
        r => {
            let all = Reader::shared(&r?).vec_with("children", |r| {
                r.versioned("ChildImageSpec", 2, |r, v| {
                    let (pool, id) = (PoolId(r.i64()?), r.blob()?);
                    let nspace = if v >= 2 { r.blob()? } else { Bytes::new() };
                    Ok(Child { pool, nspace, id, listed_by_pool: false })
                })
            });
            out.extend(all.map_err(|_| EIO)?);
        }
    }
    let map = parent.place.client.osdmap().await.map_err(super::image::failed)?;
    let rbd = map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd"));
    for pool in rbd.map(|(id, _)| *id) {
        let place = Place { pool, ..parent.place.clone() };
        match place.rbd_as::<BTreeSet<Bytes>>("rbd_children", "get_children", listed(parent, snap, None)).await {
            Err(ENOENT) => {}
            r => out.extend(r?.into_iter().map(|id| Child {
                pool,
                nspace: place.nspace.clone(),
                id,
                listed_by_pool: true,
            })),
        }
    }
    Ok(out)
}

/// Changes the parent of all clones of an image's snapshots: from a snapshot of `from` to the corresponding one of
/// `to`.
pub(super) async fn move_children(from: &Image, to: &Image, snaps: &BTreeMap<u64, u64>) -> Step<()> {
    for (ours, theirs) in snaps {
        if !from.snaps.contains(ours) || !to.snaps.contains(theirs) {
            continue;
        }
        let mut all = children(from, *ours).await?;
        // Also the clones that an interrupted attempt, of a manager or a client, has already moved.
        all.extend(children(to, *theirs).await?);
        for child in &all {
            move_child(child, (from, *ours), (to, *theirs)).await?;
        }
    }
    Ok(())
}

async fn move_child(child: &Child, from: (&Image, u64), to: (&Image, u64)) -> Step<()> {
    let place = Place { client: to.0.place.client.clone(), pool: child.pool, nspace: child.nspace.clone() };
    let id = String::from_utf8_lossy(&child.id).into_owned();
    let image = Image::open(&place, &id, None).await?;
    let flattened = image.parent.is_none();
    let parent = match (&image.parent, image.snaps.last()) {
        (None, Some(oldest)) => Image::open(&place, &id, Some(*oldest)).await?.parent,
        (p, _) => p.clone(),
    };
    let Some(parent) = parent else { return Err(ESTALE) };
    let target = Parent { overlap: parent.overlap, ..Parent::snapshot(to.0, to.1) };
    if !parent.is(&target) {
        if !parent.is(&Parent::snapshot(from.0, from.1)) {
            tracing::warn!("mgr: {id} is listed as a clone of {}, but its parent is {}", from.0.id, parent.id);
            return Err(ESTALE);
        }
        let input = enc(|w| {
            w.versioned(1, 1, |w| {
                w.i64(target.pool.0);
                w.blob(&target.nspace);
                w.blob(target.id.as_bytes());
                w.u64(target.snap);
            });
            w.u64(target.overlap);
            w.bool(true);
        });
        place.rbd(&image.header(), "parent_attach", input).await?;
        if flattened {
            place.rbd(&image.header(), "parent_detach", Bytes::new()).await?;
        }
    }
    if child.listed_by_pool {
        there_is_fine(place.rbd("rbd_children", "add_child", listed(to.0, to.1, Some(&child.id))).await)?;
        absent_is_fine(place.rbd("rbd_children", "remove_child", listed(from.0, from.1, Some(&child.id))).await)?;
    } else {
        let input = |snap: u64| {
            enc(|w| {
                w.u64(snap);
                w.versioned(2, 1, |w| {
                    w.i64(child.pool.0);
                    w.blob(&child.id);
                    w.blob(&child.nspace);
                });
            })
        };
        there_is_fine(to.0.place.rbd(&to.0.header(), "child_attach", input(to.1)).await)?;
        absent_is_fine(from.0.place.rbd(&from.0.header(), "child_detach", input(from.1)).await)?;
    }
    image.notify().await
}
