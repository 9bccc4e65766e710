//! What OSDs tell each other about reservations of recovery and backfill: the body of `peer::Body::Reserve`.
//!
//! The primary numbers its attempts within the interval; whatever is of an older attempt is void. Questions and giving back
//! are repeated until they are answered.

use wire::codec::Result;
use wire::{DecodeError, Reader, Writer};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveMsg {
    /// Primary to member: may this PG recover with your OSD? Repeated with another priority it changes that.
    Ask {
        /// The attempt.
        n: u64,
        /// The member is to be filled with about so many bytes; `None`: recovery by log.
        fill: Option<u64>,
        /// Its priority.
        priority: u8,
    },
    /// Member to primary: it may.
    Granted {
        /// The attempt.
        n: u64,
    },
    /// Member to primary: there is not, or no more, enough space here.
    TooFull {
        /// The attempt.
        n: u64,
    },
    /// Member to primary: what was granted goes to another PG.
    Revoked {
        /// The attempt.
        n: u64,
    },
    /// Primary to member: attempts up to this one are over.
    Release {
        /// The attempt.
        n: u64,
    },
    /// The answer to that.
    Released {
        /// The attempt.
        n: u64,
    },
}

impl ReserveMsg {
    /// Its encoding.
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

    /// From its encoding.
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
