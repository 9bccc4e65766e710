//! Values of options that are secrets. Ceph shows them to everyone who may read at the monitor; here those see them who
//! may do everything there.

use crate::command::Ctx;
use cluster::caps::Need;
use std::collections::BTreeMap;

/// Text in place of a value that is not shown.
const HIDDEN: &str = "********";

/// True if the name of an option says that its value is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "password", "passphrase", "encryption_key", "access_key"].iter().any(|w| name.contains(w))
        || name.ends_with("_key")
        || name.ends_with("/key")
}

/// The value of an option as the session may see it: those who may do all at the monitor see secrets, too.
pub(in crate::command) fn shown<'a>(c: &Ctx<'_>, name: &str, value: &'a str) -> &'a str {
    if !is_secret(name) || value.is_empty() || c.session.principal.allows("mon", Need::RWX) { value } else { HIDDEN }
}

/// [`shown`] of the options of an entity, by name.
pub(in crate::command) fn shown_all<K>(
    c: &Ctx<'_>,
    all: BTreeMap<String, (K, String)>,
) -> BTreeMap<String, (K, String)> {
    all.into_iter().map(|(n, (k, v))| (n.clone(), (k, shown(c, &n, &v).to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets() {
        for name in [
            "rgw_keystone_admin_password",
            "rgw_crypt_default_encryption_key",
            "rgw_ldap_secret",
            "mgr/dashboard/RGW_API_SECRET_KEY",
            "rgw_cloud_access_key",
            "mgr/x/key",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in
            ["keyring", "osd_max_backfills", "mon_max_pg_per_osd", "auth_service_ticket_ttl", "rocksdb_cache_size"]
        {
            assert!(!is_secret(name), "{name}");
        }
    }
}
