//! Keeps daemons running: starts them, notices their end, starts them again, stops them in order.
//!
//! A daemon's standard input is a pipe whose other end lives here: when this process goes away in whatever manner, the
//! daemon reads its end and stops. Invariants:
//!  1. A daemon that lived at least [`HEALTHY`] is started again at once, and so is one that died young for the first
//!     time; from then on each early death makes it wait longer, but never beyond [`KILLED_MAX`] if it was killed
//!     rather than failed.
//!  2. A pid file exists while its daemon runs, and only then.

use super::layout::Layout;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, ChildStdin, Command};

/// A daemon that lived this long was well: its end is an accident, not a condition.
const HEALTHY: Duration = Duration::from_secs(10);
/// First wait before a restart of a daemon that died young.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest wait of a daemon that was ended by SIGKILL: by an operator or for want of memory, not by its own fault.
const KILLED_MAX: Duration = Duration::from_millis(250);
/// How long a daemon may take to stop before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// How to start one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// `mon.a`, `osd.0`.
    pub(crate) name: String,
    /// Arguments to this program.
    pub(crate) args: Vec<String>,
}

struct Running {
    child: Child,
    /// Apart from the child, because waiting for that would close it.
    stdin: Option<ChildStdin>,
    since: Instant,
}

/// One supervised daemon.
pub(crate) struct Daemon {
    spec: Spec,
    layout: Layout,
    running: Option<Running>,
    backoff: Duration,
    /// When to start again, while it is down.
    due: Option<Instant>,
}

impl Daemon {
    /// A daemon, not started yet.
    #[must_use]
    pub(crate) fn new(spec: Spec, layout: Layout) -> Self {
        Self { spec, layout, running: None, backoff: Duration::ZERO, due: None }
    }

    /// `osd.0`.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Starts it, its output going to `log/<name>.log`.
    pub(crate) fn start(&mut self) -> std::io::Result<()> {
        let path = self.layout.log().join(format!("{}.log", self.spec.name));
        let out = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(&self.spec.args)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            // A terminal's Ctrl-C must reach `up` alone, which then stops the daemons in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        if let Some(pid) = child.id() {
            std::fs::write(self.layout.pid(&self.spec.name), format!("{pid}\n"))?;
        }
        let stdin = child.stdin.take();
        self.running = Some(Running { child, stdin, since: Instant::now() });
        self.due = None;
        Ok(())
    }

    /// Waits until something is to be done: the daemon ended, or its restart is due. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> Change {
        if let Some(r) = &mut self.running {
            let status = r.child.wait().await;
            let lived = r.since.elapsed();
            self.running = None;
            let _ = std::fs::remove_file(self.layout.pid(&self.spec.name));
            let killed = status.as_ref().is_ok_and(|s| s.signal() == Some(9));
            let wait = if lived >= HEALTHY { Duration::ZERO } else { self.backoff };
            let wait = if killed { wait.min(KILLED_MAX) } else { wait };
            self.backoff =
                if lived >= HEALTHY { BACKOFF_MIN } else { (self.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX) };
            self.due = Some(Instant::now() + wait);
            return Change::Ended { status: status.ok(), restart_in: wait };
        }
        match self.due {
            Some(at) => {
                tokio::time::sleep_until(at.into()).await;
                Change::Due
            }
            None => std::future::pending().await,
        }
    }

    /// Stops it: end of input, then SIGKILL if it does not leave in time.
    pub(crate) async fn stop(&mut self) -> bool {
        let Some(mut r) = self.running.take() else { return true };
        drop(r.stdin.take());
        let clean = tokio::time::timeout(STOP_GRACE, r.child.wait()).await.is_ok();
        if !clean {
            let _ = r.child.kill().await;
        }
        let _ = std::fs::remove_file(self.layout.pid(&self.spec.name));
        clean
    }
}

/// What happened to a daemon.
#[derive(Debug)]
pub(crate) enum Change {
    /// Its process ended.
    Ended {
        /// How.
        status: Option<ExitStatus>,
        /// Time until its restart.
        restart_in: Duration,
    },
    /// Its restart is due.
    Due,
}
