//! The mirroring of an image: its record, and enabling and disabling it around other work on the image.

use super::image::{Image, Place, Step, absent_is_fine, enc, feature};
use super::mirror;
use super::snap::{self, Kind};
use base::errno::{EIO, ENOENT};
use bytes::Bytes;
use wire::Reader;

/// Object with the mirroring records of a pool and namespace.
const OBJECT: &str = "rbd_mirroring";
/// Mirroring modes of an image.
const BY_JOURNAL: u8 = 0;
pub(super) const BY_SNAPSHOT: u8 = 1;
/// States of a mirrored image's record.
const DISABLING: u8 = 0;
pub(super) const ENABLED: u8 = 1;
const DISABLED: u8 = 2;
/// Mirroring modes of a pool.
const NOTHING: u32 = 0;
const WHOLE_POOL: u32 = 2;
/// `WATCH_NOTIFY` payload for mirror daemons: an image was updated.
const IMAGE_UPDATED: u32 = 1;
/// Journal tags per request.
const TAGS: u64 = 64;

/// Mirroring record of an image.
#[derive(Clone, Debug)]
pub(super) struct Mirrored {
    pub(super) global: Bytes,
    state: u8,
    mode: u8,
}

/// The mirroring record of an image, if it has one.
pub(super) async fn get(place: &Place, id: &str) -> Step<Option<Mirrored>> {
    let b = match place.rbd(OBJECT, "mirror_image_get", enc(|w| w.blob(id.as_bytes()))).await {
        Err(ENOENT) => return Ok(None),
        r => r?,
    };
    let read = Reader::shared(&b).versioned("MirrorImage", 2, |r, v| {
        Ok(Mirrored { global: r.blob()?, state: r.u8()?, mode: if v >= 2 { r.u8()? } else { BY_JOURNAL } })
    });
    read.map(Some).map_err(|_| EIO)
}

impl Mirrored {
    /// True if the image is mirrored by snapshots.
    pub(super) fn is_by_snapshot(&self) -> bool {
        self.state == ENABLED && self.mode == BY_SNAPSHOT
    }

    /// True if mirrors replicate the image from its journal, so that changes must be recorded there.
    pub(super) fn needs_journal(&self) -> bool {
        self.state == ENABLED && self.mode == BY_JOURNAL
    }

    /// True if the image is primary in this cluster, so that it may be changed.
    pub(super) async fn is_primary(&self, image: &Image) -> Step<bool> {
        match self.mode {
            BY_SNAPSHOT => Ok(image.features & feature::NON_PRIMARY == 0),
            _ => owns_journal(image).await,
        }
    }

    async fn set(&self, place: &Place, id: &str) -> Step<()> {
        let input = enc(|w| {
            w.blob(id.as_bytes());
            w.versioned(2, 1, |w| {
                w.blob(&self.global);
                w.u8(self.state);
                w.u8(self.mode);
            });
        });
        place.rbd(OBJECT, "mirror_image_set", input).await?;
        self.tell(place, id).await
    }

    /// Notifies the mirror daemons of an update.
    async fn tell(&self, place: &Place, id: &str) -> Step<()> {
        let payload = enc(|w| {
            w.versioned(1, 1, |w| {
                w.u32(IMAGE_UPDATED);
                w.u32(self.state.into());
                w.blob(id.as_bytes());
                w.blob(&self.global);
            });
        });
        place.notify_object(OBJECT, &payload).await
    }
}

/// True if this cluster wrote the newest journal tag of an image, or if it has no journal.
async fn owns_journal(image: &Image) -> Step<bool> {
    let header = format!("journal.{}", image.id);
    let call = async |method: &str, input: Bytes| image.place.call(&header, "journal", method, input).await;
    let client = match call("get_client", enc(|w| w.blob(b""))).await {
        Err(ENOENT) => return Ok(true),
        r => r?,
    };
    let class = Reader::shared(&client).versioned("cls::journal::Client", 1, |r, _| {
        let (_id, data) = (r.blob()?, r.blob()?);
        r.rest();
        Reader::shared(&data).versioned("ClientData", 1, |r, _| {
            r.u32()?;
            let class = r.u64()?;
            r.rest();
            Ok(class)
        })
    });
    let class: u64 = class.map_err(|_| EIO)?;
    let mut owner = Bytes::new();
    let mut after = 0u64;
    loop {
        let input = enc(|w| {
            w.u64(after);
            w.u64(TAGS);
            w.blob(b"");
            w.put(&Some(class));
        });
        let tags = Reader::shared(&call("tag_list", input).await?)
            .vec_with("tags", |r| {
                r.versioned("cls::journal::Tag", 1, |r, _| {
                    let (tid, _class, data) = (r.u64()?, r.u64()?, r.blob()?);
                    Ok((tid, Reader::shared(&data).blob()?))
                })
            })
            .map_err(|_| EIO)?;
        let full = tags.len() as u64 >= TAGS;
        if let Some((tid, uuid)) = tags.into_iter().next_back() {
            (after, owner) = (tid, uuid);
        }
        if !full {
            // The local cluster's tag has an empty owner.
            return Ok(owner.is_empty());
        }
    }
}

/// Disables mirroring of an image whose lock is held: removes its mirror snapshots and its record.
pub(super) async fn disable(image: &Image, m: &Mirrored) -> Step<()> {
    let place = &image.place;
    Mirrored { state: DISABLING, ..m.clone() }.set(place, &image.id).await?;
    for s in snap::all(place, &image.id).await?.iter().filter(|s| s.kind == Kind::Mirror) {
        snap::remove_locked(image, s).await?;
    }
    absent_is_fine(place.rbd(OBJECT, "mirror_image_remove", enc(|w| w.blob(image.id.as_bytes()))).await)?;
    Mirrored { state: DISABLED, ..m.clone() }.tell(place, &image.id).await
}

/// Enables mirroring of an image: in its earlier mode `wanted`, or as a pool in mode `pool` requires.
pub(super) async fn enable(image: &Image, name: &str, wanted: Option<u8>) -> Step<()> {
    let place = &image.place;
    let pool: u32 = match place.rbd_as(OBJECT, "mirror_mode_get", Bytes::new()).await {
        Err(ENOENT) => NOTHING,
        r => r?,
    };
    let mode = match (pool, wanted) {
        (NOTHING, _) => return Ok(()),
        (_, Some(mode)) => mode,
        (WHOLE_POOL, None) => BY_JOURNAL,
        (_, None) => return Ok(()),
    };
    if mode == BY_JOURNAL && !image.is_journaled() {
        if wanted.is_some() {
            tracing::warn!("mgr: image {name} has lost its journal: mirroring stays disabled");
        }
        return Ok(());
    }
    let stored = get(place, &image.id).await?;
    if stored.as_ref().is_none_or(|m| m.state != ENABLED) {
        let global = stored.map_or_else(|| super::uuid().into(), |m| m.global);
        Mirrored { global, state: ENABLED, mode }.set(place, &image.id).await?;
    }
    let has_one = snap::all(place, &image.id).await?.iter().any(|s| s.kind == Kind::Mirror);
    if mode == BY_SNAPSHOT && !has_one {
        mirror::create(place, &image.id, name).await?;
    }
    Ok(())
}
