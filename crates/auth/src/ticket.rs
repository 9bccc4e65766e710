//! Tickets: sealed by a monitor for a service, and carried by the client, which cannot open them.

use crate::crypto::Usage;
use crate::{AuthError, CryptoKey, KeyMark, Random};
use base::{AuthName, Utime};
use bytes::Bytes;
use std::time::Duration;
use wire::{Decode, Encode, Reader, Writer};

/// Caps of an entity at one service, as carried in its ticket (`AuthCapsInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsInfo {
    /// Everything is allowed: set with method none.
    pub allow_all: bool,
    /// Encoded caps string; empty without caps.
    pub caps: Bytes,
}

impl CapsInfo {
    /// Caps that allow everything.
    #[must_use]
    pub fn all() -> Self {
        Self { allow_all: true, caps: Bytes::new() }
    }

    /// Caps of one service from their text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self { allow_all: false, caps: text.to_bytes(wire::Features::default()) }
    }

    /// The caps text; empty if there is none or it is not a string.
    #[must_use]
    pub fn text(&self) -> String {
        Reader::new(&self.caps).string().unwrap_or_default()
    }
}

/// Encoding: u8 1, bool allow all, blob caps.
impl Encode for CapsInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.bool(self.allow_all);
        w.blob(&self.caps);
    }
}
impl Decode for CapsInfo {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        r.u8()?;
        Ok(Self { allow_all: r.bool()?, caps: r.blob()? })
    }
}

/// Entity and caps of a session (`AuthTicket`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthTicket {
    /// Name of the entity.
    pub name: AuthName,
    /// Global id of its session.
    pub global_id: u64,
    /// Start of validity.
    pub created: Utime,
    /// End of validity.
    pub expires: Utime,
    /// Caps at the service.
    pub caps: CapsInfo,
    /// Unused flags.
    pub flags: u32,
}

/// User id of old releases, always "default".
const AUID_DEFAULT: u64 = u64::MAX;

impl Encode for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.put(&self.name);
        w.u64(self.global_id);
        w.u64(AUID_DEFAULT);
        w.put(&self.created);
        w.put(&self.expires);
        w.put(&self.caps);
        w.u32(self.flags);
    }
}
impl Decode for AuthTicket {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        let v = r.u8()?;
        let name = r.get()?;
        let global_id = r.u64()?;
        if v >= 2 {
            r.u64()?;
        }
        let (created, expires, caps, flags) = (r.get()?, r.get()?, r.get()?, r.u32()?);
        Ok(Self { name, global_id, created, expires, caps, flags })
    }
}

/// A sealed ticket, with the number of the secret that opens it (`CephXTicketBlob`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketBlob {
    /// Number of the service's secret.
    pub secret_id: u64,
    /// Ciphertext.
    pub blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.blob(&self.blob);
    }
}
impl Decode for TicketBlob {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        r.u8()?;
        Ok(Self { secret_id: r.u64()?, blob: r.blob()? })
    }
}

/// Contents of a sealed ticket (`CephXServiceTicketInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTicket {
    /// Entity and caps.
    pub ticket: AuthTicket,
    /// Key shared by client and service.
    pub session_key: CryptoKey,
    /// Fingerprint of the entity's key that was proved for this ticket. Ceph's tickets have none, and its daemons skip
    /// it.
    pub proved: Option<KeyMark>,
}

impl ServiceTicket {
    /// Seals the ticket with a service secret.
    #[must_use]
    pub fn seal(&self, secret_id: u64, secret: &CryptoKey, random: &dyn Random) -> TicketBlob {
        let blob = secret.seal(Usage::TicketInfo, random, |w| {
            w.u8(1);
            w.put(&self.ticket);
            w.put(&self.session_key);
            if let Some(mark) = self.proved {
                w.u8(1);
                w.raw(&mark.0);
            }
        });
        TicketBlob { secret_id, blob: blob.into() }
    }

    /// Opens a ticket with the service secret that sealed it. Error: a wrong secret, or a malformed ticket.
    pub fn open(blob: &TicketBlob, secret: &CryptoKey) -> Result<Self, AuthError> {
        let plain = secret.open(Usage::TicketInfo, &blob.blob, "ticket")?;
        let mut r = Reader::shared(&plain);
        r.u8()?;
        let (ticket, session_key) = (r.get()?, r.get()?);
        let proved = match r.u8() {
            Ok(1) => Some(KeyMark(r.array("mark of a key")?)),
            _ => None,
        };
        let me = Self { ticket, session_key, proved };
        if me.ticket.created.nsec >= 1_000_000_000 || me.ticket.expires.nsec >= 1_000_000_000 {
            return Err(AuthError::CannotDecrypt("ticket"));
        }
        Ok(me)
    }

    /// Refuses a ticket that has expired, or whose remaining time exceeds its life by so much that this machine's clock
    /// must be wrong: by more than the whole life. Ceph does not check the latter.
    pub fn check_time(&self, now: Utime) -> Result<(), AuthError> {
        let t = &self.ticket;
        let ahead = t.created.sec.saturating_sub(now.sec);
        if ahead > t.expires.sec.saturating_sub(t.created.sec) {
            return Err(AuthError::NotYetValid { name: t.name.clone(), ahead: ahead.into() });
        }
        if t.expires > now {
            return Ok(());
        }
        let over = u64::from(now.sec.saturating_sub(t.expires.sec));
        Err(AuthError::ExpiredTicket { name: t.name.clone(), over, age: i64::from(now.sec) - i64::from(t.created.sec) })
    }
}

/// A ticket as the client holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTicket {
    /// Sealed ticket to present to the service.
    pub blob: TicketBlob,
    /// Key shared with the service.
    pub session_key: CryptoKey,
    /// Time of receipt by the client's clock.
    pub received: Utime,
    /// Validity from the time of receipt.
    pub validity: Duration,
}

impl HeldTicket {
    /// Expiry by the client's clock.
    #[must_use]
    pub fn expires(&self) -> Utime {
        self.received.plus(self.validity)
    }

    /// Time to request a new ticket: after three quarters of its life.
    #[must_use]
    pub fn renew_after(&self) -> Utime {
        self.received.plus(self.validity * 3 / 4)
    }
}
