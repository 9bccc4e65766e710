//! Keeps daemons running: starts them, notices their end, starts them again, stops them in order.
//!
//! A daemon's standard input is a pipe whose other end lives here: when this process goes away in whatever manner, the
//! daemon reads its end and stops. Invariants:
//!  1. A daemon that lived at least [`HEALTHY`] is started again at once, and so is one that died young for the first
//!     time; from then on each early death makes it wait longer, but never beyond [`KILLED_MAX`] if it was killed
//!     rather than failed. One whose device failed or has no room never starts at once, however long it lived.
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
    /// Arguments to the program.
    pub(crate) args: Vec<String>,
    /// Another program than this one: it does not heed its standard input, and is stopped by SIGTERM.
    pub(crate) program: Option<std::path::PathBuf>,
}

struct Running {
    child: Child,
    /// Apart from the child, because waiting for that would close it.
    stdin: Option<ChildStdin>,
    since: Instant,
    /// It was sent SIGTERM.
    asked: bool,
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
        let program = match &self.spec.program {
            Some(p) => p.clone(),
            None => std::env::current_exe()?,
        };
        let mut child = Command::new(program)
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
        self.running = Some(Running { child, stdin, since: Instant::now(), asked: false });
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
            let wait = pause(status.as_ref().ok(), lived, &mut self.backoff);
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

    /// Sends SIGTERM to a daemon that does not heed its input, once.
    pub(crate) async fn ask_foreign_to_stop(&mut self) {
        if self.spec.program.is_none() {
            return;
        }
        let Some(r) = self.running.as_mut().filter(|r| !r.asked) else { return };
        r.asked = true;
        if let Some(pid) = r.child.id() {
            // The shell's own `kill`: there is no other way to send a signal without unsafe code.
            let _ = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().await;
        }
    }

    /// Stops it: end of input or SIGTERM, then SIGKILL if it does not leave in time.
    pub(crate) async fn stop(&mut self) -> bool {
        self.ask_foreign_to_stop().await;
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

/// True if a daemon that ended like this said that its device failed (74), or has no room now (75).
fn is_of_device(status: ExitStatus) -> bool {
    matches!(status.code(), Some(74 | 75))
}

/// Time until a daemon is started again; `backoff` is what the next one waits that dies young.
fn pause(status: Option<&ExitStatus>, lived: Duration, backoff: &mut Duration) -> Duration {
    let killed = status.is_some_and(|s| s.signal() == Some(9));
    if lived >= HEALTHY {
        *backoff = Duration::ZERO;
    }
    let of_device = status.is_some_and(|s| is_of_device(*s));
    let wait = match *backoff {
        Duration::ZERO if of_device => BACKOFF_MIN,
        w if killed => w.min(KILLED_MAX),
        w => w,
    };
    *backoff = (wait.max(*backoff) * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
    wait
}

/// How a daemon ended, in words.
#[must_use]
pub(crate) fn how(status: Option<ExitStatus>) -> String {
    match status {
        Some(s) if s.code() == Some(74) => format!("{s}: its device failed"),
        Some(s) if s.code() == Some(75) => format!("{s}: its file system is full"),
        Some(s) => s.to_string(),
        None => "ended".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(raw: i32, secs: u64, n: usize) -> Vec<u64> {
        let (status, mut backoff) = (ExitStatus::from_raw(raw), Duration::ZERO);
        let lived = Duration::from_secs(secs);
        (0..n).map(|_| pause(Some(&status), lived, &mut backoff).as_millis() as u64).collect()
    }

    #[test]
    fn pauses_grow_with_early_deaths() {
        assert_eq!(ends(1 << 8, 1, 9), [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(ends(1 << 8, 10, 3), [0, 0, 0], "an accident");
        assert_eq!(ends(9, 1, 4), [0, 250, 250, 250], "killed by others");
    }

    #[test]
    fn a_device_that_fails_is_not_tried_again_at_once() {
        assert_eq!(ends(74 << 8, 1, 4), [500, 1000, 2000, 4000]);
        assert_eq!(ends(75 << 8, 3600, 3), [500, 500, 500]);
        assert!(how(Some(ExitStatus::from_raw(74 << 8))).ends_with("its device failed"));
    }
}
