//! Capabilities of an authenticated name at a monitor, a manager, an OSD and a metadata server.
//!
//! Capability strings are parsed once per session into grants with all profiles written out; checks then allocate
//! nothing. The grammar and the meaning are Ceph's, so that the same string allows and forbids the same things.
//!
//! | module | contents |
//! | --- | --- |
//! | `constraint` | conditions on the arguments of a command |
//! | `lex` | a cursor over a capability string |
//! | `mds` | capabilities at a metadata server |
//! | `mgr` | capabilities at a manager: services, modules and commands |
//! | `mon` | capabilities at a monitor: services, commands with their arguments, profiles |
//! | `network` | networks that grants are limited to |
//! | `osd` | capabilities at an OSD: pools, namespaces, object name prefixes, application tags and object classes |
//!
//! Invariants:
//!  1. A string that is not wholly understood grants nothing: parsing gives an error with the place.
//!  2. An empty string is valid and grants nothing.
//!  3. A grant with a network it cannot parse grants nothing.
//!
//! Tests: `tests/caps.rs` (1, 3, `osd_strings_that_do_not`, `osd_networks`; 2, `osd_strings_that_parse`).

mod constraint;
mod lex;
mod mds;
mod mgr;
mod mon;
mod network;
mod osd;

pub use constraint::CommandArgs;
pub use mds::{MdsCaps, MdsGrant, MdsSpec};
pub use mgr::MgrCaps;
pub use mon::MonCaps;
pub use network::Network;
pub use osd::{ClassCall, OsdCaps, OsdRequest};

/// Longest accepted capability string, in bytes.
pub const MAX_CAPS_LEN: usize = 16 * 1024;

/// Refusal of a capability string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{service} capability parse failed, stopped at '{rest}' of '{text}' (offset {at}): {reason}")]
pub struct CapsError {
    /// `mon`, `mgr`, `osd` or `mds`.
    pub service: &'static str,
    /// The whole string.
    pub text: String,
    /// Text after the last understood grant.
    pub rest: String,
    /// Offset of the first unexpected byte.
    pub at: usize,
    /// Description of what was expected there.
    pub reason: String,
}

/// [`CapsError::reason`] for a profile that is unknown or does not take a condition.
const UNKNOWN_PROFILE: &str = "a known profile with keys it knows";

impl CapsError {
    /// The unknown profile that caused the error, if one did.
    #[must_use]
    pub fn unknown_profile(&self) -> Option<&str> {
        let named = self.reason.ends_with(UNKNOWN_PROFILE);
        named.then(|| {
            self.text
                .get(self.at..)
                .unwrap_or_default()
                .split([' ', ',', ';'])
                .next()
                .unwrap_or_default()
                .trim_matches(['"', '\''])
        })
    }
}

/// Read, write and execute at a monitor or manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Reads.
    pub read: bool,
    /// Changes.
    pub write: bool,
    /// Executes (in `auth`: touches keys).
    pub exec: bool,
}

impl Need {
    /// Read.
    pub const R: Self = Self { read: true, write: false, exec: false };
    /// Write.
    pub const W: Self = Self { read: false, write: true, exec: false };
    /// Execute.
    pub const X: Self = Self { read: false, write: false, exec: true };
    /// Read and write.
    pub const RW: Self = Self { read: true, write: true, exec: false };
    /// Read and execute.
    pub const RX: Self = Self { read: true, write: false, exec: true };
    /// Read, write and execute.
    pub const RWX: Self = Self { read: true, write: true, exec: true };

    /// Parses the `perm` of a command descriptor (`r`, `rw`, `rwx`, …).
    #[must_use]
    pub fn from_perm(s: &str) -> Self {
        Self { read: s.contains('r'), write: s.contains('w'), exec: s.contains('x') }
    }

    /// The `perm` of a command descriptor with these needs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.read, self.write, self.exec) {
            (false, false, false) => "",
            (true, false, false) => "r",
            (false, true, false) => "w",
            (false, false, true) => "x",
            (true, true, false) => "rw",
            (true, false, true) => "rx",
            (false, true, true) => "wx",
            (true, true, true) => "rwx",
        }
    }

    fn met_by(self, p: Perms) -> bool {
        (!self.read || p.0 & Perms::R != 0)
            && (!self.write || p.0 & Perms::W != 0)
            && (!self.exec || p.0 & Perms::X != 0)
    }

    /// True if the grants together meet the need. Without any grant the need is not met, even if it is empty.
    fn met_by_all(self, mut grants: impl Iterator<Item = Perms>) -> bool {
        let mut have = Perms::default();
        grants.any(|p| {
            have.0 |= p.0;
            self.met_by(have)
        })
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Permission bits of monitor and manager grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Perms(pub(crate) u8);

impl Perms {
    pub(crate) const R: u8 = 2;
    pub(crate) const W: u8 = 4;
    pub(crate) const X: u8 = 8;
    pub(crate) const ALL: Self = Self(Self::R | Self::W | Self::X);
    pub(crate) const ANY: Self = Self(0xff);
}
