//! Class `journal`: the journal of an RBD image: its header (`journal.<id>`) and the guard of its data objects.
//!
//! Keys of the header: `order` u8, `splay_width` u8, `pool_id` i64, `minimum_set` u64, `active_set` u64,
//! `next_tag_tid` u64, `next_tag_class` u64, `client_<id>` → `Client`, `tag_<16 hex tid>` → `Tag`.
//! A stored value that does not decode is `EINVAL` in this class.
//!
//! | module | contents |
//! | --- | --- |
//! | `tags` | tags of a journal: creation in order, listing, and expiry |
//! | `types` | encodings of class `journal`: `cls_journal_types.h` |

mod tags;
mod types;

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, fail, input, join, omap_opt, omap_put, omap_walk, optional, stored_as};
use base::errno::{EEXIST, EINVAL, ENOENT, EOVERFLOW, ESTALE};
use bytes::Bytes;
use types::{Client, Position};
use wire::{Decode, Encode};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("append", append),
    Method::rdwr("client_commit", client_commit),
    Method::rd("client_list", client_list),
    Method::rdwr("client_register", client_register),
    Method::rdwr("client_unregister", client_unregister),
    Method::rdwr("client_update_data", client_update_data),
    Method::rdwr("client_update_state", client_update_state),
    Method::rdwr("create", create),
    Method::rd("get_active_set", |c, _| answer_key::<u64>(c, ACTIVE_SET)),
    Method::rd("get_client", get_client),
    Method::rd("get_minimum_set", |c, _| answer_key::<u64>(c, MINIMUM_SET)),
    Method::rd("get_next_tag_tid", |c, _| answer_key::<u64>(c, NEXT_TAG_TID)),
    Method::rd("get_order", |c, _| answer_key::<u8>(c, ORDER)),
    Method::rd("get_pool_id", |c, _| answer_key::<i64>(c, POOL_ID)),
    Method::rd("get_splay_width", |c, _| answer_key::<u8>(c, SPLAY_WIDTH)),
    Method::rd("get_tag", tags::get),
    Method::rdwr("guard_append", guard_append),
    Method::rdwr("set_active_set", set_active_set),
    Method::rdwr("set_minimum_set", set_minimum_set),
    Method::rdwr("tag_create", tags::create),
    Method::rd("tag_list", tags::list),
];

const ORDER: &[u8] = b"order";
const SPLAY_WIDTH: &[u8] = b"splay_width";
const POOL_ID: &[u8] = b"pool_id";
const MINIMUM_SET: &[u8] = b"minimum_set";
const ACTIVE_SET: &[u8] = b"active_set";
const NEXT_TAG_TID: &[u8] = b"next_tag_tid";
const NEXT_TAG_CLASS: &[u8] = b"next_tag_class";
const CLIENT: &[u8] = b"client_";

fn get<T: Decode>(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<T> {
    T::from_bytes(&c.omap_get(key)?).map_err(|_| EINVAL.into())
}

fn put<T: Encode>(c: &mut dyn ObjectCtx, key: &[u8], value: &T) -> ClsResult<Output> {
    omap_put(c, Bytes::copy_from_slice(key), enc(|w| w.put(value))).map(Output::from)
}

fn answer<T: Encode>(value: &T) -> ClsResult<Output> {
    Ok(enc(|w| w.put(value)).into())
}

fn answer_key<T: Encode + Decode>(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Output> {
    answer(&get::<T>(c, key)?)
}

fn create(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (order, splay, pool) = input(i, |r| Ok((r.u8()?, r.u8()?, r.i64()?)))?;
    if omap_opt(c, ORDER)?.is_some() {
        return fail(EEXIST);
    }
    put(c, ORDER, &order)?;
    put(c, SPLAY_WIDTH, &splay)?;
    put(c, POOL_ID, &pool)?;
    for key in [ACTIVE_SET, MINIMUM_SET, NEXT_TAG_TID, NEXT_TAG_CLASS] {
        put(c, key, &0u64)?;
    }
    Ok(Output::default())
}

fn set_minimum_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let new = input(i, |r| r.u64())?;
    if get::<u64>(c, ACTIVE_SET)? < new {
        return fail(EINVAL);
    }
    advance(c, MINIMUM_SET, new)
}

fn set_active_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let new = input(i, |r| r.u64())?;
    if get::<u64>(c, MINIMUM_SET)? > new {
        return fail(EINVAL);
    }
    advance(c, ACTIVE_SET, new)
}

