//! Parts of an inventory that is being written.

use super::ImportError;
use crate::inventory::{HOSTS_MAX, Options, PLACES, is_name};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most notes. More are counted only.
const NOTES_MAX: usize = 1000;
/// Longest note in characters.
const NOTE_MAX: usize = 300;
/// Most hosts with a monitor.
const MONITORS_MAX: usize = 5;

/// A host.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftHost {
    pub(super) address: Option<IpAddr>,
    pub(super) user: Option<String>,
    pub(super) labels: BTreeSet<String>,
    pub(super) place: BTreeMap<String, String>,
}

/// A rule for devices.
#[derive(Clone, Debug)]
pub(super) struct DraftRule {
    /// Name of the statement that it comes from.
    pub(super) name: String,
    /// Hosts that it is for.
    pub(super) hosts: BTreeSet<String>,
    /// Label by which they were named.
    pub(super) label: Option<String>,
    /// Keys and values.
    pub(super) keys: Vec<(&'static str, String)>,
    /// Why it is a comment.
    pub(super) off: Option<String>,
}

/// Parts of an inventory.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) hosts: BTreeMap<String, DraftHost>,
    pub(super) monitors: Vec<String>,
    pub(super) metadata_servers: Vec<String>,
    pub(super) gateways: Vec<String>,
    pub(super) gateway_port: Option<u16>,
    pub(super) filesystems: Vec<String>,
    pub(super) public_network: Option<String>,
    pub(super) cluster_network: Option<String>,
    pub(super) rules: Vec<DraftRule>,
    pub(super) options: Options,
    pub(super) notes: Vec<String>,
    more_notes: usize,
}

/// The first network of a list that is one of this project's, such as `10.0.0.0/24`.
pub(super) fn network(s: &str) -> Option<&str> {
    let first = s.split(',').next()?.trim();
    let (a, bits) = first.split_once('/')?;
    let width = if a.parse::<IpAddr>().ok()?.is_ipv6() { 128 } else { 32 };
    (bits.parse::<u8>().ok()? <= width).then_some(first)
}

impl Draft {
    /// Notes a statement that does not map, or a choice.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        let what: String = what.into();
        let clean: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NOTE_MAX).collect();
        if self.notes.len() < NOTES_MAX {
            if !self.notes.contains(&clean) {
                self.notes.push(clean);
            }
        } else {
            self.more_notes += 1;
        }
    }

    /// Says how many notes there are beyond those that are kept.
    pub(super) fn end_notes(&mut self) {
        if self.more_notes > 0 {
            self.notes.push(format!("and {} more statements", std::mem::take(&mut self.more_notes)));
        }
    }

    /// A host by name, which is made if it is new; none if the name is none of a host.
    pub(super) fn host(&mut self, name: &str) -> Result<Option<&mut DraftHost>, ImportError> {
        if !is_name(name) {
            self.note(format!("host {name:?}: not a host's name"));
            return Ok(None);
        }
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(name) {
            return Err(ImportError::new(name, format!("more than {HOSTS_MAX} hosts")));
        }
        Ok(Some(self.hosts.entry(name.to_owned()).or_default()))
    }

    /// Sets a host's place in the CRUSH map, of buckets that an inventory can name.
    pub(super) fn place(&mut self, name: &str, buckets: impl Iterator<Item = (String, String)>) {
        for (kind, bucket) in buckets {
            let is_known = PLACES.contains(&kind.as_str()) && is_name(&bucket);
            match self.hosts.get_mut(name) {
                Some(h) if is_known => drop(h.place.insert(kind, bucket)),
                _ if kind == "root" && bucket == "default" || kind == "host" && bucket == name => {}
                _ => self.note(format!(
                    "host {name}: CRUSH location {kind}={bucket}: not mapped; hosts are below root=default, by name"
                )),
            }
        }
    }

    /// Adds hosts to a role, each once.
    pub(super) fn add(role: &mut Vec<String>, names: impl IntoIterator<Item = String>) {
        let mut have: BTreeSet<String> = role.iter().cloned().collect();
        role.extend(names.into_iter().filter(|n| have.insert(n.clone())));
    }

    /// Sets a network; the first one that is named stays.
    pub(super) fn network(&mut self, is_public: bool, from: &str, value: &str) {
        let name = if is_public { "public_network" } else { "cluster_network" };
        let Some(one) = network(value) else {
            return self.note(format!("{from}: {name} {value:?}: not a network such as 10.0.0.0/24"));
        };
        if one.len() < value.trim().len() {
            self.note(format!("{from}: {name} {value:?}: only {one} is used"));
        }
        let slot = if is_public { &mut self.public_network } else { &mut self.cluster_network };
        match slot {
            None => *slot = Some(one.to_owned()),
            Some(old) if old == one => {}
            Some(old) => {
                let old = old.clone();
                self.note(format!("{from}: {name} {one}: {old} is used"));
            }
        }
    }

    /// Sets an option, if the inventory can say it.
    pub(super) fn option(&mut self, from: &str, section: &str, key: &str, value: &str) {
        let key = key.trim().replace([' ', '-'], "_");
        let is_plain = is_name(section) && is_name(&key) && !value.chars().any(char::is_control);
        // Addresses and paths are the deployment's.
        let is_own = ["fsid", "mon_host", "mon_initial_members", "keyring", "admin_socket", "host", "log_file"];
        match key.as_str() {
            "public_network" => self.network(true, from, value),
            "cluster_network" => self.network(false, from, value),
            k if is_own.contains(&k) || !is_plain || value.contains("{{") => {
                self.note(format!("{from}: option {section}/{key}: not taken over"));
            }
            _ => {
                self.options.entry(section.to_owned()).or_default().insert(key, value.to_owned());
            }
        }
    }

    /// Chooses 1, 3 or 5 monitors.
    pub(super) fn choose_monitors(&mut self) {
        let n = self.monitors.len();
        let keep = if n.is_multiple_of(2) { n.saturating_sub(1) } else { n }.min(MONITORS_MAX);
        if keep < n {
            let rest = self.monitors.split_off(keep).join(", ");
            self.note(format!("{n} monitors: 1, 3 or 5 are possible; without one: {rest}"));
        }
    }

    /// The smallest network with all addresses, from /24 (/64).
    pub(super) fn guess_network(&mut self) {
        let all: Vec<IpAddr> = self.hosts.values().filter_map(|h| h.address).collect();
        let Some(first) = all.first().filter(|_| self.public_network.is_none()) else { return };
        let number = |a: &IpAddr| match a {
            IpAddr::V4(a) => u128::from(u32::from(*a)),
            IpAddr::V6(a) => u128::from(*a),
        };
        let (width, most) = if first.is_ipv6() { (128u32, 64u32) } else { (32, 24) };
        if all.iter().any(|a| a.is_ipv6() != first.is_ipv6()) {
            return self.note("public_network: it is not stated, and the hosts' addresses are of two kinds");
        }
        let differ = all.iter().fold(0, |d, a| d | (number(a) ^ number(first)));
        let bits = most.min(differ.leading_zeros() - (128 - width));
        let base = number(first).checked_shr(width - bits).and_then(|n| n.checked_shl(width - bits)).unwrap_or(0);
        let base = match first {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(base).unwrap_or_default().to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(base.to_be_bytes()),
        };
        self.note(format!("public_network: it is not stated; {base}/{bits} has the addresses of all hosts"));
        self.public_network = Some(format!("{base}/{bits}"));
    }
}
