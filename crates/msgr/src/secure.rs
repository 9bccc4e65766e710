//! AES-128-GCM encryption of the two directions of a connection.
//!
//! Invariant: a nonce is never reused. The counter advances with every run, and the connection ends before it wraps.
//!
//! Tests: below.

use crate::Error;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Length of a GCM tag in bytes.
pub const TAG_LEN: usize = 16;
/// Cipher block in bytes: segments are padded to it.
pub const BLOCK: usize = 16;
/// Bytes of segment 0 in the first run, together with the preamble.
pub const INLINE: usize = 48;
/// Length of the first run on the wire, in bytes.
pub const FIRST_RUN: usize = crate::frame::PREAMBLE_LEN + INLINE + TAG_LEN;

/// `len` rounded up to whole blocks.
#[must_use]
pub fn padded(len: usize) -> usize {
    len.next_multiple_of(BLOCK)
}

/// Cipher state of one direction.
pub struct Stream {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
    start: u64,
    used: bool,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream(counter {})", self.counter)
    }
}

/// Derives our sending and receiving streams from a connection secret: key, server's sending nonce, client's sending
/// nonce. Error: [`Error::ShortSecret`].
pub fn streams(secret: &[u8], we_are_server: bool) -> Result<(Stream, Stream), Error> {
    let short = || Error::ShortSecret(secret.len());
    let key = secret.get(0..16).ok_or_else(short)?;
    let server = secret.get(16..28).ok_or_else(short)?;
    let client = secret.get(28..40).ok_or_else(short)?;
    let make = |nonce: &[u8]| -> Result<Stream, Error> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).map_err(|_| short())?);
        let (f, c) = nonce.split_at(4);
        let counter = u64::from_le_bytes(c.try_into().map_err(|_| short())?);
        Ok(Stream { key, fixed: f.try_into().map_err(|_| short())?, counter, start: counter, used: false })
    };
    let (s, c) = (make(server)?, make(client)?);
    Ok(if we_are_server { (s, c) } else { (c, s) })
}

impl Stream {
    fn nonce(&mut self) -> Result<Nonce, Error> {
        if self.used && self.counter == self.start {
            return Err(Error::NonceExhausted);
        }
        let mut n = [0; 12];
        n[..4].copy_from_slice(&self.fixed);
        n[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        self.used = true;
        Ok(Nonce::assume_unique_for_key(n))
    }

    /// Encrypts in place; returns the tag. Error: [`Error::NonceExhausted`].
    pub fn seal(&mut self, buf: &mut [u8]) -> Result<[u8; TAG_LEN], Error> {
        let nonce = self.nonce()?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), buf).map_err(|_| Error::NonceExhausted)?;
        tag.as_ref().try_into().map_err(|_| Error::NonceExhausted)
    }

    /// Decrypts in place a run that ends with its tag; returns the length of the plaintext. Error: [`Error::Decrypt`]
    /// for altered bytes, or [`Error::NonceExhausted`].
    pub fn open(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let nonce = self.nonce()?;
        self.key.open_in_place(nonce, Aad::empty(), buf).map(|p| p.len()).map_err(|_| Error::Decrypt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_match_and_a_changed_bit_is_found() {
        let secret: Vec<u8> = (0..64).collect();
        let (mut stx, _) = streams(&secret, true).unwrap();
        let (_, mut crx) = streams(&secret, false).unwrap();
        let mut b = b"hello".to_vec();
        let tag = stx.seal(&mut b).unwrap();
        b.extend_from_slice(&tag);
        let mut bad = b.clone();
        bad[2] ^= 1;
        assert_eq!(streams(&secret, false).unwrap().1.open(&mut bad), Err(Error::Decrypt));
        let n = crx.open(&mut b).unwrap();
        assert_eq!(&b[..n], b"hello");
        assert!(matches!(streams(&secret[..39], true), Err(Error::ShortSecret(39))));
    }

    #[test]
    fn a_direction_ends_before_its_nonce_repeats() {
        let mut secret = vec![7; 64];
        secret[20..28].fill(0xff);
        let (mut s, _) = streams(&secret, true).unwrap();
        s.start = s.counter.wrapping_add(2);
        let mut b = [0; 4];
        assert!(s.seal(&mut b).is_ok() && s.seal(&mut b).is_ok());
        assert_eq!(s.seal(&mut b), Err(Error::NonceExhausted));
    }
}
