//! Runs a program beside the reactors, with bounded output and time.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most programs whose output is read. One that was ended may leave others behind that hold its output open.
const READERS_MAX: usize = 8;
/// Programs whose output is read.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// Interval at which the end of the program is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// Directories for system programs that a daemon's `PATH` may lack.
const SYSTEM: &str = "/usr/sbin:/sbin";

/// The output of a program and its status; without a status it was ended. Error: it could not be started.
pub(super) fn run(
    program: &Path,
    args: &[&str],
    output_max: u64,
    limit: Duration,
) -> std::io::Result<(Vec<u8>, Option<ExitStatus>)> {
    if READERS.load(Ordering::Relaxed) >= READERS_MAX {
        return Err(std::io::Error::other("programs that were started before have not ended"));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:{SYSTEM}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let out = child.stdout.take();
    let (tx, rx) = std::sync::mpsc::channel();
    READERS.fetch_add(1, Ordering::Relaxed);
    let reader = std::thread::Builder::new().name("child".into()).spawn(move || {
        let mut text = Vec::new();
        let read = out.map(|o| o.take(output_max).read_to_end(&mut text));
        // Nobody waits any more if the program took too long.
        let _ = tx.send(if matches!(read, Some(Ok(_))) { text } else { Vec::new() });
        READERS.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(e) = reader {
        READERS.fetch_sub(1, Ordering::Relaxed);
        end_of(&mut child);
        return Err(e);
    }
    let end = Instant::now() + limit;
    let text = rx.recv_timeout(limit).ok();
    let status = if text.is_some() { wait(&mut child, end) } else { None };
    if status.is_none() {
        end_of(&mut child);
    }
    Ok((text.unwrap_or_default(), status))
}

/// The status of a program that ends in time.
fn wait(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(s)) => return Some(s),
            Ok(None) if Instant::now() < end => std::thread::sleep(LOOK),
            _ => return None,
        }
    }
}

fn end_of(child: &mut Child) {
    if let Err(e) = child.kill().and_then(|()| child.wait()) {
        tracing::warn!("a program cannot be ended: {e}");
    }
}
