//! Feature words of stored formats: how a program recognises what a newer one has written.
//!
//! Each kind of stored state (object stores, monitor state, exported collections) has three words of 64 bits. A bit
//! names something that not every reader of the format's version knows:
//!
//! - *compat*: unknown bits are ignored;
//! - *read-only compat*: a program that does not know a bit may read and must not change anything;
//! - *incompat*: a program that does not know a bit can't even read.
//!
//! A bit is stored before its feature is used for the first time. State without words has none.

use std::fmt;

/// Feature words of a stored state, or those that a program knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureWords {
    /// Features that others may ignore.
    pub compat: u64,
    /// Features without which a program may only read.
    pub ro_compat: u64,
    /// Features without which a program can do nothing.
    pub incompat: u64,
}

/// The state has features that this program does not know: a newer version of Belemnite has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer {
    /// The unknown bits.
    pub bits: u64,
    /// True if reading is possible.
    pub readable: bool,
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, may) =
            if self.readable { ("read-only compat", "read, but not change") } else { ("incompat", "not read") };
        let bits = self.bits;
        write!(
            f,
            "made by a newer version of Belemnite: it has {kind} features {bits:#x} that this version does not know, so this \
             version can {may} it; run the version that made it"
        )
    }
}

impl std::error::Error for Newer {}

impl FeatureWords {
    /// Bytes of the stored form.
    pub const LEN: usize = 24;

    /// True if any feature is set.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The features of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            compat: self.compat | other.compat,
            ro_compat: self.ro_compat | other.ro_compat,
            incompat: self.incompat | other.incompat,
        }
    }

    /// Verifies that a program that knows `known` may read, and with `change` also change, what has these features.
    ///
    /// # Errors
    /// [`Newer`] names the unknown features.
    pub fn check(&self, known: &Self, change: bool) -> Result<(), Newer> {
        let unknown = self.incompat & !known.incompat;
        if unknown != 0 {
            return Err(Newer { bits: unknown, readable: false });
        }
        match self.ro_compat & !known.ro_compat {
            bits if bits != 0 && change => Err(Newer { bits, readable: true }),
            _ => Ok(()),
        }
    }

    /// The stored form: compat, read-only compat, incompat, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let words = [self.compat, self.ro_compat, self.incompat];
        out.chunks_exact_mut(8).zip(words).for_each(|(to, w)| to.copy_from_slice(&w.to_le_bytes()));
        out
    }

    /// Decodes the first bytes of `b`; `None` if there are too few. Later versions may append words.
    #[must_use]
    pub fn from_bytes(b: &[u8]) -> Option<Self> {
        let word = |i: usize| Some(u64::from_le_bytes(b.get(8 * i..8 * i + 8)?.try_into().ok()?));
        Some(Self { compat: word(0)?, ro_compat: word(1)?, incompat: word(2)? })
    }
}

impl fmt::Display for FeatureWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compat {:#x}, read-only compat {:#x}, incompat {:#x}", self.compat, self.ro_compat, self.incompat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_features_decide_what_is_allowed() {
        let known = FeatureWords { compat: 1, ro_compat: 1, incompat: 1 };
        let of = |compat, ro_compat, incompat| FeatureWords { compat, ro_compat, incompat };
        for change in [false, true] {
            assert_eq!(of(u64::MAX, 1, 1).check(&known, change), Ok(()));
            assert_eq!(of(0, 6, 5).check(&known, change), Err(Newer { bits: 4, readable: false }));
        }
        assert_eq!(of(0, 3, 0).check(&known, false), Ok(()));
        let e = of(0, 3, 0).check(&known, true).unwrap_err();
        assert_eq!(e, Newer { bits: 2, readable: true });
        assert!(e.to_string().starts_with("made by a newer version of Belemnite"), "{e}");
        let w = of(1 << 63, 2, 3);
        assert_eq!(FeatureWords::from_bytes(&w.to_bytes()), Some(w));
        assert_eq!(FeatureWords::from_bytes(&[0; 23]), None);
    }
}
