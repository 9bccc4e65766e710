//! Primitives: reading from and writing to byte buffers.
//!
//! [`Reader`] hands out zero-copy [`Bytes`] where it was made from one. [`Writer`] carries the feature mask of the
//! peer the bytes are for, so that `encode` needs no second argument.

use crate::features::Features;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Why bytes were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ended inside a field.
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
    /// The encoder says that a decoder must know a newer version than ours.
    #[error("{what}: compat version {compat} is newer than {known}")]
    Incompatible {
        /// Type.
        what: &'static str,
        /// Compat version in the input.
        compat: u8,
        /// Newest version known here.
        known: u8,
    },
    /// A value that the type does not allow.
    #[error("{what}: bad value {value}")]
    BadValue {
        /// Field or type.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// Text that is not UTF-8 where text is required.
    #[error("{what}: not UTF-8")]
    NotUtf8 {
        /// Field or type.
        what: &'static str,
    },
    /// A checksum stored in the bytes does not match them.
    #[error("{what}: checksum {got:08x}, expected {expect:08x}")]
    Checksum {
        /// Type.
        what: &'static str,
        /// In the input.
        expect: u32,
        /// Computed.
        got: u32,
    },
}

/// Result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// A cursor over input bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    buf: &'a [u8],
    owner: Option<&'a Bytes>,
    pos: usize,
}

impl<'a> Reader<'a> {
    /// Over a slice; [`Reader::blob`] copies.
    #[must_use]
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf, owner: None, pos: 0 }
    }

    /// Over shared bytes; [`Reader::blob`] shares them.
    #[must_use]
    pub fn shared(b: &'a Bytes) -> Self {
        Self { buf: b, owner: Some(b), pos: 0 }
    }

    /// Bytes not yet read.
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

    /// The next `n` bytes.
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

    /// The next `n` bytes as shared bytes (a copy if the reader is over a plain slice).
    #[inline]
    pub fn take_bytes(&mut self, n: usize, what: &'static str) -> Result<Bytes> {
        let s = self.take(n, what)?;
        Ok(match self.owner {
            Some(o) => o.slice_ref(s),
            None => Bytes::copy_from_slice(s),
        })
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> Bytes {
        let n = self.remaining();
        self.take_bytes(n, "rest").unwrap_or_default()
    }

    /// Skips `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize, what: &'static str) -> Result<()> {
        self.take(n, what).map(|_| ())
    }

    /// A fixed-size array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let s = self.take(N, what)?;
        let mut a = [0; N];
        a.copy_from_slice(s);
        Ok(a)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>("u8")?[0])
    }
    /// Signed byte.
    #[inline]
    pub fn i8(&mut self) -> Result<i8> {
        Ok(self.u8()? as i8)
    }
    /// A byte that is zero or not.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }
    /// Little-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array("u16")?))
    }
    /// Little-endian.
    #[inline]
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_le_bytes(self.array("i16")?))
    }
    /// Little-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array("u32")?))
    }
    /// Little-endian.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array("i32")?))
    }
    /// Little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array("u64")?))
    }
    /// Little-endian.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array("i64")?))
    }
    /// Little-endian IEEE.
    #[inline]
    pub fn f32(&mut self) -> Result<f32> {
        Ok(f32::from_le_bytes(self.array("f32")?))
    }
    /// Little-endian IEEE.
    #[inline]
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array("f64")?))
    }

    /// u32 length and that many bytes.
    #[inline]
    pub fn blob(&mut self) -> Result<Bytes> {
        let n = self.u32()? as usize;
        self.take_bytes(n, "blob")
    }

    /// u32 length and that many bytes of UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let n = self.u32()? as usize;
        let s = self.take(n, "string")?;
        std::str::from_utf8(s).map(str::to_owned).map_err(|_| DecodeError::NotUtf8 { what: "string" })
    }

    /// A u32 element count, refused if the input cannot hold that many elements of `min_size` bytes (at least 1).
    #[inline]
    pub fn count(&mut self, min_size: usize, what: &'static str) -> Result<usize> {
        let n = self.u32()? as usize;
        let need = n.saturating_mul(min_size.max(1));
        if need > self.remaining() {
            return Err(DecodeError::Truncated { what, at: self.pos, need, have: self.remaining() });
        }
        Ok(n)
    }

    /// u32 count and that many elements read by `f`.
    pub fn vec_with<T>(&mut self, what: &'static str, mut f: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let n = self.count(1, what)?;
        let mut v = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            v.push(f(self)?);
        }
        Ok(v)
    }

    /// Anything that decodes.
    #[inline]
    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(self)
    }

    /// A versioned structure: checks `compat <= known`, hands the body and its version to `f`, skips what `f` left.
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

