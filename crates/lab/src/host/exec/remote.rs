//! Hosts over ssh: a shell on each, and daemons that end with their ssh connection.
//!
//! Invariant: when the connection ends, for whatever reason, everything that the laboratory started on a host ends, and
//! everything that it wrote is removed. The shell removes the directory at the end of its input. The shell around a
//! daemon ends the daemon in the same way.
//!
//! Tests: below.

use super::ExecError;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Word that ends the output of a command in a host's shell, followed by its exit status.
const MARK: &str = "belemnite-lab-end-of-output";
/// Lists TCP connections, one a line, with inode and bytes sent and received.
pub(super) const SS: &str = "ss -HtineO";
/// Longest output of a command in bytes.
const OUTPUT_MAX: usize = 16 << 20;

/// A host that ssh reaches.
#[derive(Debug)]
pub(super) struct Remote {
    /// Name, as given to ssh.
    pub(super) name: String,
    /// Directory of the cluster's files on the host.
    pub(super) dir: String,
    /// Address of the host, as the laboratory reaches it.
    pub(super) ip: String,
    /// Address of the laboratory, as the host sees it.
    pub(super) lab_ip: String,
    /// The ssh program and its arguments.
    ssh: Vec<String>,
    shell: Mutex<Shell>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// A process of this machine or of a host.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) pid: u32,
    pub(super) host: Option<std::sync::Arc<Remote>>,
}

impl At {
    /// Five texts about the process, empty once it has ended: `/proc/PID/stat`, `status`, `io`, the `stat` of each
    /// thread, and the list of open files. On another host the output of [`SS`] stands before that list.
    pub(super) fn look(&self) -> [String; 5] {
        let pid = self.pid;
        let Some(host) = &self.host else {
            let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let threads: String = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok()).collect();
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let open = open.filter_map(|f| std::fs::read_link(f.path()).ok());
            let open: Vec<String> = open.map(|f| f.display().to_string()).collect();
            return [read("stat"), read("status"), read("io"), threads, open.join("\n")];
        };
        let script = format!(
            "for f in stat status io; do cat /proc/{pid}/$f 2>/dev/null; echo =; done; cat /proc/{pid}/task/*/stat 2>/dev/null; \
             echo =; {SS} 2>/dev/null; readlink /proc/{pid}/fd/* 2>/dev/null; true"
        );
        // A host that does not answer shows no process.
        let out = host.run(&script).unwrap_or_default();
        let mut parts = out.splitn(5, "=\n").map(str::to_owned);
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// Sends a signal.
    pub(super) fn signal(&self, name: &str) {
        match &self.host {
            None => crate::host::command::signal(self.pid, name),
            // A process that has ended needs no signal.
            Some(h) => drop(h.run(&format!("kill -{name} {} 2>/dev/null; true", self.pid))),
        }
    }
}

/// A word quoted for a shell.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn words(all: &[String]) -> String {
    all.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ")
}

fn failed(name: &str, what: impl std::fmt::Display) -> ExecError {
    ExecError::Plan(format!("host {name}: {what}"))
}

impl Remote {
    /// Connects to a host and makes `dir` on it. `ssh` is the program with its arguments, separated by spaces.
    pub(super) fn connect(ssh: &str, name: &str, dir: &str) -> Result<Self, ExecError> {
        let ssh: Vec<String> = ssh.split_whitespace().map(str::to_owned).collect();
        let mut child = Self::command(&ssh, name, "exec sh -s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(name, format!("ssh: {e}")))?;
        let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let Some(output) = output else { return Err(failed(name, "no output")) };
        let shell = Mutex::new(Shell { child, input, output: BufReader::new(output) });
        let mut me =
            Self { name: name.to_owned(), dir: dir.to_owned(), ip: String::new(), lab_ip: String::new(), ssh, shell };
        let d = quote(dir);
        // The directory must be new: another laboratory's files are not touched.
        let begin = format!(
            "umask 077; mkdir {d} && cd {d} && mkdir run log && : >pids && \
             trap 'kill -KILL $(cat {d}/pids) 2>/dev/null; rm -rf {d}' EXIT; echo \"$SSH_CONNECTION\""
        );
        let out = me.run(&begin).map_err(|e| {
            let mut why = String::new();
            if let Some(mut f) = error {
                // ssh has ended by then, and has printed why it could not connect.
                let _ = std::io::Read::read_to_string(&mut f, &mut why);
            }
            let why = why.trim().replace('\n', "; ");
            if why.is_empty() { e } else { failed(name, why) }
        })?;
        let addresses: Vec<&str> = out.split_whitespace().collect();
        let [lab, _, host, _] = addresses.as_slice() else {
            return Err(failed(name, format!("SSH_CONNECTION is {:?}", out.trim())));
        };
        (me.ip, me.lab_ip) = ((*host).to_owned(), (*lab).to_owned());
        Ok(me)
    }

    fn command(ssh: &[String], name: &str, line: &str) -> Command {
        let mut c = Command::new("setpriv");
        // The connection ends with the laboratory, and everything on the host with the connection.
        c.args(["--pdeathsig", "KILL"]).args(ssh).arg(name).arg(line);
        std::os::unix::process::CommandExt::process_group(&mut c, 0);
        c
    }

    /// Runs a script in the host's shell; returns its output. An exit status other than 0 is an error.
    pub(super) fn run(&self, script: &str) -> Result<String, ExecError> {
        // If a thread panicked while it used the shell, the shell may be in the middle of an output; the next command
        // then fails.
        let mut s = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = |e: std::io::Error| failed(&self.name, e);
        let input = s.input.as_mut().ok_or_else(|| failed(&self.name, "closed"))?;
        input.write_all(format!("{{ {script}\n}} 2>&1; echo {MARK} $?\n").as_bytes()).map_err(bad)?;
        input.flush().map_err(bad)?;
        let mut out = String::new();
        loop {
            let before = out.len();
            if s.output.read_line(&mut out).map_err(bad)? == 0 {
                return Err(failed(&self.name, format!("the connection ended: {}", out.trim())));
            }
            let line = out.get(before..).unwrap_or_default();
            // Output without a line end stands before the mark.
            if let Some(at) = line.find(MARK) {
                let status = line.get(at + MARK.len()..).unwrap_or_default().trim() == "0";
                out.truncate(before + at);
                return if status { Ok(out) } else { Err(failed(&self.name, out.trim())) };
            }
            if out.len() > OUTPUT_MAX {
                return Err(failed(&self.name, "too much output"));
            }
        }
    }

    /// Writes a file that only its owner can read. No line of the text may equal [`MARK`].
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), ExecError> {
        let path = quote(&format!("{}/{name}", self.dir));
        self.run(&format!("cat >{path} <<'{MARK}'\n{}\n{MARK}", text.trim_end())).map(|_| ())
    }

