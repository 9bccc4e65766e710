//! `BitVector<2>`: two bits per object; the format of object maps on disk and on the wire.
//!
//! Layout: blob{ENCODE(1,1){u64 length}} (18 bytes), the data (four elements per byte, the first in the high bits),
//! blob{u32 crc of the header, u32 count, u32 crc per 4 KiB of data}. An empty last blob means no checksums.
//! Checksums are crc32c with seed 0.

use base::crc::crc32c;
use bytes::Bytes;
use std::ops::Range;
use wire::codec::Result;
use wire::{Decode, DecodeError, Reader, Writer};

/// Length of the header before the data, in bytes.
pub(super) const HEADER_LEN: u64 = 18;
/// Bytes of data per checksum.
pub(super) const BLOCK: u64 = 4096;
/// Elements per byte.
pub(super) const PER_BYTE: u64 = 4;

/// A vector with all its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    len: u64,
    data: Vec<u8>,
}

/// Bytes needed for `len` elements.
pub(super) fn bytes_for(len: u64) -> u64 {
    len.div_ceil(PER_BYTE)
}

fn shift(i: u64) -> u32 {
    ((PER_BYTE - 1 - i % PER_BYTE) * 2) as u32
}

/// Element `i` of packed data.
pub(super) fn get(data: &[u8], i: u64) -> u8 {
    data.get((i / PER_BYTE) as usize).map_or(0, |b| b >> shift(i) & 3)
}

/// Sets element `i`.
pub(super) fn set(data: &mut [u8], i: u64, v: u8) {
    if let Some(b) = data.get_mut((i / PER_BYTE) as usize) {
        *b = *b & !(3 << shift(i)) | (v & 3) << shift(i);
    }
}

/// Decodes a header: its length field and checksum.
pub(super) fn decode_header(r: &mut Reader<'_>) -> Result<(u64, u32)> {
    let h = r.blob()?;
    let len = Reader::new(&h).versioned("BitVector", 1, |r, _| r.u64())?;
    Ok((len, crc32c(0, &h)))
}

impl Bits {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn get(&self, i: u64) -> u8 {
        get(&self.data, i)
    }

    pub(super) fn set(&mut self, i: u64, v: u8) {
        set(&mut self.data, i, v);
    }

    /// Truncates the vector or extends it with `v`.
    pub(super) fn resize(&mut self, len: u64, v: u8) {
        let old = self.len;
        self.len = len;
        self.data.resize(bytes_for(len) as usize, (v & 3) * 0x55);
        if len > old {
            // Fill the rest of the last old byte.
            for i in old..len.min(old.next_multiple_of(PER_BYTE)) {
                self.set(i, v);
            }
        }
        // Unused bits are zero, so that equal vectors have equal bytes.
        for i in len..len.next_multiple_of(PER_BYTE) {
            self.set(i, 0);
        }
    }

    /// True if all elements of the range are `v`.
    pub(super) fn all_are(&self, range: Range<u64>, v: u8) -> bool {
        let whole = range.start.next_multiple_of(PER_BYTE).min(range.end);
        let (first, last) = (whole / PER_BYTE, range.end / PER_BYTE);
        (range.start..whole).all(|i| self.get(i) == v)
            && self.data.get(first as usize..last as usize).is_none_or(|d| d.iter().all(|b| *b == (v & 3) * 0x55))
            && (whole.max(last * PER_BYTE)..range.end).all(|i| self.get(i) == v)
    }

    /// Replaces every `from` by `to`; true if there was any.
    pub(super) fn replace(&mut self, from: u8, to: u8) -> bool {
        let mut table = [0u8; 256];
        for (b, t) in (0u8..=255).zip(table.iter_mut()) {
            let mut one = [b];
            for i in 0..PER_BYTE {
                if get(&one, i) == from {
                    set(&mut one, i, to);
                }
            }
            *t = one[0];
        }
        let mut changed = false;
        for b in &mut self.data {
            let new = table[usize::from(*b)];
            changed |= new != *b;
            *b = new;
        }
        changed
    }

