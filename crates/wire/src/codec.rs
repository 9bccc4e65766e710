//! Primitives: reading from and writing to byte buffers.
//!
//! [`Reader`] returns zero-copy [`Bytes`] if it was made from one. [`Writer`] carries the feature mask of the receiving
//! peer, so that `encode` needs no second argument.

use crate::features::Features;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Error of decoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside a field.
    #[error("{what}: need {need} bytes at offset {at}, have {have}")]
    Truncated {
        /// Field or type.
        what: &'static str,
        /// Offset in the input.
        at: usize,
        /// Bytes needed.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// The encoding requires a decoder of a newer version.
    #[error("{what}: compat version {compat} is newer than {known}")]
    Incompatible {
        /// Type name.
        what: &'static str,
        /// Compat version in the input.
        compat: u8,
        /// Newest version known here.
        known: u8,
    },
    /// The type does not allow this value.
    #[error("{what}: bad value {value}")]
    BadValue {
        /// Field or type.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// A text is not UTF-8.
    #[error("{what}: not UTF-8")]
    NotUtf8 {
        /// Field or type.
        what: &'static str,
    },
    /// A stored checksum does not match the bytes.
    #[error("{what}: checksum {got:08x}, expected {expect:08x}")]
    Checksum {
        /// Type name.
        what: &'static str,
        /// Checksum in the input.
        expect: u32,
        /// Computed checksum.
        got: u32,
    },
}

/// Result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// A cursor over input bytes.
///
/// A method that reads fails with [`DecodeError::Truncated`] if the input ends inside the value.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    buf: &'a [u8],
    owner: Option<&'a Bytes>,
    pos: usize,
}

impl<'a> Reader<'a> {
    /// A reader over a slice; [`Reader::blob`] copies.
    #[must_use]
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf, owner: None, pos: 0 }
    }

    /// A reader over shared bytes; [`Reader::blob`] shares them.
    #[must_use]
    pub fn shared(b: &'a Bytes) -> Self {
        Self { buf: b, owner: Some(b), pos: 0 }
    }

    /// Number of bytes not yet read.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.pos
    }

    /// Offset of the next byte.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// True at the end of the input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Reads `n` bytes; `what` names them in the error.
    #[inline]
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8]> {
        // `pos` never passes the end.
        if n > self.buf.len() - self.pos {
            return Err(self.truncated(n, what));
        }
        let s = &self.buf[self.pos..self.pos + n];
        self.pos += n;
        Ok(s)
    }

    #[cold]
    fn truncated(&self, need: usize, what: &'static str) -> DecodeError {
        DecodeError::Truncated { what, at: self.pos, need, have: self.remaining() }
    }

    /// Reads `n` bytes as shared bytes (a copy if the reader is over a plain slice).
    #[inline]
    pub fn take_bytes(&mut self, n: usize, what: &'static str) -> Result<Bytes> {
        let s = self.take(n, what)?;
        Ok(match self.owner {
            Some(o) => o.slice_ref(s),
            None => Bytes::copy_from_slice(s),
        })
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> Bytes {
        let n = self.remaining();
        self.take_bytes(n, "rest").unwrap_or_default()
    }

    /// Skips `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize, what: &'static str) -> Result<()> {
        self.take(n, what).map(|_| ())
    }

    /// Reads a fixed-size array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let s = self.take(N, what)?;
        let mut a = [0; N];
        a.copy_from_slice(s);
        Ok(a)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>("u8")?[0])
    }
    /// Reads a signed byte.
    #[inline]
    pub fn i8(&mut self) -> Result<i8> {
        Ok(self.u8()? as i8)
    }
    /// Reads a byte as a boolean: zero is false.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }
    /// Reads a little-endian u16.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array("u16")?))
    }
    /// Reads a little-endian i16.
    #[inline]
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_le_bytes(self.array("i16")?))
    }
    /// Reads a little-endian u32.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array("u32")?))
    }
    /// Reads a little-endian i32.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array("i32")?))
    }
    /// Reads a little-endian u64.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array("u64")?))
    }
    /// Reads a little-endian i64.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array("i64")?))
    }
    /// Reads a little-endian IEEE f32.
    #[inline]
    pub fn f32(&mut self) -> Result<f32> {
        Ok(f32::from_le_bytes(self.array("f32")?))
    }
    /// Reads a little-endian IEEE f64.
    #[inline]
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array("f64")?))
    }

    /// Reads a u32 length and that many bytes.
    #[inline]
    pub fn blob(&mut self) -> Result<Bytes> {
        let n = self.u32()? as usize;
        self.take_bytes(n, "blob")
    }

    /// Reads a u32 length and that many bytes of UTF-8; other bytes are [`DecodeError::NotUtf8`].
    pub fn string(&mut self) -> Result<String> {
        let n = self.u32()? as usize;
        let s = self.take(n, "string")?;
        std::str::from_utf8(s).map(str::to_owned).map_err(|_| DecodeError::NotUtf8 { what: "string" })
    }

    /// Reads a u32 element count; fails if the input is too short for so many elements of `min_size` bytes (at least
    /// 1).
    #[inline]
    pub fn count(&mut self, min_size: usize, what: &'static str) -> Result<usize> {
        let n = self.u32()? as usize;
        let need = n.saturating_mul(min_size.max(1));
        if need > self.remaining() {
            return Err(DecodeError::Truncated { what, at: self.pos, need, have: self.remaining() });
        }
        Ok(n)
    }

    /// Reads a u32 count and that many elements with `f`.
    pub fn vec_with<T>(&mut self, what: &'static str, mut f: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let n = self.count(1, what)?;
        let mut v = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            v.push(f(self)?);
        }
        Ok(v)
    }

    /// Decodes a value.
    #[inline]
    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(self)
    }

    /// Reads a versioned structure: checks `compat <= known`, calls `f` with the body and its version, and skips what
    /// `f` leaves.
    #[inline]
    pub fn versioned<T>(
        &mut self,
        what: &'static str,
        known: u8,
        f: impl FnOnce(&mut Reader<'a>, u8) -> Result<T>,
    ) -> Result<T> {
        let v = self.u8()?;
        let compat = self.u8()?;
        if compat > known {
            return Err(DecodeError::Incompatible { what, compat, known });
        }
        let n = self.u32()? as usize;
        let start = self.pos;
        self.take(n, what)?;
        let mut body = Reader { buf: &self.buf[..start + n], owner: self.owner, pos: start };
        f(&mut body, v)
    }
}

