//! Mirror snapshots, made by schedules.
//!
//! The holder of the image's exclusive lock makes the snapshot, so that its view of snapshots and object map stays
//! right. If a client holds the lock the manager asks that client; otherwise the manager takes the lock for the
//! duration.

use super::image::{COOKIE, Image, NOSNAP, Place, Step, absent_is_fine, enc, feature};
use super::mirrored::{self, Mirrored};
use super::snap::{self, Kind, Snap};
use base::SnapId;
use base::errno::{EBUSY, EEXIST, EINVAL, EIO, ENOENT, EOPNOTSUPP, ESTALE};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::{OpCode, OsdOp};
use wire::{Reader, Writer};

/// Direction of a peer that only sends to this cluster.
const RX: u8 = 0;
/// Most images listed in one pool and namespace.
const IMAGES_MAX: usize = 1 << 20;
/// Records per request.
const PAGE: u64 = 1024;
/// Most mirror snapshots that a peer has not copied (`rbd_mirroring_max_mirroring_snapshots`).
const UNCOPIED_MAX: usize = 5;
/// `WATCH_NOTIFY` payload: create a snapshot.
const SNAP_CREATE: u32 = 8;
/// Snapshot flag: do not ask other clients to quiesce.
const SKIP_QUIESCE: u64 = 1;
/// Time limit in seconds for the client that holds the lock.
const OWNER_SECONDS: u32 = 30;
/// Bytes of each image state object, as with the default object order.
const STATE_OBJECT: usize = 4 << 20;
/// Most metadata entries of an image that are read: 1,000 pages.
const METADATA_MAX: usize = 64_000;
/// Implicit feature bits, which are not part of an image's state.
const IMPLICIT: u64 = 2 | 128 | 256 | 512 | 1024;

/// A mirror snapshot: the fields used here.
#[derive(Clone, Debug)]
struct MirrorSnap {
    snap: Snap,
    /// State: 0 primary, 1 demoted primary, 2 non-primary, 3 demoted non-primary.
    state: u8,
    complete: bool,
    peers: BTreeSet<Bytes>,
}

/// A user's snapshot.
struct UserSnap {
    id: u64,
    name: Bytes,
    protection: u8,
}

/// Images of a place that are mirrored by snapshots and primary in this cluster.
pub(super) async fn primaries(place: &Place) -> Step<Vec<String>> {
    let mut out = Vec::new();
    let mut after = Bytes::new();
    while out.len() < IMAGES_MAX {
        let input = enc(|w| {
            w.blob(&after);
            w.u64(PAGE);
        });
        let page: BTreeMap<Bytes, Bytes> = match place.rbd_as("rbd_mirroring", "mirror_image_list", input).await {
            Err(ENOENT) => break,
            r => r?,
        };
        let Some((last, _)) = page.last_key_value() else { break };
        after = last.clone();
        let full = page.len() as u64 >= PAGE;
        for id in page.into_keys() {
            let id = String::from_utf8_lossy(&id).into_owned();
            if global_id(place, &id).await?.is_some() && is_primary(place, &id).await? {
                out.push(id);
            }
        }
        if !full {
            break;
        }
    }
    Ok(out)
}

/// The global id of an image; `None` unless it is mirrored by snapshots.
pub(super) async fn global_id(place: &Place, id: &str) -> Step<Option<Bytes>> {
    Ok(mirrored::get(place, id).await?.filter(Mirrored::is_by_snapshot).map(|m| m.global))
}

