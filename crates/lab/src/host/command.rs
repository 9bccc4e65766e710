//! Child processes of the laboratory: programs run to completion with a time limit, and daemons that are stopped later.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which a running program is polled.
const LOOK: Duration = Duration::from_millis(20);

/// Set once the run is to end (Ctrl-C).
pub type Cancel = AtomicBool;

/// Error of running a program.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// The program exited with an error.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program's command line.
        program: String,
        /// Exit status.
        status: ExitStatus,
        /// Last lines of its output.
        output: String,
    },
    /// The program exceeded its time limit.
    #[error("{program} did not end within {limit:?}")]
    TooLong {
        /// The program's command line.
        program: String,
        /// The time limit.
        limit: Duration,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Output of a program.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The command line, for error messages.
fn shown(c: &Command) -> String {
    let words = std::iter::once(c.get_program()).chain(c.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The end of a text.
fn tail(s: &str) -> String {
    let from = s.len().saturating_sub(600);
    let from = (from..=s.len()).find(|i| s.is_char_boundary(*i)).unwrap_or(s.len());
    s.get(from..).unwrap_or_default().trim().replace('\n', "; ")
}

/// Starts a program that the kernel kills when the calling thread ends. Error: [`CommandError::Start`] if the program
/// that sets this up cannot be started.
pub fn start(program: &str, args: &[String], change: impl FnOnce(&mut Command)) -> Result<Child, CommandError> {
    let mut c = Command::new("setpriv");
    c.args(["--pdeathsig", "KILL", program]).args(args).stdin(Stdio::null());
    // Ctrl-C in a terminal reaches only the laboratory, which then stops its children in order.
    std::os::unix::process::CommandExt::process_group(&mut c, 0);
    change(&mut c);
    c.spawn().map_err(|source| CommandError::Start { program: program.to_owned(), source })
}

/// Runs a program to completion. `started` is called with its process id. Error: the program cannot be started,
/// exits with an error or exceeds `limit`, or the run is cancelled.
pub fn run(
    mut c: Command,
    limit: Duration,
    cancel: &Cancel,
    started: impl FnOnce(u32),
) -> Result<Output, CommandError> {
    let program = shown(&c);
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut c, 0);
    let mut child = c.spawn().map_err(|source| CommandError::Start { program: program.clone(), source })?;
    started(child.id());
    let readers = (drain(child.stdout.take()), drain(child.stderr.take()));
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(s)) => break Ok(s),
            Ok(None) if cancel.load(Ordering::Relaxed) => break Err(CommandError::Cancelled),
            Ok(None) if Instant::now() >= end => break Err(CommandError::TooLong { program: program.clone(), limit }),
            Ok(None) => std::thread::sleep(LOOK),
            Err(source) => break Err(CommandError::Start { program: program.clone(), source }),
        }
    };
    if status.is_err() {
        // Kill the whole process group: children of the program would keep the pipes open. The group may have ended by
        // now.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
        let _ = child.kill();
        let _ = child.wait();
    }
    let out = Output { out: readers.0.join().unwrap_or_default(), err: readers.1.join().unwrap_or_default() };
    let status = status?;
    if status.success() {
        return Ok(out);
    }
    Err(CommandError::Failed { program, status, output: tail(&format!("{}{}", out.out, out.err)) })
}

fn drain(from: Option<impl io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut b = Vec::new();
        if let Some(mut f) = from {
            // After a read error the output so far is used.
            let _ = f.read_to_end(&mut b);
        }
        String::from_utf8_lossy(&b).into_owned()
    })
}

/// Sends a signal to a child process.
pub fn signal(pid: u32, name: &str) {
    // `kill` is the only way to send a signal without unsafe code. A process that has ended needs none.
    let _ = Command::new("kill").args([format!("-{name}"), pid.to_string()]).stderr(Stdio::null()).status();
}

/// Ends a program: SIGTERM, and SIGKILL after `grace`.
pub fn stop(child: &mut Child, grace: Duration) {
    signal(child.id(), "TERM");
    let end = Instant::now() + grace;
    while Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Searches the directories where Debian installs programs, below a root directory.
#[must_use]
pub fn find(root: &std::path::Path, program: &str) -> Option<PathBuf> {
    ["usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin"]
        .iter()
        .map(|d| std::path::Path::new("/").join(d).join(program))
        .find(|p| p.strip_prefix("/").is_ok_and(|r| root.join(r).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(text: &str) -> Command {
        let mut c = Command::new("sh");
        c.args(["-c", text]);
        c
    }

    #[test]
    fn output_status_and_time_limit_are_reported() {
        let no = Cancel::new(false);
        let long = Duration::from_secs(60);
        assert_eq!(run(sh("echo a; echo b >&2"), long, &no, |_| ()).unwrap().out, "a\n");
        let e = run(sh("echo why >&2; exit 3"), long, &no, |_| ()).unwrap_err().to_string();
        assert!(e.contains("exit status: 3") && e.ends_with("why"), "{e}");
        assert!(matches!(run(sh("sleep 60"), Duration::ZERO, &no, |_| ()), Err(CommandError::TooLong { .. })));
        assert!(matches!(run(sh("sleep 60"), long, &Cancel::new(true), |_| ()), Err(CommandError::Cancelled)));
        assert!(matches!(run(Command::new("/no/such"), long, &no, |_| ()), Err(CommandError::Start { .. })));
        assert_eq!(find(std::path::Path::new("/"), "no-such-program"), None);
    }
}
