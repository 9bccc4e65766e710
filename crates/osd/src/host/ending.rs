//! Makes the process end on a signal, whatever its reactors wait for.
//!
//! A separate thread handles the signals, because a reactor may be stuck waiting for a device that does not
//! answer.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Longest time for a process to end after a signal: the sum of its steps' limits, and less than the supervisor
/// waits.
const END_MAX: Duration = Duration::from_secs(14);
/// Exit status of a process that was ended by force.
const STATUS_STUCK: i32 = 70;

/// Notice that the process is to end. Clone freely.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    told: watch::Receiver<bool>,
    arm: std::sync::Arc<watch::Sender<bool>>,
}

impl Ending {
    /// Handles SIGTERM and SIGINT from now on.
    pub(super) fn watch() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tell, told) = watch::channel(false);
        let (arm, mut armed) = watch::channel(false);
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("ending".into()).spawn(move || {
            runtime.block_on(async move {
                let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
                let (Ok(mut term), Ok(mut int)) = signals else {
                    // Without a runtime the default actions of the signals stay in force.
                    let _ = ready.send(());
                    return;
                };
                // The starter may have ended.
                let _ = ready.send(());
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                    r = armed.wait_for(|x| *x) => if r.is_err() {
                        // The process ends already, so nothing can be stuck.
                        return;
                    }
                }
                tell.send_replace(true);
                tokio::time::sleep(END_MAX).await;
                tracing::error!("the process did not stop in time and is ended by force");
                std::process::exit(STATUS_STUCK);
            });
        })?;
        // From here on no signal is lost.
        let _ = is_ready.recv();
        Ok(Self { told, arm: std::sync::Arc::new(arm) })
    }

    /// Starts the time limit without a signal, because the process ends on its own.
    pub(super) fn arm(&self) {
        self.arm.send_replace(true);
    }

    /// Completes when the process is to end.
    pub(super) async fn told(&self) {
        let mut told = self.told.clone();
        if told.wait_for(|x| *x).await.is_err() {
            // The signals could not be handled here.
            std::future::pending().await
        }
    }
}
