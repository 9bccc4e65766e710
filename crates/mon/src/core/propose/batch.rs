//! The writes of one proposal, split into several transactions where one would exceed the state store's bounds.
//!
//! Invariants:
//!  1. The head (map epochs, their bounds, and records that must change with them) is one transaction, and makes the
//!     proposal visible. Earlier transactions hold records that mean nothing without the head, or that are valid
//!     alone. Later ones remove records that the head made obsolete, or write records that may be lost.
//!  2. No key is changed twice: the last change of a key counts.
//!
//! Tests: below.

use std::collections::BTreeMap;

use bytes::Bytes;
use state::{MAX_TXN_BYTES, MAX_TXN_OPS, MAX_VALUE, Range, Write};

use crate::state::records::{Pieces, key};

/// Most writes of one part: the store's bound less the writes that `commit` adds to each.
const PART_OPS: usize = MAX_TXN_OPS - 8;
/// Most bytes of one part: the store's bound less the bytes that `commit` adds to each.
const PART_BYTES: usize = MAX_TXN_BYTES - (64 << 10);

/// Longest value of any length that is written with the head as it is; the head has two of them, and records of its own.
const HEAD_BLOB: usize = 256 << 10;

type Writes = BTreeMap<Bytes, Option<Bytes>>;

/// The writes of one proposal, collected by their place before, in or after the head.
#[derive(Default)]
pub(in crate::core) struct Batch {
    records: Writes,
    head: Writes,
    ranges: Vec<Range>,
    rest: Writes,
    rest_ranges: Vec<Range>,
}

/// The transactions of a proposal, in order. Plain data.
#[derive(Debug)]
pub(in crate::core) struct Parts {
    /// The writes of each transaction.
    pub(in crate::core) parts: Vec<Vec<Write>>,
    /// Index of the head.
    pub(in crate::core) head: usize,
}

fn write((k, v): (Bytes, Option<Bytes>)) -> Write {
    match v {
        Some(v) => Write::Put(k, v, None),
        None => Write::Delete(k),
    }
}

fn cost(k: &Bytes, v: Option<&Bytes>) -> usize {
    k.len() + v.map_or(0, Bytes::len)
}

impl Batch {
    /// Writes a record that is valid without the head.
    pub(in crate::core) fn put(&mut self, k: impl Into<Bytes>, v: impl Into<Bytes>) {
        self.records.insert(k.into(), Some(v.into()));
    }

    /// Removes a record, independently of the head.
    pub(in crate::core) fn delete(&mut self, k: impl Into<Bytes>) {
        self.records.insert(k.into(), None);
    }

    /// Writes or removes a record with the head.
    pub(in crate::core) fn head(&mut self, k: impl Into<Bytes>, v: Option<Bytes>) {
        self.head.insert(k.into(), v);
    }

    /// Writes a record that is valid without the head, or removes it.
    pub(in crate::core) fn put_or_delete(&mut self, k: Bytes, v: Option<Bytes>) {
        self.records.insert(k, v);
    }

    /// Writes or removes a record after the head.
    pub(in crate::core) fn after(&mut self, k: Bytes, v: Option<Bytes>) {
        self.rest.insert(k, v);
    }

    /// Removes a record that the head makes obsolete.
    pub(in crate::core) fn delete_after(&mut self, k: impl Into<Bytes>) {
        self.rest.insert(k.into(), None);
    }

    /// Removes a range of records that the head makes obsolete.
    pub(in crate::core) fn remove_range_after(&mut self, r: Range) {
        self.rest_ranges.push(r);
    }

    /// Removes a range with the head.
    pub(in crate::core) fn remove_range(&mut self, r: Range) {
        self.ranges.push(r);
    }

    /// Writes a value of any length with the head. A long value goes in pieces before it.
    pub(in crate::core) fn head_blob(&mut self, k: Bytes, v: Bytes) {
        if v.len() <= HEAD_BLOB {
            self.head.insert(k, Some(v));
            return;
        }
        let pieces = Pieces::of(&v);
        for (i, at) in (0..v.len()).step_by(MAX_VALUE).enumerate() {
            self.records.insert(key::piece(&k, i), Some(v.slice(at..v.len().min(at + MAX_VALUE))));
        }
        self.head.insert(k, Some(pieces.to_value()));
    }

    /// The writes of single records so far.
    pub(in crate::core) fn writes(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.records.iter().chain(&self.head).chain(&self.rest).map(|(k, v)| (k, v.as_ref()))
    }

    /// Splits the writes into transactions.
    pub(in crate::core) fn into_parts(self) -> Parts {
        let sum = |w: &Writes| w.iter().map(|(k, v)| cost(k, v.as_ref())).sum::<usize>();
        let head_bytes = sum(&self.head);
        let ranges = self.ranges.len() + self.rest_ranges.len();
        let small = self.records.len() + self.rest.len() + self.head.len() + ranges <= PART_OPS
            && head_bytes + sum(&self.records) + sum(&self.rest) <= PART_BYTES;
        let mut head: Vec<Write> = self.ranges.into_iter().map(Write::DeleteRange).collect();
        head.extend(self.head.into_iter().map(write));
        if small {
            head.extend(self.records.into_iter().chain(self.rest).map(write));
            head.extend(self.rest_ranges.into_iter().map(Write::DeleteRange));
            return Parts { parts: vec![head], head: 0 };
        }
        let mut parts = split(self.records);
        let at = parts.len();
        parts.push(head);
        parts.extend(split(self.rest));
        let ranges: Vec<Write> = self.rest_ranges.into_iter().map(Write::DeleteRange).collect();
        parts.extend(ranges.chunks(PART_OPS).map(<[Write]>::to_vec));
        Parts { parts, head: at }
    }
}

fn split(writes: Writes) -> Vec<Vec<Write>> {
    let mut parts = Vec::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    for (k, v) in writes {
        let n = cost(&k, v.as_ref());
        if part.len() >= PART_OPS || bytes + n > PART_BYTES && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += n;
        part.push(write((k, v)));
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_proposal_is_one_transaction_and_the_head_is_in_the_last() {
        let mut b = Batch::default();
        b.put("a", "1");
        b.put("a", "2");
        b.head("head", Some(Bytes::from_static(b"h")));
        b.delete_after("gone");
        let Parts { parts, head } = b.into_parts();
        assert_eq!((parts.len(), head), (1, 0));
        assert_eq!(parts[0].len(), 3, "a key once");

        let mut b = Batch::default();
        for i in 0..300 {
            b.put(format!("{i:03}"), "v");
        }
        b.delete_after("gone");
        b.head("head", Some(Bytes::from_static(b"h")));
        let long = Bytes::from(vec![7; 3 * MAX_VALUE + 5]);
        b.head_blob(Bytes::from_static(b"blob"), long);
        let Parts { parts, head } = b.into_parts();
        assert_eq!(parts.iter().flatten().count(), 300 + 1 + 4 + 1 + 1);
        assert_eq!(head + 2, parts.len());
        let names: Vec<&[u8]> = parts[head]
            .iter()
            .map(|w| match w {
                Write::Put(k, v, _) => {
                    assert!(v.len() < 100, "a list of pieces");
                    &k[..]
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, [&b"blob"[..], b"head"]);
        for p in &parts {
            assert!(p.len() <= PART_OPS);
            let bytes: usize = p.iter().map(|w| if let Write::Put(k, v, _) = w { k.len() + v.len() } else { 0 }).sum();
            assert!(bytes <= PART_BYTES);
        }
    }
}
