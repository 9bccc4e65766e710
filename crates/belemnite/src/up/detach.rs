//! `up --detach`: the same command in the background.
//!
//! The process that the operator started runs a second one in a process group of its own, shows the output of its start,
//! and returns when the cluster is up, or after [`PATIENCE`] with the reasons why it is not. The output goes to
//! `log/up.log`.

use super::layout::Layout;
use super::{Error, PATIENCE, say};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// First words of the line that says that the cluster is up.
const UP: &str = "The cluster is up";
/// Pause between two looks at the output.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between a daemon's name and the reason of its end in a line of the output.
const ENDED: &str = " ended (";
/// Bytes of the output that are read at once.
const READ_MAX: u64 = 64 << 10;

/// Starts the second process and waits until it reports the cluster up.
///
/// # Errors
/// The process cannot be started, ends before that, or is not up in time; in the last case it goes on.
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
    let began = Instant::now();
    let mut reasons = Reasons::default();
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
                reasons.note(&line);
                line.clear();
            }
        }
        if let Some(status) = ended {
            return Err(format!("`up` ended ({status}); its output is in {}", path.display()).into());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!(
                "the cluster is not up after {PATIENCE:?}: {}. `up` goes on in the background (process {}), with its output \
                 in {}; `belemnite stop --data {}` stops it",
                reasons.text(),
                child.id(),
                path.display(),
                l.dir.display()
            )
            .into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The reason of each daemon's last end, by the output of `up`.
#[derive(Default)]
struct Reasons(BTreeMap<String, String>);

impl Reasons {
    /// Reads a line of the output.
    fn note(&mut self, line: &str) {
        if let Some((daemon, rest)) = line.split_once(ENDED) {
            let why = rest.rsplit_once("); starting it again").map_or(rest, |(why, _)| why);
            self.0.insert(daemon.to_owned(), why.to_owned());
        }
    }

    fn text(&self) -> String {
        if self.0.is_empty() {
            return "no daemon has ended, but not all serve".to_owned();
        }
        self.0.iter().map(|(d, why)| format!("{d} does not start ({why})")).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_the_last_ends() {
        let mut r = Reasons::default();
        assert_eq!(r.text(), "no daemon has ended, but not all serve");
        for line in [
            "starting the cluster in /d",
            "osd.1 ended (exit status: 1: other); starting it again",
            "osd.1 ended (exit status: 75: /d/osd.1/block: its file system has 0 bytes free (half)); starting it again in \
             500ms; its log is /d/log/osd.1.log",
        ] {
            r.note(line);
        }
        let text = "osd.1 does not start (exit status: 75: /d/osd.1/block: its file system has 0 bytes free (half))";
        assert_eq!(r.text(), text);
    }
}
