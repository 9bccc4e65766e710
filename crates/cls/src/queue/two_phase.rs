//! Class `2pc_queue`: a queue whose writers first reserve space and then commit or abort.
//!
//! Stored in the head's urgent data: `cls_2pc_urgent_data` (sums and reservations). Reservations that do not fit there
//! are in xattr `cls_queue_urgent_data`. OSDs of 20.2 write the urgent data as version 3, with the fields of version 2.
//! Older ones end after the reservations or after the sign for the xattr, whatever their version.

use super::init_input;
use super::ring::{self, Head, Marker, OVERHEAD};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{ENTRIES_MAX, enc, fail, input, optional};
use base::Utime;
use base::errno::{E2BIG, EAGAIN, EINVAL, ENOENT, ENOSPC};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("2pc_queue_abort", abort),
    Method::rdwr("2pc_queue_commit", commit),
    Method::rdwr("2pc_queue_expire_reservations", expire),
    Method::rd("2pc_queue_get_capacity", super::get_capacity),
    Method::rd("2pc_queue_get_topic_stats", get_topic_stats),
    Method::rdwr("2pc_queue_init", init),
    Method::rd("2pc_queue_list_entries", super::list),
    Method::rd("2pc_queue_list_reservations", list_reservations),
    Method::rdwr("2pc_queue_remove_entries", remove),
    Method::rdwr("2pc_queue_reserve", reserve),
];

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Space for reservations in the head, in bytes: about a thousand reservations.
const URGENT_MAX: u64 = 23_552;

/// Version of the urgent data that is written.
const URGENT_VERSION: u8 = 3;

/// `cls_2pc_reservation`.
#[derive(Clone, Debug)]
struct Reservation {
    size: u64,
    time: Utime,
    entries: u32,
}

impl Reservation {
    /// Reserved bytes, with the headers of the entries.
    fn held(&self) -> u64 {
        self.size.saturating_add(u64::from(self.entries) * OVERHEAD)
    }
}

impl Encode for Reservation {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.u64(self.size);
            w.put(&self.time);
            w.u32(self.entries);
        });
    }
}
impl Decode for Reservation {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_2pc_reservation", 2, |r, v| {
            Ok(Self { size: r.u64()?, time: r.get()?, entries: if v >= 2 { r.u32()? } else { 0 } })
        })
    }
}

type Reservations = BTreeMap<u32, Reservation>;

/// `cls_2pc_urgent_data` and the head that contains it.
struct State {
    head: Head,
    reserved: u64,
    last_id: u32,
    reservations: Reservations,
    spilled: bool,
    committed: u32,
}

impl State {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let head = Head::load(c)?;
        let urgent = head.urgent.clone();
        input(&urgent, |r| {
            r.versioned("cls_2pc_urgent_data", URGENT_VERSION, |r, _| {
                Ok(Self {
                    head,
                    reserved: r.u64()?,
                    last_id: r.u32()?,
                    reservations: r.get()?,
                    spilled: !r.is_empty() && r.bool()?,
                    committed: if r.is_empty() { 0 } else { r.u32()? },
                })
            })
        })
    }

    fn encode(&self) -> Bytes {
        enc(|w| {
            w.versioned(URGENT_VERSION, 1, |w| {
                w.u64(self.reserved);
                w.u32(self.last_id);
                w.put(&self.reservations);
                w.bool(self.spilled);
                w.u32(self.committed);
            });
        })
    }

    fn store(mut self, c: &mut dyn ObjectCtx) -> ClsResult<()> {
        self.head.urgent = self.encode();
        self.head.store(c)
    }

    /// Loads the reservations that did not fit in the head.
    fn load_spilled(&self, c: &mut dyn ObjectCtx) -> ClsResult<Reservations> {
        if !self.spilled {
            return Ok(Reservations::new());
        }
        match optional(c.getxattr(ATTR))? {
            Some(b) => input(&b, |r| r.get()),
            None => Ok(Reservations::new()),
        }
    }

    /// Number of entries from the front to a position; `E2BIG` above [`ENTRIES_MAX`].
    fn count_to(&self, c: &mut dyn ObjectCtx, end: Option<Marker>) -> ClsResult<u32> {
        let (mut start, mut n) = (None, 0u32);
        loop {
            let page = self.head.list(c, start, end, ring::LIST_MAX)?;
            n = n.saturating_add(page.entries.len() as u32);
            if n as usize > ENTRIES_MAX {
                return fail(E2BIG);
            }
            if page.entries.is_empty() || !page.truncated {
                return Ok(n);
            }
            start = Some(page.next);
        }
    }

    /// Removes a reservation from the head or the xattr.
    fn take(&mut self, c: &mut dyn ObjectCtx, id: u32) -> ClsResult<Option<Reservation>> {
        let found = match self.reservations.remove(&id) {
            Some(r) => Some(r),
            None => {
                let mut spilled = self.load_spilled(c)?;
                let found = spilled.remove(&id);
                if found.is_some() {
                    store_spilled(c, &spilled)?;
                }
                found
            }
        };
        if let Some(r) = &found {
            self.reserved = self.reserved.saturating_sub(r.held());
        }
        Ok(found)
    }
}

