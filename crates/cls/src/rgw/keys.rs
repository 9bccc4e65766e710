//! Omap keys of a bucket index shard.
//!
//! - plain entry: the object's name;
//! - list entry of a version: name, `\0v` epoch (see [`decreasing`]), `\0i` version id, so that newer ones come first;
//! - special entries begin with 0x80, which no UTF-8 name does: `0_` change log, `1000_` versions, `1001_` OLH entries,
//!   `2001_` reshard log. Names that begin with a byte from 0x81 on sort after them.

use super::types::{DirEntry, Key};
use bytes::Bytes;

/// First byte of the keys of special entries.
pub(super) const SPECIAL: u8 = 0x80;
/// First key after the special entries that can be a name.
pub(super) const AFTER_SPECIAL: &[u8] = b"\x81";
pub(super) const LOG: &[u8] = b"\x800_";
pub(super) const INSTANCES: &[u8] = b"\x801000_";
pub(super) const OLHS: &[u8] = b"\x801001_";
pub(super) const RESHARD_LOG: &[u8] = b"\x802001_";
/// A key after all special entries.
pub(super) const LAST: &[u8] = b"\x809999_";

/// Types of keys, in the order in which `bi_list` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A special key of unknown type.
    Unknown,
    Plain,
    Log,
    Instance,
    Olh,
    ReshardLog,
    Last,
}

pub(super) fn kind(key: &[u8]) -> Kind {
    if key.first() != Some(&SPECIAL) {
        return Kind::Plain;
    }
    let kinds = [
        (LOG, Kind::Log),
        (INSTANCES, Kind::Instance),
        (OLHS, Kind::Olh),
        (RESHARD_LOG, Kind::ReshardLog),
        (LAST, Kind::Last),
    ];
    kinds.iter().find(|(p, _)| key.starts_with(p)).map_or(Kind::Unknown, |(_, k)| *k)
}

/// Concatenation of the parts.
pub(super) fn cat(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

/// A number as text that sorts in decreasing order; its length grows with the number.
pub(super) fn decreasing(n: u64) -> String {
    match n {
        0..0x10 => format!("9{:02}", 15 - n),
        0x10..0x100 => format!("8{:03}", 255 - n),
        0x100..0x1000 => format!("7{:04}", 4095 - n),
        0x1000..0x1_0000 => format!("6{:05}", 65535 - n),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xFFFF_FFFF - n),
        _ => format!("4{:020}", (n as i64).wrapping_neg()),
    }
}

/// Key of a version entry.
pub(super) fn instance(k: &Key) -> Bytes {
    cat(&[INSTANCES, &k.name, b"\0i", &k.instance])
}

/// Key of the delete marker that is an object's null version. It is separate because the null version's data entry may
/// exist besides it.
pub(super) fn null_marker(k: &Key) -> Bytes {
    cat(&[&instance(k), b"\0d"])
}

/// Key of an object: the plain key, or that of its version.
pub(super) fn object(k: &Key) -> Bytes {
    if k.instance.is_empty() { k.name.clone() } else { instance(k) }
}

pub(super) fn olh(name: &[u8]) -> Bytes {
    cat(&[OLHS, name])
}

pub(super) fn reshard_log(idx: &[u8]) -> Bytes {
    cat(&[RESHARD_LOG, idx])
}

/// Key of an entry in listing order.
pub(super) fn listed(e: &DirEntry) -> Bytes {
    cat(&[&e.key.name, b"\0v", decreasing(e.versioned_epoch).as_bytes(), b"\0i", &e.key.instance])
}

/// Name in a listing key; `None` if the key is not one.
pub(super) fn listed_name(key: &Bytes) -> Option<Bytes> {
    let Some(end) = key.iter().position(|c| *c == 0) else { return Some(key.clone()) };
    let parts = key[end + 1..].split(|c| *c == 0);
    let number = |p: &[u8]| std::str::from_utf8(p).is_ok_and(|t| t.parse::<i64>().is_ok());
    let mut any = false;
    for p in parts {
        any |= !p.is_empty();
        if p.first() == Some(&b'v') && !number(&p[1..]) {
            return None;
        }
    }
    any.then(|| key.slice(..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_epochs_sort_first() {
        let mut all: Vec<u64> = (0..40).collect();
        all.extend([255, 256, 4095, 4096, 65535, 65536, 0xFFFF_FFFF, 0x1_0000_0000, u64::from(u32::MAX) * 5]);
        let texts: Vec<String> = all.iter().map(|n| decreasing(*n)).collect();
        let small = texts.iter().filter(|t| !t.starts_with('4')).collect::<Vec<_>>();
        assert!(small.is_sorted_by(|a, b| a > b), "{texts:?}");
    }

    #[test]
    fn names_of_listed_keys() {
        let e = DirEntry { key: Key { name: "a/b".into(), instance: "id".into() }, ..DirEntry::default() };
        assert_eq!(listed_name(&listed(&e)).as_deref(), Some(&b"a/b"[..]));
        assert_eq!(listed_name(&Bytes::from_static(b"plain")).as_deref(), Some(&b"plain"[..]));
        assert_eq!(listed_name(&Bytes::from_static(b"x\0vabc\0i")), None);
        assert_eq!(listed_name(&Bytes::from_static(b"x\0")), None);
    }
}
