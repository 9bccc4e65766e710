//! Accepting sockets.

use crate::descriptors::{Accepted, many_wait};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Pause after a failed accept (no descriptors left): the backlog holds the peers meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Pause while the reactors have accepted sockets to take up.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(1);
/// Connections that wait in the kernel while the reactor does other work, as those of a whole cluster after a restart.
const BACKLOG: u16 = 4096;

/// Calls `f` for every socket that is accepted, which speaks `protocol`.
pub(crate) fn start(
    l: std::net::TcpListener,
    protocol: msgr::Protocol,
    mut f: impl FnMut(Accepted, SocketAddr) + 'static,
) -> io::Result<(SocketAddr, AbortHandle)> {
    l.set_nonblocking(true)?;
    reactor::descriptors::set_backlog(&l, BACKLOG)?;
    let bound = l.local_addr()?;
    let l = TcpListener::from_std(l)?;
    let task = tokio::task::spawn_local(async move {
        loop {
            while many_wait() {
                tokio::time::sleep(CATCH_UP_PAUSE).await;
            }
            match l.accept().await {
                Ok((s, peer)) => match s.into_std() {
                    Ok(s) => f(Accepted::new(s, protocol), peer),
                    Err(error) => tracing::warn!(%error, %peer, "cannot use an accepted connection"),
                },
                Err(error) => {
                    tracing::warn!(%error, %bound, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Ok((bound, task.abort_handle()))
}
