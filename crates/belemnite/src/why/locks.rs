//! Locks on objects (class `lock`), and whether their holders are still there.

use super::Error;
use base::{EntityAddr, EntityName, PoolId, Utime};
use bytes::Bytes;
use client::{Client, ObjectRef};
use why::{Evidence, Lock};
use wire::msg::{OpCode, OsdOp};
use wire::types::ListWatchersReply;
use wire::{DecodeError, Features, Reader, Writer};

/// Most objects whose locks are looked at.
const OBJECTS_MAX: usize = 8;

/// An object whose locks are asked for.
pub(super) struct Asked {
    pool: PoolId,
    object: String,
}

/// The header of an image.
pub(super) async fn header(c: &Client, pool: PoolId, image: &str) -> Result<Asked, Error> {
    let name = format!("rbd_id.{image}");
    let r = c.op(&ObjectRef::new(pool, &name), vec![OsdOp::with_extent(OpCode::READ, 0, 256, Bytes::new())]).await?;
    if r.result < 0 {
        return Err(format!("no image {image} in that pool ({})", base::errno::name(r.result)).into());
    }
    let out = r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default();
    let id = Reader::shared(&out).string()?;
    Ok(Asked { pool, object: format!("rbd_header.{id}") })
}

async fn output(c: &Client, a: &Asked, op: OsdOp) -> Option<Bytes> {
    let r = c.op(&ObjectRef::new(a.pool, &a.object), vec![op]).await.ok()?;
    r.ops.first().filter(|_| r.result >= 0).map(|o| o.outdata.clone())
}

/// Holder of a lock.
struct Holder {
    who: EntityName,
    cookie: String,
    expires: bool,
    addr: EntityAddr,
}

/// Holders of a lock, of the answer to `lock.get_info`.
fn lockers(b: &Bytes) -> Result<Vec<Holder>, DecodeError> {
    Reader::shared(b).versioned("cls_lock_get_info_reply", 1, |r, _| {
        let n = r.count(12, "lockers")?;
        let mut all = Vec::new();
        for _ in 0..n {
            let (who, cookie) = r.versioned("locker_id_t", 1, |r, _| {
                let who: EntityName = r.get()?;
                Ok((who, String::from_utf8_lossy(&r.blob()?).into_owned()))
            })?;
            let (end, addr) = r.versioned("locker_info_t", 1, |r, _| {
                let (end, addr): (Utime, EntityAddr) = (r.get()?, r.get()?);
                r.blob()?;
                Ok((end, addr))
            })?;
            all.push(Holder { who, cookie, expires: end != Utime::default(), addr });
        }
        Ok(all)
    })
}

async fn of(c: &Client, a: &Asked) -> Option<Vec<Lock>> {
    let names = output(c, a, OsdOp::call("lock", "list_locks", &[])).await?;
    let names: Vec<Bytes> = Reader::shared(&names).versioned("cls_lock_list_locks_reply", 1, |r, _| r.get()).ok()?;
    let watchers = output(c, a, OsdOp::new(OpCode::LIST_WATCHERS)).await?;
    let watchers: ListWatchersReply = Reader::shared(&watchers).get().ok()?;
    let mut all = Vec::new();
    for name in names {
        let mut w = Writer::new(Features::PACIFIC);
        w.versioned(1, 1, |w| w.blob(&name));
        let info = output(c, a, OsdOp::call("lock", "get_info", &w.into_vec())).await?;
        for h in lockers(&info).ok()? {
            all.push(Lock {
                pool: a.pool.0,
                object: a.object.clone(),
                name: String::from_utf8_lossy(&name).into_owned(),
                cookie: h.cookie,
                owner: h.who.to_string(),
                // As in `rbd lock ls` and `ceph osd blocklist`.
                addr: h.addr.to_string().trim_start_matches("v1:").to_owned(),
                expires: h.expires,
                watches: watchers.entries.iter().any(|x| x.name == h.who),
            });
        }
    }
    Some(all)
}

/// Locks of the objects asked for, and of those whose calls were refused with `EBUSY`.
pub(super) async fn held(c: &Client, e: &Evidence, asked: Vec<Asked>) -> Vec<Lock> {
    let mut busy: Vec<_> = e.osds.iter().flat_map(|o| &o.refused).collect();
    busy.sort_by_key(|o| std::cmp::Reverse(o.calls));
    let busy = busy.into_iter().map(|o| Asked { pool: PoolId(o.pool), object: o.object.clone() });
    let mut all = Vec::new();
    for a in asked.into_iter().chain(busy).take(OBJECTS_MAX) {
        all.extend(of(c, &a).await.unwrap_or_default());
    }
    all
}
