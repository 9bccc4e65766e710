//! Notices the end of the parent process, which holds the write end of our standard input.

use std::io::Read;
use std::sync::Arc;
use tokio::sync::Notify;

/// Completes when standard input ends. Input before that is dropped.
pub async fn stdin_ended() {
    let ended = Arc::new(Notify::new());
    let tell = ended.clone();
    let spawned = std::thread::Builder::new().name("parent-watch".into()).spawn(move || {
        let mut sink = [0; 256];
        let mut stdin = std::io::stdin().lock();
        while !matches!(stdin.read(&mut sink), Ok(0) | Err(_)) {}
        tell.notify_one();
    });
    match spawned {
        Ok(_) => ended.notified().await,
        // Without the thread the process can still be stopped by a signal.
        Err(_) => std::future::pending().await,
    }
}
