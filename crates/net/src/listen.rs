//! Accepting sockets.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Pause after a failed accept (no descriptors left): the backlog holds the peers meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Calls `f` for every socket that is accepted.
pub(crate) fn start(
    l: std::net::TcpListener,
    mut f: impl FnMut(TcpStream, SocketAddr) + 'static,
) -> io::Result<(SocketAddr, AbortHandle)> {
    l.set_nonblocking(true)?;
    let bound = l.local_addr()?;
    let l = TcpListener::from_std(l)?;
    let task = tokio::task::spawn_local(async move {
        loop {
            match l.accept().await {
                Ok((s, peer)) => match s.into_std() {
                    Ok(s) => f(s, peer),
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