fn store_spilled(c: &mut dyn ObjectCtx, spilled: &Reservations) -> ClsResult<()> {
    c.setxattr(ATTR, &enc(|w| w.put(spilled)))
}

fn init(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (size, _, _) = init_input(i)?;
    let empty = enc(|w| {
        w.versioned(URGENT_VERSION, 1, |w| {
            w.u64(0);
            w.u32(0);
            w.put(&Reservations::new());
            w.bool(false);
            w.u32(0);
        });
    });
    Head::init(c, size, URGENT_MAX, empty).map(Output::from)
}

fn get_topic_stats(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let s = State::load(c)?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.u64(s.head.capacity().saturating_sub(s.head.free()));
            w.u32(s.committed);
        });
    })
    .into())
}

/// Reserves space and returns the reservation's id, so the client must request output of writes.
fn reserve(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (size, entries) = input(i, |r| r.versioned("cls_2pc_queue_reserve_op", 1, |r, _| Ok((r.u64()?, r.u32()?))))?;
    if size == 0 || entries == 0 {
        return fail(EINVAL);
    }
    let mut s = State::load(c)?;
    let new = Reservation { size, time: c.now(), entries };
    let Some(reserved) = s.reserved.checked_add(new.held()) else { return fail(ENOSPC) };
    if reserved > s.head.free() {
        return fail(ENOSPC);
    }
    s.reserved = reserved;
    s.last_id = s.last_id.wrapping_add(1);
    let id = s.last_id;
    // An id may still be in use after a wrap of the counter.
    if s.reservations.contains_key(&id) {
        return fail(EAGAIN);
    }
    s.reservations.insert(id, new.clone());
    if s.encode().len() as u64 > s.head.urgent_max {
        s.reservations.remove(&id);
        s.spilled = true;
        let mut spilled = s.load_spilled(c)?;
        if spilled.insert(id, new).is_some() {
            return fail(EAGAIN);
        }
        store_spilled(c, &spilled)?;
    }
    s.store(c)?;
    Ok(enc(|w| w.versioned(1, 1, |w| w.u32(id))).into())
}

fn commit(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, entries) =
        input(i, |r| r.versioned("cls_2pc_queue_commit_op", 1, |r, _| Ok((r.u32()?, r.get::<Vec<Bytes>>()?))))?;
    let mut s = State::load(c)?;
    let Some(r) = s.take(c, id)? else { return fail(ENOENT) };
    if r.size < entries.iter().map(|e| e.len() as u64).sum() {
        return fail(EINVAL);
    }
    s.head.enqueue(c, &entries)?;
    s.committed = s.committed.wrapping_add(r.entries);
    s.store(c).map(Output::from)
}

fn abort(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.versioned("cls_2pc_queue_abort_op", 1, |r, _| r.u32()))?;
    let mut s = State::load(c)?;
    match s.take(c, id)? {
        Some(_) => s.store(c).map(Output::from),
        None => Ok(Output::default()),
    }
}

fn list_reservations(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let s = State::load(c)?;
    let mut all = s.load_spilled(c)?;
    all.extend(s.reservations);
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&all))).into())
}

