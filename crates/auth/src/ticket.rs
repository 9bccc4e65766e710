//! Tickets: what a monitor seals for a service and the client carries unopened.

use crate::crypto::Usage;
use crate::{AuthError, CryptoKey, Random};
use base::{AuthName, Utime};
use bytes::Bytes;
use std::time::Duration;
use wire::{Decode, Encode, Reader, Writer};

/// What an entity may do at one service, as carried in its ticket (`AuthCapsInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsInfo {
    /// Everything: set with auth none.
    pub allow_all: bool,
    /// Encoded string of caps, empty if it has none.
    pub caps: Bytes,
}

impl CapsInfo {
    /// Everything is allowed.
    #[must_use]
    pub fn all() -> Self {
        Self { allow_all: true, caps: Bytes::new() }
    }

    /// From the caps text of one service.
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

/// u8 1, bool allow all, blob caps.
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

/// Who holds a session and what it may do (`AuthTicket`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthTicket {
    /// Entity.
    pub name: AuthName,
    /// Its session's number.
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

/// The user id of old releases, always "default".
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

/// A sealed ticket with the number of the secret that opens it (`CephXTicketBlob`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketBlob {
    /// Which of the service's secrets.
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

/// The inside of a sealed ticket (`CephXServiceTicketInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTicket {
    /// Holder and caps.
    pub ticket: AuthTicket,
    /// Key that client and service share.
    pub session_key: CryptoKey,
}

impl ServiceTicket {
    /// Seals under a service secret.
    #[must_use]
    pub fn seal(&self, secret_id: u64, secret: &CryptoKey, random: &dyn Random) -> TicketBlob {
        let blob = secret.seal(Usage::TicketInfo, random, |w| {
            w.u8(1);
            w.put(&self.ticket);
            w.put(&self.session_key);
        });
        TicketBlob { secret_id, blob: blob.into() }
    }

    /// Opens with the service secret it was sealed with.
    pub fn open(blob: &TicketBlob, secret: &CryptoKey) -> Result<Self, AuthError> {
        let plain = secret.open(Usage::TicketInfo, &blob.blob, "ticket")?;
        let mut r = Reader::shared(&plain);
        r.u8()?;
        let me = Self { ticket: r.get()?, session_key: r.get()? };
        if me.ticket.created.nsec >= 1_000_000_000 || me.ticket.expires.nsec >= 1_000_000_000 {
            return Err(AuthError::CannotDecrypt("ticket"));
        }
        Ok(me)
    }

    /// Refuses a ticket whose time is over, or is so far away that this machine's clock must be wrong: by more than the
    /// ticket's whole life. Less than that is allowed as by Ceph, which does not look at it.
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
    /// To show to the service.
    pub blob: TicketBlob,
    /// Shared with the service.
    pub session_key: CryptoKey,
    /// When it was received, by the client's clock.
    pub received: Utime,
    /// How long it is valid from then.
    pub validity: Duration,
}

impl HeldTicket {
    /// End of validity by the client's clock.
    #[must_use]
    pub fn expires(&self) -> Utime {
        self.received.plus(self.validity)
    }

    /// When to ask for a new one: at three quarters of its life.
    #[must_use]
    pub fn renew_after(&self) -> Utime {
        self.received.plus(self.validity * 3 / 4)
    }
}
