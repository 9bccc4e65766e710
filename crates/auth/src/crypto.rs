//! The two ciphers of cephx and the envelope of their plaintexts.
//!
//! Type 1: AES-128-CBC with a fixed IV and PKCS#7 padding: deterministic and unauthenticated, as the protocol has it.
//! Type 2: RFC 8009 aes256-cts-hmac-sha384-192 with a random confounder and a usage number per purpose.
//! Envelope: u8 1, u64 magic, object.

use crate::{AuthError, CryptoKey, KeyKind, Random};
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::NoPadding, block_padding::Pkcs7};
use bytes::Bytes;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};
use wire::{Features, Reader, Writer};

/// Purpose of a ciphertext; an input of the key derivation of type 2 keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Usage {
    /// Connection secret in the monitor's reply.
    ConnectionSecret = 0x03,
    /// Session key of a ticket, for the client.
    TicketSessionKey = 0x04,
    /// A ticket wrapped under the old session key.
    TicketBlob = 0x05,
    /// Authorizer.
    Authorize = 0x10,
    /// Challenge of a service.
    AuthorizeChallenge = 0x11,
    /// Reply of a service to an authorizer.
    AuthorizeReply = 0x12,
    /// Rotating secrets for a daemon.
    RotatingSecret = 0x20,
    /// Contents of a ticket.
    TicketInfo = 0x30,
}

const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const AES_IV: &[u8; 16] = b"cephsageyudagreg";
const BLOCK: usize = 16;
/// Length in bytes of the truncated HMAC-SHA384 of type 2.
const TAG: usize = 24;

type Cbc128Enc = cbc::Encryptor<aes::Aes128>;
type Cbc128Dec = cbc::Decryptor<aes::Aes128>;
type Cbc256Enc = cbc::Encryptor<aes::Aes256>;
type Cbc256Dec = cbc::Decryptor<aes::Aes256>;

impl CryptoKey {
    /// Encrypts raw bytes.
    #[must_use]
    pub fn encrypt(&self, usage: Usage, random: &dyn Random, plain: &[u8]) -> Vec<u8> {
        match self.kind() {
            KeyKind::Aes => {
                Cbc128Enc::new(&to_array(self.secret()).into(), AES_IV.into()).encrypt_padded_vec_mut::<Pkcs7>(plain)
            }
            KeyKind::Aes256K => {
                let mut confounder = [0; BLOCK];
                random.fill(&mut confounder);
                krb_encrypt(self.secret(), usage as u32, &confounder, plain)
            }
        }
    }

    /// Decrypts raw bytes; `what` names the plaintext in errors. Error: [`AuthError::CannotDecrypt`].
    pub fn decrypt(&self, usage: Usage, cipher: &[u8], what: &'static str) -> Result<Vec<u8>, AuthError> {
        match self.kind() {
            KeyKind::Aes => Cbc128Dec::new(&to_array(self.secret()).into(), AES_IV.into())
                .decrypt_padded_vec_mut::<Pkcs7>(cipher)
                .ok(),
            KeyKind::Aes256K => krb_decrypt(self.secret(), usage as u32, cipher),
        }
        .ok_or(AuthError::CannotDecrypt(what))
    }

    /// Encrypts what `f` writes, in the envelope. The caller adds a length if the field has one.
    #[must_use]
    pub fn seal(&self, usage: Usage, random: &dyn Random, f: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new(Features::PACIFIC);
        w.u8(1);
        w.u64(MAGIC);
        f(&mut w);
        self.encrypt(usage, random, w.as_slice())
    }

