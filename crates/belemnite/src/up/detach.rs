//! `up --detach`: the same command in the background.
//!
//! The process that the operator started runs a second one in a process group of its own, shows the output of its start,
//! and returns when the cluster is up. The output goes to `log/up.log`.

use super::layout::Layout;
use super::{Error, say};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// First words of the line that says that the cluster is up.
const UP: &str = "The cluster is up";
/// Pause between two looks at the output.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of the output that are read at once.
const READ_MAX: u64 = 64 << 10;

/// Starts the second process and waits until it reports the cluster up.
///
/// # Errors
/// The process cannot be started, or ends before that.
pub(super) fn run(l: &Layout) -> Result<(), Error> {
    let path = l.log().join("up.log");
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(l.log()).map_err(at)?;
    let out = File::options().create(true).append(true).open(&path).map_err(at)?;
    let mut seen = out.metadata().map_err(at)?.len();
    let args = std::env::args_os().skip(1).filter(|a| a != "--detach");
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        // The terminal's signals are not for a process in the background.
        .process_group(0)
        .spawn()?;
    let mut input = File::open(&path).map_err(at)?;
    let mut line = String::new();
    loop {
        let ended = child.try_wait()?;
        loop {
            let mut part = Vec::new();
            input.seek(SeekFrom::Start(seen)).map_err(at)?;
            seen += input.by_ref().take(READ_MAX).read_to_end(&mut part).map_err(at)? as u64;
            if part.is_empty() {
                break;
            }
            for c in String::from_utf8_lossy(&part).chars() {
                if c != '\n' {
                    line.push(c);
                    continue;
                }
                if line.starts_with(UP) {
                    say(format_args!(
                        "The cluster is up, in the background (process {}). Its output goes to {}.\n`belemnite stop --data \
                         {}` stops it",
                        child.id(),
                        path.display(),
                        l.dir.display()
                    ));
                    return Ok(());
                }
                say(&line);
                line.clear();
            }
        }
        if let Some(status) = ended {
            return Err(format!("`up` ended ({status}); its output is in {}", path.display()).into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
