//! Tests only: directories and ports, for the tests of several crates.

#![forbid(unsafe_code)]

use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A new directory, which is removed with its contents in the end.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes the directory of one test, named after it. What an earlier run left there is removed.
    ///
    /// # Panics
    /// If the directory cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("belemnite-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        if let Err(e) = std::fs::create_dir_all(&dir) {
            panic!("{}: {e}", dir.display());
        }
        Self(dir)
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An address of the loopback interface with a port at which nothing listens. The port stays free until another process
/// takes it, so a server binds it at once.
///
/// # Panics
/// If there is no free port.
#[must_use]
pub fn free_port() -> SocketAddr {
    match TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()) {
        Ok(addr) => addr,
        Err(e) => panic!("no free port: {e}"),
    }
}
