//! Class `rgw_gc`: garbage of radosgw in a queue (see [`crate::queue::ring`]). Each entry is a chain of objects to
//! remove from a given time on. A deferred chain stays in place, and its new time is stored besides the queue.
//!
//! Stored in the head's urgent data: `cls_rgw_gc_urgent_data`; the part that does not fit in xattr
//! `cls_queue_urgent_data`.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::queue::ring::{Head, LIST_MAX, Marker};
use crate::registry::{Method, Output};
use crate::rgw::gc::{Info, LIST_DEFAULT, list_input, list_output, set_input};
use crate::util::{ENTRIES_MAX, enc, fail, input, optional};
use base::Utime;
use base::errno::{E2BIG, ENOSPC};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("rgw_gc_queue_enqueue", enqueue),
    Method::rdwr("rgw_gc_queue_init", init),
    Method::rd("rgw_gc_queue_list_entries", list),
    Method::rdwr("rgw_gc_queue_remove_entries", remove),
    Method::rdwr("rgw_gc_queue_update_entry", update),
];

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Space for deferred entries in the head, in bytes (`rgw_gc_max_deferred_entries_size`).
const URGENT_MAX: u64 = 3 << 10;

/// Times of deferred chains by tag.
type Deferred = BTreeMap<Bytes, Utime>;

/// `cls_rgw_gc_urgent_data`.
#[derive(Default)]
struct Urgent {
    deferred: Deferred,
    /// Most deferred chains in the head.
    max: u32,
    in_head: u32,
    in_attr: u32,
}

impl Urgent {
    /// Decodes the urgent data, which every queue has.
    fn decode(b: &Bytes) -> ClsResult<Self> {
        input(b, |r| {
            r.versioned("cls_rgw_gc_urgent_data", 1, |r, _| {
                Ok(Self { deferred: r.get()?, max: r.u32()?, in_head: r.u32()?, in_attr: r.u32()? })
            })
        })
    }

    fn load(head: &Head) -> ClsResult<Self> {
        if head.urgent.is_empty() { Ok(Self::default()) } else { Self::decode(&head.urgent) }
    }

    fn encode(&self) -> Bytes {
        enc(|w: &mut Writer| {
            w.versioned(1, 1, |w| {
                w.put(&self.deferred);
                w.u32(self.max);
                w.u32(self.in_head);
                w.u32(self.in_attr);
            });
        })
    }
}

fn load_attr(c: &mut dyn ObjectCtx) -> ClsResult<Option<Deferred>> {
    optional(c.getxattr(ATTR))?.map(|b| input(&b, Deferred::decode)).transpose()
}

fn store_attr(c: &mut dyn ObjectCtx, d: &Deferred) -> ClsResult<()> {
    c.setxattr(ATTR, &enc(|w| w.put(d)))
}

fn init(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (size, max) = input(i, |r| r.versioned("cls_rgw_gc_queue_init_op", 1, |r, _| Ok((r.u64()?, r.u64()?))))?;
    let urgent = Urgent { max: max as u32, ..Urgent::default() };
    Head::init(c, size, URGENT_MAX, urgent.encode()).map(Output::from)
}

fn enqueue(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (seconds, mut info) = set_input(i)?;
    info.due_in(c, seconds);
    let mut head = Head::load(c)?;
    head.enqueue(c, &[enc(|w| w.put(&info))])?;
    head.store(c).map(Output::from)
}

/// The queue with the deferred chains.
struct Queue {
    head: Head,
    urgent: Urgent,
    attr: Option<Deferred>,
}

impl Queue {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let head = Head::load(c)?;
        let urgent = Urgent::load(&head)?;
        let attr = if urgent.in_attr > 0 { load_attr(c)? } else { None };
        Ok(Self { head, urgent, attr })
    }

    /// The time to which a chain was deferred.
    fn deferred(&self, tag: &Bytes) -> Option<Utime> {
        self.urgent.deferred.get(tag).or_else(|| self.attr.as_ref()?.get(tag)).copied()
    }
}

fn decode(data: &Bytes) -> ClsResult<Info> {
    input(data, Info::decode)
}

fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, max, expired) = list_input(i)?;
    let q = Queue::load(c)?;
    let now = c.now();
    let (mut found, mut seen, mut looks) = (Vec::new(), 0, 0);
    let mut start = Marker::parse(&marker);
    let (next, more) = loop {
        let page = q.head.list(c, start, None, u64::from(max - seen))?;
        let empty = page.entries.is_empty();
        // A page that ended early has enough bytes for a reply.
        let enough = (page.entries.len() as u64) < u64::from(max - seen);
        looks += page.entries.len() as u64;
        for (data, _) in page.entries {
            let info = decode(&data)?;
            if q.deferred(&info.tag).is_some_and(|t| t > info.time) {
                continue;
            }
            seen += 1;
            if !expired || info.time <= now {
                found.push(info);
            }
        }
        if empty || enough || looks >= LIST_MAX || seen >= max || !page.truncated {
            break (page.next, page.truncated);
        }
        start = Some(page.next);
    };
    let next = if more { next.to_string() } else { String::new() };
    Ok(list_output(&found, next.as_bytes(), more))
}

fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let n = input(i, |r| r.versioned("cls_rgw_gc_queue_remove_entries_op", 1, |r, _| r.u64()))?;
    // List one entry more: its position is the end of the removed range.
    let want = (if n == 0 { u64::from(LIST_DEFAULT) } else { n }).saturating_add(1);
    let mut q = Queue::load(c)?;
    let (mut seen, mut looks, mut start, mut attr_changed) = (0, 0, None, false);
    let end = loop {
        let page = q.head.list(c, start, None, want - seen)?;
        let Some((_, last)) = page.entries.last() else { break None };
        let last = *last;
        looks += page.entries.len();
        if looks > ENTRIES_MAX {
            return fail(E2BIG);
        }
        for (data, _) in &page.entries {
            let info = decode(data)?;
            if let Some(t) = q.deferred(&info.tag) {
                if t > info.time {
                    continue;
                }
                // This is the deferred chain itself: its deferral is no longer needed.
                if t == info.time {
                    if q.urgent.deferred.remove(&info.tag).is_some() {
                        q.urgent.in_head = q.urgent.in_head.saturating_sub(1);
                    } else if q.attr.as_mut().is_some_and(|a| a.remove(&info.tag).is_some()) {
                        q.urgent.in_attr = q.urgent.in_attr.saturating_sub(1);
                        attr_changed = true;
                    }
                }
            }
            seen += 1;
        }
        if seen >= want {
            break Some(last);
        }
        if !page.truncated {
            break Some(page.next);
        }
        start = Some(page.next);
    };
    if end.is_some() {
        q.head.remove(c, end)?;
    }
    if attr_changed && let Some(a) = &q.attr {
        store_attr(c, a)?;
    }
    q.head.urgent = q.urgent.encode();
    q.head.store(c).map(Output::from)
}

/// Defers a chain.
fn update(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (seconds, mut info) = set_input(i)?;
    info.due_in(c, seconds);
    let mut head = Head::load(c)?;
    let mut urgent = Urgent::decode(&head.urgent)?;
    let mut attr = load_attr(c)?;
    if let Some(t) = urgent.deferred.get_mut(&info.tag) {
        *t = info.time;
    } else if let Some(t) = attr.as_mut().and_then(|a| a.get_mut(&info.tag)) {
        *t = info.time;
        store_attr(c, attr.as_ref().unwrap_or(&Deferred::new()))?;
    } else {
        urgent.deferred.insert(info.tag.clone(), info.time);
        urgent.in_head = urgent.in_head.saturating_add(1);
        if urgent.encode().len() as u64 > head.urgent_max {
            urgent.deferred.remove(&info.tag);
            urgent.in_head -= 1;
            let a = attr.get_or_insert_default();
            a.insert(info.tag, info.time);
            urgent.in_attr = urgent.in_attr.saturating_add(1);
            store_attr(c, a)?;
        }
    }
    if u64::from(urgent.in_head) + u64::from(urgent.in_attr) > u64::from(urgent.max) {
        return fail(ENOSPC);
    }
    head.urgent = urgent.encode();
    head.store(c).map(Output::from)
}
