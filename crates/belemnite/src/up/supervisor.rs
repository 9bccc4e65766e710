//! Supervises daemons: starts them, detects their exit, restarts them, and stops them in order.
//!
//! A daemon's standard input is a pipe from this process: when this process ends, the daemon reads the end of input and
//! stops. Invariants:
//!  1. A daemon that lived at least [`HEALTHY`] is restarted at once, and so is one after its first early exit. Each
//!     further early exit lengthens the pause, up to [`KILLED_MAX`] for a killed daemon. A daemon whose device failed or
//!     has no space is never restarted at once.
//!  2. A pid file exists exactly while its daemon runs, if its file system has room for it.
//!  3. A start that fails is tried again after a pause that grows in the same way.
//!  4. A daemon that an operator stopped stays down until it is started.
//!  5. Daemons of this program start from its file as it is at that moment, so a replaced file takes effect with the next
//!     start of each daemon. If the file is gone or cannot be run, they start from the program that this process runs.
//!
//! Tests: below (1, 3, 5), `tests/does_up_keep_a_cluster_through_a_week.rs` (4).

use super::layout::Layout;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
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

/// The kernel's name for the program that this process runs. It works after the file was removed, too.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Bytes at the end of a log in which the reason of an exit is looked for.
const TAIL: u64 = 8 << 10;
/// Most characters of a reason that are shown.
const REASON_MAX: usize = 300;

/// The program file of the daemons.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Path at the time when this process began.
    path: PathBuf,
    /// Device and inode that this process runs.
    own: (u64, u64),
}

/// Program from which a daemon was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The file that this process runs, too.
    Same,
    /// A file that has replaced it.
    Replaced,
    /// The program that this process runs, because its file is gone or cannot be run.
    Kept,
}

impl Program {
    /// The program of this process.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn of_this_process() -> std::io::Result<Self> {
        let m = std::fs::metadata(OWN_PROGRAM)?;
        Ok(Self { path: std::env::current_exe()?, own: (m.dev(), m.ino()) })
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if another file has taken its place.
    pub(crate) fn is_replaced(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|m| m.is_file() && (m.dev(), m.ino()) != self.own)
    }
}

/// Start command of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Name: `mon.a`, `osd.0`.
    pub(crate) name: String,
    /// Arguments to the program.
    pub(crate) args: Vec<String>,
    /// Program, if not this one. Such a program ignores its standard input and is stopped by SIGTERM.
    pub(crate) program: Option<PathBuf>,
}

struct Running {
    child: Child,
    /// Separate from the child, because waiting for the child would close it.
    stdin: Option<ChildStdin>,
    since: Instant,
    /// Whether SIGTERM was sent.
    asked: bool,
    /// Size of the log at the start.
    log_from: u64,
}

/// One supervised daemon.
pub(crate) struct Daemon {
    spec: Spec,
    layout: Layout,
    program: Program,
    running: Option<Running>,
    backoff: Duration,
    /// Time of the next start, while it is down.
    due: Option<Instant>,
    /// Time at which a daemon that was told to stop is killed.
    kill_at: Option<Instant>,
    /// Whether a start was tried.
    begun: bool,
}

impl Daemon {
    /// A daemon, not started yet.
    #[must_use]
    pub(crate) fn new(spec: Spec, layout: Layout, program: Program) -> Self {
        Self { spec, layout, program, running: None, backoff: Duration::ZERO, due: None, kill_at: None, begun: false }
    }

    /// Name: `osd.0`.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Path of its log.
    #[must_use]
    pub(crate) fn log(&self) -> PathBuf {
        self.layout.log().join(format!("{}.log", self.spec.name))
    }

