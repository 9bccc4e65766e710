//! Feature bits that select encodings.

/// A peer's feature mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// The mask that we announce: exactly Pacific's, so that every client release uses the same encodings.
    pub const PACIFIC: Self = Self(0x3f01_cfbd_fffd_ffff);

    const SERVER_LUMINOUS: u64 = 1 << 21 | 1 << 57;
    const SERVER_MIMIC: u64 = 1 << 28 | 1 << 57 | 1 << 21;
    const SERVER_NAUTILUS: u64 = 1 << 2 | 1 << 57 | 1 << 28;

    /// True if every bit of `bits` is set.
    #[must_use]
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Luminous or newer; the newest that kernel clients announce.
    #[must_use]
    pub fn luminous(self) -> bool {
        self.has(Self::SERVER_LUMINOUS)
    }

    /// Mimic or newer.
    #[must_use]
    pub fn mimic(self) -> bool {
        self.has(Self::SERVER_MIMIC)
    }

    /// Nautilus or newer; every supported userspace client has it.
    #[must_use]
    pub fn nautilus(self) -> bool {
        self.has(Self::SERVER_NAUTILUS)
    }

    /// The peer uses the new address encoding, with marker and version.
    #[must_use]
    pub fn msg_addr2(self) -> bool {
        self.has(1 << 59)
    }
}

impl std::ops::BitAnd for Features {
    type Output = Self;
    fn bitand(self, o: Self) -> Self {
        Self(self.0 & o.0)
    }
}