/// Growing output bytes for a peer with certain features.
#[derive(Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
    features: Features,
}

impl Writer {
    /// Empty output for a peer with `features`.
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self { buf: Vec::new(), features }
    }

    /// Empty output with room for `n` bytes.
    #[must_use]
    pub fn with_capacity(features: Features, n: usize) -> Self {
        Self { buf: Vec::with_capacity(n), features }
    }

    /// The peer's features.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What was written so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// The output.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// The output, shareable.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.buf.into()
    }

    /// Raw bytes without a length.
    #[inline]
    pub fn raw(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }
    /// One byte.
    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }
    /// Signed byte.
    #[inline]
    pub fn i8(&mut self, v: i8) {
        self.buf.push(v as u8);
    }
    /// 0 or 1.
    #[inline]
    pub fn bool(&mut self, v: bool) {
        self.buf.push(u8::from(v));
    }
    /// Little-endian.
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian.
    #[inline]
    pub fn i16(&mut self, v: i16) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian.
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian.
    #[inline]
    pub fn i32(&mut self, v: i32) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian.
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian.
    #[inline]
    pub fn i64(&mut self, v: i64) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian IEEE.
    pub fn f32(&mut self, v: f32) {
        self.raw(&v.to_le_bytes());
    }
    /// Little-endian IEEE.
    pub fn f64(&mut self, v: f64) {
        self.raw(&v.to_le_bytes());
    }
    /// u32 length and the bytes.
    #[inline]
    pub fn blob(&mut self, b: &[u8]) {
        self.u32(b.len() as u32);
        self.raw(b);
    }
    /// u32 length and the text.
    pub fn string(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }
    /// Anything that encodes.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, v: &T) {
        v.encode(self);
    }

    /// u32 count and the elements, written by `f`.
    pub fn seq<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut f: impl FnMut(&mut Self, T)) {
        self.u32(items.len() as u32);
        for i in items {
            f(self, i);
        }
    }

    /// A versioned structure whose body `f` writes.
    #[inline]
    pub fn versioned(&mut self, v: u8, compat: u8, f: impl FnOnce(&mut Self)) {
        self.u8(v);
        self.u8(compat);
        self.sized(f);
    }

    /// u32 length (filled in afterwards) and what `f` writes.
    #[inline]
    pub fn sized(&mut self, f: impl FnOnce(&mut Self)) {
        let at = self.buf.len();
        self.u32(0);
        f(self);
        let n = (self.buf.len() - at - 4) as u32;
        self.buf[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }
}

/// A type with a wire form.
pub trait Encode {
    /// Appends the wire form for the writer's peer.
    fn encode(&self, w: &mut Writer);

    /// The wire form for a peer with `features`.
    fn to_bytes(&self, features: Features) -> Bytes {
        let mut w = Writer::new(features);
        self.encode(&mut w);
        w.into_bytes()
    }
}

/// A type that is read from its wire form.
pub trait Decode: Sized {
    /// Reads one value.
    fn decode(r: &mut Reader<'_>) -> Result<Self>;

    /// Reads one value from the start of shared bytes, ignoring what follows.
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
