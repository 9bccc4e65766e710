//! Places of a file's bytes in objects.

use bytes::Bytes;
use wire::types::InodeStat;

/// Layout of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes that go to one object before the next.
    pub unit: u64,
    /// Objects that a stripe spans.
    pub count: u64,
    /// Size of a full object.
    pub object: u64,
}

/// Bytes of a file that follow each other in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the object.
    pub object: u64,
    /// Offset in the object.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file.
    pub file: u64,
}

impl Layout {
    /// Layout of an inode; `None` if it has none, or one that cannot be.
    #[must_use]
    pub fn of(i: &InodeStat) -> Option<Self> {
        let l = &i.layout;
        let me = Self { unit: l.stripe_unit.into(), count: l.stripe_count.into(), object: l.object_size.into() };
        let valid = me.unit > 0 && me.count > 0 && me.object >= me.unit && me.object.is_multiple_of(me.unit);
        valid.then_some(me)
    }

    /// The piece that begins at `from` and ends at `end` or before.
    #[must_use]
    pub fn piece(&self, from: u64, end: u64) -> Piece {
        let block = from / self.unit;
        let (stripe, pos) = (block / self.count, block % self.count);
        let per_object = self.object / self.unit;
        let object = (stripe / per_object).saturating_mul(self.count).saturating_add(pos);
        let within = from % self.unit;
        let mut len = (self.unit - within).min(end.saturating_sub(from));
        if self.count == 1 {
            // The units of an object follow each other.
            let at = (stripe % per_object) * self.unit + within;
            len = (self.object - at).min(end.saturating_sub(from));
        }
        Piece { object, at: (stripe % per_object) * self.unit + within, len, file: from }
    }

    /// Size to which a truncation of the file to `size` truncates an object.
    #[must_use]
    pub fn truncated(&self, object: u64, size: u64) -> u64 {
        if size == 0 || size == u64::MAX {
            return size;
        }
        let per_object = self.object / self.unit;
        let (set, last_set) = (object / self.count, size / self.object / self.count);
        if set != last_set {
            return if set > last_set { 0 } else { self.object };
        }
        let block = size / self.unit;
        let (stripe, pos) = (block / self.count, block % self.count);
        let last = last_set * self.count + pos;
        let units = stripe % per_object;
        match object.cmp(&last) {
            std::cmp::Ordering::Less => (units + 1) * self.unit,
            std::cmp::Ordering::Greater => units * self.unit,
            std::cmp::Ordering::Equal => units * self.unit + size % self.unit,
        }
    }
}

/// Name of a file's object.
#[must_use]
pub fn object_name(ino: u64, object: u64) -> Bytes {
    format!("{ino:x}.{object:08x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_one_column_fills_object_after_object() {
        let l = Layout { unit: 4 << 20, count: 1, object: 4 << 20 };
        assert_eq!(l.piece(0, 10), Piece { object: 0, at: 0, len: 10, file: 0 });
        assert_eq!(l.piece(5 << 20, 100 << 20), Piece { object: 1, at: 1 << 20, len: 3 << 20, file: 5 << 20 });
        let l = Layout { unit: 1 << 20, count: 1, object: 4 << 20 };
        assert_eq!(l.piece(1 << 20, 100 << 20), Piece { object: 0, at: 1 << 20, len: 3 << 20, file: 1 << 20 });
    }

    #[test]
    fn pieces_of_stripes_cover_every_byte_once() {
        let l = Layout { unit: 3, count: 4, object: 9 };
        let mut seen = std::collections::BTreeSet::new();
        let (mut at, end) = (0, 200);
        while at < end {
            let p = l.piece(at, end);
            assert!(p.len > 0 && p.at + p.len <= l.object);
            for i in 0..p.len {
                assert!(seen.insert((p.object, p.at + i)), "byte {}", at + i);
            }
            at += p.len;
        }
        // 200 bytes are 5 full sets of 36 bytes, and 20 bytes of the sixth.
        assert_eq!(seen.iter().map(|(o, _)| *o).max(), Some(23));
    }

    #[test]
    fn truncation_cuts_each_object_where_its_bytes_end() {
        let l = Layout { unit: 3, count: 4, object: 9 };
        for size in 1..150 {
            let mut most = std::collections::BTreeMap::<u64, u64>::new();
            let mut at = 0;
            while at < size {
                let p = l.piece(at, size);
                let e = most.entry(p.object).or_default();
                *e = (*e).max(p.at + p.len);
                at += p.len;
            }
            for o in 0..20 {
                assert_eq!(l.truncated(o, size), most.get(&o).copied().unwrap_or(0), "object {o}, size {size}");
            }
        }
    }

    #[test]
    fn impossible_layouts_are_none() {
        let mut i = InodeStat::default();
        assert_eq!(Layout::of(&i), None);
        (i.layout.stripe_unit, i.layout.stripe_count, i.layout.object_size) = (3, 1, 10);
        assert_eq!(Layout::of(&i), None);
        i.layout.object_size = 9;
        assert_eq!(Layout::of(&i), Some(Layout { unit: 3, count: 1, object: 9 }));
    }
}
