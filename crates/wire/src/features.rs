//! Feature bits that select encodings.

/// A peer's feature mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// The mask that Belemnite announces: exactly Pacific's (16.2), so that every client release uses the same
    /// encodings (`docs/adr/0002-pacific-feature-mask.md`).
    pub const PACIFIC: Self = Self(0x3f01_cfbd_fffd_ffff);

    const SERVER_LUMINOUS: u64 = 1 << 21 | 1 << 57;
    const SERVER_MIMIC: u64 = 1 << 28 | 1 << 57 | 1 << 21;
    const SERVER_NAUTILUS: u64 = 1 << 2 | 1 << 57 | 1 << 28;

    /// True if every bit of `bits` is set.
    #[must_use]
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// True if the peer encodes as Luminous (12) or newer. Kernel clients announce no newer release.
    #[must_use]
    pub fn luminous(self) -> bool {
        self.has(Self::SERVER_LUMINOUS)
    }

    /// True if the peer encodes as Mimic (13) or newer.
    #[must_use]
    pub fn mimic(self) -> bool {
        self.has(Self::SERVER_MIMIC)
    }

    /// True if the peer encodes as Nautilus (14) or newer, as every supported userspace client does.
    #[must_use]
    pub fn nautilus(self) -> bool {
        self.has(Self::SERVER_NAUTILUS)
    }

    /// True if the peer uses the newer address encoding, with marker and version (`MSG_ADDR2`).
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
