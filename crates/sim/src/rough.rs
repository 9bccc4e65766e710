//! Sizes and counts that only some runs have: objects of many parts, calls of all object classes, OSDs with different
//! disks, and turns that take time according to their work.
//!
//! Invariants:
//!  1. Each is drawn from random numbers of its own, so that seeds without it keep their histories.
//!  2. Objects of class calls have no model: their copies must be equal in the end, and no daemon may fail.

use crate::queue::{SEC, Time, US};
use base::rng::Rng;
use bytes::Bytes;
use wire::Features;
use wire::msg::{OpCode, OsdOp};
use wire::{Encode as _, Writer};

/// Omap entries of an object with many: more than two parts of a push have.
pub const BULK_KEYS: usize = 2500;
/// Largest write to a large object: more than three parts of a push.
pub const LARGE_WRITE: u64 = 3 << 20;
/// Number of objects of class calls.
pub const CALLED: usize = 4;
/// Objects of a PG that has many: more than the 1,024 transfers that a member remembers.
pub const MANY: usize = 1100;
/// Epochs that monitors keep if they keep few.
pub const MAPS_KEPT: u32 = 5;
/// Unit of the time for which a client is cut off.
const HOUR: Time = 3600 * SEC;

/// Sizes and counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rough {
    /// True if object 0 is large and has many omap entries.
    pub large: bool,
    /// True if clients call all object classes.
    pub classes: bool,
    /// True if the OSDs' disks have different sizes.
    pub unequal: bool,
    /// Time that an OSD needs for a message that it handles or sends and for each 4 KiB of it; 0: none.
    pub charge: Time,
    /// True if the pool reaches a quota when all faults have ended, and becomes clean nevertheless.
    pub quota: bool,
    /// True if the monitors keep few maps.
    pub trims: bool,
    /// True if one PG has more objects than members remember transfers.
    pub many: bool,
    /// Time for which a client is cut off, after all faults have ended; 0: none.
    pub sleeps: Time,
    /// True if the OSDs remove PGs in the smallest steps, so that restarts leave parts of objects.
    pub pieces: bool,
    /// True if clients ask for each map that they need, as librados does, and get no others from the monitor. No seed
    /// draws it.
    pub once: bool,
}

impl Rough {
    /// Draws the sizes of a seed. `coded` pools have no omap; `small` disks have no room for large objects.
    #[must_use]
    pub fn draw(seed: u64, coded: bool, small: bool) -> Self {
        let one_in = |what: u64, n: u64| Rng::new(seed ^ what).chance(1, n);
        let charge = if one_in(0x6368_6172_6765, 8) { [10 * US, 40 * US][(seed % 2) as usize] } else { 0 };
        Self {
            large: one_in(0x6c61_7267_6500, 8) && !small,
            classes: one_in(0x636c_6173_7365, 6) && !coded,
            unequal: one_in(0x756e_6571_7561, 6) && !small,
            charge,
            quota: one_in(0x7175_6f74_6100, 10) && !small,
            trims: one_in(0x7472_696d_7300, 6),
            // A slow OSD would not end the writes in time.
            many: one_in(0x6d61_6e79_0000, 20) && !small && !coded && charge == 0,
            sleeps: if one_in(0x736c_6565_7073, 16) { HOUR << (seed % 2) } else { 0 },
            pieces: one_in(0x7069_6563_6573, 4),
            once: false,
        }
    }

    /// Bytes of the disk of OSD number `osd`, where disks have `bytes` otherwise.
    #[must_use]
    pub fn disk(&self, bytes: u64, osd: usize) -> u64 {
        if self.unequal { bytes >> (osd % 3) } else { bytes }
    }
}

/// Name of an object of class calls.
#[must_use]
pub fn called(object: usize) -> Bytes {
    format!("called-{object}").into_bytes().into()
}

/// True for the name of an object of class calls.
#[must_use]
pub fn is_called(name: &[u8]) -> bool {
    name.starts_with(b"called-")
}

