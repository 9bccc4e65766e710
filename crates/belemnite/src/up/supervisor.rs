//! Supervises daemons: starts them, detects their exit, restarts them, and stops them in order.
//!
//! A daemon's standard input is a pipe from this process: when this process ends, the daemon reads the end of input and
//! stops. Invariants:
//!  1. A daemon that lived at least [`HEALTHY`] is restarted at once, and so is one after its first early exit. Each
//!     further early exit lengthens the pause, up to [`KILLED_MAX`] for a killed daemon. A daemon whose device failed or
//!     has no space is never restarted at once.
//!  2. A pid file exists exactly while its daemon runs, if its file system has room for it.
//!  3. A start that fails is tried again after a pause that grows in the same way.

use super::layout::Layout;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, ChildStdin, Command};

/// Lifetime after which a daemon's exit counts as an accident and not as a persistent failure.
const HEALTHY: Duration = Duration::from_secs(10);
/// First pause before the restart of a daemon that exited early.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest pause before a restart.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest pause after a SIGKILL, which comes from an operator or the kernel's OOM killer.
const KILLED_MAX: Duration = Duration::from_millis(250);
/// Time limit for a daemon to stop before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// Start command of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Name: `mon.a`, `osd.0`.
    pub(crate) name: String,
    /// Arguments to the program.
    pub(crate) args: Vec<String>,
    /// Program, if not this one. Such a program ignores its standard input and is stopped by SIGTERM.
    pub(crate) program: Option<std::path::PathBuf>,
}

struct Running {
    child: Child,
    /// Separate from the child, because waiting for the child would close it.
    stdin: Option<ChildStdin>,
    since: Instant,
    /// Whether SIGTERM was sent.
    asked: bool,
}

/// One supervised daemon.
pub(crate) struct Daemon {
    spec: Spec,
    layout: Layout,
    running: Option<Running>,
    backoff: Duration,
    /// Time of the next start, while it is down.
    due: Option<Instant>,
}

impl Daemon {
    /// A daemon, not started yet.
    #[must_use]
    pub(crate) fn new(spec: Spec, layout: Layout) -> Self {
        Self { spec, layout, running: None, backoff: Duration::ZERO, due: None }
    }

    /// Name: `osd.0`.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Starts the daemon with its output in `log/<name>.log`. After an error [`Daemon::wait`] says when to try again.
    pub(crate) fn start(&mut self) -> std::io::Result<()> {
        let started = self.spawn();
        self.due = match &started {
            Ok(()) => None,
            Err(_) => Some(Instant::now() + pause(None, Duration::ZERO, &mut self.backoff).max(BACKOFF_MIN)),
        };
        started
    }

    fn spawn(&mut self) -> std::io::Result<()> {
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
            // Ctrl-C in a terminal must reach only `up`, which then stops the daemons in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        if let Some(pid) = child.id() {
            let path = self.layout.pid(&self.spec.name);
            if let Err(error) = std::fs::write(&path, format!("{pid}\n")) {
                tracing::warn!(%error, path = %path.display(), "no pid file");
                let _ = std::fs::remove_file(path);
            }
        }
        let stdin = child.stdin.take();
        self.running = Some(Running { child, stdin, since: Instant::now(), asked: false });
        Ok(())
    }

    /// Waits until the daemon exits or its restart is due. Cancel-safe.
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

    /// Sends SIGTERM, once, to a daemon that ignores its standard input.
    pub(crate) async fn ask_foreign_to_stop(&mut self) {
        if self.spec.program.is_none() {
            return;
        }
        let Some(r) = self.running.as_mut().filter(|r| !r.asked) else { return };
        r.asked = true;
        if let Some(pid) = r.child.id() {
            // The shell's `kill` is the only way to send a signal without unsafe code.
            let _ = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().await;
        }
    }

    /// Stops the daemon by end of input or SIGTERM, and by SIGKILL after the time limit; true if it stopped in time.
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

/// True if a daemon exited because its device failed (74) or has no space (75).
fn is_of_device(status: ExitStatus) -> bool {
    matches!(status.code(), Some(74 | 75))
}

/// Pause before a daemon is restarted; `backoff` is the pause after the next early exit.
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

/// Description of a daemon's exit.
#[must_use]
pub(crate) fn how(status: Option<ExitStatus>) -> String {
    match status {
        Some(s) if s.code() == Some(74) => format!("{s}: its device failed"),
        Some(s) if s.code() == Some(75) => format!("{s}: its file system is full"),
        Some(s) => s.to_string(),
        None => "ended".to_owned(),
    }
}

/// Change of a daemon.
#[derive(Debug)]
pub(crate) enum Change {
    /// The process has exited.
    Ended {
        /// Exit status.
        status: Option<ExitStatus>,
        /// Pause before the restart.
        restart_in: Duration,
    },
    /// The restart is due.
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

    #[tokio::test]
    async fn a_start_that_fails_is_tried_again_after_a_pause() {
        let dir = std::env::temp_dir().join(format!("belemnite-supervisor-{}", std::process::id()));
        let layout = Layout { dir: dir.clone() };
        std::fs::create_dir_all(layout.log()).unwrap();
        let spec = Spec { name: "osd.0".into(), args: Vec::new(), program: Some(dir.join("missing")) };
        let mut d = Daemon::new(spec, layout);
        let pauses: Vec<_> = (0..4)
            .map(|_| {
                d.start().unwrap_err();
                d.due.unwrap().duration_since(Instant::now()) > BACKOFF_MIN / 2
            })
            .collect();
        assert_eq!(pauses, [true; 4]);
        assert!(d.backoff > BACKOFF_MIN, "{:?}", d.backoff);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn a_daemon_runs_without_a_pid_file() {
        let dir = std::env::temp_dir().join(format!("belemnite-no-pid-file-{}", std::process::id()));
        let layout = Layout { dir: dir.clone() };
        // There is no directory for pid files, as on a file system without room.
        std::fs::create_dir_all(layout.log()).unwrap();
        let spec = Spec { name: "osd.0".into(), args: vec!["60".into()], program: Some("sleep".into()) };
        let mut d = Daemon::new(spec, layout);
        d.start().unwrap();
        assert!(d.running.is_some());
        assert!(d.stop().await);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_device_that_fails_is_not_tried_again_at_once() {
        assert_eq!(ends(74 << 8, 1, 4), [500, 1000, 2000, 4000]);
        assert_eq!(ends(75 << 8, 3600, 3), [500, 500, 500]);
        assert!(how(Some(ExitStatus::from_raw(74 << 8))).ends_with("its device failed"));
    }
}
