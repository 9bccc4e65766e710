//! Signatures of S3 requests (AWS Signature Version 4, in the header `Authorization`).
//!
//! Reference: "Authenticating Requests: Using the Authorization Header" of Amazon's S3 API.

use base::Utime;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

/// Value of `x-amz-content-sha256` for a body that the signature does not cover.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// A user's key pair, with the region that scopes its signatures.
#[derive(Clone)]
pub struct Keys {
    /// Access key.
    pub access: String,
    /// Secret key.
    pub secret: String,
    /// Region, `us-east-1` unless the gateway has another.
    pub region: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The parts of a request that are signed, besides its time.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET`, `PUT`, …
    pub method: &'a str,
    /// Path, percent-encoded.
    pub path: &'a str,
    /// Query, percent-encoded and sorted by name; empty for none.
    pub query: &'a str,
    /// Further signed headers in lower case, sorted by name: at least `host` and `x-amz-content-sha256`.
    pub headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body in hexadecimal, or [`UNSIGNED`].
    pub payload: &'a str,
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of every length.
    let Ok(mut h) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    h.update(text.as_bytes());
    h.finalize().into_bytes().to_vec()
}

fn hex(b: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    b.iter().flat_map(|x| [DIGITS[usize::from(x >> 4)] as char, DIGITS[usize::from(x & 15)] as char]).collect()
}

/// The header `x-amz-date` for a time: `20130524T000000Z`.
#[must_use]
pub fn date(at: Utime) -> String {
    let [y, m, d, hour, minute, second] = at.utc();
    format!("{y:04}{m:02}{d:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Signs requests of one day with one key; the day's key is derived once.
#[derive(Clone)]
pub struct Signer {
    keys: Keys,
    day: String,
    key: Vec<u8>,
}

impl Signer {
    /// A signer that derives its key at the first request.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self { keys, day: String::new(), key: Vec::new() }
    }

    /// The header `authorization` for a request made at `date` (as [`date`] gives it).
    pub fn authorization(&mut self, date: &str, r: &Request<'_>) -> String {
        let day = date.get(..8).unwrap_or_default();
        if self.day != day {
            day.clone_into(&mut self.day);
            let start = format!("AWS4{}", self.keys.secret);
            let steps = [day, &self.keys.region, "s3", "aws4_request"];
            self.key = steps.iter().fold(start.into_bytes(), |key, step| mac(&key, step));
        }
        let names: Vec<&str> = r.headers.iter().map(|(n, _)| *n).collect();
        let names = names.join(";");
        let headers: String = r.headers.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
        let canonical = format!("{}\n{}\n{}\n{headers}\n{names}\n{}", r.method, r.path, r.query, r.payload);
        let scope = format!("{day}/{}/s3/aws4_request", self.keys.region);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.keys.access,
            hex(&mac(&self.key, &text))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of nothing.
    const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(r: &Request<'_>) -> String {
        let keys = Keys {
            access: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            region: "us-east-1".into(),
        };
        let all = Signer::new(keys).authorization(&date(Utime { sec: 1_369_353_600, nsec: 0 }), r);
        all.rsplit_once('=').unwrap().1.to_owned()
    }

    /// The examples of Amazon's reference.
    #[test]
    fn published_examples() {
        let host = ("host", "examplebucket.s3.amazonaws.com");
        let rest = [("x-amz-content-sha256", NOTHING), ("x-amz-date", "20130524T000000Z")];
        let ranged = [host, ("range", "bytes=0-9"), rest[0], rest[1]];
        let r = Request { method: "GET", path: "/test.txt", query: "", headers: &ranged, payload: NOTHING };
        assert_eq!(signature(&r), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        let plain = [host, rest[0], rest[1]];
        let r = Request { method: "GET", path: "/", query: "max-keys=2&prefix=J", headers: &plain, payload: NOTHING };
        assert_eq!(signature(&r), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }

    #[test]
    fn dates_and_secrets() {
        assert_eq!(date(Utime { sec: 1_369_353_600, nsec: 0 }), "20130524T000000Z");
        assert_eq!(date(Utime { sec: 951_868_799, nsec: 0 }), "20000229T235959Z");
        let keys = Keys { access: "A".into(), secret: "hidden".into(), region: "r".into() };
        assert!(!format!("{keys:?}").contains("hidden"));
    }
}
