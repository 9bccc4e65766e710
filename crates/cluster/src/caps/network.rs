//! Networks that grants are limited to.

use base::EntityAddr;
use std::net::IpAddr;

/// An address range in CIDR form. Invalid text is a range without addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(Option<(IpAddr, u8)>);

impl Network {
    /// Parses `ADDRESS/BITS`. Any other text gives a range without addresses.
    #[must_use]
    pub fn parse(s: &str) -> Self {
        let parsed = s.split_once('/').and_then(|(ip, bits)| {
            let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
        });
        Self(parsed)
    }

    /// True if the range contains the address.
    #[must_use]
    pub fn contains(&self, addr: &EntityAddr) -> bool {
        let (Some((net, bits)), Some(sock)) = (self.0, addr.sock) else { return false };
        match (net, sock.ip()) {
            (IpAddr::V4(n), IpAddr::V4(a)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                n.to_bits() & mask == a.to_bits() & mask
            }
            (IpAddr::V6(n), IpAddr::V6(a)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                n.to_bits() & mask == a.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// True if the network of a grant, if any, contains the address.
pub(super) fn allows(network: &Option<Network>, addr: &EntityAddr) -> bool {
    network.as_ref().is_none_or(|n| n.contains(addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containment() {
        let a = |s: &str| EntityAddr::msgr2(s.parse().unwrap(), 0);
        for (net, addr, want) in [
            ("10.0.0.0/8", "10.9.8.7:1", true),
            ("10.0.0.0/8", "11.0.0.1:1", false),
            ("0.0.0.0/0", "1.2.3.4:1", true),
            ("1.2.3.4/32", "1.2.3.4:1", true),
            ("1.2.3.4/32", "1.2.3.5:1", false),
            ("1.2.3.4/33", "1.2.3.4:1", false),
            ("fe80::/10", "[fe80::1]:1", true),
            ("::/0", "1.2.3.4:1", false),
            ("1.2.3.4", "1.2.3.4:1", false),
        ] {
            assert_eq!(Network::parse(net).contains(&a(addr)), want, "{net} {addr}");
        }
    }
}
