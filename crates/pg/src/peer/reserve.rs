//! Messages between OSDs about reservations of recovery and backfill: the body of `peer::Body::Reserve`.
//!
//! The primary numbers its attempts within the interval; messages of an older attempt are ignored. `Ask` and
//! `Release` are repeated until they are answered.

use wire::codec::Result;
use wire::{DecodeError, Reader, Writer};

/// A message about a reservation; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveMsg {
    /// Primary to member: reserve a place for this PG on your OSD. Repeated with another priority, it changes the
    /// priority.
    Ask {
        /// Number of the attempt.
        n: u64,
        /// Backfill is to write about this many bytes to the member; `None`: recovery by log.
        fill: Option<u64>,
        /// Priority of the reservation.
        priority: u8,
    },
    /// Member to primary: the place is reserved.
    Granted {
        /// Number of the attempt.
        n: u64,
    },
    /// Member to primary: the OSD lacks the space for the backfill, or has run out of it.
    TooFull {
        /// Number of the attempt.
        n: u64,
    },
    /// Member to primary: a PG of higher priority took the place.
    Revoked {
        /// Number of the attempt.
        n: u64,
    },
    /// Primary to member: attempts up to this one are over.
    Release {
        /// Number of the attempt.
        n: u64,
    },
    /// Answer to `Release`.
    Released {
        /// Number of the attempt.
        n: u64,
    },
}

impl ReserveMsg {
    /// Encodes the message.
    pub fn encode(&self, w: &mut Writer) {
        let (code, n) = match self {
            Self::Ask { n, .. } => (1, n),
            Self::Granted { n } => (2, n),
            Self::TooFull { n } => (3, n),
            Self::Revoked { n } => (4, n),
            Self::Release { n } => (5, n),
            Self::Released { n } => (6, n),
        };
        w.u8(code);
        w.u64(*n);
        if let Self::Ask { fill, priority, .. } = self {
            w.u8(*priority);
            w.bool(fill.is_some());
            w.u64(fill.unwrap_or(0));
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    ///
    /// If the kind is unknown or the bytes are too short.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (code, n) = (r.u8()?, r.u64()?);
        Ok(match code {
            1 => {
                let (priority, fills, bytes) = (r.u8()?, r.bool()?, r.u64()?);
                Self::Ask { n, fill: fills.then_some(bytes), priority }
            }
            2 => Self::Granted { n },
            3 => Self::TooFull { n },
            4 => Self::Revoked { n },
            5 => Self::Release { n },
            6 => Self::Released { n },
            v => return Err(DecodeError::BadValue { what: "reservation message", value: v.into() }),
        })
    }
}
