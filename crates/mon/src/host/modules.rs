//! Addresses of the manager role's modules that serve HTTP.

use crate::core::MonCore;
use crate::state::config::mgr_options;
use std::net::{IpAddr, SocketAddr};

/// A module that serves HTTP.
pub(super) struct Module {
    /// Name.
    pub(super) name: &'static str,
    /// Option with the port.
    pub(super) port_option: &'static str,
    /// Port without that option.
    pub(super) port: u16,
    /// Scheme of the addresses in `ceph mgr services`.
    pub(super) scheme: &'static str,
}

impl Module {
    /// The address to listen on, if the module is enabled and the built-in role has it. `own` is the monitor's address.
    pub(super) fn wanted(&self, core: &MonCore, own: IpAddr) -> Option<SocketAddr> {
        let s = core.state();
        if s.options.external_mgr || !s.mgrmap.modules.iter().any(|m| m == self.name) {
            return None;
        }
        let o = mgr_options(s, &format!("mgr/{}/", self.name));
        let ip = o.get("server_addr").and_then(|a| a.trim_matches(['[', ']']).parse().ok()).unwrap_or(own);
        let port = o.get(self.port_option).and_then(|p| p.trim().parse().ok()).unwrap_or(self.port);
        Some(SocketAddr::new(ip, port))
    }

    /// The address of the service in `ceph mgr services`.
    pub(super) fn uri(&self, at: SocketAddr, own: IpAddr) -> String {
        let ip = if at.ip().is_unspecified() { own } else { at.ip() };
        format!("{}://{}/", self.scheme, SocketAddr::new(ip, at.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_shown_is_one_that_can_be_reached() {
        let own = "10.0.0.1".parse().unwrap();
        let m = Module { name: "x", port_option: "server_port", port: 1, scheme: "http" };
        assert_eq!(m.uri("0.0.0.0:9283".parse().unwrap(), own), "http://10.0.0.1:9283/");
        assert_eq!(m.uri("[::1]:9283".parse().unwrap(), own), "http://[::1]:9283/");
    }
}
