//! The OSD's key, when the monitor refuses it: the keyring may hold another one by then.

use base::AuthName;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Longest keyring that is read, in bytes.
const KEYRING_MAX: u64 = 64 << 10;

/// Reads the keyring again, beside the reactor, and uses its key from the next authentication on.
pub(super) fn read_again(path: Option<PathBuf>, auth: &Rc<RefCell<auth::Client>>) {
    let Some(path) = path else { return };
    let auth = auth.clone();
    tokio::task::spawn_local(async move {
        let name = auth.borrow().name().clone();
        let from = path.clone();
        let read = tokio::task::spawn_blocking(move || key(&from, &name)).await;
        let Ok(Some(key)) = read else { return };
        if auth.borrow().key().is_none_or(|have| *have != key) {
            tracing::info!(path = %path.display(), "the keyring holds another key, which is used from now on");
            auth.borrow_mut().set_key(key);
        }
    });
}

/// The key of an entity in a keyring; `None` if there is none, or the file cannot be read.
fn key(path: &Path, name: &AuthName) -> Option<auth::CryptoKey> {
    let mut text = String::new();
    File::open(path).ok()?.take(KEYRING_MAX).read_to_string(&mut text).ok()?;
    auth::Keyring::parse(&text).ok()?.key(name).cloned()
}
