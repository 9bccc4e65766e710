//! `belemnite keyring`: a new key, for a cluster that is made from it or an entity that gets it.

use super::operate::print;
use auth::{CryptoKey, KeyKind, Keyring};
use base::AuthName;
use std::collections::BTreeMap;

type Error = Box<dyn std::error::Error>;

/// Arguments of `belemnite keyring`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyringArgs {
    /// Name of the entity, such as client.admin
    entity: String,
    /// Capabilities of the entity at monitors, OSDs, MDS daemons or managers, e.g. `--cap mon 'allow r'`
    #[arg(long, num_args = 2, value_names = ["SERVICE", "CAPS"])]
    cap: Vec<String>,
}

/// The keyring of an entity with a new key.
fn make(a: &KeyringArgs) -> Result<Keyring, Error> {
    let name = AuthName::parse(&a.entity).ok_or_else(|| format!("{}: not a name such as client.admin", a.entity))?;
    let mut caps = BTreeMap::new();
    for pair in a.cap.chunks(2) {
        let [service, text] = pair else { return Err("--cap takes a service and its caps".into()) };
        if !["mon", "osd", "mds", "mgr"].contains(&service.as_str()) {
            return Err(format!("--cap {service}: neither mon, osd, mds nor mgr").into());
        }
        if caps.insert(service.clone(), text.clone()).is_some() {
            return Err(format!("--cap {service} is given twice").into());
        }
    }
    let key = CryptoKey::generate(KeyKind::Aes, reactor::clock::read().wall, &net::OsRandom);
    let mut ring = Keyring::new();
    ring.insert(name, key, caps);
    Ok(ring)
}

/// `belemnite keyring`
pub(crate) fn keyring(a: &KeyringArgs) -> Result<(), Error> {
    print(make(a)?.to_string().trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entity: &str, cap: &[&str]) -> Result<Keyring, String> {
        let a = KeyringArgs { entity: entity.into(), cap: cap.iter().map(|c| (*c).to_owned()).collect() };
        make(&a).map_err(|e| e.to_string())
    }

    #[test]
    fn a_keyring_is_read_as_it_was_meant() {
        let caps = ["mon", r#"allow command "config-key get" with key="x""#, "osd", "allow *"];
        let made = of("client.a", &caps).unwrap();
        let read = Keyring::parse(&made.to_string()).unwrap();
        let name = AuthName::parse("client.a").unwrap();
        let entry = read.get(&name).unwrap();
        assert_eq!(entry.caps["mon"], caps[1]);
        assert_eq!(entry.caps["osd"], caps[3]);
        assert_eq!(read.key(&name), made.key(&name));
        assert_ne!(of("client.a", &[]).unwrap().key(&name), made.key(&name));
        assert!(of("mon.", &["mon", "allow *"]).is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(of("admin", &[]).unwrap_err().contains("admin: not a name"));
        assert!(of("client.a", &["rgw", "allow *"]).unwrap_err().contains("--cap rgw"));
        assert!(of("client.a", &["mon", "allow r", "mon", "allow w"]).unwrap_err().contains("twice"));
    }
}
