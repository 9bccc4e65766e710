//! Addresses of entities: a socket address with protocol kind and nonce.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Protocol that an address speaks (`entity_addr_t::TYPE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrKind(pub u32);

impl AddrKind {
    /// No address.
    pub const NONE: Self = Self(0);
    /// msgr1.
    pub const LEGACY: Self = Self(1);
    /// msgr2.
    pub const MSGR2: Self = Self(2);
    /// Any protocol.
    pub const ANY: Self = Self(3);
    /// A CIDR range (only in range blocklists): the nonce is the number of leading bits that count.
    pub const CIDR: Self = Self(4);
}

/// `entity_addr_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityAddr {
    /// Protocol.
    pub kind: AddrKind,
    /// Random number that tells apart successive processes at one address; 0 for monitors.
    pub nonce: u32,
    /// IP and port; `None` for a blank address.
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    /// A msgr2 address.
    #[must_use]
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        Self { kind: AddrKind::MSGR2, nonce, sock: Some(sock) }
    }

    /// Address of a process that does not listen. Its peer learns the IP from the socket.
    #[must_use]
    pub fn unlistening(nonce: u32) -> Self {
        Self { kind: AddrKind::ANY, nonce, sock: None }
    }

    /// An address as users write it: `IP`, `IP:PORT`, `IP:PORT/NONCE`, `[IPv6]:PORT/NONCE`, with or without `v1:`/`v2:`.
    /// Its kind is [`AddrKind::ANY`].
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        let s = ["v1:", "v2:", "any:"].iter().find_map(|p| s.strip_prefix(p)).unwrap_or(s);
        let (place, nonce) = match s.split_once('/') {
            Some((p, n)) => (p, n.parse().ok()?),
            None => (s, 0),
        };
        let sock = place.parse::<SocketAddr>().ok().or_else(|| {
            let ip: IpAddr = place.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
            Some(SocketAddr::new(ip, 0))
        })?;
        Some(Self { kind: AddrKind::ANY, nonce, sock: Some(sock) })
    }

    /// True if `self` is a range ([`AddrKind::CIDR`]) and the IP of `o` is in it, whatever its port and nonce.
    #[must_use]
    pub fn covers(&self, o: &Self) -> bool {
        if self.kind != AddrKind::CIDR {
            return false;
        }
        // Addresses in the range differ only in the bits behind the prefix.
        match (self.sock.map(|s| s.ip()), o.sock.map(|s| s.ip())) {
            (Some(IpAddr::V4(a)), Some(IpAddr::V4(b))) => {
                let free = 32u32.saturating_sub(self.nonce);
                (a.to_bits() ^ b.to_bits()).checked_shr(free).unwrap_or(0) == 0
            }
            (Some(IpAddr::V6(a)), Some(IpAddr::V6(b))) => {
                let free = 128u32.saturating_sub(self.nonce);
                (a.to_bits() ^ b.to_bits()).checked_shr(free).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Same kind, IP, port and nonce, where `any` matches every kind.
    #[must_use]
    pub fn same_endpoint(&self, o: &Self) -> bool {
        self.nonce == o.nonce && self.sock == o.sock
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AddrKind::LEGACY => f.write_str("v1:")?,
            AddrKind::MSGR2 => f.write_str("v2:")?,
            AddrKind::CIDR => f.write_str("cidr:")?,
            _ => {}
        }
        match self.sock {
            Some(s) => write!(f, "{s}/{}", self.nonce),
            None => f.write_str(if self.kind == AddrKind::NONE { "-" } else { ":/0" }),
        }
    }
}

/// `entity_addrvec_t`: the addresses of one entity, preferred first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    /// Addresses as they are shown: `[v2:IP:PORT/NONCE,v1:IP:PORT/NONCE]`, or one without brackets. One without a type is
    /// of msgr2.
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        // A bracket before an address type groups addresses; any other belongs to an IPv6 address.
        let grouped = s.strip_prefix('[').filter(|r| r.starts_with('v')).map(|r| r.strip_suffix(']'));
        let one = |w: &str| {
            let kind = if w.starts_with("v1:") { AddrKind::LEGACY } else { AddrKind::MSGR2 };
            Some(EntityAddr { kind, ..EntityAddr::parse(w)? })
        };
        grouped.unwrap_or(Some(s))?.split(',').map(one).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The msgr2 entry, if any.
    #[must_use]
    pub fn msgr2(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrKind::MSGR2)
    }

    /// The legacy (msgr1) entry, if any.
    #[must_use]
    pub fn legacy(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrKind::LEGACY)
    }
}

impl From<EntityAddr> for AddrVec {
    fn from(a: EntityAddr) -> Self {
        Self(vec![a])
    }
}

impl fmt::Display for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            all => {
                f.write_str("[")?;
                for (i, a) in all.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    a.fmt(f)?;
                }
                f.write_str("]")
            }
        }
    }
}