    /// Decrypts and removes the envelope. Error: [`AuthError::CannotDecrypt`] with `what`, for a wrong key or altered
    /// bytes.
    pub fn open(&self, usage: Usage, cipher: &[u8], what: &'static str) -> Result<Bytes, AuthError> {
        let plain = Bytes::from(self.decrypt(usage, cipher, what)?);
        let mut r = Reader::shared(&plain);
        // A wrong key is detected here: type 1 has no other integrity check.
        let envelope = r.u8().and_then(|v| Ok((v, r.u64()?)));
        match envelope {
            Ok((v, MAGIC)) if v >= 1 => Ok(r.rest()),
            _ => Err(AuthError::CannotDecrypt(what)),
        }
    }

    /// HMAC-SHA256 with the secret.
    #[must_use]
    pub fn sign(&self, data: &[u8]) -> [u8; 32] {
        hmac256(self.secret(), &[data])
    }

    /// Signature of a message of msgr1 over `block`: the ciphertext of the block, folded over the block's length. Error:
    /// [`AuthError::KeyNeedsMsgr2`] for type 2, whose ciphertexts differ each time.
    pub fn sign_message(&self, block: &[u8; 32]) -> Result<u64, AuthError> {
        if self.kind() != KeyKind::Aes {
            return Err(AuthError::KeyNeedsMsgr2);
        }
        // The block of padding that CBC appends is left out of the fold.
        let mut cipher = *block;
        let mut cbc = Cbc128Enc::new(&to_array(self.secret()).into(), AES_IV.into());
        for b in cipher.chunks_exact_mut(BLOCK) {
            cbc.encrypt_block_mut(b.into());
        }
        Ok(fold(&cipher))
    }

    /// Proof of knowing this key, for a pair of challenges.
    #[must_use]
    pub fn proof(&self, server_challenge: u64, client_challenge: u64, random: &dyn Random) -> u64 {
        match self.kind() {
            KeyKind::Aes => {
                let c = self.seal(Usage::Authorize, random, |w| {
                    w.u64(server_challenge);
                    w.u64(client_challenge);
                });
                // The length prefix is folded, too.
                let mut buf = (c.len() as u32).to_le_bytes().to_vec();
                buf.extend_from_slice(&c);
                fold(&buf)
            }
            KeyKind::Aes256K => {
                let mac = hmac256(self.secret(), &[&server_challenge.to_le_bytes(), &client_challenge.to_le_bytes()]);
                fold(&mac)
            }
        }
    }
}

/// Xor of all complete little-endian 64-bit words.
fn fold(buf: &[u8]) -> u64 {
    buf.chunks_exact(8).fold(0, |x, c| x ^ u64::from_le_bytes(to_array(c)))
}

/// HMAC-SHA256 over the concatenation of `parts`.
#[must_use]
pub fn hmac256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let Ok(mut m) = <Hmac<Sha256> as Mac>::new_from_slice(key) else { return [0; 32] };
    for p in parts {
        m.update(p);
    }
    m.finalize().into_bytes().into()
}

/// Compares in constant time, so that the duration does not reveal the first difference.
#[must_use]
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

/// The first `N` bytes, zero-filled if there are fewer; callers pass slices of that length.
fn to_array<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut a = [0; N];
    for (d, s) in a.iter_mut().zip(b) {
        *d = *s;
    }
    a
}

fn hmac384(key: &[u8], parts: &[&[u8]]) -> [u8; 48] {
    let Ok(mut m) = <Hmac<Sha384> as Mac>::new_from_slice(key) else { return [0; 48] };
    for p in parts {
        m.update(p);
    }
    m.finalize().into_bytes().into()
}

/// KDF-HMAC-SHA2 of RFC 8009 section 3 with label `usage || kind`.
fn derive(key: &[u8], usage: u32, kind: u8, bits: u32) -> [u8; 48] {
    hmac384(key, &[&1u32.to_be_bytes(), &usage.to_be_bytes(), &[kind, 0], &bits.to_be_bytes()])
}

fn krb_keys(key: &[u8], usage: u32) -> ([u8; 32], [u8; 24]) {
    (to_array(&derive(key, usage, 0xaa, 256)), to_array(&derive(key, usage, 0x55, 192)))
}