fn text(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn encoded(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

/// Name of one of the [`MANY`] objects.
#[must_use]
pub fn one_of_many(object: usize) -> Bytes {
    format!("called-many-{object}").into_bytes().into()
}

/// A call of any method of any class, with an input that most of them refuse.
fn any_call(r: &mut Rng, name: &str) -> OsdOp {
    let (class, methods) = cls::registry::CLASSES[r.below(cls::registry::CLASSES.len() as u64) as usize];
    let method = methods[r.below(methods.len() as u64) as usize].name;
    let input = match r.below(4) {
        0 => Bytes::new(),
        1 => encoded(|w| w.put(&text(name))),
        2 => encoded(|w| w.versioned(1, 1, |w| w.put(&text(name)))),
        _ => (0..r.below(40)).map(|_| r.below(4) as u8).collect::<Vec<u8>>().into(),
    };
    OsdOp::call(class, method, &input)
}

/// A call of a class that changes its object or refuses; `id` makes values unique.
#[must_use]
pub fn call(r: &mut Rng, id: u64) -> OsdOp {
    let name = format!("n{}", r.below(6));
    match r.below(8) {
        6 | 7 => any_call(r, &name),
        0 => OsdOp::call("numops", "add", &numops(&name, id % 1000)),
        1 => OsdOp::call("numops", "mul", &numops(&name, r.below(3))),
        2 => {
            let method = if r.chance(1, 2) { "get" } else { "put" };
            OsdOp::call(
                "refcount",
                method,
                &encoded(|w| {
                    w.versioned(1, 1, |w| {
                        w.put(&text(&name));
                        w.bool(true);
                    });
                }),
            )
        }
        // An input that no method can read: the refusal must leave the object as it is.
        3 => OsdOp::call("rbd", "create", &text(&name)),
        _ => image_call(r, id, &name),
    }
}

/// A call that changes the header, the directory or the object map of an image.
fn image_call(r: &mut Rng, id: u64, name: &str) -> OsdOp {
    let number = r.below(5000);
    let (method, input) = match r.below(7) {
        0 => (
            "create",
            encoded(|w| {
                w.u64(1 << 22);
                w.u8(22);
                w.u64(1);
                w.put(&text("rbd_data.x"));
                w.u64(u64::MAX);
            }),
        ),
        1 => ("set_size", encoded(|w| w.u64(id << 12))),
        2 => (
            "metadata_set",
            encoded(|w| {
                w.u32(1);
                w.put(&text(name));
                w.put(&text(&id.to_string()));
            }),
        ),
        3 => ("metadata_remove", encoded(|w| w.put(&text(name)))),
        4 => (
            "dir_add_image",
            encoded(|w| {
                w.put(&text(name));
                w.put(&text(&format!("id{id}")));
            }),
        ),
        5 => (
            "snapshot_add",
            encoded(|w| {
                w.put(&text(name));
                w.u64(1 + number % 3);
            }),
        ),
        _ => (
            "object_map_resize",
            encoded(|w| {
                w.u64(1 + number);
                w.u8(0);
            }),
        ),
    };
    OsdOp::call("rbd", method, &input)
}

fn numops(key: &str, value: u64) -> Bytes {
    encoded(|w| {
        w.put(&text(key));
        w.put(&text(&value.to_string()));
    })
}

/// The operation that sets all entries of an object with many to `value`.
#[must_use]
pub fn bulk(value: &Bytes) -> OsdOp {
    let all: std::collections::BTreeMap<Bytes, Bytes> = (0..BULK_KEYS).map(|i| (bulk_key(i), value.clone())).collect();
    OsdOp::with_indata(OpCode::OMAPSETVALS, all.to_bytes(Features::PACIFIC))
}

fn bulk_key(i: usize) -> Bytes {
    format!("b{i:05}").into_bytes().into()
}

/// The key after which a listing shows no entries of [`bulk`].
#[must_use]
pub fn behind_bulk() -> String {
    format!("b{:05}", BULK_KEYS)
}

/// The key after which a listing shows entry `i` of [`bulk`] first.
#[must_use]
pub fn before_bulk(i: usize) -> String {
    if i == 0 { "b".into() } else { format!("b{:05}", i - 1) }
}

/// True for a key that [`bulk`] sets.
#[must_use]
pub fn is_bulk(key: &[u8]) -> bool {
    key.len() == 6 && key[0] == b'b' && key[1..].iter().all(u8::is_ascii_digit)
}
