//! Programs that the laboratory starts: run to their end with a limit, or kept and stopped.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Set once the run is to end (Ctrl-C).
pub type Cancel = AtomicBool;

/// Why a program did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It failed.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// Its command line.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last it said.
        output: String,
    },
    /// It took too long.
    #[error("{program} did not end within {limit:?}")]
    TooLong {
        /// Its command line.
        program: String,
        /// Its limit.
        limit: Duration,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// What a program gave.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The command line, for messages.
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

/// Starts a program that is to end with this thread, whatever becomes of it.
pub fn start(program: &str, args: &[String], change: impl FnOnce(&mut Command)) -> Result<Child, CommandError> {
    let mut c = Command::new("setpriv");
    c.args(["--pdeathsig", "KILL", program]).args(args).stdin(Stdio::null());
    // A terminal's Ctrl-C is for the laboratory, which then stops what it started in order.
    std::os::unix::process::CommandExt::process_group(&mut c, 0);
    change(&mut c);
    c.spawn().map_err(|source| CommandError::Start { program: program.to_owned(), source })
}

/// Runs a program to its end. `started` learns its process id.
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
        // It leads a group: what it has started goes with it, and lets go of the pipes. It may have ended meanwhile.
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
            // What came before an error is what there is.
            let _ = f.read_to_end(&mut b);
        }
        String::from_utf8_lossy(&b).into_owned()
    })
}

/// Sends a signal to a process that this program started.
pub fn signal(pid: u32, name: &str) {
    // There is no other way to send one without unsafe code; a process that is gone needs none.
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

/// Finds a program in the places Debian puts them, in a root directory.
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
    fn programs_end_as_they_do() {
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