    /// Copies a program into the directory.
    pub(super) fn copy(&self, from: &Path, name: &str) -> Result<String, ExecError> {
        let path = format!("{}/{name}", self.dir);
        let file = std::fs::File::open(from).map_err(|source| ExecError::Io { path: from.to_owned(), source })?;
        let line = format!("cat >{0} && chmod 700 {0}", quote(&path));
        let out = Self::command(&self.ssh, &self.name, &line).stdin(Stdio::from(file)).output();
        let out = out.map_err(|e| failed(&self.name, format!("ssh: {e}")))?;
        if out.status.success() {
            return Ok(path);
        }
        Err(failed(&self.name, String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// Runs a program to its end.
    pub(super) fn call(&self, program: &[String]) -> Result<String, ExecError> {
        self.run(&format!("{} </dev/null", words(program)))
    }

    /// The ssh command that runs a daemon as long as the connection lasts. It first prints `pid` and the process id.
    pub(super) fn daemon(&self, program: &[String]) -> (String, Vec<String>) {
        let script = format!(
            "exec 3<&0; cd {}; {} </dev/null 3<&- & p=$!; echo $p >>pids; echo pid $p; \
             (cat <&3; kill -TERM $p) >/dev/null 2>&1 & wait $p",
            quote(&self.dir),
            words(program)
        );
        let mut ssh = self.ssh.clone();
        ssh.extend([self.name.clone(), script]);
        let first = if ssh.is_empty() { String::new() } else { ssh.remove(0) };
        (first, ssh)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let s = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        // At the end of its input the shell removes the directory and ends.
        s.input = None;
        let _ = s.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// `ssh` of these tests: runs the line in a shell of this machine.
    fn host(name: &str) -> (Remote, String) {
        let dir = std::env::temp_dir().join(format!("belemnite-remote-{name}-{}", std::process::id()));
        let dir = dir.display().to_string();
        let ssh = std::env::temp_dir().join(format!("belemnite-ssh-{name}-{}", std::process::id()));
        let text = "shift; SSH_CONNECTION='127.0.0.1 1 127.0.0.2 22'; export SSH_CONNECTION; exec sh -c \"$1\"\n";
        std::fs::write(&ssh, text).unwrap();
        let r = Remote::connect(&format!("sh {}", ssh.display()), "h", &dir).unwrap();
        std::fs::remove_file(&ssh).unwrap();
        (r, dir)
    }

    #[test]
    fn scripts_run_and_the_directory_goes_with_the_connection() {
        let (r, dir) = host("scripts");
        assert_eq!((r.ip.as_str(), r.lab_ip.as_str()), ("127.0.0.2", "127.0.0.1"));
        assert_eq!(r.run("printf abc").unwrap(), "abc");
        assert!(r.run("echo why; false").unwrap_err().to_string().contains("host h: why"));
        assert_eq!(r.call(&["echo".into(), "it's".into(), "$HOME".into()]).unwrap(), "it's $HOME\n");
        r.write("file", "a\n'b' $c\n").unwrap();
        assert_eq!(std::fs::read_to_string(format!("{dir}/file")).unwrap(), "a\n'b' $c\n");
        drop(r);
        assert!(!Path::new(&dir).exists());
    }

    #[test]
    fn a_daemon_ends_with_its_connection() {
        let (r, _) = host("daemon");
        let r = Arc::new(r);
        let (_, line) = r.daemon(&["sleep".into(), "600".into()]);
        let mut c = Command::new("sh");
        c.args(["-c", line.last().unwrap()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = c.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let pid = first.trim().strip_prefix("pid ").unwrap().parse().unwrap();
        let remote = At { pid, host: Some(r) };
        let [stat, status, _, threads, _] = remote.look();
        assert!(stat.starts_with(&format!("{pid} ")) && status.contains("VmRSS:"), "{stat} {status}");
        assert_eq!(threads.lines().count(), 1);
        assert_eq!(At { pid, host: None }.look()[0].split(' ').next(), Some(pid.to_string().as_str()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(remote.look()[0], "");
    }
}