async fn is_primary(place: &Place, id: &str) -> Step<bool> {
    match snapshots(place, id).await {
        Ok((mirror, _)) => Ok(mirror.last().is_some_and(|s| s.state == 0)),
        Err(ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Mirror snapshots and users' snapshots of an image, oldest first.
async fn snapshots(place: &Place, id: &str) -> Step<(Vec<MirrorSnap>, Vec<UserSnap>)> {
    let header = format!("rbd_header.{id}");
    let (mut mirror, mut user) = (Vec::new(), Vec::new());
    for snap in snap::all(place, id).await?.into_iter().rev() {
        match snap.kind {
            Kind::Mirror => {
                let mut r = Reader::shared(&snap.nspace);
                let read = r.u32().and_then(|_| Ok((r.u8()?, r.bool()?, r.get::<BTreeSet<Bytes>>()?)));
                let (state, complete, peers) = read.map_err(|_| EIO)?;
                mirror.push(MirrorSnap { snap, state, complete, peers });
            }
            Kind::User => {
                let protection = place.rbd_as(&header, "get_protection_status", enc(|w| w.u64(snap.id))).await?;
                user.push(UserSnap { id: snap.id, name: snap.name, protection });
            }
            Kind::Group | Kind::Trash => {}
        }
    }
    Ok((mirror, user))
}

/// UUIDs of the peers that copy from this cluster.
async fn peers(place: &Place) -> Step<BTreeSet<Bytes>> {
    let pool = Place { nspace: Bytes::new(), ..place.clone() };
    let b = match pool.rbd("rbd_mirroring", "mirror_peer_list", Bytes::new()).await {
        Err(ENOENT) => return Ok(BTreeSet::new()),
        r => r?,
    };
    let all = Reader::shared(&b).vec_with("peers", |r| {
        r.versioned("MirrorPeer", 2, |r, v| {
            let uuid = r.blob()?;
            let (_site, _client, _pool) = (r.blob()?, r.blob()?, r.i64()?);
            Ok((uuid, if v >= 2 { r.u8()? } else { RX + 2 }))
        })
    });
    Ok(all.map_err(|_| EIO)?.into_iter().filter(|(_, d)| *d != RX).map(|(u, _)| u).collect())
}

/// The namespace of a primary snapshot.
fn put_namespace(w: &mut Writer, peers: &BTreeSet<Bytes>) {
    w.versioned(1, 1, |w| {
        w.u32(3);
        w.u8(0);
        w.bool(false);
        w.put(peers);
        w.blob(b"");
        w.u64(NOSNAP);
        w.u64(0);
        w.put(&BTreeMap::<u64, u64>::new());
    });
}

/// Creates a mirror snapshot and unlinks those that peers no longer need.
pub(super) async fn create(place: &Place, id: &str, name_of_image: &str) -> Step<()> {
    let Some(global) = global_id(place, id).await? else { return Err(EINVAL) };
    let (mirror, _) = snapshots(place, id).await?;
    if mirror.last().is_some_and(|s| s.state != 0) {
        return Err(EINVAL);
    }
    let peers = peers(place).await?;
    let name = format!(".mirror.primary.{}.{}", String::from_utf8_lossy(&global), super::uuid());
    let image = Image::open(place, id, None).await?;
    let cookie = format!("{COOKIE}snapshot {}", super::uuid());
    match image.lock(&cookie).await {
        Err(EBUSY) => {
            ask_owner(&image, SNAP_CREATE, OWNER_SECONDS, |w| {
                w.blob(name.as_bytes());
                put_namespace(w, &peers);
                // Request ids of zero: the client answers when the snapshot is done.
                (0..3).for_each(|_| w.u64(0));
                w.u64(SKIP_QUIESCE);
            })
            .await?;
        }
        Err(e) => return Err(e),
        Ok(()) => {
            let r = create_locked(&image, name_of_image, &name, &peers).await;
            image.unlock(&cookie).await?;
            r?;
            image.notify().await?;
        }
    }
    unlink(place, id, &peers).await
}

/// Asks the client that holds the lock to carry out a request.
pub(super) async fn ask_owner(image: &Image, what: u32, seconds: u32, f: impl FnOnce(&mut Writer)) -> Step<()> {
    let payload = enc(|w| {
        w.versioned(7, 1, |w| {
            w.u32(what);
            f(w);
        });
    });
    let o = image.place.object(&image.header());
    let reply = image.place.client.notify(&o, &payload, seconds).await.map_err(super::image::failed)?;
    // Only the lock owner sends more than an empty acknowledgement.
    let Some(answer) = reply.acks.values().find(|a| !a.is_empty()) else { return Err(EBUSY) };
    let r = Reader::shared(answer).versioned("ResponseMessage", 1, |r, _| r.i32()).map_err(|_| EIO)?;
    if r < 0 && r != EEXIST { Err(r) } else { Ok(()) }
}

async fn create_locked(image: &Image, image_name: &str, name: &str, peers: &BTreeSet<Bytes>) -> Step<()> {
    let (place, header) = (&image.place, image.header());
    let snap = loop {
        let snap = place.client.create_snap(image.data.pool).await.map_err(super::image::failed)?;
        let input = enc(|w| {
            w.blob(name.as_bytes());
            w.u64(snap.0);
            put_namespace(w, peers);
        });
        match place.rbd(&header, "snapshot_add", input).await {
            // Another client allocated a newer snapshot id first.
            Err(ESTALE) => place.client.remove_snap(image.data.pool, snap).await.map_err(super::image::failed)?,
            Err(e) => {
                place.client.remove_snap(image.data.pool, snap).await.map_err(super::image::failed)?;
                return Err(e);
            }
            Ok(_) => break snap,
        }
    };
    if image.features & feature::OBJECT_MAP != 0 {
        let map = format!("rbd_object_map.{}", image.id);
        let read = OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new());
        match place.op(&place.object(&map), read, SnapId::HEAD).await {
            Err(ENOENT) => {}
            Err(e) => return Err(e),
            Ok(bits) => {
                let o = place.object(&format!("{map}.{:016x}", snap.0));
                let len = bits.len() as u64;
                place.op(&o, OsdOp::with_extent(OpCode::WRITEFULL, 0, len, bits), SnapId::HEAD).await?;
                if image.features & feature::FAST_DIFF != 0 {
                    place.rbd(&map, "object_map_snap_add", Bytes::new()).await?;
                }
            }
        }
    }
    write_state(image, image_name, snap.0).await?;
    let input = enc(|w| {
        w.u64(snap.0);
        w.bool(true);
        w.u64(0);
    });
    place.rbd(&header, "mirror_image_snapshot_set_copy_progress", input).await.map(|_| ())
}

/// Writes the state objects of a mirror snapshot, which have all that a peer needs besides the data.
async fn write_state(image: &Image, image_name: &str, snap: u64) -> Step<()> {
    let (place, header) = (&image.place, image.header());
    let limit: u64 = match place.rbd_as(&header, "snapshot_get_limit", Bytes::new()).await {
        Err(EOPNOTSUPP) => u64::MAX,
        r => r?,
    };
    let (_, users) = snapshots(place, &image.id).await?;
    let metadata = metadata(image).await?;
    let state = enc(|w| {
        w.versioned(1, 1, |w| {
            w.blob(image_name.as_bytes());
            w.u64(image.features & !IMPLICIT);
            w.u64(limit);
            w.u32(users.len() as u32);
            for s in &users {
                w.u64(s.id);
                w.versioned(1, 1, |w| {
                    w.versioned(1, 1, |w| w.u32(0));
                    w.blob(&s.name);
                    w.u8(s.protection);
                });
            }
            w.put(&metadata);
        });
    });
    let head = |count: u32| enc(|w| w.versioned(1, 1, |w| w.u32(count)));
    let count = 1 + (head(0).len() + state.len()) / STATE_OBJECT;
    let mut all = head(count as u32).to_vec();
    all.extend_from_slice(&state);
    // Write the first object last: its presence means that the state is complete.
    for i in (0..count).rev() {
        let end = all.len().min((i + 1) * STATE_OBJECT);
        let part = Bytes::copy_from_slice(&all[(i * STATE_OBJECT).min(end)..end]);
        let o = place.object(&format!("rbd_mirror_snapshot.{}.{snap}.{i}", image.id));
        let len = part.len() as u64;
        place.op(&o, OsdOp::with_extent(OpCode::WRITEFULL, 0, len, part), SnapId::HEAD).await?;
    }
    Ok(())
}

async fn metadata(image: &Image) -> Step<BTreeMap<Bytes, Bytes>> {
    let mut out: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut after = Bytes::new();
    while out.len() < METADATA_MAX {
        let input = enc(|w| {
            w.blob(&after);
            w.u64(64);
        });
        let page: BTreeMap<Bytes, Bytes> = image.place.rbd_as(&image.header(), "metadata_list", input).await?;
        let Some((last, _)) = page.last_key_value() else { break };
        after = last.clone();
        let full = page.len() >= 64;
        out.extend(page);
        if !full {
            break;
        }
    }
    Ok(out)
}

/// Unlinks peers from their surplus snapshots, and removes snapshots that no peer needs.
async fn unlink(place: &Place, id: &str, peers: &BTreeSet<Bytes>) -> Step<()> {
    for peer in peers {
        loop {
            let (mirror, _) = snapshots(place, id).await?;
            // Only snapshots made since the image became primary.
            let since = mirror.iter().rposition(|s| s.state != 0).map_or(0, |i| i + 1);
            let linked: Vec<&MirrorSnap> =
                mirror[since..].iter().filter(|s| s.peers.is_empty() || s.peers.contains(peer)).collect();
            let newest = linked.len().saturating_sub(1);
            let useless = linked[..newest].iter().find(|s| s.peers.is_empty() || !s.complete);
            let surplus = (linked.len() > UNCOPIED_MAX).then(|| linked[UNCOPIED_MAX - 1]);
            let Some(s) = useless.copied().or(surplus) else { break };
            if s.peers.len() > 1 {
                let input = enc(|w| {
                    w.u64(s.snap.id);
                    w.blob(peer);
                });
                let header = format!("rbd_header.{id}");
                absent_is_fine(place.rbd(&header, "mirror_image_snapshot_unlink_peer", input).await)?;
            } else {
                snap::remove(place, id, &s.snap).await?;
            }
        }
    }
    Ok(())
}

/// Removes the state objects of a mirror snapshot.
pub(super) async fn remove_state(image: &Image, snap: u64) -> Step<()> {
    for i in 0.. {
        let o = image.place.object(&format!("rbd_mirror_snapshot.{}.{snap}.{i}", image.id));
        match image.place.op(&o, OsdOp::new(OpCode::DELETE), SnapId::HEAD).await {
            Err(ENOENT) => break,
            r => r?,
        };
    }
    Ok(())
}
