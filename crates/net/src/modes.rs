//! Connection modes by kind of peer: the options `ms_cluster_mode`, `ms_service_mode`, `ms_client_mode` and
//! their `ms_mon_*` variants.
//!
//! The kinds of both ends select the option (`AuthRegistry::get_supported_methods` of Ceph), for accepted and
//! for opened connections. A list is in order of preference: `crc secure`. The server takes the first mode of
//! the client's list that it allows. Besides, the option for msgr1, which has no modes.

use auth::ConMode;
use base::{AddrKind, AddrVec, EntityAddr, EntityKind};
use msgr::Policies;
use std::net::SocketAddr;

/// Refusal of a mode list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} = {value}: expected crc, secure, or both")]
pub struct BadModes {
    /// The option.
    pub option: &'static str,
    /// Its value.
    pub value: String,
}

/// True if daemons serve msgr1 beside msgr2: option `ms_bind_msgr1`, which is on by default.
pub fn serves_msgr1(get: impl Fn(&str) -> Option<String>) -> bool {
    let is_off = |v: String| {
        let v = v.trim().to_ascii_lowercase();
        matches!(v.as_str(), "false" | "no" | "off") || v.parse::<i64>() == Ok(0)
    };
    !get("ms_bind_msgr1").is_some_and(is_off)
}

/// Environment variable for tests: clients take the first address that they know how to use, and this lets msgr1 be it.
const MSGR1_FIRST: &str = "BELEMNITE_MSGR1_FIRST";

/// The addresses that a daemon announces to clients: that of msgr2, and that of msgr1 with the same nonce.
#[must_use]
pub fn announced(msgr2: EntityAddr, msgr1: Option<SocketAddr>) -> AddrVec {
    let mut all = vec![msgr2];
    all.extend(msgr1.map(|sock| EntityAddr { kind: AddrKind::LEGACY, sock: Some(sock), ..msgr2 }));
    if std::env::var_os(MSGR1_FIRST).is_some() {
        all.reverse();
    }
    AddrVec(all)
}

/// Mode lists of all six options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    lists: [Vec<ConMode>; 6],
}

/// Option names in the order of the lists, and whether `secure` comes first by default.
const OPTIONS: [(&str, bool); 6] = [
    ("ms_cluster_mode", false),
    ("ms_service_mode", false),
    ("ms_client_mode", false),
    ("ms_mon_cluster_mode", true),
    ("ms_mon_service_mode", true),
    ("ms_mon_client_mode", true),
];

impl Default for Modes {
    fn default() -> Self {
        let lists = OPTIONS.map(|(_, secure_first)| {
            if secure_first { vec![ConMode::SECURE, ConMode::CRC] } else { vec![ConMode::CRC, ConMode::SECURE] }
        });
        Self { lists }
    }
}

fn parse(option: &'static str, value: &str) -> Result<Vec<ConMode>, BadModes> {
    let bad = || BadModes { option, value: value.to_owned() };
    let mut list = Vec::new();
    for word in value.split([',', ' ', ';', '\t']).filter(|w| !w.is_empty()) {
        let mode = match word {
            "crc" => ConMode::CRC,
            "secure" => ConMode::SECURE,
            _ => return Err(bad()),
        };
        if !list.contains(&mode) {
            list.push(mode);
        }
    }
    if list.is_empty() { Err(bad()) } else { Ok(list) }
}

impl Modes {
    /// Reads the lists from the options in force; missing ones have Ceph's defaults. Fails on a list with an
    /// unknown mode.
    pub fn take(get: impl Fn(&str) -> Option<String>) -> Result<Self, BadModes> {
        let mut me = Self::default();
        for ((option, _), list) in OPTIONS.iter().zip(&mut me.lists) {
            if let Some(v) = get(option) {
                *list = parse(option, &v)?;
            }
        }
        Ok(me)
    }

    fn index(us: EntityKind, them: EntityKind) -> usize {
        let control = |k| matches!(k, EntityKind::MON | EntityKind::MGR);
        let daemon = |k| matches!(k, EntityKind::MDS | EntityKind::OSD);
        match (us, them) {
            (EntityKind::CLIENT, k) => 2 + 3 * usize::from(control(k)),
            (u, k) if control(u) => {
                if control(k) {
                    3
                } else {
                    4
                }
            }
            (_, k) if control(k) => 3,
            (_, k) if daemon(k) => 0,
            _ => 1,
        }
    }

    /// The modes of connections between a process of kind `us` (this one) and one of kind `them`, preferred first.
    #[must_use]
    pub fn between(&self, us: EntityKind, them: EntityKind) -> &[ConMode] {
        &self.lists[Self::index(us, them)]
    }

