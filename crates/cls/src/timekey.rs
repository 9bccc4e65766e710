//! Omap keys that sort by time, shared by the classes `log` and `timeindex`: `1_<10 digits>.<6 digits>_<rest>`.

use base::Utime;
use bytes::Bytes;
use std::cmp::Ordering;

/// Prefix of all such keys.
pub(crate) const PREFIX: &[u8] = b"1_";

/// The time part of a key, with microseconds.
pub(crate) fn prefix(t: Utime) -> Vec<u8> {
    format!("1_{:010}.{:06}_", t.sec, t.nsec / 1000).into_bytes()
}

/// The marker, or without one the first possible key of time `t`.
pub(crate) fn marker_or(marker: Bytes, t: Utime) -> Bytes {
    if marker.is_empty() { prefix(t).into() } else { marker }
}

/// Compares the start of `key`, as long as `bound`, with `bound`.
pub(crate) fn head_cmp(key: &[u8], bound: &[u8]) -> Ordering {
    key[..key.len().min(bound.len())].cmp(bound)
}