    /// Process id while it runs.
    #[must_use]
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|r| r.child.id())
    }

    /// True if it is down because an operator stopped it, or was never started.
    #[must_use]
    pub(crate) fn is_stopped(&self) -> bool {
        self.running.is_none() && self.due.is_none()
    }

    /// State in the list of daemons: `running`, `starting`, `stopped`, or `waiting` for its restart. `registers`: OSDs are
    /// being registered, after which daemons get their first start.
    #[must_use]
    pub(crate) fn state(&self, registers: bool) -> &'static str {
        match self.running {
            Some(_) => "running",
            None if registers && !self.begun => "starting",
            None if self.is_stopped() => "stopped",
            None => "waiting",
        }
    }

    /// Starts the daemon with its output in `log/<name>.log`. After an error [`Daemon::wait`] says when to try again.
    pub(crate) fn start(&mut self) -> std::io::Result<From> {
        let started = self.spawn();
        self.begun = true;
        self.kill_at = None;
        self.due = match &started {
            Ok(_) => None,
            Err(_) => Some(Instant::now() + pause(None, Duration::ZERO, &mut self.backoff).max(BACKOFF_MIN)),
        };
        started
    }

    fn command(&self, program: &Path, out: &File) -> std::io::Result<Command> {
        let mut c = Command::new(program);
        c.args(&self.spec.args)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out.try_clone()?)
            // Ctrl-C in a terminal must reach only `up`, which then stops the daemons in order.
            .process_group(0)
            .kill_on_drop(true);
        Ok(c)
    }

    fn spawn(&mut self) -> std::io::Result<From> {
        let out = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let log_from = out.metadata()?.len();
        let (mut child, from) = match &self.spec.program {
            Some(p) => (self.command(p, &out)?.spawn()?, From::Same),
            None => match self.command(&self.program.path, &out)?.spawn() {
                Ok(c) if self.program.is_replaced() => (c, From::Replaced),
                Ok(c) => (c, From::Same),
                Err(_) => (self.command(Path::new(OWN_PROGRAM), &out)?.arg0("belemnite").spawn()?, From::Kept),
            },
        };
        if let Some(pid) = child.id() {
            let path = self.layout.pid(&self.spec.name);
            if let Err(error) = std::fs::write(&path, format!("{pid}\n")) {
                tracing::warn!(%error, path = %path.display(), "no pid file");
                let _ = std::fs::remove_file(path);
            }
        }
        let stdin = child.stdin.take();
        self.running = Some(Running { child, stdin, since: Instant::now(), asked: false, log_from });
        Ok(from)
    }

    /// Waits until the daemon exits or its restart is due. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> Change {
        if let Some(r) = &mut self.running {
            let status = match self.kill_at {
                None => r.child.wait().await,
                Some(at) => match tokio::time::timeout_at(at.into(), r.child.wait()).await {
                    Ok(s) => s,
                    Err(_) => {
                        let _ = r.child.start_kill();
                        r.child.wait().await
                    }
                },
            };
            let (lived, from) = (r.since.elapsed(), r.log_from);
            self.running = None;
            let _ = std::fs::remove_file(self.layout.pid(&self.spec.name));
            if let Some(at) = self.kill_at.take() {
                self.backoff = Duration::ZERO;
                return Change::Stopped { in_time: Instant::now() < at };
            }
            let wait = pause(status.as_ref().ok(), lived, &mut self.backoff);
            self.due = Some(Instant::now() + wait);
            return Change::Ended { status: status.ok(), reason: last_words(&self.log(), from), restart_in: wait };
        }
        match self.due {
            Some(at) => {
                tokio::time::sleep_until(at.into()).await;
                Change::Due
            }
            None => std::future::pending().await,
        }
    }

    /// Tells the daemon to stop and to stay down; [`Daemon::wait`] reports when it has. False if it is down already.
    pub(crate) async fn begin_stop(&mut self) -> bool {
        self.due = None;
        if self.running.is_none() {
            return false;
        }
        self.ask_foreign_to_stop().await;
        self.give_up();
        true
    }

    /// Keeps a daemon of this program down, and tells it to stop if it runs.
    pub(crate) fn give_up(&mut self) {
        self.due = None;
        if let Some(r) = &mut self.running {
            drop(r.stdin.take());
            self.kill_at.get_or_insert(Instant::now() + STOP_GRACE);
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

/// The reason that a daemon of this program printed as its last line, in the part of its log after `from`.
fn last_words(log: &Path, from: u64) -> Option<String> {
    let mut f = File::open(log).ok()?;
    let end = f.metadata().ok()?.len();
    f.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL)))).ok()?;
    let mut tail = Vec::new();
    f.take(TAIL).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.lines().rev().find_map(|l| l.strip_prefix("belemnite: "))?;
    Some(line.chars().filter(|c| !c.is_control()).take(REASON_MAX).collect())
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

/// Description of a daemon's exit, with the reason from its log.
#[must_use]
pub(crate) fn how(status: Option<ExitStatus>, reason: Option<&str>) -> String {
    let status = status.map_or_else(|| "ended".to_owned(), |s| s.to_string());
    let of_device = |code| status == ExitStatus::from_raw(code << 8).to_string();
    match reason {
        Some(r) => format!("{status}: {r}"),
        None if of_device(74) => format!("{status}: its device failed"),
        None if of_device(75) => format!("{status}: its file system is full"),
        None => status,
    }
}