    /// Name of the option that holds between the two kinds.
    #[must_use]
    pub fn option(us: EntityKind, them: EntityKind) -> &'static str {
        OPTIONS[Self::index(us, them)].0
    }

    /// Policies of an endpoint of kind `us`, with these modes.
    #[must_use]
    pub fn apply(&self, us: EntityKind, mut policies: Policies) -> Policies {
        for them in [EntityKind::MON, EntityKind::MGR, EntityKind::OSD, EntityKind::MDS, EntityKind::CLIENT] {
            let mut p = policies.get(them).clone();
            p.modes = self.between(us, them).to_vec();
            p.modes_option = Self::option(us, them);
            policies = policies.with(them, p);
        }
        policies.default.modes = self.between(us, EntityKind::CLIENT).to_vec();
        policies.default.modes_option = Self::option(us, EntityKind::CLIENT);
        policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [EntityKind; 5] =
        [EntityKind::MON, EntityKind::MGR, EntityKind::OSD, EntityKind::MDS, EntityKind::CLIENT];

    #[test]
    fn msgr1_is_off_by_any_word_for_it() {
        let serves = |v: Option<&str>| serves_msgr1(|_| v.map(str::to_owned));
        assert!([None, Some("true"), Some("Yes"), Some("1")].into_iter().all(serves));
        assert!(!["false", "False", " no", "OFF", "0", "00"].into_iter().any(|v| serves(Some(v))));
    }

    #[test]
    fn options_apply_to_the_same_connections_as_in_ceph() {
        let of = |us| KINDS.map(|them| Modes::option(us, them));
        let daemon =
            ["ms_mon_cluster_mode", "ms_mon_cluster_mode", "ms_cluster_mode", "ms_cluster_mode", "ms_service_mode"];
        assert_eq!(of(EntityKind::OSD), daemon);
        assert_eq!(of(EntityKind::MDS), daemon);
        let control = [
            "ms_mon_cluster_mode",
            "ms_mon_cluster_mode",
            "ms_mon_service_mode",
            "ms_mon_service_mode",
            "ms_mon_service_mode",
        ];
        assert_eq!(of(EntityKind::MON), control);
        assert_eq!(of(EntityKind::MGR), control);
        let client = ["ms_mon_client_mode", "ms_mon_client_mode", "ms_client_mode", "ms_client_mode", "ms_client_mode"];
        assert_eq!(of(EntityKind::CLIENT), client);
    }

    #[test]
    fn lists_keep_their_order_and_unknown_modes_are_refused() {
        let get = |n: &str| (n == "ms_service_mode").then(|| "secure".to_owned());
        let m = Modes::take(get).unwrap();
        assert_eq!(m.between(EntityKind::OSD, EntityKind::CLIENT), [ConMode::SECURE]);
        assert_eq!(m.between(EntityKind::OSD, EntityKind::OSD), [ConMode::CRC, ConMode::SECURE]);
        assert_eq!(m.between(EntityKind::MON, EntityKind::CLIENT), [ConMode::SECURE, ConMode::CRC]);
        for bad in ["", " ", "encrypted", "secure,x"] {
            let e = Modes::take(|n| (n == "ms_cluster_mode").then(|| bad.to_owned())).unwrap_err();
            assert!(e.to_string().contains("ms_cluster_mode"), "{e}");
        }
        assert_eq!(parse("ms_cluster_mode", "secure, crc").unwrap(), [ConMode::SECURE, ConMode::CRC]);
    }

    /// The table of options in docs/security.md is that of the code.
    #[test]
    fn the_document_names_the_option_of_each_end() {
        let rows = crate::documented::rows(include_str!("../../../docs/security.md"), "this end");
        let word = |k| match k {
            EntityKind::MON => "monitor",
            EntityKind::MGR => "manager",
            EntityKind::OSD => "OSD",
            EntityKind::MDS => "MDS",
            _ => "client",
        };
        for us in KINDS {
            for them in KINDS.into_iter().filter(|k| us != EntityKind::CLIENT || *k != EntityKind::CLIENT) {
                let names = |cell: &str, k| cell.split(", ").any(|w| w == word(k));
                let row = rows.iter().find(|r| names(r[0], us) && names(r[1], them));
                let option = row.unwrap_or_else(|| panic!("no row of {us:?} and {them:?}"))[2];
                assert_eq!(option.trim_matches('`'), Modes::option(us, them), "{us:?} {them:?}");
            }
        }
    }
}
