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
    const SERVER_OCTOPUS: u64 = 1 << 16 | 1 << 57 | 1 << 28;
    const SERVER_QUINCY: u64 = 1 << 33 | 1 << 57 | 1 << 28;
    const SERVER_REEF: u64 = 1 << 31 | 1 << 57 | 1 << 28;
    const SERVER_SQUID: u64 = 1 << 49 | 1 << 57;
    const SERVER_TENTACLE: u64 = 1 << 50 | 1 << 57;
    /// Bits that an OSD adds to its mask in the OSD map, and nowhere else: it serves maps that require Quincy to Tentacle.
    /// Encodings between two peers follow the masks of their connection, which stay Pacific's.
    pub const OSD_RELEASES: Self =
        Self(Self::SERVER_QUINCY | Self::SERVER_REEF | Self::SERVER_SQUID | Self::SERVER_TENTACLE);

    /// Bits that a client of ours adds to the mask that it announces: it uses the primaries that a map chooses, as Reef's
    /// clients do. Pacific's mask has the bit of Reef, which was that of an older feature; Quincy's tells them apart. In
    /// Ceph this one decides only about fields of CRUSH rules that nobody reads.
    pub const CLIENT_RELEASES: Self = Self(Self::SERVER_QUINCY | Self::SERVER_REEF);

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

    /// The bits of a client's mask that a release needs and this one lacks, as `set-require-min-compat-client` asks for
    /// them. Pacific's mask has the bit of Reef, so Quincy's is asked for, too.
    #[must_use]
    pub fn lacks_of_release(self, release: u8) -> u64 {
        let need = match release {
            0..=11 => 0,
            12 => Self::SERVER_LUMINOUS,
            13 => Self::SERVER_MIMIC,
            14 => Self::SERVER_NAUTILUS,
            15..=16 => Self::SERVER_NAUTILUS | Self::SERVER_OCTOPUS,
            17 => Self::SERVER_NAUTILUS | Self::SERVER_QUINCY,
            18 => Self::SERVER_QUINCY | Self::SERVER_REEF,
            19 => Self::SERVER_QUINCY | Self::SERVER_REEF | Self::SERVER_SQUID,
            _ => Self::SERVER_QUINCY | Self::SERVER_REEF | Self::SERVER_SQUID | Self::SERVER_TENTACLE,
        };
        need & !self.0
    }

    /// The newest release whose clients have no more than these features, by number; 0 if it is older than Luminous.
    /// Octopus and Pacific look alike.
    #[must_use]
    pub fn client_release(self) -> u8 {
        (12..=20).rev().find(|r| self.lacks_of_release(*r) == 0).unwrap_or(0)
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
        // Clients are told apart by what they announce: 5.4's kernel, 16.2, ours, 20.2.
        let of = |mask: u64| Features(mask).client_release();
        assert_eq!(of(0x2f01_8fb8_7fff_ffff & !(1 << 28)), 12);
        assert_eq!(of(Features::PACIFIC.0), 16);
        assert_eq!(of(Features::PACIFIC.0 | Features::CLIENT_RELEASES.0), 18);
        assert_eq!(of(4_541_880_224_203_014_143), 20);
        assert_eq!(Features::PACIFIC.lacks_of_release(18), 1 << 33);
        // The bits of releases and of messages between PGs are apart.
        assert_eq!(crate::msg::PeerFeatures::of_mask(ours.0), crate::msg::PeerFeatures::NONE);
    }
}
