//! The manager's client: connected from the start, and replaced when it is blocklisted.

use super::{RETRY, Service};
use client::host::Client;
use std::time::Duration;

/// Interval at which the manager looks whether its client is blocklisted.
const LOOK: Duration = Duration::from_secs(1);

impl Service {
    /// Runs tasks, and keeps the client by which they run.
    pub(super) async fn run_tasks_by_client(&self) {
        tokio::join!(self.keep_client(), self.run_tasks());
    }

    /// Keeps a client connected, so that `mgr dump` names it, and replaces it after it was blocklisted.
    async fn keep_client(&self) {
        loop {
            if self.client.borrow().as_ref().is_some_and(Client::is_blocklisted) {
                tracing::warn!("mgr: the manager's client is blocklisted; a new one takes its place");
                *self.client.borrow_mut() = None;
            }
            // A failure has its line in the log; the next attempt waits longer.
            let failed = self.client.borrow().is_none() && self.connect().await.is_err();
            tokio::time::sleep(if failed { RETRY } else { LOOK }).await;
        }
    }
}
