//! Care for the manager's clients: one is connected from the start and replaced when it is blocklisted, all are named in
//! the manager map, and all take a new key of their entity.

use super::image::Step;
use super::{RETRY, Service};
use base::errno::{EACCES, EBLOCKLISTED, ETIMEDOUT, Errno};
use client::host::{Client, Options, WeakClient};
use std::time::Duration;

/// Interval at which the manager looks after its clients.
const LOOK: Duration = Duration::from_secs(1);
/// Time limit for connecting a client, and for its way into the manager map.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks whether the manager map names a new client.
const NAMED_AGAIN: Duration = Duration::from_millis(10);

impl Service {
    /// Keeps a client connected, named and with a valid key; never completes.
    pub(super) async fn keep_clients(&self) {
        loop {
            if self.client.borrow().as_ref().is_some_and(Client::is_blocklisted) {
                tracing::warn!("mgr: the manager's client is blocklisted; a new one takes its place");
                *self.client.borrow_mut() = None;
            }
            self.take_key();
            self.names_clients();
            // A failure has its line in the log; the next attempt waits longer.
            let failed = self.client.borrow().is_none() && self.connect().await.is_err();
            tokio::time::sleep(if failed { RETRY } else { LOOK }).await;
        }
    }

    /// The client that tasks and commands share; made if there is none.
    pub(in crate::host) async fn connect(&self) -> Step<Client> {
        let _one = self.connecting.lock().await;
        if let Some(c) = self.current() {
            return Ok(c);
        }
        let c = self.new_client().await?;
        *self.client.borrow_mut() = Some(c.clone());
        Ok(c)
    }

    /// A client of its own, with an id of its own. It works once the manager map names it: otherwise the next holder of
    /// the role could not keep it from the OSDs.
    pub(in crate::host) async fn new_client(&self) -> Step<Client> {
        let (name, key) = self.monitor.identity().ok_or(EACCES)?;
        let modes = net::modes::Modes::take(|name| self.monitor.option(name)).unwrap_or_else(|e| {
            tracing::warn!("mgr: {e}; the manager's own connections use the default modes");
            net::modes::Modes::default()
        });
        let fsid = Some(self.monitor.osdmap().fsid);
        let o = Options { mons: vec![self.mon], name, key, fsid, timeout: CONNECT_LIMIT, modes, mds: true };
        let c = Client::connect(o).await.map_err(|e| {
            tracing::warn!("mgr: cannot connect a client for the manager role: {e}");
            ETIMEDOUT
        })?;
        self.clients.borrow_mut().push(c.downgrade());
        let named = async {
            while !self.names_clients() {
                tokio::time::sleep(NAMED_AGAIN).await;
            }
        };
        if tokio::time::timeout(CONNECT_LIMIT, named).await.is_err() {
            tracing::warn!("mgr: a new client of the manager role does not work: the manager map does not name it yet");
            return Err(ETIMEDOUT);
        }
        Ok(c)
    }

    /// The client that tasks and commands share, if there is one.
    pub(super) fn current(&self) -> Option<Client> {
        self.client.borrow().clone()
    }

    /// Drops the client after EBLOCKLISTED: another client broke its lock, and only a new client can work on. `used` is
    /// [`Service::current`] when the failed work began; a client that has come into its place since stays.
    pub(in crate::host) fn look_at(&self, used: Option<&Client>, e: Errno) {
        let mut current = self.client.borrow_mut();
        if e == EBLOCKLISTED && used.is_none_or(|u| current.as_ref().is_some_and(|c| c.is_same(u))) {
            *current = None;
        }
    }

    /// All clients that may still work.
    fn all_clients(&self) -> Vec<Client> {
        let mut all = self.clients.borrow_mut();
        all.retain(|c| c.upgrade().is_some());
        all.iter().filter_map(WeakClient::upgrade).collect()
    }

    /// Names all clients in the manager map; true once it names them.
    pub(super) fn names_clients(&self) -> bool {
        self.monitor.names_clients(self.all_clients().iter().map(Client::addrs).collect())
    }

    /// Gives all clients the key that their entity has now: after a change of it the monitor refuses the old one.
    fn take_key(&self) {
        let Some((name, Some(key))) = self.monitor.identity() else { return };
        for c in self.all_clients() {
            let credentials = c.credentials();
            let mut credentials = credentials.borrow_mut();
            if *credentials.name() == name && credentials.key().is_some_and(|k| *k != key) {
                tracing::info!("mgr: a client of the manager takes the new key of {name}");
                credentials.set_key(key.clone());
            }
        }
    }
}