/// Output buffer for a peer with certain features.
#[derive(Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
    features: Features,
}

impl Writer {
    /// An empty buffer for a peer with `features`.
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self { buf: Vec::new(), features }
    }

    /// An empty buffer with capacity for `n` bytes.
    #[must_use]
    pub fn with_capacity(features: Features, n: usize) -> Self {
        Self { buf: Vec::with_capacity(n), features }
    }

    /// Features of the peer.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// The bytes written so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// Returns the output.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// Returns the output as shared bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.buf.into()
    }

    /// Writes raw bytes without a length.
    #[inline]
    pub fn raw(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }
    /// Writes one byte.
    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }
    /// Writes a signed byte.
    #[inline]
    pub fn i8(&mut self, v: i8) {
        self.buf.push(v as u8);
    }
    /// Writes 0 or 1.
    #[inline]
    pub fn bool(&mut self, v: bool) {
        self.buf.push(u8::from(v));
    }
    /// Writes a little-endian u16.
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian i16.
    #[inline]
    pub fn i16(&mut self, v: i16) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian u32.
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian i32.
    #[inline]
    pub fn i32(&mut self, v: i32) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian u64.
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian i64.
    #[inline]
    pub fn i64(&mut self, v: i64) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian IEEE f32.
    pub fn f32(&mut self, v: f32) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a little-endian IEEE f64.
    pub fn f64(&mut self, v: f64) {
        self.raw(&v.to_le_bytes());
    }
    /// Writes a u32 length and the bytes.
    #[inline]
    pub fn blob(&mut self, b: &[u8]) {
        self.u32(b.len() as u32);
        self.raw(b);
    }
    /// Writes a u32 length and the text.
    pub fn string(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }
    /// Encodes a value.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, v: &T) {
        v.encode(self);
    }

    /// Writes a u32 count and the elements with `f`.
    pub fn seq<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut f: impl FnMut(&mut Self, T)) {
        self.u32(items.len() as u32);
        for i in items {
            f(self, i);
        }
    }

    /// Writes a versioned structure with the body that `f` writes.
    #[inline]
    pub fn versioned(&mut self, v: u8, compat: u8, f: impl FnOnce(&mut Self)) {
        self.u8(v);
        self.u8(compat);
        self.sized(f);
    }

    /// Writes a u32 length (filled in afterwards) and the bytes that `f` writes.
    #[inline]
    pub fn sized(&mut self, f: impl FnOnce(&mut Self)) {
        let at = self.buf.len();
        self.u32(0);
        f(self);
        let n = (self.buf.len() - at - 4) as u32;
        self.buf[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }
}

/// A type with a wire encoding.
pub trait Encode {
    /// Appends the encoding for the writer's peer.
    fn encode(&self, w: &mut Writer);

    /// The encoding for a peer with `features`.
    fn to_bytes(&self, features: Features) -> Bytes {
        let mut w = Writer::new(features);
        self.encode(&mut w);
        w.into_bytes()
    }
}

/// A type that can be decoded.
pub trait Decode: Sized {
    /// Decodes one value.
    fn decode(r: &mut Reader<'_>) -> Result<Self>;

    /// Decodes one value from the start of shared bytes, and ignores the bytes after it.
    fn from_bytes(b: &Bytes) -> Result<Self> {
        Self::decode(&mut Reader::shared(b))
    }
}

macro_rules! prim {
    ($($t:ident)*) => {$(
        impl Encode for $t {
            fn encode(&self, w: &mut Writer) { w.$t(*self); }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self> { r.$t() }
        }
    )*};
}
prim!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool);

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}
impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}
impl Decode for String {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.string()
    }
}
impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}
impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.blob()
    }
}
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(v) = self {
            v.encode(w);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(if r.bool()? { Some(T::decode(r)?) } else { None })
    }
}
impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.seq(self.iter(), |w, v| v.encode(w));
    }
}
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        self.as_slice().encode(w);
    }
}
impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.vec_with(std::any::type_name::<T>(), T::decode)
    }
}
impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.seq(self.iter(), |w, v| v.encode(w));
    }
}
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(1, "set")?;
        let mut s = Self::new();
        for _ in 0..n {
            s.insert(T::decode(r)?);
        }
        Ok(s)
    }
}
impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.seq(self.iter(), |w, (k, v)| {
            k.encode(w);
            v.encode(w);
        });
    }
}
impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(1, "map")?;
        let mut m = Self::new();
        for _ in 0..n {
            let k = K::decode(r)?;
            m.insert(k, V::decode(r)?);
        }
        Ok(m)
    }
}
impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}
