//! Commands that a monitor passes on to a separate manager.

use super::images::Answer;
use base::errno::{EACCES, EAGAIN, ETIMEDOUT};
use base::{AuthName, EntityAddr};
use bytes::Bytes;
use client::host::{Client, ClientError, Options};
use std::time::Duration;

/// Time limit of a command. Modules answer late when they wait for other daemons.
const LIMIT: Duration = Duration::from_secs(120);
/// Time limit for signing in at the monitor.
const SIGN_IN: Duration = Duration::from_secs(10);

/// A command for a separate manager.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Address of the manager.
    pub manager: EntityAddr,
    /// The entity that asks, which may do all at managers. The sender's rights were checked before.
    pub name: AuthName,
    /// Its key; `None` for method none.
    pub key: Option<auth::CryptoKey>,
    /// The command as JSON text.
    pub json: String,
    /// Its input.
    pub input: Bytes,
}

/// Asks the manager, by way of the monitor at `mon`.
pub async fn command(mon: EntityAddr, f: Forward) -> Answer {
    let ask = async {
        let c = Client::connect(Options {
            mons: vec![mon],
            name: f.name,
            key: f.key,
            fsid: None,
            timeout: SIGN_IN,
            modes: net::modes::Modes::default(),
            mds: false,
        })
        .await?;
        c.mgr_command(f.manager, &f.json, f.input).await
    };
    match tokio::time::timeout(LIMIT, ask).await {
        Ok(Ok(r)) => (r.rc, r.status, r.out),
        Ok(Err(ClientError::Auth(e))) => (EACCES, format!("the manager cannot be asked: {e}"), Bytes::new()),
        Ok(Err(e)) => (EAGAIN, format!("the manager does not answer: {e}"), Bytes::new()),
        Err(_) => (ETIMEDOUT, format!("the manager has not answered for {} s", LIMIT.as_secs()), Bytes::new()),
    }
}