/// Removes reservations older than the given time, whose writers have failed.
fn expire(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let stale: Utime = input(i, |r| r.versioned("cls_2pc_queue_expire_op", 1, |r, _| r.get()))?;
    let mut s = State::load(c)?;
    let mut spilled = s.load_spilled(c)?;
    let (here, there) = (s.reservations.len(), spilled.len());
    let mut freed = 0u64;
    let mut keep = |_: &u32, r: &mut Reservation| {
        let fresh = r.time >= stale;
        if !fresh {
            freed = freed.saturating_add(r.held());
        }
        fresh
    };
    s.reservations.retain(&mut keep);
    spilled.retain(&mut keep);
    if spilled.len() != there {
        store_spilled(c, &spilled)?;
    } else if s.reservations.len() == here {
        return Ok(Output::default());
    }
    s.reserved = s.reserved.saturating_sub(freed);
    s.store(c).map(Output::from)
}

fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (end, count) = input(i, |r| {
        r.versioned("cls_2pc_queue_remove_op", 2, |r, v| Ok((r.blob()?, if v >= 2 { r.u32()? } else { 0 })))
    })?;
    let mut s = State::load(c)?;
    let end = Marker::parse(&end);
    // Old gateways do not send the number.
    let count = match count {
        0 => s.count_to(c, end)?,
        n => n,
    };
    s.head.remove(c, end)?;
    s.committed = s.committed.saturating_sub(count);
    s.store(c).map(Output::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemCtx;

    fn v1(f: impl FnOnce(&mut Writer)) -> Bytes {
        enc(|w| w.versioned(1, 1, f))
    }

    fn queue(size: u64) -> MemCtx {
        let mut c = MemCtx::new();
        let init = v1(|w| {
            w.u64(size);
            w.u64(0);
            w.blob(b"");
        });
        c.exec("2pc_queue", "2pc_queue_init", init).unwrap();
        c
    }

    fn reserve(c: &mut MemCtx, size: u64, entries: u32) -> Bytes {
        let input = v1(|w| {
            w.u64(size);
            w.u32(entries);
        });
        c.exec("2pc_queue", "2pc_queue_reserve", input).unwrap()
    }

    /// The urgent data of the queue.
    fn urgent(c: &mut MemCtx) -> Bytes {
        Head::load(c).unwrap().urgent
    }

    /// Heads of queues on an OSD of 20.2.4: empty, and after a reservation of 100 bytes in three entries.
    #[test]
    fn urgent_data_has_the_form_of_ceph() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
        };
        let mut c = queue(4096);
        assert_eq!(urgent(&mut c), hex("030115000000000000000000000000000000000000000000000000"));
        c.now = Utime { sec: 0x6b09_0984, nsec: 0x04d6_1c80 };
        reserve(&mut c, 100, 3);
        let want = "0301330000008200000000000000010000000100000001000000\
                    020114000000640000000000000084090\
                    96b801cd604030000000000000000";
        assert_eq!(urgent(&mut c), hex(&want.replace(' ', "")));
    }

    /// Urgent data of older OSDs: without the number of committed entries, and without the sign for the xattr.
    #[test]
    fn urgent_data_of_older_versions_is_read() {
        for (version, fields) in [(1, 3), (1, 4), (2, 4), (2, 5), (3, 5)] {
            let mut c = queue(4096);
            let mut head = Head::load(&mut c).unwrap();
            head.urgent = enc(|w| {
                w.versioned(version, 1, |w| {
                    w.u64(110);
                    w.u32(7);
                    w.put(&Reservations::from([(7, Reservation { size: 100, time: Utime::ZERO, entries: 1 })]));
                    if fields > 3 {
                        w.bool(false);
                    }
                    if fields > 4 {
                        w.u32(5);
                    }
                });
            });
            head.store(&mut c).unwrap();
            let s = State::load(&mut c).unwrap();
            let committed = if fields > 4 { 5 } else { 0 };
            assert_eq!((s.reserved, s.last_id, s.reservations.len(), s.committed), (110, 7, 1, committed));
            assert_eq!(s.encode()[0], 3, "it is written in the newest form");
            reserve(&mut c, 10, 1);
            assert_eq!(State::load(&mut c).unwrap().reservations.len(), 2);
        }
    }
}