/// Sets a number unless it would decrease.
fn advance(c: &mut dyn ObjectCtx, key: &[u8], new: u64) -> ClsResult<Output> {
    let old: u64 = get(c, key)?;
    if new < old {
        return fail(ESTALE);
    }
    if new == old { Ok(Output::default()) } else { put(c, key, &new) }
}

fn client_key(id: &[u8]) -> Bytes {
    join(CLIENT, id)
}

fn all_clients(c: &mut dyn ObjectCtx) -> ClsResult<Vec<Client>> {
    let mut all = Vec::new();
    omap_walk(c, b"", CLIENT, |_, b| {
        all.push(stored_as(&b)?);
        Ok(true)
    })?;
    Ok(all)
}

fn get_client(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    answer_key::<Client>(c, &client_key(&id))
}

/// Initial position of a new client: the lowest position of all clients.
fn lowest_position(c: &mut dyn ObjectCtx) -> ClsResult<Vec<Position>> {
    let mut lowest: Option<Vec<Position>> = None;
    for client in all_clients(c)? {
        let Some(first) = client.commit.first() else { return Ok(Vec::new()) };
        let order = |p: &Position| (p.tag_tid, p.entry_tid);
        if lowest.as_ref().and_then(|l| l.first()).is_none_or(|l| order(l) > order(first)) {
            lowest = Some(client.commit);
        }
    }
    Ok(lowest.unwrap_or_default())
}

fn client_register(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, data) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    get::<u8>(c, ORDER)?;
    let key = client_key(&id);
    if omap_opt(c, &key)?.is_some() {
        return fail(EEXIST);
    }
    let commit = lowest_position(c)?;
    put(c, &key, &Client { id, data, commit, state: 0 })
}

fn client_update_data(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, data) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    let key = client_key(&id);
    let client: Client = get(c, &key)?;
    put(c, &key, &Client { data, ..client })
}

fn client_update_state(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, state) = input(i, |r| Ok((r.blob()?, r.u8()?)))?;
    let key = client_key(&id);
    let client: Client = get(c, &key)?;
    put(c, &key, &Client { state, ..client })
}

fn client_unregister(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    let key = client_key(&id);
    c.omap_get(&key)?;
    c.omap_rm(&key)?;
    tags::expire(c, Some(&id)).map(Output::from)
}

fn client_commit(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, commit) = input(i, |r| Ok((r.blob()?, types::decode_positions(r)?)))?;
    if commit.len() > get::<u8>(c, SPLAY_WIDTH)?.into() {
        return fail(EINVAL);
    }
    let key = client_key(&id);
    let client: Client = get(c, &key)?;
    if client.commit == commit {
        return Ok(Output::default());
    }
    put(c, &key, &Client { commit, ..client })
}

fn client_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let after = if after.is_empty() { Bytes::new() } else { client_key(&after) };
    let mut found: Vec<Client> = Vec::new();
    if max > 0 {
        omap_walk(c, &after, CLIENT, |_, b| {
            found.push(stored_as(&b)?);
            Ok((found.len() as u64) < max)
        })?;
    }
    answer(&found)
}

/// Size of a data object; `EOVERFLOW` if it is full.
fn size_below(c: &mut dyn ObjectCtx, soft_max: u64) -> ClsResult<u64> {
    let size = optional(c.stat())?.map_or(0, |(size, _)| size);
    if size >= soft_max { fail(EOVERFLOW) } else { Ok(size) }
}

fn guard_append(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let soft_max = input(i, |r| r.u64())?;
    match c.stat() {
        Err(e) if e.is(ENOENT) => Ok(Output::default()),
        Err(e) => Err(e),
        Ok(_) => size_below(c, soft_max).map(|_| Output::default()),
    }
}

/// Appends data unless the object is full. Ceph then pads the object to its allocation unit, for the benefit of its
/// store. Readers skip padding, so none is written here.
fn append(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (soft_max, data) = input(i, |r| Ok((r.u64()?, r.blob()?)))?;
    let at = size_below(c, soft_max)?;
    c.write(at, &data).map(Output::from)
}