/// Change of a daemon.
#[derive(Debug)]
pub(crate) enum Change {
    /// The process has exited.
    Ended {
        /// Exit status.
        status: Option<ExitStatus>,
        /// Reason that it printed.
        reason: Option<String>,
        /// Pause before the restart.
        restart_in: Duration,
    },
    /// The process has exited after it was told to stop.
    Stopped {
        /// False if it had to be killed.
        in_time: bool,
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
        let mut d = Daemon::new(spec, layout, Program::of_this_process().unwrap());
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
        let mut d = Daemon::new(spec, layout, Program::of_this_process().unwrap());
        d.start().unwrap();
        assert!(d.running.is_some());
        assert!(d.stop().await);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_device_that_fails_is_not_tried_again_at_once() {
        assert_eq!(ends(74 << 8, 1, 4), [500, 1000, 2000, 4000]);
        assert_eq!(ends(75 << 8, 3600, 3), [500, 500, 500]);
        let said = |code: i32, reason| how(Some(ExitStatus::from_raw(code << 8)), reason);
        assert!(said(74, None).ends_with("its device failed"));
        assert!(said(75, None).ends_with("its file system is full"));
        assert_eq!(said(1, Some("no free port")), "exit status: 1: no free port");
    }

    fn dir(name: &str) -> Layout {
        let dir = std::env::temp_dir().join(format!("belemnite-{name}-{}", std::process::id()));
        let layout = Layout { dir };
        std::fs::create_dir_all(layout.log()).unwrap();
        std::fs::create_dir_all(layout.run()).unwrap();
        layout
    }

    /// A program file that prints a word and the reason why it ends.
    fn script(path: &Path, word: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let new = path.with_extension("new");
        std::fs::write(&new, format!("#!/bin/sh\necho {word}\necho belemnite: no room >&2\nexit 3\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    #[tokio::test]
    async fn a_replaced_program_file_is_used_and_a_missing_one_is_not_needed() {
        let layout = dir("program");
        let path = layout.dir.join("belemnite");
        script(&path, "first");
        let m = std::fs::metadata(&path).unwrap();
        let program = Program { path: path.clone(), own: (m.dev(), m.ino()) };
        let spec = Spec { name: "osd.0".into(), args: vec!["--version".into()], program: None };
        let mut d = Daemon::new(spec, layout.clone(), program.clone());
        assert_eq!(d.start().unwrap(), From::Same);
        let Change::Ended { status, reason, .. } = d.wait().await else { panic!("it ends by itself") };
        assert_eq!((status.unwrap().code(), reason.as_deref()), (Some(3), Some("no room")));
        script(&path, "second");
        assert!(program.is_replaced());
        assert_eq!(d.start().unwrap(), From::Replaced);
        d.wait().await;
        assert!(std::fs::read_to_string(d.log()).unwrap().contains("second"));
        // The file is gone, or is no program: the test's own program takes its place.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(d.start().unwrap(), From::Kept);
        d.wait().await;
        std::fs::write(&path, "not a program").unwrap();
        assert_eq!(d.start().unwrap(), From::Kept);
        d.wait().await;
        std::fs::remove_dir_all(&layout.dir).unwrap();
    }

    #[tokio::test]
    async fn a_stopped_daemon_stays_down_until_it_is_started() {
        let layout = dir("stopped");
        // `cat` ends with its input.
        let program = Program { path: "/bin/cat".into(), own: (0, 0) };
        let spec = Spec { name: "osd.0".into(), args: Vec::new(), program: None };
        let mut d = Daemon::new(spec, layout.clone(), program);
        assert!(!d.begin_stop().await, "it does not run");
        d.start().unwrap();
        assert!(d.pid().is_some() && !d.is_stopped());
        assert!(d.begin_stop().await);
        assert!(matches!(d.wait().await, Change::Stopped { in_time: true }));
        assert!(d.is_stopped());
        assert!(tokio::time::timeout(Duration::from_millis(1), d.wait()).await.is_err(), "nothing is due");
        d.start().unwrap();
        assert!(d.stop().await);
        std::fs::remove_dir_all(&layout.dir).unwrap();
    }

    #[tokio::test]
    async fn a_daemon_before_its_first_start_is_not_shown_as_stopped() {
        let layout = dir("first");
        let program = Program { path: "/bin/cat".into(), own: (0, 0) };
        let spec = Spec { name: "osd.0".into(), args: Vec::new(), program: None };
        let mut d = Daemon::new(spec, layout.clone(), program);
        assert_eq!(d.state(true), "starting");
        assert_eq!(d.state(false), "stopped", "its registration failed, so nothing starts it");
        d.start().unwrap();
        assert_eq!(d.state(true), "running");
        assert!(d.stop().await);
        assert_eq!(d.state(true), "stopped", "another OSD is being registered");
        d.due = Some(Instant::now());
        assert_eq!(d.state(true), "waiting");
        std::fs::remove_dir_all(&layout.dir).unwrap();
    }

    #[test]
    fn a_reason_is_looked_for_in_the_newest_start_only() {
        let layout = dir("words");
        let log = layout.log().join("osd.0.log");
        std::fs::write(&log, "belemnite: old\nnoise\n").unwrap();
        assert_eq!(last_words(&log, 15), None);
        std::fs::write(&log, format!("belemnite: old\nbelemnite: new\x1b[0m{}\nnoise\n", "x".repeat(400))).unwrap();
        let said = last_words(&log, 15).unwrap();
        assert!(said.starts_with("new[0mxx") && said.chars().count() == REASON_MAX, "{said}");
        std::fs::remove_dir_all(&layout.dir).unwrap();
    }
}