fn krb_mac(ki: &[u8], cipher: &[u8]) -> [u8; TAG] {
    to_array(&hmac384(ki, &[&[0; BLOCK], cipher]))
}

fn krb_encrypt(key: &[u8], usage: u32, confounder: &[u8; BLOCK], plain: &[u8]) -> Vec<u8> {
    let (ke, ki) = krb_keys(key, usage);
    let mut buf = Vec::with_capacity(BLOCK + plain.len() + BLOCK + TAG);
    buf.extend_from_slice(confounder);
    buf.extend_from_slice(plain);
    let len = buf.len();
    buf.resize(len.next_multiple_of(BLOCK), 0);
    let padded = buf.len();
    // Cannot fail: the buffer is a whole number of blocks.
    let _ = Cbc256Enc::new(&ke.into(), &[0; BLOCK].into()).encrypt_padded_mut::<NoPadding>(&mut buf, padded);
    if padded > BLOCK {
        // CS3: swap the last two blocks, then truncate the output to the input's length.
        let (_, tail) = buf.split_at_mut(padded - 2 * BLOCK);
        let (a, b) = tail.split_at_mut(BLOCK);
        a.swap_with_slice(b);
    }
    buf.truncate(len);
    let mac = krb_mac(&ki, &buf);
    buf.extend_from_slice(&mac);
    buf
}

