//! Scripts on hosts: by the system's ssh with one connection for each host, or here, if the host is this machine.
//!
//! A script comes on standard input, so keys are in no list of arguments.

use super::Error;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Longest output that is read.
const OUTPUT_MAX: u64 = 4 << 20;
/// Longest part of an error's text that is shown.
const SHOWN_MAX: usize = 600;

/// How a host is reached.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) address: IpAddr,
    pub(super) user: String,
}

/// Connections to hosts.
pub(super) struct Ssh {
    settings: deploy::inventory::Ssh,
    /// Directory of the sockets of shared connections, open to this account only.
    sockets: PathBuf,
}

impl Drop for Ssh {
    fn drop(&mut self) {
        for e in std::fs::read_dir(&self.sockets).into_iter().flatten().flatten() {
            let mut c = std::process::Command::new("ssh");
            c.args(["-O", "exit", "-o", &format!("ControlPath={}", e.path().display()), "belemnite"]);
            // A connection that is not ended ends by itself.
            let _ = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let _ = std::fs::remove_dir_all(&self.sockets);
    }
}

/// True if an address is one of this machine.
fn is_here(a: IpAddr) -> bool {
    UdpSocket::bind((a, 0)).is_ok()
}

/// The end of a text, in one line.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let all = lines[lines.len().saturating_sub(4)..].join("; ");
    let from = all.char_indices().rev().take(SHOWN_MAX).last().map_or(0, |(i, _)| i);
    all[from..].chars().filter(|c| !c.is_control()).collect()
}

/// Input of a command on a host.
pub(super) enum Input<'a> {
    Text(&'a str),
    File(&'a Path),
}

impl Ssh {
    /// # Errors
    /// The directory of the sockets cannot be made.
    pub(super) fn new(settings: deploy::inventory::Ssh) -> Result<Self, Error> {
        let unique = crate::admin::new_uuid()?.to_string();
        // A socket's path has at most 100 bytes.
        let sockets = std::env::temp_dir().join(format!("belemnite-{}", &unique[..8]));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&sockets);
        made.map_err(|e| format!("{}: {e}", sockets.display()))?;
        Ok(Self { settings, sockets })
    }

    /// Most hosts that are worked on at a time.
    pub(super) fn parallel(&self) -> usize {
        self.settings.parallel
    }

    /// The host with an address, by the account of all hosts if it has none of its own.
    pub(super) fn host(&self, address: IpAddr, user: Option<&String>) -> Host {
        Host { address, user: user.unwrap_or(&self.settings.user).clone() }
    }

    /// A command that reads its input on a host, as root.
    fn command(&self, h: &Host, words: &str) -> Command {
        if is_here(h.address) {
            let mut c = Command::new("sh");
            c.args(["-c", &format!("if [ \"$(id -u)\" = 0 ]; then exec {words}; else exec sudo -n {words}; fi")]);
            return c;
        }
        let mut c = Command::new("ssh");
        for o in ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=6"] {
            c.args(["-o", o]);
        }
        let socket = self.sockets.join("%C");
        c.args(["-o", "ControlMaster=auto", "-o", "ControlPersist=60"]);
        c.args(["-o", &format!("ControlPath={}", socket.display())]).args(&self.settings.options);
        let words = if h.user == "root" { words.to_owned() } else { format!("sudo -n {words}") };
        c.args(["-l", &h.user, &h.address.to_string(), &words]);
        c
    }

    /// Runs a command with an input; returns its output.
    ///
    /// # Errors
    /// The host does not answer, the command fails, or it takes longer than `limit`. The text has the end of its output.
    async fn run(&self, h: &Host, words: &str, input: Input<'_>, limit: Duration) -> Result<String, Error> {
        let mut c = self.command(h, words);
        c.stdin(match &input {
            Input::Text(_) => Stdio::piped(),
            Input::File(f) => std::fs::File::open(f).map_err(|e| format!("{}: {e}", f.display()))?.into(),
        });
        let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let write = async {
            if let (Some(mut s), Input::Text(t)) = (stdin, &input) {
                // A command that ends early says why in its output.
                let _ = s.write_all(t.as_bytes()).await;
            }
        };
        let read_out = async {
            if let Some(s) = stdout {
                let _ = s.take(OUTPUT_MAX).read_to_end(&mut out).await;
            }
        };
        let read_err = async {
            if let Some(s) = stderr {
                let _ = s.take(OUTPUT_MAX).read_to_end(&mut err).await;
            }
        };
        let all = async {
            tokio::join!(write, read_out, read_err);
            child.wait().await
        };
        let status = tokio::time::timeout(limit, all).await;
        let status = status.map_err(|_| format!("no end after {} s", limit.as_secs()))??;
        let (out, err) = (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned());
        if status.success() {
            return Ok(out);
        }
        let why = tail(if err.trim().is_empty() { &out } else { &err });
        Err(if why.is_empty() { status.to_string() } else { why }.into())
    }

    /// Runs a script for `sh` with arguments, which have no blanks.
    ///
    /// # Errors
    /// As the script's.
    pub(super) async fn script(&self, h: &Host, text: &str, args: &[String], limit: Duration) -> Result<String, Error> {
        let words = format!("sh -s -- {}", args.join(" "));
        self.run(h, words.trim(), Input::Text(text), limit).await
    }

    /// Copies a file to a path without blanks.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) async fn copy(&self, h: &Host, from: &Path, to: &str, limit: Duration) -> Result<(), Error> {
        let words = format!("sh -c 'umask 077; cat >{to}'");
        self.run(h, &words, Input::File(from), limit).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_the_end_of_the_output() {
        assert_eq!(tail("a\n\n b\nc\nd\ne\u{7}\n"), "b; c; d; e");
        assert_eq!(tail(&"é".repeat(2000)).chars().count(), SHOWN_MAX);
        assert_eq!(tail(""), "");
    }

    #[test]
    fn this_machine_needs_no_ssh() {
        assert!(is_here("127.0.0.1".parse().unwrap()));
        assert!(!is_here("192.0.2.1".parse().unwrap()));
    }
}
