//! Sees that the process ends when it is told to, whatever its reactors wait for.
//!
//! A thread of its own takes the signals: a reactor may be stuck, or still wait for a device that answers nothing.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How long a process may take to end once it was told to: what its steps take at most, and less than the supervisor waits.
const END_MAX: Duration = Duration::from_secs(14);
/// Exit status of a process that had to be ended.
const STATUS_STUCK: i32 = 70;

/// Tells everybody that the process is to end. Clone freely.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    told: watch::Receiver<bool>,
    arm: std::sync::Arc<watch::Sender<bool>>,
}

impl Ending {
    /// Takes over SIGTERM and SIGINT.
    pub(super) fn watch() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tell, told) = watch::channel(false);
        let (arm, mut armed) = watch::channel(false);
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("ending".into()).spawn(move || {
            runtime.block_on(async move {
                let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
                let (Ok(mut term), Ok(mut int)) = signals else {
                    // The default actions of the signals stay in force.
                    let _ = ready.send(());
                    return;
                };
                // The starter may have gone.
                let _ = ready.send(());
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                    r = armed.wait_for(|x| *x) => if r.is_err() {
                        // Nobody is left that could be stuck.
                        return;
                    }
                }
                tell.send_replace(true);
                tokio::time::sleep(END_MAX).await;
                tracing::error!("the process does not end by itself, and is ended");
                std::process::exit(STATUS_STUCK);
            });
        })?;
        // From here on no signal is lost.
        let _ = is_ready.recv();
        Ok(Self { told, arm: std::sync::Arc::new(arm) })
    }

    /// The process goes without having been told: it may take no longer.
    pub(super) fn arm(&self) {
        self.arm.send_replace(true);
    }

    /// Completes when the process is to end.
    pub(super) async fn told(&self) {
        let mut told = self.told.clone();
        if told.wait_for(|x| *x).await.is_err() {
            // No signals could be taken over.
            std::future::pending().await
        }
    }
}
