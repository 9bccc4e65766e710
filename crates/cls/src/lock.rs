//! Class `lock`: advisory locks on an object, held by pairs of client and cookie.
//!
//! Stored: an xattr `lock.<name>` per lock: ENCODE(1,1){map<locker, info>, u8 type, tag}. The end of an
//! exclusive-ephemeral lock removes the object.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, enc_for, fail, input, join, stored};
use base::errno::{EBUSY, EEXIST, EINVAL, EIO, ENOENT};
use base::{AddrKind, EntityAddr, EntityName, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::{Features, Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rd("assert_locked", assert_locked).promote(),
    Method::rdwr("break_lock", break_lock),
    Method::rd("get_info", get_info),
    Method::rd("list_locks", list_locks),
    Method::rdwr("lock", lock).promote(),
    Method::rdwr("set_cookie", set_cookie).promote(),
    Method::rdwr("unlock", unlock).promote(),
];

const PREFIX: &[u8] = b"lock.";

const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const EXCLUSIVE_EPHEMERAL: u8 = 3;

const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

/// `locker_id_t`, ordered by client type, number and cookie.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockerId {
    kind: u8,
    num: i64,
    cookie: Bytes,
}

impl LockerId {
    fn new(who: EntityName, cookie: Bytes) -> Self {
        Self { kind: who.kind.0, num: who.num, cookie }
    }
}

/// `locker_info_t`.
#[derive(Clone, Debug)]
struct LockerInfo {
    expiration: Utime,
    addr: EntityAddr,
    description: Bytes,
}

/// `lock_info_t`.
#[derive(Clone, Debug, Default)]
struct LockInfo {
    lockers: BTreeMap<LockerId, LockerInfo>,
    kind: u8,
    tag: Bytes,
}

impl LockInfo {
    fn encode_lockers(&self, w: &mut Writer) {
        w.seq(self.lockers.iter(), |w, (id, info)| {
            w.versioned(1, 1, |w| {
                w.u8(id.kind);
                w.i64(id.num);
                w.blob(&id.cookie);
            });
            w.versioned(1, 1, |w| {
                w.put(&info.expiration);
                w.put(&info.addr);
                w.blob(&info.description);
            });
        });
    }

    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            self.encode_lockers(w);
            w.u8(self.kind);
            w.blob(&self.tag);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("lock_info_t", 1, |r, _| {
            let n = r.count(12, "lockers")?;
            let mut lockers = BTreeMap::new();
            for _ in 0..n {
                let id = r.versioned("locker_id_t", 1, |r, _| {
                    Ok(LockerId { kind: r.u8()?, num: r.i64()?, cookie: r.blob()? })
                })?;
                let info = r.versioned("locker_info_t", 1, |r, _| {
                    Ok(LockerInfo { expiration: r.get()?, addr: r.get()?, description: r.blob()? })
                })?;
                lockers.insert(id, info);
            }
            Ok(Self { lockers, kind: r.u8()?, tag: r.blob()? })
        })
    }
}

fn valid(kind: u8) -> bool {
    matches!(kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL)
}

/// Reads a lock without its expired lockers; also returns whether the lock ended with the last of them.
fn read_lock(c: &mut dyn ObjectCtx, name: &[u8]) -> ClsResult<(LockInfo, bool)> {
    let b = match c.getxattr(&join(PREFIX, name)) {
        Err(e) if e.is(base::errno::ENODATA) => return Ok((LockInfo::default(), false)),
        r => r?,
    };
    let mut l = stored(&b, LockInfo::decode)?;
    let now = c.now();
    l.lockers.retain(|_, i| i.expiration == Utime::ZERO || i.expiration >= now);
    let ended = l.lockers.is_empty() && l.kind == EXCLUSIVE_EPHEMERAL;
    Ok((l, ended))
}

fn write_lock(c: &mut dyn ObjectCtx, name: &[u8], l: &LockInfo) -> ClsResult<()> {
    let b = enc_for(Features(c.client_features()), |w| l.encode(w));
    c.setxattr(&join(PREFIX, name), &b)
}

