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
    const SERVER_QUINCY: u64 = 1 << 33 | 1 << 57 | 1 << 28;
    const SERVER_REEF: u64 = 1 << 31 | 1 << 57 | 1 << 28;
    const SERVER_SQUID: u64 = 1 << 49 | 1 << 57;
    const SERVER_TENTACLE: u64 = 1 << 50 | 1 << 57;
    /// Bits that an OSD adds to its mask in the OSD map, and nowhere else: it serves maps that require Quincy to Tentacle.
    /// Encodings between two peers follow the masks of their connection, which stay Pacific's.
    pub const OSD_RELEASES: Self =
        Self(Self::SERVER_QUINCY | Self::SERVER_REEF | Self::SERVER_SQUID | Self::SERVER_TENTACLE);

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

    /// True if an OSD with this mask in the OSD map serves a map that requires the release of this number, as
    /// Tentacle's monitor decides it. Pacific's mask has the bit of Reef, so Quincy's is asked for, too.
    #[must_use]
    pub fn serves_release(self, release: u8) -> bool {
        match release {
            0..=16 => self.nautilus(),
            17 => self.has(Self::SERVER_QUINCY),
            18 => self.has(Self::SERVER_QUINCY | Self::SERVER_REEF),
            19 => self.has(Self::SERVER_QUINCY | Self::SERVER_SQUID),
            20 => self.has(Self::SERVER_QUINCY | Self::SERVER_TENTACLE),
            _ => false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_served_by_osds_that_announce_it() {
        let ours = Features(Features::PACIFIC.0 | Features::OSD_RELEASES.0);
        for release in 12..=20 {
            assert!(ours.serves_release(release), "{release}");
            assert_eq!(Features::PACIFIC.serves_release(release), release <= 16, "{release}");
        }
        assert!(!ours.serves_release(21) && !Features(u64::MAX).serves_release(21));
        // Quincy 17.2 has no bit of Squid or Tentacle.
        let quincy = Features(Features::PACIFIC.0 | Features::SERVER_QUINCY);
        assert!(quincy.serves_release(17) && !quincy.serves_release(19) && !quincy.serves_release(20));
        // The bits of releases and of messages between PGs are apart.
        assert_eq!(crate::msg::PeerFeatures::of_mask(ours.0), crate::msg::PeerFeatures::NONE);
    }
}