fn krb_decrypt(key: &[u8], usage: u32, cipher: &[u8]) -> Option<Vec<u8>> {
    let (ke, ki) = krb_keys(key, usage);
    let (body, mac) = cipher.split_at_checked(cipher.len().checked_sub(TAG)?)?;
    if body.len() < BLOCK || !constant_time_eq(&krb_mac(&ki, body), mac) {
        return None;
    }
    let len = body.len();
    let mut buf = body.to_vec();
    if len > BLOCK {
        // Undo CS3. The last full block (second to last as transmitted) is C(n); decrypting it alone gives P(n) padded
        // with the stolen end of C(n-1).
        let cut = if len % BLOCK == 0 { BLOCK } else { len % BLOCK };
        let at = len - cut - BLOCK;
        let (head, tail) = buf.split_at(at);
        let (c_last, c_prev_part) = tail.split_at_checked(BLOCK)?;
        let mut x: [u8; BLOCK] = to_array(c_last);
        Cbc256Dec::new(&ke.into(), &[0; BLOCK].into()).decrypt_padded_mut::<NoPadding>(&mut x).ok()?;
        let stolen = x.get(cut..)?;
        let mut whole = Vec::with_capacity(len.next_multiple_of(BLOCK));
        whole.extend_from_slice(head);
        whole.extend_from_slice(c_prev_part);
        whole.extend_from_slice(stolen);
        whole.extend_from_slice(c_last);
        buf = whole;
    }
    Cbc256Dec::new(&ke.into(), &[0; BLOCK].into()).decrypt_padded_mut::<NoPadding>(&mut buf).ok()?;
    buf.truncate(len);
    buf.drain(..BLOCK);
    Some(buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Utime;

    struct Fixed;
    impl Random for Fixed {
        fn fill(&self, out: &mut [u8]) {
            out.fill(0x5a);
        }
    }

    fn hex(s: &str) -> Vec<u8> {
        let d: String = s.split_whitespace().collect();
        (0..d.len() / 2).map(|i| u8::from_str_radix(&d[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    /// RFC 8009 appendix A, aes256-cts-hmac-sha384-192, key usage 2.
    #[test]
    fn rfc8009_vectors() {
        let key =
            hex("6D 40 4D 37 FA F7 9F 9D F0 D3 35 68 D3 20 66 98 00 EB 48 36 47 2E A8 A0 26 D1 6B 71 82 46 0C 52");
        let (ke, ki) = krb_keys(&key, 2);
        assert_eq!(
            ke.to_vec(),
            hex("56 AB 22 BE E6 3D 82 D7 BC 52 27 F6 77 3F 8E A7 A5 EB 1C 82 51 60 C3 83 12 98 0C 44 2E 5C 7E 49")
        );
        assert_eq!(ki.to_vec(), hex("69 B1 65 14 E3 CD 8E 56 B8 20 10 D5 C7 30 12 B6 22 C4 D0 0F FC 23 ED 1F"));
        let cases = [
            (
                "F7 64 E9 FA 15 C2 76 47 8B 2C 7D 0C 4E 5F 58 E4",
                "",
                "41 F5 3F A5 BF E7 02 6D 91 FA F9 BE 95 91 95 A0 58 70 72 73 A9 6A 40 F0 A0 19 60 62 1A C6 12 74 8B 9B BF BE 7E B4 CE 3C",
            ),
            (
                "B8 0D 32 51 C1 F6 47 14 94 25 6F FE 71 2D 0B 9A",
                "00 01 02 03 04 05",
                "4E D7 B3 7C 2B CA C8 F7 4F 23 C1 CF 07 E6 2B C7 B7 5F B3 F6 37 B9 F5 59 C7 F6 64 F6 9E AB 7B 60 92 23 75 26 EA 0D 1F 61 CB 20 D6 9D 10 F2",
            ),
            (
                "53 BF 8A 0D 10 52 65 D4 E2 76 42 86 24 CE 5E 63",
                "00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F",
                "BC 47 FF EC 79 98 EB 91 E8 11 5C F8 D1 9D AC 4B BB E2 E1 63 E8 7D D3 7F 49 BE CA 92 02 77 64 F6 8C F5 1F 14 D7 98 C2 27 3F 35 DF 57 4D 1F 93 2E 40 C4 FF 25 5B 36 A2 66",
            ),
            (
                "76 3E 65 36 7E 86 4F 02 F5 51 53 C7 E3 B5 8A F1",
                "00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10 11 12 13 14",
                "40 01 3E 2D F5 8E 87 51 95 7D 28 78 BC D2 D6 FE 10 1C CF D5 56 CB 1E AE 79 DB 3C 3E E8 64 29 F2 B2 A6 02 AC 86 FE F6 EC B6 47 D6 29 5F AE 07 7A 1F EB 51 75 08 D2 C1 6B 41 92 E0 1F 62",
            ),
        ];
        for (conf, plain, cipher) in cases {
            let (plain, cipher) = (hex(plain), hex(cipher));
            assert_eq!(krb_encrypt(&key, 2, &to_array(&hex(conf)), &plain), cipher);
            assert_eq!(krb_decrypt(&key, 2, &cipher).unwrap(), plain);
        }
    }

    #[test]
    fn both_kinds_round_trip_and_refuse_changes() {
        for kind in [KeyKind::Aes, KeyKind::Aes256K] {
            let k = CryptoKey::generate(kind, Utime::ZERO, &Fixed);
            let other = CryptoKey::new(kind, Utime::ZERO, &vec![9; kind.secret_len()]).unwrap();
            for n in 0..70 {
                let c = k.seal(Usage::Authorize, &Fixed, |w| w.raw(&vec![7; n]));
                assert_eq!(k.open(Usage::Authorize, &c, "x").unwrap(), vec![7; n]);
                assert_eq!(other.open(Usage::Authorize, &c, "x"), Err(AuthError::CannotDecrypt("x")));
                assert!(k.open(Usage::Authorize, &c[..c.len() - 1], "x").is_err());
                if kind == KeyKind::Aes256K {
                    assert!(k.open(Usage::AuthorizeReply, &c, "x").is_err(), "usage is part of the key");
                }
            }
            for n in 0..64 {
                let _ = k.open(Usage::Authorize, &vec![0xa5; n], "x").unwrap_err();
            }
        }
    }
}