fn lock(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, kind, cookie, tag, description, duration, flags) = input(i, |r| {
        r.versioned("cls_lock_lock_op", 1, |r, _| {
            Ok((r.blob()?, r.u8()?, r.blob()?, r.blob()?, r.blob()?, r.get::<Utime>()?, r.u8()?))
        })
    })?;
    let (may_renew, must_renew) = (flags & MAY_RENEW != 0, flags & MUST_RENEW != 0);
    if !valid(kind) || name.is_empty() || (may_renew && must_renew) {
        return fail(EINVAL);
    }
    let (mut l, ended) = match read_lock(c, &name) {
        Err(e) if e.is(ENOENT) => (LockInfo::default(), false),
        r => r?,
    };
    let (who, mut addr) = c.origin();
    // Must precede the renewal check, which may remove the locker that holds the tag.
    if !l.lockers.is_empty() && l.tag != tag {
        return fail(EBUSY);
    }
    let id = LockerId::new(who, cookie);
    if l.lockers.contains_key(&id) {
        if !may_renew && !must_renew {
            return fail(EEXIST);
        }
        l.lockers.remove(&id);
    } else if must_renew {
        return fail(ENOENT);
    }
    if !l.lockers.is_empty() && (kind != SHARED || l.kind != kind) {
        return fail(EBUSY);
    }
    if ended {
        c.remove()?;
    }
    let expiration = if duration == Utime::ZERO { Utime::ZERO } else { c.now().plus(duration.to_unix()) };
    // The msgr version of a client is not part of its identity, and old clients print only v1 addresses.
    addr.kind = AddrKind::LEGACY;
    l.kind = kind;
    l.tag = tag;
    l.lockers.insert(id, LockerInfo { expiration, addr, description });
    write_lock(c, &name, &l)?;
    Ok(Output::default())
}

fn remove_locker(c: &mut dyn ObjectCtx, name: &[u8], who: EntityName, cookie: Bytes) -> ClsResult<Output> {
    let (mut l, _) = read_lock(c, name)?;
    if l.lockers.remove(&LockerId::new(who, cookie)).is_none() {
        return fail(ENOENT);
    }
    if l.kind == EXCLUSIVE_EPHEMERAL {
        if !l.lockers.is_empty() {
            // An exclusive lock with two lockers is corrupt.
            return fail(EIO);
        }
        c.remove()?;
    } else {
        write_lock(c, name, &l)?;
    }
    Ok(Output::default())
}

fn unlock(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, cookie) = input(i, |r| r.versioned("cls_lock_unlock_op", 1, |r, _| Ok((r.blob()?, r.blob()?))))?;
    let (who, _) = c.origin();
    remove_locker(c, &name, who, cookie)
}

fn break_lock(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, who, cookie) =
        input(i, |r| r.versioned("cls_lock_break_op", 1, |r, _| Ok((r.blob()?, r.get()?, r.blob()?))))?;
    remove_locker(c, &name, who, cookie)
}

fn get_info(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let name = input(i, |r| r.versioned("cls_lock_get_info_op", 1, |r, _| r.blob()))?;
    let (l, _) = read_lock(c, &name)?;
    Ok(enc_for(Features(c.client_features()), |w| l.encode(w)).into())
}

fn list_locks(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut names: Vec<Bytes> = c
        .getxattrs()?
        .into_iter()
        .filter(|(k, _)| k.starts_with(PREFIX))
        .map(|(k, _)| k.slice(PREFIX.len()..))
        .collect();
    names.sort();
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&names))).into())
}

/// Checks that the sender holds the lock as it claims.
fn check_held(
    c: &mut dyn ObjectCtx,
    name: &[u8],
    kind: u8,
    cookie: &Bytes,
    tag: &[u8],
) -> ClsResult<(LockInfo, LockerId)> {
    if !valid(kind) || name.is_empty() {
        return fail(EINVAL);
    }
    let (l, _) = read_lock(c, name)?;
    let (who, _) = c.origin();
    let id = LockerId::new(who, cookie.clone());
    if l.lockers.is_empty() || l.kind != kind || l.tag != tag || !l.lockers.contains_key(&id) {
        return fail(EBUSY);
    }
    Ok((l, id))
}

fn assert_locked(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, kind, cookie, tag) =
        input(i, |r| r.versioned("cls_lock_assert_op", 1, |r, _| Ok((r.blob()?, r.u8()?, r.blob()?, r.blob()?))))?;
    check_held(c, &name, kind, &cookie, &tag)?;
    Ok(Output::default())
}

fn set_cookie(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, kind, cookie, tag, new) = input(i, |r| {
        r.versioned("cls_lock_set_cookie_op", 1, |r, _| Ok((r.blob()?, r.u8()?, r.blob()?, r.blob()?, r.blob()?)))
    })?;
    let (mut l, id) = check_held(c, &name, kind, &cookie, &tag)?;
    let new_id = LockerId { cookie: new, ..id.clone() };
    if l.lockers.contains_key(&new_id) {
        return fail(EBUSY);
    }
    if let Some(info) = l.lockers.remove(&id) {
        l.lockers.insert(new_id, info);
    }
    write_lock(c, &name, &l)?;
    Ok(Output::default())
}
