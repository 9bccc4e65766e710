//! Random values of a run: keys, identities, names.

use auth::Random as _;

/// A new cephx key, in base64.
pub(super) fn new_key() -> String {
    auth::CryptoKey::generate(auth::KeyKind::Aes, reactor::clock::read().wall, &net::OsRandom).to_base64()
}

/// Random part of the names of a run's pools.
pub(super) fn new_tag() -> String {
    new_uuid().chars().filter(char::is_ascii_hexdigit).take(16).collect()
}

/// A random UUID.
pub(super) fn new_uuid() -> String {
    let mut b = [0; 16];
    net::OsRandom.fill(&mut b);
    base::id::Uuid::from_random(b).to_string()
}