    /// Encodes the vector: with checksums for storage, without for clients.
    pub(super) fn to_bytes(&self, checksums: bool) -> Bytes {
        let mut w = Writer::with_capacity(wire::Features::PACIFIC, self.data.len() + self.data.len() / 1024 + 64);
        w.sized(|w| w.versioned(1, 1, |w| w.u64(self.len)));
        let crc = crc32c(0, w.as_slice().get(4..).unwrap_or_default());
        w.raw(&self.data);
        w.sized(|w| {
            if checksums {
                w.u32(crc);
                w.seq(self.data.chunks(BLOCK as usize), |w, b| w.u32(crc32c(0, b)));
            }
        });
        w.into_bytes()
    }
}

impl Decode for Bits {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (len, crc) = decode_header(r)?;
        let n = usize::try_from(bytes_for(len)).unwrap_or(usize::MAX);
        let data = r.take(n, "BitVector")?;
        let footer = r.blob()?;
        if !footer.is_empty() {
            let mut f = Reader::new(&footer);
            let check = |expect: u32, got: u32| {
                if expect == got { Ok(()) } else { Err(DecodeError::Checksum { what: "BitVector", expect, got }) }
            };
            check(f.u32()?, crc)?;
            let count = f.u32()?;
            if u64::from(count) != (n as u64).div_ceil(BLOCK) {
                return Err(DecodeError::BadValue { what: "BitVector checksums", value: count.into() });
            }
            for b in data.chunks(BLOCK as usize) {
                check(f.u32()?, crc32c(0, b))?;
            }
        }
        Ok(Self { len, data: data.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(v: &[u8]) -> Bits {
        let mut b = Bits::default();
        b.resize(v.len() as u64, 0);
        for (i, e) in v.iter().enumerate() {
            b.set(i as u64, *e);
        }
        b
    }

    #[test]
    fn elements_are_packed_from_the_high_bits() {
        let b = of(&[1, 2, 3, 0, 1]);
        assert_eq!(b.data, [0b01_10_11_00, 0b01_00_00_00]);
        assert_eq!((0..5).map(|i| b.get(i)).collect::<Vec<_>>(), [1, 2, 3, 0, 1]);
    }

    /// Compared with a vector of one byte per element.
    #[test]
    fn resizing_equals_the_plain_vector() {
        let seed = 20500;
        println!("seed {seed}");
        let mut rng = base::rng::Rng::new(seed);
        let (mut plain, mut b) = (Vec::new(), Bits::default());
        for _ in 0..500 {
            let (n, v) = (rng.below(70) as usize, rng.below(4) as u8);
            plain.resize(n, v);
            b.resize(n as u64, v);
            assert_eq!(b, of(&plain));
            if n > 0 {
                let (at, v) = (rng.below(n as u64), rng.below(4) as u8);
                plain[at as usize] = v;
                b.set(at, v);
                let from = rng.below(n as u64);
                let expect = plain[from as usize..].iter().all(|e| *e == v);
                assert_eq!(b.all_are(from..n as u64, v), expect, "{plain:?} from {from} all {v}");
            }
        }
    }

    #[test]
    fn replacing_changes_only_matching_elements() {
        let mut b = of(&[0, 1, 2, 3, 1, 3]);
        assert!(b.replace(1, 3));
        assert_eq!(b, of(&[0, 3, 2, 3, 3, 3]));
        assert!(!b.replace(1, 3));
    }

    #[test]
    fn a_changed_byte_is_detected() {
        let mut b = Bits::default();
        b.resize(40_000, 1);
        let bytes = b.to_bytes(true);
        assert_eq!(Bits::from_bytes(&bytes), Ok(b.clone()));
        assert_eq!(Bits::from_bytes(&b.to_bytes(false)), Ok(b));
        for at in [12, 20, 5000, bytes.len() - 1] {
            let mut bad = bytes.to_vec();
            bad[at] ^= 4;
            assert!(Bits::from_bytes(&bad.into()).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_length_without_data_allocates_nothing() {
        let mut w = Writer::default();
        w.sized(|w| w.versioned(1, 1, |w| w.u64(u64::MAX)));
        assert!(Bits::from_bytes(&w.into_bytes()).is_err());
    }
}
