//! The authentication methods cephx and none as pure state machines.
//!
//! No I/O, clock or randomness: time comes as `base::Now`/`Utime`, random bytes from a [`Random`] that the host passes
//! in. [`server`] is the end of monitors, which authenticate entities, and of all services, which check tickets.
//! [`client`] is the other end of both. The messenger carries the payloads.
//!
//! | module | contents |
//! | --- | --- |
//! | `client` | the client end: signing in at a monitor, getting, presenting and renewing tickets |
//! | `crypto` | the two ciphers of cephx and the envelope of their plaintexts |
//! | `error` | authentication errors, and the errno sent to the peer for each |
//! | `key` | keys: wire format, text format of keyrings, and generation |
//! | `keyring` | keyring files: sections `[type.id]` with a key and caps per service, in the format of Ceph's tools |
//! | `messages` | signing in at a monitor by messages, as clients of msgr1 do |
//! | `principal` | the authenticated identity of a connection's peer |
//! | `rotating` | rotating secrets that seal tickets: three per service (previous, current, next) |
//! | `server` | the server end: authenticating entities (monitors), checking tickets (all services), renewing tickets |
//! | `ticket` | tickets: sealed by a monitor for a service, and carried by the client, which cannot open them |
//!
//! Invariants:
//!  1. Input of a peer never causes a panic, nor an allocation larger than the input.
//!  2. A proof, ticket or authorizer that fails verification gives a typed [`AuthError`], never a half-authenticated
//!     state.
//!  3. Key material is not printed by `Debug`.
//!
//! Tests: `crates/hostile/tests/hostile_bytes.rs` (1, family `auth`), `crates/msgr/tests/are_bad_peers_refused.rs` (2),
//! below (3).

#![forbid(unsafe_code)]

pub mod client;
pub mod crypto;
pub mod error;
pub mod key;
pub mod keyring;
pub mod messages;
pub mod principal;
pub mod rotating;
pub mod server;
pub mod ticket;

pub use client::Client;
pub use error::AuthError;
pub use key::{CryptoKey, KeyKind, KeyMark};
pub use keyring::{Keyring, KeyringEntry};
pub use principal::Principal;
pub use rotating::{RotatingKeys, ServiceKeys};
pub use server::{AuthHost, EntityAuth};
pub use ticket::{AuthTicket, CapsInfo};

/// Source of random bytes for keys, challenges and secrets: the operating system, or a seeded generator in simulations.
pub trait Random {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);

    /// Eight random bytes as a number.
    fn u64(&self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// Authentication methods (`CEPH_AUTH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Method(pub u32);

impl Method {
    /// No proof at all, for test clusters.
    pub const NONE: Self = Self(1);
    /// cephx.
    pub const CEPHX: Self = Self(2);
}

/// Connection modes: protection of frames on the wire (`CEPH_CON_MODE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConMode(pub u32);

impl ConMode {
    /// Checksums.
    pub const CRC: Self = Self(1);
    /// AES-128-GCM.
    pub const SECURE: Self = Self(2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{AuthName, Utime};

    #[test]
    fn no_secret_is_shown_for_debugging() {
        let key = CryptoKey::from_base64("AQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==").unwrap();
        let secret = vec![211; server::CONNECTION_SECRET_LEN];
        let granted = server::Granted {
            reply: secret.clone().into(),
            name: AuthName::parse("client.x").unwrap(),
            global_id: 4107,
            caps: CapsInfo::from_text("allow *"),
            session_key: Some(key.clone()),
            connection_secret: secret.clone(),
            expires: Utime::default(),
            proved: None,
        };
        let accepted = client::Accepted { session_key: Some(key.clone()), connection_secret: secret };
        for shown in [format!("{key:?}"), format!("{granted:?}"), format!("{accepted:?}")] {
            assert!(shown.contains("CryptoKey(aes)"), "{shown}");
            assert!(!shown.contains("211") && !shown.contains("d3"), "{shown}");
        }
    }
}
