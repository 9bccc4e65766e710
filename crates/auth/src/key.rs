//! Keys: wire format, text format of keyrings, and generation.

use crate::{AuthError, Random};
use base::Utime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use wire::{Decode, DecodeError, Encode, Reader, Writer};

/// Cipher type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Type 1, `aes`: AES-128-CBC. The default, as every client supports it.
    Aes,
    /// Type 2, `aes256k`: RFC 8009 aes256-cts-hmac-sha384-192. For Tentacle, kernel 7.0, and newer.
    Aes256K,
}

impl KeyKind {
    /// Number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Aes => 1,
            Self::Aes256K => 2,
        }
    }

    /// The type with this number.
    #[must_use]
    pub fn from_number(n: u16) -> Option<Self> {
        match n {
            1 => Some(Self::Aes),
            2 => Some(Self::Aes256K),
            _ => None,
        }
    }

    /// Name in configuration and commands.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Aes => "aes",
            Self::Aes256K => "aes256k",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn from_word(w: &str) -> Option<Self> {
        match w {
            "aes" => Some(Self::Aes),
            "aes256k" => Some(Self::Aes256K),
            _ => None,
        }
    }

    /// Length of a secret in bytes.
    #[must_use]
    pub fn secret_len(self) -> usize {
        match self {
            Self::Aes => 16,
            Self::Aes256K => 32,
        }
    }
}

/// Fingerprint that identifies a key without revealing it; it records which key an entity proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark(pub [u8; 16]);

/// A secret key (`CryptoKey`). `Debug` shows only its kind.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    kind: KeyKind,
    created: Utime,
    secret: [u8; 32],
}

impl CryptoKey {
    /// Makes a key from a secret. Error: [`AuthError::BadKey`] unless the secret has the type's length.
    pub fn new(kind: KeyKind, created: Utime, secret: &[u8]) -> Result<Self, AuthError> {
        if secret.len() != kind.secret_len() {
            return Err(AuthError::BadKey("wrong length of secret"));
        }
        let mut s = [0; 32];
        for (d, b) in s.iter_mut().zip(secret) {
            *d = *b;
        }
        Ok(Self { kind, created, secret: s })
    }

    /// Generates a key.
    #[must_use]
    pub fn generate(kind: KeyKind, created: Utime, random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        let (used, _) = secret.split_at_mut(kind.secret_len());
        random.fill(used);
        Self { kind, created, secret }
    }

    /// The key's fingerprint.
    #[must_use]
    pub fn mark(&self) -> KeyMark {
        let all = self.sign(b"mark of a key");
        let mut m = [0; 16];
        m.iter_mut().zip(all).for_each(|(d, b)| *d = b);
        KeyMark(m)
    }

    /// Cipher type.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Creation time.
    #[must_use]
    pub fn created(&self) -> Utime {
        self.created
    }

    /// The raw secret.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        self.secret.split_at(self.kind.secret_len()).0
    }

    /// Parses the base64 text of a keyring. Error: text that is not base64, or not exactly one encoded key.
    pub fn from_base64(text: &str) -> Result<Self, AuthError> {
        let raw = BASE64.decode(text.trim()).map_err(|_| AuthError::BadKey("not base64"))?;
        let mut r = Reader::new(&raw);
        let k = Self::decode(&mut r)?;
        if r.is_empty() { Ok(k) } else { Err(AuthError::BadKey("trailing bytes")) }
    }

    /// Base64 text as in keyrings.
    #[must_use]
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.to_bytes(wire::Features::default()))
    }
}

impl std::fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CryptoKey({})", self.kind.word())
    }
}

/// Encoding: u16 type, utime created, u16 length, secret.
impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind.number());
        w.put(&self.created);
        w.u16(self.kind.secret_len() as u16);
        w.raw(self.secret());
    }
}

impl Decode for CryptoKey {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        let n = r.u16()?;
        let kind = KeyKind::from_number(n).ok_or(DecodeError::BadValue { what: "key type", value: n.into() })?;
        let created = r.get()?;
        let len = r.u16()?;
        let secret = r.take(len.into(), "key secret")?;
        Self::new(kind, created, secret).map_err(|_| DecodeError::BadValue { what: "key length", value: len.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let t = "AQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==";
        let k = CryptoKey::from_base64(t).unwrap();
        assert_eq!(k.kind(), KeyKind::Aes);
        assert_eq!(k.secret().len(), 16);
        assert_eq!(k.to_base64(), t);
        assert_eq!(format!("{k:?}"), "CryptoKey(aes)");
    }

    #[test]
    fn bad_text() {
        for t in [
            "",
            "AQ==",
            "not base64!",
            "AQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5I0E=",
            "CQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==",
        ] {
            assert!(CryptoKey::from_base64(t).is_err(), "{t}");
        }
    }
}
